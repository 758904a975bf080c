"""What the validator of appends makes of headers that no producer's library writes."""

import struct
import tracemalloc
import zlib

import pytest

from kalda.records.batch import ATTRIBUTES_POSITION, iter_headers, set_max_timestamp
from kalda.records.compression import Compression, go_on
from kalda.records.crc import crc32c
from kalda.records.errors import InvalidTimestampError
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder, iter_records
from kalda.storage.errors import HeavyBatchError, MessageTooLargeError
from kalda.storage.log_config import INT64_MAX, CleanupPolicy, LogConfig
from kalda.storage.log_validator import PUT_OFF, LogValidator, Prepared
from kalda.storage.producer_state_manager import AppendOrigin

CRC_POSITION, BASE_TIMESTAMP_POSITION = 17, 27


def test_a_timestamp_above_the_largest_one_is_refused() -> None:
    """The base timestamp and the difference of a record fit 64 bits each, their sum does not."""
    builder = RecordBatchBuilder()
    builder.append(None, b"first", 1_000)
    builder.append(None, b"second", 2_000)
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, BASE_TIMESTAMP_POSITION, INT64_MAX)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))

    with pytest.raises(InvalidTimestampError, match=f"the largest is {INT64_MAX}"):
        LogValidator(LogConfig()).validate(memoryview(batch), AppendOrigin.CLIENT, 0)


SIZE = 40 * 1024 * 1024


def prepared(config: LogConfig, records: bytes) -> tuple[Prepared, int]:
    """Return what is prepared, and the most memory that it took."""
    tracemalloc.start()
    try:
        found = LogValidator(config).prepare(bytearray(records), 0, 0, 0, go_on)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD])
@pytest.mark.parametrize("target", ["gzip", "zstd"])
def test_a_batch_is_opened_and_recompressed_in_little_memory(codec: Compression, target: str) -> None:
    builder = RecordBatchBuilder(compression=codec)
    builder.append(b"k", bytes(SIZE), 1_000)
    config = LogConfig(
        cleanup_policy=frozenset({CleanupPolicy.COMPACT}), compression_type=target, max_message_bytes=SIZE
    )
    found, memory_bytes = prepared(config, bytes(builder.build()))
    assert found.error is None
    assert found.validated is not None
    (record,) = iter_records(found.validated[1])
    assert SIZE == len(record.value or b"")
    # Besides, there is the batch itself: snappy shrinks to a twentieth.
    assert memory_bytes < 8 * 1024 * 1024


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_of_many_messages_is_converted_in_little_memory(magic: int) -> None:
    builder = MessageSetBuilder(magic)
    builder.append(b"k", bytes(2_000), 1_000)
    packer = zlib.compressobj(wbits=31)
    message = bytes(builder.build())
    packed = (
        b"".join(packer.compress(message * 500) for _ in range(SIZE // 500 // len(message))) + packer.flush()
    )
    wrapper = MessageSetBuilder(magic)
    wrapper.append(None, packed, 1_000)
    records = wrapper.build()
    records[17] = Compression.GZIP
    struct.pack_into(">I", records, 12, zlib.crc32(records[16:]))
    found, memory_bytes = prepared(LogConfig(max_message_bytes=SIZE), bytes(records))
    assert found.error is None
    assert found.converted is not None
    ((_, header),) = iter_headers(found.converted.records)
    assert SIZE // 500 // len(message) * 500 == header.record_count
    assert memory_bytes < 8 * 1024 * 1024


def test_recompression_stops_at_the_largest_batch() -> None:
    builder = RecordBatchBuilder(compression=Compression.ZSTD)
    builder.append(b"k", bytes(SIZE), 1_000)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=100_000)
    found, _ = prepared(config, bytes(builder.build()))
    assert isinstance(found.error, MessageTooLargeError)


def wrapper(size: int, magic: int = 1) -> bytes:
    """Return a compressed message that holds one of so many zeros."""
    inner = MessageSetBuilder(magic)
    inner.append(b"k", bytes(size), 1_000)
    outer = MessageSetBuilder(magic)
    outer.append(None, zlib.compress(inner.build(), wbits=31), 1_000)
    records = outer.build()
    records[17] = Compression.GZIP
    struct.pack_into(">I", records, 12, zlib.crc32(records[16:]))
    return bytes(records)


@pytest.mark.parametrize("count", [2, 500])
def test_wrappers_behind_a_plain_message_are_put_off_where_they_hold_much(count: int) -> None:
    """Each may hold what is opened at once, and a request of 256 KB has thousands of them."""
    plain = MessageSetBuilder(1)
    plain.append(b"k", b"v", 1_000)
    records = bytearray(bytes(plain.build()) + wrapper(60_000) * count)
    validator = LogValidator(LogConfig())
    with pytest.raises(HeavyBatchError):
        validator.convert(records, 0, 0, 0, PUT_OFF)
    assert count + 1 == validator.convert(records, 0, 0, 0).batches.record_count


def small_batch(codec: Compression) -> bytearray:
    builder = RecordBatchBuilder(compression=codec)
    builder.append(b"k", bytes(60_000), 1_000)
    return builder.build()


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_the_batches_of_one_request_are_opened_at_once_up_to_a_bound(codec: Compression) -> None:
    """A request has as many of them as there are partitions."""
    validator = LogValidator(LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT})))
    put_off = Prepared()

    def opened() -> int:
        for count in range(1_000):
            try:
                validator.validate(small_batch(codec), AppendOrigin.CLIENT, 0, put_off)
            except HeavyBatchError:
                return count
        return 1_000

    assert 10 < opened() < 200
    # Another request begins anew.
    validator.validate(small_batch(codec), AppendOrigin.CLIENT, 0, PUT_OFF)


def test_a_wrong_largest_timestamp_is_corrected_on_another_thread() -> None:
    """It takes 20 ms for 256 KB of small records. No client's library writes one."""
    builder = RecordBatchBuilder()
    for _ in range(1_000):
        builder.append(None, None, 1_000)
    batch = builder.build()
    set_max_timestamp(batch, 0, 1)
    validator = LogValidator(LogConfig())
    with pytest.raises(HeavyBatchError):
        validator.validate(batch, AppendOrigin.CLIENT, 0, PUT_OFF)
    found = validator.prepare(batch, 0, 0, 0, go_on).validated
    assert found is not None
    assert 1_000 == found[0].max_timestamp
