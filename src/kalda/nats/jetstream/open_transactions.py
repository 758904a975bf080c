"""Defines which sequences of a stream belong to transactions of Kafka's clients: `OpenTransactions`."""

from array import array
from collections.abc import Iterator
from typing import Final


class OpenTransactions:
    """The sequences of records whose transactions have not ended, by producer id."""

    def __init__(self) -> None:
        self._ranges: Final[dict[int, array[int]]] = {}
        """The first and the last sequence of each range, in order; producers in the order of their first."""

    @property
    def first(self) -> int | None:
        """The first sequence of all; None if no transaction is open."""
        for ends in self._ranges.values():
            return ends[0]
        return None

    def add(self, producer_id: int, first: int, last: int) -> None:
        """Add the records of one batch."""
        ends = self._ranges.setdefault(producer_id, array("q"))
        if ends and ends[-1] == first - 1:
            ends[-1] = last
        else:
            ends.extend((first, last))

    def ranges(self, producer_id: int) -> Iterator[tuple[int, int]]:
        """Return the first and the last sequences of a producer's open transaction."""
        ends = self._ranges.get(producer_id, array("q"))
        return ((ends[at], ends[at + 1]) for at in range(0, len(ends), 2))

    def end(self, producer_id: int) -> None:
        """Forget the open transaction of a producer, if it has one."""
        self._ranges.pop(producer_id, None)
