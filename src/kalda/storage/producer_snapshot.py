"""Formats and parses the ``.snapshot`` file: the producers of a log at the offset in the file's name.

Version 1, big-endian: version (int16), CRC-32C of what follows it (uint32), a count (int32), then 46 bytes
per producer. The file holds only a producer's last batch, so after a restart one batch is recognised as a
duplicate.
"""

import struct
from collections.abc import Iterable
from typing import Final

from kalda.records.crc import crc32c
from kalda.storage.errors import CorruptSnapshotError, NewerFormatError
from kalda.storage.producer_state_entry import BatchMetadata, ProducerStateEntry

_VERSION: Final = 1
_VERSION_MAX: Final = 99
"""Above this a version is damaged, not newer."""
_HEAD: Final = struct.Struct(">hIi")
_CRC_POSITION: Final = 2
_ENTRIES_POSITION: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def format_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Write a snapshot of `entries`."""
    body = bytearray(_HEAD.size)
    count = 0
    for entry in entries:
        body += _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_transaction_first_offset,
        )
        count += 1
    _HEAD.pack_into(body, 0, _VERSION, 0, count)
    struct.pack_into(">I", body, _CRC_POSITION, crc32c(memoryview(body)[_ENTRIES_POSITION:]))
    return bytes(body)


def parse_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Read what `format_snapshot` or Kafka wrote.

    A later version has the CRC at the same place: a snapshot without a CRC that holds is damaged.

    Raises:
        CorruptSnapshotError, NewerFormatError: it cannot be read.
    """
    if len(data) < _HEAD.size:
        raise CorruptSnapshotError(
            f"producer snapshot has {len(data)} bytes; its head alone has {_HEAD.size}"
        )
    version, crc, count = _HEAD.unpack_from(data)
    computed = crc32c(memoryview(data)[_ENTRIES_POSITION:])
    if crc != computed:
        raise CorruptSnapshotError(f"producer snapshot has CRC {crc:#010x}, its bytes give {computed:#010x}")
    if _VERSION < version <= _VERSION_MAX:
        raise NewerFormatError("producer snapshot", version, f"version {_VERSION}")
    if version != _VERSION:
        raise CorruptSnapshotError(f"producer snapshot has version {version}; expected {_VERSION}")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"producer snapshot announces {count} entries in {len(data)} bytes")
    entries = []
    for fields in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset = fields
        entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, first_offset)
        if offset >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        entries.append(entry)
    return entries
