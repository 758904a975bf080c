"""One answer out of many that arrive at their own pace."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from kalda.common.pending import Pending

__all__ = ["gather"]

T = TypeVar("T")
R = TypeVar("R")


def gather(parts: Sequence[Pending[T]], combine: Callable[[list[Pending[T]]], R]) -> Pending[R]:
    """Complete with what `combine` makes of the parts, failed ones included, once the last is done."""
    whole: Pending[R] = Pending()
    missing = len(parts)
    if not missing:
        whole.complete(combine([]))

    def on_part(_: Pending[T]) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            whole.complete(combine(list(parts)))

    for part in parts:
        part.add_done(on_part)
    return whole
