"""`kalda legacy DumpLogSegments`: the lines of kafka.tools.DumpLogSegments of 0.8.2 and, for times, of 0.10.

A record batch, which came later, is dumped as the wrapper of its records.
"""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.option_types import INT32_MAX, Integer
from kalda.tools.legacy.group import legacy

if TYPE_CHECKING:
    from kalda.records.batch import BatchHeader, Buffer
    from kalda.records.record import Record

_STRING_DECODER: Final = "kafka.serializer.StringDecoder"
_CODECS: Final = ("NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD", "5", "6", "7")
"""Names in the lines of 0.10, by the number of the codec."""
_FIRST_CODECS: Final = (
    "NoCompressionCodec",
    "GZIPCompressionCodec",
    "SnappyCompressionCodec",
    "LZ4CompressionCodec",
)
"""Those of 0.8.2, which dumped messages of format 0."""
_NO_FORMAT: Final = range(0)
_BATCHES: Final = range(2, 3)
_EVERY_FORMAT: Final = range(3)
_TIMES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


class _Line(NamedTuple):
    """One message."""

    offset: int
    position: int
    record: "Record | None"
    """None for a wrapper that is not opened."""
    timestamp: int
    timestamp_type: int
    size: int
    """Bytes of the payload; -1 for none."""
    magic: int
    codec: int
    crc: int
    is_valid: bool


@command("DumpLogSegments", legacy, connects=False)
@click.option("--files", required=True, metavar="FILE,...", help="The .log and .index files to dump.")
@click.option("--print-data-log", is_flag=True, help="Print keys and payloads; opens batches of format 2.")
@click.option("--deep-iteration", is_flag=True, help="Print the messages in wrappers instead of these.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes without printing their entries.")
@click.option(
    "--max-message-size",
    type=Integer(1, INT32_MAX),
    default=5 * 1024 * 1024,
    metavar="BYTES",
    help="Accepted for old scripts; files are mapped, whatever the size of their messages.",
)
@click.option(
    "--key-decoder-class", default=_STRING_DECODER, show_default=True, metavar="CLASS", help="Decodes keys."
)
@click.option(
    "--value-decoder-class",
    default=_STRING_DECODER,
    show_default=True,
    metavar="CLASS",
    help="Decodes payloads.",
)
def dump_log_segments(tool: Tool, /, **options: Any) -> None:
    """Print the messages of segments and the entries of indexes.

    The exit code is 1 if an index does not agree with its log.
    """
    from kalda.clients.legacy.consumer.decoder import decoder_of

    decode_key = decoder_of("--key-decoder-class", options["key_decoder_class"])
    decode_value = decoder_of("--value-decoder-class", options["value_decoder_class"])
    names = [name for each in options["files"].split(",") if (name := each.strip())]
    if not names:
        raise ToolUsageError(f"--files={options['files']} names no file")
    mismatches: dict[str, list[tuple[int, int]]] = {}
    for name in names:
        path = Path(name)
        if path.suffix not in (".log", ".index") or not path.stem.isdigit():
            tool.output.item({"ignored": name}, f"Ignoring unknown file {name}")
            continue
        tool.output.item({"file": name}, f"Dumping {name}")
        if path.suffix == ".log":
            _dump_log(tool, path, options, decode_key, decode_value)
        elif found := list(_dump_index(tool, path, prints=not options["verify_index_only"])):
            mismatches[name] = found
    for name, pairs in mismatches.items():
        tool.output.flush()
        tool.output.failure(f"Mismatches in :{name}")
        for index_offset, log_offset in pairs:
            tool.output.failure(f"  Index offset: {index_offset}, log offset: {log_offset}")
    if mismatches:
        raise ToolError(f"{len(mismatches)} indexes do not agree with their logs")


def _dump_log(
    tool: Tool,
    path: Path,
    options: dict[str, Any],
    decode_key: Callable[[bytes], object],
    decode_value: Callable[[bytes], object],
) -> None:
    tool.output.item({"starting_offset": int(path.stem)}, f"Starting offset: {int(path.stem)}")
    data = _mapped(path)
    end = 0
    opened = _NO_FORMAT
    if options["deep_iteration"]:
        opened = _EVERY_FORMAT
    elif options["print_data_log"]:
        # As in Java's tool since it knows format 2, whose records are in batches only.
        opened = _BATCHES
    for line, entry_end in _lines(data, opened):
        end = entry_end
        text, record = _text(line), line.record
        if record is not None and record.key is not None:
            text += f" keysize: {len(record.key)}"
        if options["print_data_log"]:
            if record is not None and record.key is not None:
                text += f" key: {decode_key(record.key)}"
            value = None if record is None or record.value is None else decode_value(record.value)
            text += f" payload: {'null' if value is None else value}"
        tool.output.item(
            {
                "offset": line.offset,
                "position": line.position,
                "magic": line.magic,
                "is_valid": line.is_valid,
            },
            text,
        )
    if end < len(data):
        tool.output.item(
            {"invalid_bytes": len(data) - end},
            f"Found {len(data) - end} invalid bytes at the end of {path.name}",
        )


def _text(line: _Line) -> str:
    time, codecs = "", _FIRST_CODECS + _CODECS[len(_FIRST_CODECS) :]
    if line.magic > 0:
        codecs = _CODECS
        time = f" {_TIMES[line.timestamp_type]}: {line.timestamp}"
    return (
        f"offset: {line.offset} position: {line.position}{time} isvalid: {str(line.is_valid).lower()} "
        f"payloadsize: {line.size} magic: {line.magic} compresscodec: {codecs[line.codec]} crc: {line.crc}"
    )


def _lines(data: "Buffer", opened: range) -> Iterator[tuple[_Line, int]]:
    """Yield the messages with the end of the entry that holds them; a partial entry ends the file.

    Wrappers and batches of the formats in `opened` are not yielded themselves, but what they hold.
    """
    from kalda.records.batch import iter_headers
    from kalda.records.errors import RecordsError

    headers = iter_headers(data)
    while True:
        try:
            position, header = next(headers)
        except (StopIteration, RecordsError):
            return
        for line in _of_entry(data, position, header, opened):
            yield line, position + header.size


def _of_entry(data: "Buffer", position: int, header: "BatchHeader", opened: range) -> Iterator[_Line]:
    from kalda.records.batch import MAGIC, iter_headers, validate
    from kalda.records.compression import Compression
    from kalda.records.errors import RecordsError
    from kalda.records.format_conversion import iter_any_records
    from kalda.records.message_set import absolute_base, inner_bytes, iter_messages

    try:
        validate(data, position, header)
    except RecordsError:
        yield _shallow(position, header, is_valid=False)
        return
    is_wrapper = header.magic == MAGIC or header.compression is not Compression.NONE
    if is_wrapper and header.magic not in opened:
        yield _shallow(position, header, is_valid=True)
        return
    try:
        if header.magic == MAGIC or not is_wrapper:
            for record in iter_any_records(data, position, header):
                yield _of_record(record, position, header)
            return
        inner = inner_bytes(data, position, header)
        entries = list(iter_headers(inner))
        base = absolute_base(header, entries[-1][1].base_offset) if header.magic and entries else 0
        for at, each in entries:
            (record,) = iter_messages(inner, at, each)
            yield _of_record(record._replace(offset=base + record.offset), position, each)
    except RecordsError:
        yield _shallow(position, header, is_valid=False)


def _shallow(position: int, header: "BatchHeader", *, is_valid: bool) -> _Line:
    from kalda.records.batch import HEADER_SIZE, MAGIC
    from kalda.records.message_set import MESSAGE_OVERHEAD

    overhead = HEADER_SIZE if header.magic == MAGIC else MESSAGE_OVERHEAD[header.magic]
    times = header.max_timestamp, int(header.timestamp_type)
    codec = header.attributes & 7
    return _Line(
        header.base_offset,
        position,
        None,
        *times,
        header.size - overhead,
        header.magic,
        codec,
        header.crc,
        is_valid,
    )


def _of_record(record: "Record", position: int, header: "BatchHeader") -> _Line:
    size = -1 if record.value is None else len(record.value)
    times = record.timestamp, int(record.timestamp_type)
    return _Line(
        record.offset, position, record, *times, size, header.magic, int(header.compression), header.crc, True
    )


def _dump_index(tool: Tool, path: Path, *, prints: bool) -> Iterator[tuple[int, int]]:
    """Print the entries; yield those whose place in the log has another offset, with that one."""
    from kalda.records.batch import read_header
    from kalda.records.errors import RecordsError
    from kalda.storage.offset_index import ENTRY

    data, log, base = _mapped(path), _mapped(path.with_suffix(".log")), int(path.stem)
    for number, (relative, position) in enumerate(
        ENTRY.iter_unpack(bytes(data[: len(data) // ENTRY.size * ENTRY.size]))
    ):
        if number and not relative:
            # Behind a crash, and while it is written, an index ends in zeros.
            return
        offset = base + relative
        try:
            header = read_header(memoryview(log)[position:])
            if not header.base_offset <= offset < header.next_offset:
                yield offset, header.base_offset
        except RecordsError:
            yield offset, -1
        if prints:
            tool.output.item(
                {"offset": offset, "position": position}, f"offset: {offset} position: {position}"
            )


def _mapped(path: Path) -> "Buffer":
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            return b"" if not size else memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ToolUsageError(f"{path}: {error.strerror}") from error
