"""Finds where the records of a batch start by what surrounds a start, all records at once.

A record's length is known only from the record itself, so a reader has to go from one to the next. But a
record without headers ends with a zero (its header count), and behind the next one's length stands a zero
again (the attributes, which format 2 does not use). This module takes every place that looks like that for a
start, and then compares the end of each record with the start of the next.

Only a start to which the record before it leads is returned. Bytes of a value may look like a start; they
cost time, never a wrong record.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from kalda.records.columnar_fields import Positions
from kalda.records.varint import read_varint

RECORDS_MIN: Final = 512
"""Fewer records are found faster one by one."""
_RECORD_BYTES_MAX: Final = 400
"""Every byte is looked at, so larger records are found faster one by one, too."""
_CHUNK_BYTES: Final = 32 * 1024
"""Bytes looked at in one step: the intermediate arrays stay in the processor's cache."""
_TWO_BYTES_FROM: Final = 64
"""The length from which on a length varint has two bytes."""
_RECORDS_PER_STEP_MIN: Final = 128
"""Records that each step must bring on average. A step costs as much as some thirty records one by one."""


def is_worthwhile(data: bytes, known: list[int], position: int, end: int, count: int) -> bool:
    """Whether `linked_starts` may find `count` records from `position` on fast, judged by `known` starts."""
    if count < RECORDS_MIN or end - position > count * _RECORD_BYTES_MAX:
        return False
    distance = _varint_size(position, end, count)
    return all(data[start - 1] == 0 == data[start + distance] for start in known)


def linked_starts(data: bytes, position: int, end: int, count: int) -> Positions | None:
    """Return the starts of `count` records from `position` to `end`; None if they do not stand out.

    Raises `NeedMoreBytes` if a length passes the end of the data.
    """
    starts, ends = _likely_starts(data, position, end, _varint_size(position, end, count))
    # The last record that leads to the next likely start, in each stretch of such.
    lasts = np.append(np.flatnonzero(ends[:-1] != starts[1:]), len(starts) - 1)
    pieces: list[Positions] = []
    found = 0
    steps = count // _RECORDS_PER_STEP_MIN
    if len(lasts) > 2 * steps:
        return None
    while position < end and found < count:
        if not steps:
            return None
        steps -= 1
        index = int(starts.searchsorted(position))
        if index < len(starts) and starts[index] == position:
            last = int(lasts[lasts.searchsorted(index)])
            pieces.append(starts[index : last + 1])
            position = int(ends[last])
        else:
            pieces.append(np.array([position], np.int64))
            size, position = read_varint(data, position)
            if size < 0:
                return None
            position += size
        found += len(pieces[-1])
    return np.concatenate(pieces) if position == end and found == count else None


def _varint_size(position: int, end: int, count: int) -> int:
    """Return how many bytes the length of a record of the mean size takes."""
    return 2 if end - position >= count * (_TWO_BYTES_FROM + 1) else 1


def _likely_starts(data: bytes, position: int, end: int, varint_size: int) -> tuple[Positions, Positions]:
    """Return what looks like a start behind a record without headers, and where each such record ends."""
    array = np.frombuffer(data, np.uint8)
    starts = _pairs_of_zeros(array[:end], position - 1, varint_size + 1) + 1
    first = array[starts].astype(np.int64)
    if varint_size == 1:
        is_length = (first < 0x80) & (first & 1 == 0)
        sizes = 1 + (first >> 1)
    else:
        second = array[starts + 1].astype(np.int64)
        is_length = (first >= 0x80) & (second < 0x80) & (first & 1 == 0)
        sizes = (first >> 1) + (second << 6) - 62
    if not is_length.all():
        starts, sizes = starts[is_length], sizes[is_length]
    return starts, starts + sizes


def _pairs_of_zeros(array: npt.NDArray[np.uint8], position: int, distance: int) -> Positions:
    """Return where, from `position` on, `array` has a zero and another `distance` behind it."""
    either = np.empty(_CHUNK_BYTES, np.uint8)
    is_pair = np.empty(_CHUNK_BYTES, np.bool_)
    pieces: list[Positions] = []
    for start in range(position, len(array) - distance, _CHUNK_BYTES):
        size = min(_CHUNK_BYTES, len(array) - distance - start)
        behind = start + distance
        np.bitwise_or(array[start : start + size], array[behind : behind + size], out=either[:size])
        np.equal(either[:size], 0, out=is_pair[:size])
        found = np.flatnonzero(is_pair[:size])
        found += start
        pieces.append(found)
    return np.concatenate(pieces)
