"""Requests that name very many things, handled a few at a time so that others get their turn.

One frame may name a million groups. Their handling is no use to anybody in one piece: it would hold the event
loop for seconds. Not here: the decoding of the request and the encoding of the response, which are one piece.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kalda.common.pending import Pending

T = TypeVar("T")
R = TypeVar("R")

SLICE: Final = 50
"""Things handled in one turn of the loop: groups cost 10 to 80 microseconds each."""


async def in_slices(
    items: Sequence[T], handle: Callable[[Sequence[T]], Pending[list[R]] | list[R]]
) -> list[R]:
    """Return what `handle` makes of all items, in their order; it gets a slice of them at a time.

    A slice that waits for others, as for replicas of a write, is waited for before the next.
    """
    found: list[R] = []
    for start in range(0, len(items), SLICE):
        part = handle(items[start : start + SLICE])
        found += part if isinstance(part, list) else await _value_of(part)
        await asyncio.sleep(0)
    return found


async def _value_of(pending: Pending[list[R]]) -> list[R]:
    if not pending.is_done:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending.add_done(lambda _: None if done.done() else done.set_result(None))
        try:
            await done
        except asyncio.CancelledError:
            pending.abandon()
            raise
    return pending.value
