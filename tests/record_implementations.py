"""Runs a module's tests once with the compiled record formats and once with numpy and plain Python."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kalda.records import implementation, record

if implementation.is_built:
    from kalda.records import _records

needs_compiled = pytest.mark.skipif(
    not implementation.is_built,
    reason="kalda.records._records is not built; `make install` builds it where a C compiler exists",
)


@contextmanager
def using(name: str) -> Iterator[None]:
    """Decode and encode with one implementation, "compiled" or "numpy"."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(implementation, "_is_used", name == "compiled")
        append = _records.append_record if name == "compiled" else record._append_in_python
        patch.setattr(record, "_append_record", append)
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
