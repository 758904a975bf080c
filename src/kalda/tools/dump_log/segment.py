"""Dumps a segment's ``.log`` file: its batches, and with deep iteration their records.

Batches with a wrong CRC are shown as invalid and their records are left out. A header that no batch has ends
the dump of the file, because nothing says where the next batch starts.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kalda.records.batch import NO_SEQUENCE, BatchHeader, TimestampType, increment_sequence, validate
from kalda.records.control import ControlRecordType, read_control_type, read_end_transaction_marker
from kalda.records.errors import RecordsError
from kalda.records.format_conversion import iter_any_records
from kalda.records.record import Record
from kalda.storage.file_names import parse_offset_file_name
from kalda.storage.file_records import FileRecords
from kalda.storage.log_caches import FifoCache
from kalda.tools.bytes_text import JsonValue, json_field
from kalda.tools.dump_log.decoders import Decoder, decoded_text
from kalda.tools.dump_log.entries import DumpLine, Entry, Note, Problem
from kalda.tools.dump_log.read_only_files import ReadOnlyFileSystem


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """What is shown of a segment; `max_bytes` None is the whole file."""

    is_deep: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    max_bytes: int | None = None
    decoder: Decoder | None = None


def open_records(path: str, max_bytes: int | None = None) -> FileRecords:
    """Open a ``.log`` file for reading; raises `OSError`."""
    size = os.stat(path).st_size
    records = FileRecords(ReadOnlyFileSystem(), path, size, FifoCache(1))
    if max_bytes is not None:
        records.size = min(size, max_bytes)
    return records


def dump_segment(path: str, options: SegmentOptions) -> Iterator[DumpLine]:
    """Yield the batches (and records) of a ``.log`` file, then what is wrong with it."""
    records = open_records(path, options.max_bytes)
    name = parse_offset_file_name(os.path.basename(path))
    if name is not None:
        yield Note(f"Log starting offset: {name[0]}", {"startingOffset": name[0]})
    gaps: list[tuple[int, int]] = []
    position = 0
    last_offset: int | None = None
    try:
        for position_of_batch, header, data in records.iter_batches():
            position = position_of_batch
            reason = _reason(data, header)
            yield _batch_entry(position, header, is_valid=reason is None)
            if reason is not None:
                yield Problem(path, position, reason)
                last_offset = header.last_offset
            elif options.is_deep:
                for record in iter_any_records(data, 0, header):
                    if last_offset is not None and record.offset != last_offset + 1:
                        gaps.append((last_offset, record.offset))
                    last_offset = record.offset
                    yield _record_entry(record, header, options, _marker_fields(data, header, record))
            position += header.size
    except RecordsError as error:
        yield Problem(path, position, str(error))
        return
    finally:
        records.close()
    size = records.size
    if position < size and options.max_bytes is None:
        yield Problem(
            path, position, f"Found {size - position} invalid bytes at the end of {os.path.basename(path)}"
        )
    for before, after in gaps:
        yield Problem(path, None, f"Non-consecutive offsets: {before} is followed by {after}", is_fault=False)


def _reason(data: memoryview, header: BatchHeader) -> str | None:
    """Return why a batch is invalid, or None."""
    try:
        validate(data, 0, header)
    except RecordsError as error:
        return str(error)
    return None


_TIMESTAMP_TYPES: Final[dict[TimestampType, str]] = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def timestamp_type_name(timestamp_type: TimestampType) -> str:
    """Return Java's name of a timestamp type."""
    return _TIMESTAMP_TYPES[timestamp_type]


def _batch_entry(position: int, header: BatchHeader, *, is_valid: bool) -> Entry:
    try:
        codec = header.compression.name.lower()
    except RecordsError:
        codec = "unknown"
    return Entry(
        "batch",
        {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.partition_leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": header.delete_horizon_ms,
            "position": position,
            "timestampType": timestamp_type_name(header.timestamp_type),
            "timestamp": header.max_timestamp,
            "size": header.size,
            "magic": header.magic,
            "compresscodec": codec,
            "crc": header.crc,
            "isvalid": is_valid,
        },
    )


def _record_entry(
    record: Record, header: BatchHeader, options: SegmentOptions, marker: dict[str, JsonValue]
) -> Entry:
    fields: dict[str, JsonValue] = {}
    if not options.skip_record_metadata:
        sequence = header.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = increment_sequence(sequence, record.offset - header.base_offset)
        fields = {
            "offset": record.offset,
            "timestampType": timestamp_type_name(record.timestamp_type),
            "timestamp": record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": sequence,
            "headerKeys": [name for name, _ in record.headers],
            **marker,
        }
    texts: dict[str, bytes] = {}
    if options.print_data_log and not header.is_control:
        if options.decoder is not None:
            for name, value in zip(("key", "payload"), options.decoder(record), strict=True):
                if value is not None:
                    fields[name] = value
                    texts[name] = decoded_text(value).encode()
        else:
            for name, data in (("key", record.key), ("payload", record.value)):
                fields.update(json_field(name, data))
                if data is not None:
                    texts[name] = data
    return Entry("record", fields, texts)


def _marker_fields(data: memoryview, header: BatchHeader, record: Record) -> dict[str, JsonValue]:
    """Return what a control record says; nothing for an ordinary one."""
    if not header.is_control:
        return {}
    control_type = read_control_type(record)
    if control_type is None:
        return {"controlType": "UNKNOWN"}
    marker = read_end_transaction_marker(data, 0, header)
    assert marker is not None, "the type of the marker is known"
    name = "COMMIT" if control_type is ControlRecordType.COMMIT else "ABORT"
    return {"endTxnMarker": name, "coordinatorEpoch": marker.coordinator_epoch}
