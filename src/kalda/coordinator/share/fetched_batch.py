"""Defines what a fetch knows of a batch in the log: its offsets, and the times and keys of its records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

_NO_KEYS: Final[Mapping[int, int]] = {}


class FetchedBatch(NamedTuple):
    """The offsets of a batch in the log; `is_skipped` if its records are not for consumers.

    That is so for control batches, for batches without records and, for a group that reads committed records,
    for aborted ones.
    """

    first: int
    last: int
    is_skipped: bool = False
    due_ms: int = 0
    """Before it no record of the batch is acquired."""
    late: Sequence[tuple[int, int]] = ()
    """Offsets in order that are not acquired before a time, which is later than now, each with its time."""
    keys: Mapping[int, int] = _NO_KEYS
    """The keys by offset, or hashes of them, where records have one and their order counts."""


def pieces(
    first: int, last: int, late: Sequence[tuple[int, int]], keys: Mapping[int, int]
) -> Iterator[tuple[int, int]]:
    """Cut offsets where one waits or has a key; yield the last of each piece, and until when it waits or 0.

    0 to 9, with 4 and 5 late until 70, gives (3, 0), (4, 70), (5, 70) and (9, 0).
    """
    waits = dict(late)
    for offset in sorted(keys.keys() | waits.keys()) if keys else waits:
        if not first <= offset <= last:
            continue
        if offset > first:
            yield offset - 1, 0
        yield offset, waits.get(offset, 0)
        first = offset + 1
    if first <= last:
        yield last, 0
