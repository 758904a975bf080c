"""Indexes a stream: subject, size and time of each sequence, and the last sequence of each subject.

It takes 16 bytes for each sequence from the first message on, and some 250 bytes for each subject with its
name. Messages are removed in any order; what is before the first one that is left is forgotten.
"""

import re
from array import array
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Final

from kalda.common.steps import Steps
from kalda.nats.jetstream.patterns import Pattern

MESSAGES_MAX: Final = 16 * 1024 * 1024
"""Sequences between the first and the last message: 256 MiB of memory."""

SUBJECTS_MAX: Final = 1_000_000
"""Subjects of one stream that have messages."""

SUBJECT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of the names of these subjects."""

_NONE: Final = -1
_ENTRIES_PER_STEP: Final = 64
"""Subjects that one step compares with the patterns of a filter."""

REMEMBERED_MAX: Final = 8192
"""Subjects of which a filter remembers whether it includes them, a power of two; 9 bytes each, and a stream
has up to a thousand filters."""

_SORTED_AT_ONCE: Final = 4096
_REMOVED_PER_STEP: Final = 256
_SCANNED_PER_STEP: Final = 1024
"""Sequences that one step looks at for the last message of subjects."""

_BLOCK_BITS: Final = 12
"""A block has 4096 sequences; the messages of each are counted, so that empty blocks are passed at once."""

_TRIM_AT: Final = 4096
"""Sequences without messages at the front before their memory is given back."""


class SubjectEntry:
    """A subject of a stream."""

    __slots__ = ("count", "first", "is_last_removed", "kept", "last", "name", "number")

    def __init__(self, name: bytes, number: int, first: int) -> None:
        self.name: Final = name
        self.number: Final = number
        self.first = first
        """The sequence of its first message, or an earlier one."""
        self.count = 0
        self.last = 0
        """The sequence of its last message, or a later one if that was removed."""
        self.is_last_removed = False
        """Whether the last message is to be looked for, by `settle_lasts`."""
        self.kept: deque[int] | None = None
        """The sequences of its messages in order, where the stream limits their number; some between the
        first and the last may be removed."""


_NAME: Final = attrgetter("name")


class StreamIndex:
    """The messages of one stream."""

    def __init__(self, first_sequence: int = 1, messages_per_subject_max: int = -1) -> None:
        self._per_subject: Final = messages_per_subject_max
        self._numbers: array[int] = array("i")
        self._sizes: array[int] = array("I")
        self._times: array[int] = array("q")
        self._base = first_sequence
        """The sequence of the first entry of the arrays."""
        self.first = first_sequence
        """The sequence of the first message; without one, the next sequence."""
        self.next = first_sequence
        """The sequence after the last one, which may be removed."""
        self.last_time_ms: int | None = None
        self.count = 0
        self.bytes = 0
        self.subjects: Final[dict[bytes, SubjectEntry]] = {}
        self.subject_bytes = 0
        """Of the names of the subjects."""
        self._counts: Final[dict[int, int]] = {}
        """The numbers of messages of the blocks that have any."""
        self._by_number: Final[list[SubjectEntry | None]] = []
        self._free_numbers: Final[list[int]] = []

    @property
    def numbers_used(self) -> int:
        """How many numbers subjects have had, those that are free now included."""
        return len(self._by_number)

    @property
    def span(self) -> int:
        """How many sequences there are from the first message on."""
        return self.next - self.first

    def has_room(self, subject: bytes = b"") -> bool:
        """Return whether a message of a subject can be added, a new one if none is given."""
        return self.span < MESSAGES_MAX and (
            subject in self.subjects
            or (len(self.subjects) < SUBJECTS_MAX and self.subject_bytes + len(subject) <= SUBJECT_BYTES_MAX)
        )

    def subject_of(self, number: int) -> bytes | None:
        """Return the subject of a number, None if no subject has it now."""
        entry = self._by_number[number]
        return None if entry is None else entry.name

    def number_at(self, sequence: int) -> int:
        """Return the number of a message's subject, -1 if there is no message."""
        if not self._base <= sequence < self.next:
            return _NONE
        return self._numbers[sequence - self._base]

    def has(self, sequence: int) -> bool:
        """Return whether the stream has a message with a sequence."""
        return self.number_at(sequence) >= 0

    def size_at(self, sequence: int) -> int:
        """Return the size of a message that there is."""
        return self._sizes[sequence - self._base]

    def time_at(self, sequence: int) -> int:
        """Return the time of a sequence from `first` on, in milliseconds."""
        return self._times[sequence - self._base]

    # Changes.

    def skip_to(self, sequence: int) -> None:
        """Continue at `sequence`; the sequences skipped have no message."""
        gap = sequence - self.next
        if gap <= 0:
            return
        if not self.count:
            self._restart_at(sequence)
            return
        time_ms = self._times[-1] if self._times else 0
        self._numbers.extend(array("i", [_NONE]) * gap)
        self._sizes.extend(array("I", [0]) * gap)
        self._times.extend(array("q", [time_ms]) * gap)
        self.next = sequence

    def append(self, sequence: int, subject: bytes, size: int, time_ms: int) -> Iterable[int]:
        """Add a message at or after the next sequence; return those that its subject has too many of."""
        self.skip_to(sequence)
        if not self.count:
            self._restart_at(sequence)
        entry = self.subjects.get(subject)
        if entry is None:
            entry = self._new_entry(subject, sequence)
        self._numbers.append(entry.number)
        self._sizes.append(size)
        self._times.append(time_ms)
        self.next = sequence + 1
        self.last_time_ms = time_ms
        self._count(sequence, size)
        before = entry.last
        entry.count += 1
        entry.last = sequence
        entry.is_last_removed = False
        if self._per_subject <= 0:
            return ()
        if self._per_subject == 1:
            return (before,) if entry.count > 1 else ()
        if entry.kept is None:
            entry.kept = deque()
        entry.kept.append(sequence)
        return self._excess(entry, entry.kept)

    def insert(self, sequence: int, subject: bytes, size: int, time_ms: int) -> Iterable[int]:
        """Add a message before the next sequence, where there is none; return as `append`."""
        assert sequence < self.next, f"sequence {sequence} is appended"
        assert not self.has(sequence), f"sequence {sequence} has a message"
        gap = self._base - sequence
        if gap > 0:
            self._numbers = array("i", [_NONE]) * gap + self._numbers
            self._sizes = array("I", [0]) * gap + self._sizes
            self._times = array("q", [time_ms]) * gap + self._times
            self._base = sequence
        entry = self.subjects.get(subject)
        if entry is None:
            entry = self._new_entry(subject, sequence)
        at = sequence - self._base
        self._numbers[at], self._sizes[at], self._times[at] = entry.number, size, time_ms
        self.first = min(self.first, sequence)
        self._count(sequence, size)
        before = entry.last
        entry.count += 1
        entry.first = min(entry.first, sequence)
        if sequence > before:
            entry.last, entry.is_last_removed = sequence, False
        if self._per_subject <= 0:
            return ()
        if self._per_subject == 1:
            return (min(before, sequence),) if entry.count > 1 else ()
        if entry.kept is None:
            entry.kept = deque()
        insort(entry.kept, sequence)
        return self._excess(entry, entry.kept)

    def _count(self, sequence: int, size: int) -> None:
        self.count += 1
        self.bytes += size
        block = sequence >> _BLOCK_BITS
        self._counts[block] = self._counts.get(block, 0) + 1

    def _excess(self, entry: SubjectEntry, kept: Iterable[int]) -> list[int]:
        """Return the first messages of a subject that has too many."""
        excess = entry.count - self._per_subject
        return list(islice(filter(self.has, kept), excess)) if excess > 0 else []

    def remove(self, sequence: int) -> bool:
        """Remove a message; return whether there was one."""
        number = self.number_at(sequence)
        if number < 0:
            return False
        at = sequence - self._base
        size = self._sizes[at]
        entry = self._by_number[number]
        assert entry is not None, f"sequence {sequence} has no subject"
        self._numbers[at] = _NONE
        self._count_removed(sequence, size)
        entry.count -= 1
        if sequence == entry.first:
            entry.first += 1
        kept = entry.kept
        while kept and not self.has(kept[0]):
            kept.popleft()
        while kept and not self.has(kept[-1]):
            kept.pop()
        if not entry.count:
            del self.subjects[entry.name]
            self.subject_bytes -= len(entry.name)
            self._by_number[number] = None
            self._free_numbers.append(number)
        elif entry.last == sequence:
            if kept:
                entry.last = kept[-1]
            else:
                # It may be anywhere, so it is looked for in steps where it is needed.
                entry.is_last_removed = True
        if sequence == self.first:
            self._move_first()
        return True

    def _count_removed(self, sequence: int, size: int) -> None:
        self.count -= 1
        self.bytes -= size
        block = sequence >> _BLOCK_BITS
        left = self._counts[block] - 1
        if left:
            self._counts[block] = left
        else:
            del self._counts[block]

    def _move_first(self) -> None:
        numbers, base = self._numbers, self._base
        at = self.first - base
        end = len(numbers)
        while at < end and numbers[at] < 0:
            block = (base + at) >> _BLOCK_BITS
            at = at + 1 if block in self._counts else ((block + 1) << _BLOCK_BITS) - base
        at = min(at, end)
        self.first = base + at
        if at >= _TRIM_AT and at * 2 >= end:
            del self._numbers[:at], self._sizes[:at], self._times[:at]
            self._base = self.first

    def _restart_at(self, sequence: int) -> None:
        assert not self._counts, "messages are left"
        del self._numbers[:], self._sizes[:], self._times[:]
        self._base = self.first = self.next = sequence

    def _new_entry(self, subject: bytes, first: int) -> SubjectEntry:
        if self._free_numbers:
            number = self._free_numbers.pop()
        else:
            number = len(self._by_number)
            self._by_number.append(None)
        entry = SubjectEntry(subject, number, first)
        self._by_number[number] = self.subjects[subject] = entry
        self.subject_bytes += len(subject)
        return entry

    # Searches.

    def overdue(self, *, messages_max: int, bytes_max: int, oldest_ms: int | None) -> Iterator[int]:
        """Yield the first message as long as the stream has too much, or messages before a time.

        The caller removes each before it asks for the next one.
        """
        while self.count:
            first = self.first
            if not (
                (messages_max >= 0 and self.count > messages_max)
                or (bytes_max >= 0 and self.bytes > bytes_max)
                or (oldest_ms is not None and self.time_at(first) < oldest_ms)
            ):
                return
            yield first

    def at_time(self, time_ms: int) -> int:
        """Return the first sequence whose time is not before `time_ms`; times are taken to be in order."""
        low, high = max(self.first, self._base), self.next
        while low < high:
            middle = (low + high) // 2
            if self._times[middle - self._base] < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def is_last_removed(self, subject: bytes) -> bool:
        """Return whether the last message of a subject is known only after `settle_lasts`."""
        entry = self.subjects.get(subject)
        return entry is not None and entry.is_last_removed

    def settle_lasts(self, entries: Iterable[SubjectEntry]) -> Steps[None]:
        """Look for the last messages of subjects whose last one was removed."""
        wanted = {each.number: each for each in entries if each.is_last_removed and each.count}
        at = min(max((each.last for each in wanted.values()), default=0) + 1, self.next)
        while wanted and at > self.first:
            start = max(at - _SCANNED_PER_STEP, self.first)
            for sequence in range(at - 1, start - 1, -1):
                number = self.number_at(sequence)
                entry = wanted.get(number)
                if entry is None or sequence > entry.last:
                    continue
                del wanted[number]
                # Otherwise it has a new message, or its number is another subject's.
                if entry.is_last_removed and self._by_number[number] is entry:
                    entry.last, entry.is_last_removed = sequence, False
            at = start
            yield

    def roll_up(self, befores: Mapping[bytes, int]) -> Iterator[int | None]:
        """Look for the messages of subjects before a sequence of each; yield them, and None after a step.

        The caller removes each before it asks for the next one. All subjects are looked for in one pass over
        the sequences, which ends when no message is left: a stream may get many roll-ups at once.
        """
        wanted = {subject: before for subject, before in befores.items() if self._has_before(subject, before)}
        at = max(min((self.subjects[each].first for each in wanted), default=0), self.first)
        end = min(max(wanted.values(), default=0), self.next)
        looked = 0
        while at < end and wanted:
            number = self.number_at(at)
            entry = self._by_number[number] if number >= 0 else None
            if entry is not None and at < wanted.get(entry.name, 0):
                yield at
                if not self._has_before(entry.name, wanted[entry.name]):
                    del wanted[entry.name]
            looked += 1
            if not looked % _SCANNED_PER_STEP:
                yield None
            at = max(at + 1, self.first)
        for subject, before in wanted.items():
            entry = self.subjects.get(subject)
            if entry is not None:
                entry.first = max(entry.first, before)

    def _has_before(self, subject: bytes, before: int) -> bool:
        """Return whether a subject may have a message before a sequence."""
        entry = self.subjects.get(subject)
        return (
            entry is not None
            and entry.first < before
            and not (entry.count == 1 and entry.last >= before and not entry.is_last_removed)
        )

    def last_before(self, filter_: "SubjectFilter", end: int) -> Steps[int | None]:
        """Find the last message before `end` of the subjects that a filter includes."""
        found = 0
        later: set[int] = set()
        unsettled: list[SubjectEntry] = []
        for entries in filter_.entries(self):
            for entry in entries:
                if entry.is_last_removed:
                    unsettled.append(entry)
                elif entry.last < end:
                    found = max(found, entry.last)
                else:
                    later.add(entry.number)
            yield
        yield from self.settle_lasts(unsettled)
        for index, entry in enumerate(unsettled, 1):
            if entry.is_last_removed or entry.last >= end:
                later.add(entry.number)
            elif entry.count:
                found = max(found, entry.last)
            if not index % _ENTRIES_PER_STEP:
                yield
        at = min(end, self.next) if later else 0
        while at > max(found + 1, self.first):
            at -= 1
            if self.number_at(at) in later:
                found = at
            elif not at % _ENTRIES_PER_STEP:
                yield
        return found if self.has(found) else None

    def lasts_before(self, filter_: "SubjectFilter", end: int) -> Steps[Sequence[int]]:
        """Find the last message of each subject that a filter includes, in order, if it is before `end`."""
        pieces: list[Sequence[int]] = []
        piece: list[int] = []
        unsettled: list[SubjectEntry] = []
        for entries in filter_.entries(self):
            for each in entries:
                if each.is_last_removed:
                    unsettled.append(each)
                elif each.last < end:
                    piece.append(each.last)
            if len(piece) >= _SORTED_AT_ONCE:
                pieces.append(array("q", sorted(piece)))
                piece = []
            yield
        yield from self.settle_lasts(unsettled)
        for index, each in enumerate(unsettled, 1):
            if each.count and not each.is_last_removed and each.last < end:
                piece.append(each.last)
            if len(piece) >= _SORTED_AT_ONCE:
                pieces.append(array("q", sorted(piece)))
                piece = []
            if not index % _ENTRIES_PER_STEP:
                yield
        found = array("q")
        for sequence in merge(*pieces, sorted(piece)):
            found.append(sequence)
            if not len(found) % _ENTRIES_PER_STEP:
                yield
        return found

    def included(self, filter_: "SubjectFilter") -> Steps[Sequence[SubjectEntry]]:
        """Find the subjects that a filter includes, in the order of their names."""
        pieces: list[list[SubjectEntry]] = []
        piece: list[SubjectEntry] = []
        for entries in filter_.entries(self):
            piece += entries
            if len(piece) >= _SORTED_AT_ONCE:
                pieces.append(sorted(piece, key=_NAME))
                piece = []
            yield
        found: list[SubjectEntry] = []
        for entry in merge(*pieces, sorted(piece, key=_NAME), key=_NAME):
            # One that was removed meanwhile may have come again, as another entry.
            if entry.count:
                found.append(entry)
            if not len(found) % _ENTRIES_PER_STEP:
                yield
        return found

    def removed(self, count_max: int) -> Steps[Sequence[int]]:
        """Find the first sequences between the first and the last message that have no message."""
        found: list[int] = []
        at = self.first
        while at < self.next and len(found) < count_max:
            end = min(at + _REMOVED_PER_STEP, self.next)
            found += (each for each in range(at, end) if not self.has(each))
            at = end
            yield
        return found[:count_max]

    def next_match(self, filter_: "SubjectFilter", start: int, count_max: int) -> tuple[int | None, int]:
        """Look for the first message that a filter includes, from `start` on.

        Returns its sequence, or None, and the sequence before which there is none: after `count_max` that
        were looked at, or fewer with many patterns, a search ends without a result.
        """
        count_max = max(count_max // max(len(filter_.patterns), 1), 1)
        start = max(start, self.first)
        end = min(self.next, start + count_max)
        numbers, base = self._numbers, self._base
        allowed = filter_.allowed(self)
        for sequence in range(start, end):
            number = numbers[sequence - base]
            if number >= 0 and (allowed is None or allowed[number]):
                return sequence, sequence
        return None, max(start, end)


class SubjectFilter:
    """Patterns of subjects; without any, all subjects are included."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        given = list(patterns)
        self._is_all: Final = not given or ">" in given
        self.patterns: Final = (
            [] if self._is_all else [Pattern(each.encode(errors="surrogateescape")) for each in given]
        )
        self._literals: Final = frozenset(each.text for each in self.patterns if each.is_literal)
        others = [each.expression for each in self.patterns if not each.is_literal]
        self._expression: Final = re.compile(b"|".join(others), re.DOTALL) if others else None
        """One for all patterns: a message is compared with those of a thousand consumers."""
        self._allowed: Final = bytearray()
        self._names: Final[list[bytes | None]] = []

    @property
    def is_all(self) -> bool:
        """Whether each subject is included."""
        return self._is_all

    def includes(self, subject: bytes) -> bool:
        """Return whether a subject is included."""
        if self._is_all or subject in self._literals:
            return True
        return self._expression is not None and self._expression.fullmatch(subject) is not None

    def entries(self, index: StreamIndex) -> Iterator[list[SubjectEntry]]:
        """Yield the subjects that are included and have messages, some at a time.

        Messages may be added and removed meanwhile.
        """
        if not self._is_all and self._expression is None:
            found = [index.subjects.get(each) for each in self._literals]
            yield [each for each in found if each is not None]
            return
        known = index._by_number
        at = 0
        while at < len(known):
            part = known[at : at + _ENTRIES_PER_STEP]
            yield [each for each in part if each is not None and self.includes(each.name)]
            at += _ENTRIES_PER_STEP

    def allowed(self, index: StreamIndex) -> "Allowed | None":
        """Return a cache of the subjects' numbers that the filter includes; None if it includes all."""
        return None if self._is_all else Allowed(self, index)


class Allowed:
    """Remembers by number which subjects a filter includes; a number may get another subject.

    Numbers share the places, so that many subjects take no more memory.
    """

    __slots__ = ("_filter", "_index")

    def __init__(self, filter_: SubjectFilter, index: StreamIndex) -> None:
        self._filter = filter_
        self._index = index

    def __getitem__(self, number: int) -> bool:
        names, allowed = self._filter._names, self._filter._allowed
        name = self._index.subject_of(number)
        slot = number & (REMEMBERED_MAX - 1)
        if slot >= len(names):
            missing = slot + 1 - len(names)
            names.extend([None] * missing)
            allowed.extend(bytes(missing))
        if names[slot] is not name:
            names[slot] = name
            allowed[slot] = name is not None and self._filter.includes(name)
        return bool(allowed[slot])
