"""Runs a module's tests once with the compiled record columns and once with numpy's."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kalda.records import implementation

needs_compiled = pytest.mark.skipif(
    not implementation.is_built,
    reason="kalda.records._columns is not built; `make install` builds it where a C compiler exists",
)


@contextmanager
def using(name: str) -> Iterator[None]:
    """Decode and encode with one implementation, "compiled" or "numpy"."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(implementation, "_is_used", name == "compiled")
        yield


# A module's fixture: hypothesis refuses one that each example would need again.
@pytest.fixture(scope="module", params=[pytest.param("compiled", marks=needs_compiled), "numpy"])
def record_implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the module's tests with each implementation."""
    with using(request.param):
        yield request.param


@pytest.fixture(scope="module")
def numpy_records() -> Iterator[None]:
    """Run the module's tests with numpy alone."""
    with using("numpy"):
        yield
