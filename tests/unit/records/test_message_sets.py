"""Message sets of magic 0 and 1: bytes, wrappers, times, conversion, and what is refused."""

import contextlib
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaReader
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonReader

from kalda.records.batch import (
    MAGIC,
    TimestampType,
    iter_headers,
    pack_batch,
    read_header,
    validate,
    validate_bytes,
)
from kalda.records.compression import Compression, compress_message_set
from kalda.records.errors import (
    CorruptRecordError,
    InvalidRecordError,
    NeedMoreBytes,
    RecordsError,
    UnsupportedCompressionTypeError,
)
from kalda.records.format_conversion import (
    down_convert,
    is_message_set,
    iter_any_records,
    new_builder,
    up_convert,
)
from kalda.records.message_set import (
    MESSAGE_OVERHEAD,
    append_plain_messages,
    append_wrapped_messages,
    inner_bytes,
    iter_messages,
    iter_plain_messages,
)
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import Record, RecordBatchBuilder
from kalda.records.validation import search_batch
from tests.record_implementations import needs_compiled, using

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
fields = st.none() | st.binary(max_size=40)
rows = st.lists(st.tuples(fields, fields, st.integers(-1, 2**50), st.integers(0, 3)), min_size=1, max_size=20)
codecs = st.sampled_from(OLD_CODECS)
magics = st.sampled_from([0, 1])
T = TypeVar("T")
Row = tuple[bytes | None, bytes | None, int, int]


def build(magic: int, records: list[Row], compression: Compression, base: int = 0, **options: Any) -> bytes:
    """Build in `magic`; the last field of a row is the gap of offsets before it."""
    builder = new_builder(
        magic,
        base_offset=base + records[0][3],
        compression=compression,
        timestamp_type=options.pop("timestamp_type", TimestampType.CREATE_TIME),
        **options,
    )
    offset = base
    for key, value, timestamp, gap in records:
        offset += gap
        builder.append(key, value, timestamp, offset=offset)
        offset += 1
    return bytes(builder.build())


def read(buffer: bytes) -> list[Record]:
    found: list[Record] = []
    for position, header in iter_headers(buffer):
        validate(buffer, position, header)
        found += iter_any_records(buffer, position, header, check_inner_crcs=True)
    return found


def as_seen_in(magic: int, records: list[Record]) -> list[Record]:
    """What a format keeps of records: format 0 has no times, only format 2 has headers."""
    if magic == 0:
        return [
            record._replace(timestamp=-1, timestamp_type=TimestampType.NO_TIMESTAMP_TYPE)
            for record in records
        ]
    return records


def comparable(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(record.offset, record.timestamp, record.key, record.value) for record in records]


@given(rows, magics, codecs)
def test_what_is_built_is_read(records: list[Row], magic: int, compression: Compression) -> None:
    expected: list[Record] = []
    offset = 7
    for key, value, timestamp, gap in records:
        offset += gap
        expected.append(Record(offset, timestamp, TimestampType.CREATE_TIME, key, value, []))
        offset += 1
    assert as_seen_in(magic, expected) == read(build(magic, records, compression, 7))


@given(rows, magics, st.sampled_from([Compression.NONE, Compression.GZIP, Compression.SNAPPY]))
@pytest.mark.parametrize("reader", [KafkaPythonReader, AiokafkaReader])
def test_other_clients_read_what_is_built(
    reader: Any, records: list[Row], magic: int, compression: Compression
) -> None:
    message_set = build(magic, records, compression)
    expected = comparable(read(message_set))
    found = []
    for position, header in iter_headers(message_set):
        batch = reader(message_set[position : position + header.size], magic)
        assert batch.validate_crc()
        found += [
            (
                record.offset,
                -1 if record.timestamp is None else record.timestamp,
                record.key if record.key is None else bytes(record.key),
                record.value if record.value is None else bytes(record.value),
            )
            for record in batch
        ]
    assert expected == found


@given(rows, codecs, st.sampled_from([0, 1, 2]), magics, st.integers(0, 30))
def test_conversion_keeps_records(
    records: list[Row], compression: Compression, stored: int, wanted: int, first: int
) -> None:
    batches = build(stored, records, compression)
    converted = down_convert(batches, wanted, first).messages
    assert all(header.magic <= wanted for _, header in iter_headers(converted))
    expected = comparable(as_seen_in(min(wanted, stored), read(batches)))
    found = comparable(read(converted))
    if compression is Compression.NONE and stored > wanted:
        expected = [record for record in expected if record[0] >= first]
    assert expected == found
    raised = up_convert(converted).batches if is_message_set(converted) else converted
    assert all(header.magic == MAGIC for _, header in iter_headers(raised))
    assert found == comparable(read(raised))


@given(rows, codecs, st.sampled_from([1, 2]))
def test_log_append_time_survives_conversion(
    records: list[Row], compression: Compression, magic: int
) -> None:
    stored = build(
        magic, records, compression, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=9_000
    )
    old = down_convert(stored, 1).messages
    for converted in (old, up_convert(old).batches):
        times = {(record.timestamp, record.timestamp_type) for record in read(converted)}
        assert {(9_000, TimestampType.LOG_APPEND_TIME)} == times


@given(st.booleans())
def test_a_conversion_ends_after_what_a_few_kilobytes_hold(keeps_codecs: bool) -> None:
    """Each of many wrappers in one fetch may hold hundreds of megabytes."""
    wrapper = build(1, [(b"k", bytes(2_000), 1, 0)], Compression.GZIP)
    converted = up_convert(wrapper * 3, bytes_max=1_000, keeps_codecs=keeps_codecs)
    assert len(wrapper) == converted.consumed_bytes < 1_000
    (header,) = [header for _, header in iter_headers(converted.batches)]
    assert (Compression.GZIP if keeps_codecs else Compression.NONE) is header.compression


@given(rows, magics, codecs, st.data())
def test_damaged_bytes_raise_only_errors_of_this_package(
    records: list[Row], magic: int, compression: Compression, data: st.DataObject
) -> None:
    damaged = bytearray(build(magic, records, compression))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with_crc = data.draw(st.booleans())
    if with_crc and len(damaged) > 16:
        struct.pack_into(">I", damaged, 12, zlib.crc32(damaged[16:]))
    for operation in (
        lambda: read(bytes(damaged)),
        # Damage may also make a record batch of it, which has another reader.
        lambda: [
            list(iter_messages(damaged, at, each)) for at, each in iter_headers(damaged) if each.magic < 2
        ],
        lambda: up_convert(damaged),
        lambda: down_convert(damaged, 0, 0),
    ):
        try:
            operation()
        except RecordsError:
            continue


@given(st.binary(max_size=200))
def test_random_bytes_raise_only_errors_of_this_package(noise: bytes) -> None:
    for magic in (0, 1):
        message_set = bytearray(noise)
        if len(message_set) > 16:
            message_set[16] = magic
        try:
            read(bytes(message_set))
        except RecordsError:
            continue


@given(rows, magics, magics, st.data())
def test_short_way_reads_what_the_full_reader_reads(
    records: list[Row], magic: int, expected: int, data: st.DataObject
) -> None:
    """What the short way yields is right under any damage, and without damage it yields everything."""
    damaged = bytearray(build(magic, records, Compression.NONE))
    if data.draw(st.booleans()):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    elif magic == expected:
        assert len(records) == len(list(iter_plain_messages(damaged, 0, magic, len(damaged))))
    position = 0
    for message in iter_plain_messages(damaged, 0, expected, len(damaged)):
        header = read_header(damaged, position)
        validate_bytes(damaged, position, header)
        (record,) = iter_messages(damaged, position, header)
        assert (record.timestamp, record.key, record.value) == (message.timestamp, message.key, message.value)
        position += header.size
        assert position == message.end


@needs_compiled
@given(rows, magics, magics, st.integers(0, 400), st.integers(-3, 2**63 - 1), st.data())
def test_compiled_code_appends_what_python_appends(
    records: list[Row], magic: int, expected: int, batch_bytes_max: int, base: int, data: st.DataObject
) -> None:
    """Also of damaged messages whose CRC is right, and into batches that have little room."""
    messages = bytearray(build(magic, records, Compression.NONE))
    if data.draw(st.booleans()):
        _, header = next(iter_headers(messages))
        for _ in range(data.draw(st.integers(1, 3))):
            messages[data.draw(st.integers(0, len(messages) - 1))] = data.draw(st.integers(0, 255))
        struct.pack_into(">I", messages, 12, zlib.crc32(messages[16 : header.size]))
    built = []
    for name in ("compiled", "numpy"):
        builder = RecordBatchBuilder()
        if base >= -1:
            builder.append(b"first", None, base)
        with using(name):
            end = append_plain_messages(builder, messages, 0, expected, batch_bytes_max)
        batch = bytes(builder.build()) if builder.record_count else b""
        built.append((end, builder.record_count, builder.next_offset, builder.max_timestamp, batch))
    assert built[0] == built[1]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [-(2**31), -27, -12, -1, 0, 13])
def test_a_wrapped_message_of_an_impossible_size_is_corrupt(magic: int, size: int) -> None:
    """Whatever follows it, and however far it is read: in the log, by a consumer or for a conversion."""
    inner = bytearray(struct.pack(">qi", 0, size) + bytes(14))
    for whole in (bytearray(), bytearray(build(magic, [(b"k", b"v", 1, 0)], Compression.NONE))):
        packed = compress_message_set(Compression.GZIP, magic, whole + inner)
        start = MESSAGE_OVERHEAD[magic]
        entry = bytearray(build(magic, [(b"k", b"v", 1, 0)], Compression.GZIP))[:start] + packed
        struct.pack_into(">i", entry, 8, len(entry) - 12)
        struct.pack_into(">i", entry, start - 4, len(packed))
        header = read_header(entry)
        with pytest.raises(RecordsError):
            list(iter_messages(entry, 0, header))
        with pytest.raises(RecordsError):
            append_wrapped_messages(RecordBatchBuilder(), entry, 0, header)


@needs_compiled
@given(rows, magics, st.sampled_from(OLD_CODECS[1:]), st.sampled_from(TimestampType), st.data())
def test_compiled_code_appends_what_a_wrapper_holds(
    records: list[Row], magic: int, compression: Compression, kind: TimestampType, data: st.DataObject
) -> None:
    """All that the full reader yields, or it leaves the wrapper to that; errors are the same."""
    entry = bytearray(build(magic, records, compression, timestamp_type=kind, log_append_time=9))
    start = MESSAGE_OVERHEAD[magic]
    inner = bytearray(inner_bytes(entry, 0, read_header(entry)))
    damages = data.draw(st.integers(0, 2))
    for _ in range(damages):
        inner[data.draw(st.integers(0, len(inner) - 1))] = data.draw(st.integers(0, 255))
    entry = entry[:start] + compress_message_set(compression, magic, inner)
    struct.pack_into(">i", entry, 8, len(entry) - 12)
    struct.pack_into(">i", entry, start - 4, len(entry) - start)
    header = read_header(entry)

    def read_fully() -> bytes:
        builder = RecordBatchBuilder()
        for record in iter_messages(entry, 0, header, check_inner_crcs=True):
            builder.append_next(record.key, record.value, record.timestamp)
        return bytes(builder.build())

    def append() -> bytes:
        builder = RecordBatchBuilder()
        append_wrapped_messages(builder, entry, 0, header)
        return bytes(builder.build())

    wanted = outcome(read_fully)
    for name in ("compiled", "numpy"):
        with using(name):
            assert wanted == outcome(append)


def outcome(operation: Callable[[], T]) -> T | tuple[type[RecordsError], str]:
    try:
        return operation()
    except RecordsError as error:
        return type(error), str(error)


@needs_compiled
@given(rows, magics, codecs, st.sampled_from(TimestampType), st.integers(0, 30), st.data())
def test_compiled_code_converts_down_what_python_converts(
    records: list[Row], magic: int, codec: Compression, kind: TimestampType, first: int, data: st.DataObject
) -> None:
    """Also of damaged records, whose errors are the same."""
    builder = RecordBatchBuilder(base_offset=5, compression=codec, timestamp_type=kind, log_append_time=77)
    offset = 4
    for key, value, timestamp, gap in records:
        offset += gap + 1
        headers = [("h", value)] if gap else []
        builder.append(key, value, timestamp, headers, offset=offset)
    batch = builder.build()
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    converted: list[object] = []
    for name in ("compiled", "numpy"):
        with using(name):
            converted.append(outcome(partial(down_convert, batch, magic, first)))
    assert converted[0] == converted[1]


def test_bytes_of_one_message_are_kafkas() -> None:
    """Offset, size, CRC, magic, attributes, timestamp in format 1, key and value with their sizes."""
    built = build(1, [(b"k", b"v", 5, 0)], Compression.NONE)
    body = struct.pack(">bbqi1si1s", 1, 0, 5, 1, b"k", 1, b"v")
    assert struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body == built
    built = build(0, [(None, b"", 5, 0)], Compression.NONE)
    body = struct.pack(">bbii", 0, 0, -1, 0)
    assert struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body == built


def test_offsets_in_a_wrapper_are_absolute_in_format_0_and_relative_in_format_1() -> None:
    records: list[Row] = [(None, b"a", 1, 0), (None, b"b", 2, 4)]
    for magic, inner in ((0, [100, 105]), (1, [0, 5])):
        wrapper = build(magic, records, Compression.GZIP, 100)
        header = read_header(wrapper)
        assert (105, 105) == (header.base_offset, header.last_offset)
        (message,) = iter_messages(wrapper, 0, header_without_codec(header))
        contents = zlib.decompress(message.value or b"", wbits=31)
        assert inner == [header.base_offset for _, header in iter_headers(contents)]
        assert [100, 105] == [record.offset for record in read(wrapper)]


def header_without_codec(header: Any) -> Any:
    header.attributes = 0
    return header


def test_librdkafkas_wrapper_with_offset_0_counts_from_0() -> None:
    wrapper = bytearray(build(1, [(None, b"a", 1, 0), (None, b"b", 2, 0)], Compression.SNAPPY))
    struct.pack_into(">q", wrapper, 0, 0)
    assert [0, 1] == [record.offset for record in read(bytes(wrapper))]


def test_wrapper_below_its_last_inner_offset_is_refused() -> None:
    wrapper = bytearray(build(1, [(None, b"a", 1, 0)] * 5, Compression.SNAPPY))
    struct.pack_into(">q", wrapper, 0, 3)
    with pytest.raises(InvalidRecordError, match="offset 3"):
        read(bytes(wrapper))


def wrapper_of(magic: int, inner_offsets: list[int], offset: int) -> bytes:
    """Return a compressed message at `offset` whose messages carry any offsets."""
    inner = bytearray()
    for each in inner_offsets:
        message = bytearray(build(magic, [(None, b"v", 1, 0)], Compression.NONE))
        struct.pack_into(">q", message, 0, each)
        inner += message
    builder = MessageSetBuilder(magic)
    builder.append(None, zlib.compress(inner, wbits=31), 1)
    wrapper = bytearray(builder.build())
    struct.pack_into(">q", wrapper, 0, offset)
    wrapper[17] = Compression.GZIP
    struct.pack_into(">I", wrapper, 12, zlib.crc32(wrapper[16:]))
    return bytes(wrapper)


@pytest.mark.parametrize(
    ("magic", "inner", "offset"),
    [
        (0, [-1], 0),
        (0, [-(1 << 63), 7], 7),
        (0, [-2, -1], 5),
        (0, [3, -4], 3),
        (0, [(1 << 63) - 1], 0),
        (0, [(1 << 63) - 2, (1 << 63) - 1], 0),
        (1, [-9, 0], 5),
        (1, [-9, -8, 0], 5),
        (1, [-2, -1], 0),
        (1, [0, -(1 << 62)], 1 << 62),
        (1, [0, -(1 << 63)], 1),
        (1, [(1 << 63) - 1, 0], (1 << 63) - 1),
    ],
)
def test_offsets_that_no_log_has_are_refused_by_conversions(
    magic: int, inner: list[int], offset: int
) -> None:
    """Nothing but a damaged or a hostile wrapper has them, and no assertion may meet them."""
    wrapper = wrapper_of(magic, inner, offset)
    header = read_header(wrapper)
    for operation in (
        lambda: up_convert(wrapper),
        lambda: up_convert(wrapper, keeps_codecs=True),
        lambda: down_convert(wrapper, 0, 0),
        lambda: down_convert(wrapper, 1, 0),
        lambda: search_batch(wrapper, header, 0, 0),
        lambda: list(iter_messages(wrapper, 0, header)),
    ):
        with contextlib.suppress(RecordsError):
            operation()
    if min(inner) < 0:
        with pytest.raises(RecordsError, match="offset"):
            up_convert(wrapper)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_batches_that_end_beyond_64_bits_are_corrupt(magic: int, compression: Compression) -> None:
    batch = bytearray(build(MAGIC, [(None, b"v", 1, 0)] * 3, compression))
    struct.pack_into(">q", batch, 0, (1 << 63) - 2)
    with pytest.raises(CorruptRecordError, match=f"ends at {1 << 63}; expected at most"):
        down_convert(batch, magic)


def test_lz4_of_format_0_has_the_wrong_header_checksum_and_any_is_read() -> None:
    records: list[Row] = [(None, b"value" * 50, 1, 0)]
    checksum_at = 26 + 6
    old = bytearray(build(0, records, Compression.LZ4))
    new = build(1, records, Compression.LZ4)
    assert (0x1A, 0x82) == (old[checksum_at], new[checksum_at + 8])
    old[checksum_at] = 0x82
    struct.pack_into(">I", old, 12, zlib.crc32(old[16:]))
    assert b"value" * 50 == read(bytes(old))[0].value
    damaged = bytearray(new)
    damaged[checksum_at + 8] = 0x1A
    struct.pack_into(">I", damaged, 12, zlib.crc32(damaged[16:]))
    with pytest.raises(CorruptRecordError):
        read(bytes(damaged))


def test_inner_crc_is_checked_where_a_client_sent_the_wrapper() -> None:
    inner = bytearray(build(1, [(None, b"abc", 1, 0)], Compression.NONE))
    inner[-1] ^= 1
    builder = MessageSetBuilder(1)
    builder.append(None, zlib.compress(inner, wbits=31), 1)
    wrapper = bytearray(builder.build())
    wrapper[17] = Compression.GZIP
    struct.pack_into(">I", wrapper, 12, zlib.crc32(wrapper[16:]))
    header = read_header(wrapper)
    validate(wrapper, 0, header)
    assert 1 == len(list(iter_messages(wrapper, 0, header)))
    with pytest.raises(CorruptRecordError, match="CRC"):
        list(iter_messages(wrapper, 0, header, check_inner_crcs=True))


def test_message_is_not_whole_until_its_last_byte() -> None:
    message = build(1, [(b"k", b"value", 1, 0)], Compression.NONE)
    for size in range(17, len(message)):
        assert [] == list(iter_headers(message[:size]))
        if size < 26:
            with pytest.raises(NeedMoreBytes):
                read_header(message[:size])


def test_headers_and_markers_are_left_out_going_down() -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", 5, [("trace", b"1")])
    batch = bytes(builder.build())
    control = RecordBatchBuilder(base_offset=1, is_control=True)
    control.append(b"\0\0\0\0", b"\0\0\0\0\0\0", 6)
    converted = down_convert(batch + bytes(control.build()), 1).messages
    assert [Record(0, 5, TimestampType.CREATE_TIME, b"k", b"v", [])] == read(converted)


def test_zstd_has_no_older_format() -> None:
    batch = build(2, [(None, b"v", 1, 0)], Compression.ZSTD)
    with pytest.raises(UnsupportedCompressionTypeError, match="zstd"):
        down_convert(batch, 1, 0)


def test_runs_of_messages_become_batches_of_one_time_type() -> None:
    """With log-append time a batch has one timestamp, so a new time begins a new batch."""
    message_set = b"".join(
        build(
            1, [(None, b"v", 0, 0)], Compression.NONE, offset,
            timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=time,
        )
        for offset, time in enumerate((1_000, 1_000, 2_000))
    )  # fmt: skip
    raised = up_convert(message_set).batches
    assert [(0, 2), (2, 1)] == [(h.base_offset, h.record_count) for _, h in iter_headers(raised)]
    assert [1_000, 1_000, 2_000] == [record.timestamp for record in read(raised)]


def test_a_timestamp_beyond_64_bits_is_a_damaged_record() -> None:
    """A producer's base timestamp and delta can add up to one; messages have no place for it."""
    batch = pack_batch(
        bytes([12, 0, 2, 0, 1, 1, 0]),
        base_offset=0,
        partition_leader_epoch=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=2**63 - 1,
        max_timestamp=2**63 - 1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )

    with pytest.raises(CorruptRecordError, match="record at offset 0 cannot be converted"):
        down_convert(batch, 1)
