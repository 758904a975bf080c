"""Long work as a generator of its steps, without an event loop; `kalda.common.turns` does them in turns."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work in steps; what it returns is its result."""


def result_of(steps: Steps[T]) -> T:
    """Do all steps at once and return the result; for work that is known to be short.

    Raises:
        Exception: what a step raises.
    """
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
