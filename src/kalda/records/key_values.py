"""Iterates over the keys and values of a batch, for coordinators that load a table from a log.

`kalda.records.record.iter_records` reads the same bytes and takes half as long again, because it reads
timestamps and headers too; a property test compares the two.
"""

from collections.abc import Iterator

from kalda.records.batch import MAGIC, BatchHeader, Buffer
from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.message_set import iter_messages
from kalda.records.record import record_bytes
from kalda.records.varint import read_raw_varint, read_raw_varlong


def iter_key_values(
    buffer: Buffer, position: int, header: BatchHeader
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield offset, key and value of each record of the batch at `position`.

    Raises as `iter_records` does; headers of records are skipped unread.
    """
    if header.magic != MAGIC:
        for record in iter_messages(buffer, position, header):
            yield record.offset, record.key, record.value
        return
    data = record_bytes(buffer, position, header)
    base_offset = header.base_offset
    size = len(data)
    at = 0
    try:
        for _ in range(header.record_count):
            raw = data[at]
            at += 1
            if raw > 0x7F:
                raw, at = read_raw_varint(data, at - 1)
            end = at + (raw >> 1)
            if raw & 1 or end > size:
                raise CorruptRecordError(f"record at byte {at} of batch {base_offset} passes the batch's end")
            if data[at + 1] > 0x7F:
                _, at = read_raw_varlong(data, at + 1)
            else:
                at += 2
            raw = data[at]
            at += 1
            if raw > 0x7F:
                raw, at = read_raw_varint(data, at - 1)
            offset = base_offset + ((raw >> 1) ^ -(raw & 1))
            raw = data[at]
            at += 1
            if raw > 0x7F:
                raw, at = read_raw_varint(data, at - 1)
            key = value = None
            if not raw & 1:
                start = at
                at += raw >> 1
                key = data[start:at]
            raw = data[at]
            at += 1
            if raw > 0x7F:
                raw, at = read_raw_varint(data, at - 1)
            if not raw & 1:
                start = at
                at += raw >> 1
                value = data[start:at]
            if at >= end:
                raise CorruptRecordError(f"record at offset {offset} does not end where its length says")
            at = end
            yield offset, key, value
    except (IndexError, NeedMoreBytes):
        raise CorruptRecordError(f"batch at offset {base_offset} ends inside a record") from None
    if at != size:
        raise CorruptRecordError(
            f"batch at offset {base_offset} has {size - at} bytes behind its {header.record_count} records"
        )
