"""Flips a bit of a simulated disk at rest: `flip_bit`.

A bit flips where Kafka's format can show it: in the records of a batch or in its size, in an index, in a
snapshot of producers. The offset and the leader epoch of a batch are outside of its CRC, and checkpoints have
none: there a flipped bit is another valid value.
"""

from collections.abc import Iterator
from typing import Final

from kalda.records.batch import HEADER_SIZE, iter_headers
from kalda.records.errors import RecordsError
from kalda.runtime.random import Random
from kalda.simulation.disk import SimulatedDisk

_LOG: Final = ".log"
_SUFFIXES: Final = (_LOG, _LOG, _LOG, ".index", ".index", ".timeindex", ".snapshot")
_SIZE_AT: Final = 8
_SIZE_BYTES: Final = 4
_SIZES_PART: Final = 0.15


def flip_bit(disk: SimulatedDisk, random: Random) -> str | None:
    """Flip a bit of what is synced on a disk; return the file's path, None if there is nothing to flip."""
    suffix = _SUFFIXES[random.randrange(len(_SUFFIXES))]
    files = [(path, size) for path, size in disk.synced_sizes() if path.endswith(suffix)]
    if not files:
        return None
    path, size = files[random.randrange(len(files))]
    at = random.randrange(size) if suffix != _LOG else _place_in_log(disk.content(path)[:size], random)
    if at is None:
        return None
    disk.flip_bit(path, at, random.randrange(8))
    return path


def _place_in_log(data: bytes, random: Random) -> int | None:
    batches = list(_batches(data))
    if not batches:
        return None
    position, size = batches[random.randrange(len(batches))]
    if random.random() < _SIZES_PART or size <= HEADER_SIZE:
        return position + _SIZE_AT + random.randrange(_SIZE_BYTES)
    return position + random.randrange(HEADER_SIZE, size)


def _batches(data: bytes) -> Iterator[tuple[int, int]]:
    try:
        for position, header in iter_headers(data):
            yield position, header.size
    except RecordsError:
        return
