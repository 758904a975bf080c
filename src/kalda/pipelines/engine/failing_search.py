"""Finds the records of a batch for which a step of Spark's SQL fails, with few trials.

A trial evaluates the steps for a range of offsets and says why they fail, which is a job of Spark. Few
failing records are found by halves, some twenty trials for each. Where about everything fails, a sample shows
it after as many trials as it takes to be sure that the breaker opens.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

FAILING_MAX: Final = 100
"""So many records of a batch may fail in a step: each takes some twenty jobs of Spark to be found."""
SAMPLES_MIN: Final = 8
SAMPLES_MAX: Final = 32
"""Bounds of the trials of single records; a breaker that would need more of them has no sample."""
_CHANCE: Final = 1e-9
"""The chance at which as many failures as a sample has would come from a batch that the breaker lets pass."""
_STREAK: Final = 8
"""After so many failing records in a row, their neighbours are tried one by one and no more by halves."""
_NEIGHBOURS_MAX: Final = 64

Try = Callable[[int, int, int], str | None]
"""Returns why the steps fail for the offsets of a part from one to another; None if they do not."""


class TooManyFailingError(Exception):
    """More records fail than are looked for.

    Attributes:
        found: The number of records that were found to fail.
        tried: Of how many, where the records were a sample; None where others may not fail.
        part: The number of the range of one of them.
        offset: Its offset.
        reason: Why it fails.
    """

    def __init__(self, found: int, tried: int | None, part: int, offset: int, reason: str) -> None:
        super().__init__(f"{found} records fail, such as offset {offset} of range {part}: {reason}")
        self.found = found
        self.tried = tried
        self.part = part
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Part:
    """A range of offsets of a batch."""

    number: int
    start: int
    end: int
    is_counted: bool = True
    """Whether the breaker counts its records; it does not count those that are replayed."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The share of failing records with which a batch is not written."""

    bad_max: float
    records: int
    """The records of the batch that count."""

    @property
    def failing_max(self) -> int:
        """The largest number of failing records with which the batch is written."""
        return int(self.records * self.bad_max)

    @property
    def samples(self) -> int | None:
        """How many records that all fail show that the share is larger; None for too many."""
        if self.bad_max >= 1:
            return None
        needed = math.ceil(math.log(_CHANCE) / math.log(max(self.bad_max, 1e-9)))
        return max(needed, SAMPLES_MIN) if needed <= SAMPLES_MAX else None


@dataclass(slots=True)
class _Search:
    parts: Sequence[Part]
    attempt: Try
    breaker: Breaker | None
    found: dict[int, dict[int, str]] = field(default_factory=dict)
    count: int = 0
    counted: int = 0
    streak: int = 0

    def run(self) -> dict[int, dict[int, str]]:
        if self.breaker is not None:
            self._sample(self.breaker)
        waiting = [(each, each.start, each.end) for each in self.parts if each.end > each.start]
        while waiting:
            part, start, end = waiting.pop()
            reason = self.attempt(part.number, start, end)
            if reason is None:
                self.streak = 0
            elif end - start > 1:
                are_all = self.streak >= _STREAK and end - start <= _NEIGHBOURS_MAX
                bounds = range(start, end + 1) if are_all else (start, (start + end) // 2, end)
                waiting += [(part, *pair) for pair in itertools.pairwise(bounds)][::-1]
            else:
                self._note(part, start, reason)
        return self.found

    def _note(self, part: Part, offset: int, reason: str) -> None:
        self.streak += 1
        self.count += 1
        self.counted += part.is_counted
        self.found.setdefault(part.number, {})[offset] = reason
        is_open = self.breaker is not None and self.counted > self.breaker.failing_max
        if is_open or self.count > FAILING_MAX:
            raise TooManyFailingError(self.count, None, part.number, offset, reason)

    def _sample(self, breaker: Breaker) -> None:
        """Try single records all over the batch; go on at the first one that does not fail."""
        counted = [each for each in self.parts if each.is_counted and each.end > each.start]
        offsets = sum(each.end - each.start for each in counted)
        wanted = breaker.samples
        if wanted is None or offsets < 2 * wanted:
            return
        example: tuple[int, int, str] | None = None
        for index in range(wanted):
            place = (2 * index + 1) * offsets // (2 * wanted)
            for part in counted:
                if place < part.end - part.start:
                    break
                place -= part.end - part.start
            offset = part.start + place
            reason = self.attempt(part.number, offset, offset + 1)
            if reason is None:
                return
            example = example or (part.number, offset, reason)
        assert example is not None, "a sample has records"
        raise TooManyFailingError(wanted, wanted, *example)


def find_failing(parts: Sequence[Part], attempt: Try, breaker: Breaker | None) -> dict[int, dict[int, str]]:
    """Return why the steps fail for single records: by the number of the part and the offset.

    Args:
        parts: The ranges of the batch.
        attempt: Tries a part of a range.
        breaker: None where the batch is written whatever the share of failing records is.

    Raises:
        TooManyFailingError: More than `FAILING_MAX` fail, or the breaker opens.
    """
    return _Search(parts, attempt, breaker).run()
