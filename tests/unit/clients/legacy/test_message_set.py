"""What a program of 0.7 iterates over: offsets, next offsets, partial messages, all formats."""

import pytest

from kalda.clients.legacy import ByteBufferMessageSet
from kalda.records.compression import Compression
from kalda.records.errors import CorruptRecordError
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder


def messages(magic: int, base_offset: int, *values: bytes, codec: Compression = Compression.NONE) -> bytes:
    builder = MessageSetBuilder(magic, base_offset=base_offset, compression=codec)
    for value in values:
        builder.append(b"k", value, 1_000)
    return bytes(builder.build())


def batch(base_offset: int, *values: bytes, is_control: bool = False) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, is_control=is_control)
    for value in values:
        builder.append(b"k", value, 1_000)
    return bytes(builder.build())


def payloads(message_set: ByteBufferMessageSet) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.message.payload) for each in message_set]


def test_messages_of_all_formats_come_from_the_offset_that_was_asked_for() -> None:
    """A fetch returns whole wrappers and batches, which may begin earlier."""
    fetched = (
        messages(0, 0, b"a", b"b", codec=Compression.GZIP)
        + messages(1, 2, b"c", b"d", codec=Compression.SNAPPY)
        + batch(4, b"e")
        + batch(5, b"marker", is_control=True)
    )
    message_set = ByteBufferMessageSet(fetched, 1)
    assert [(1, b"b"), (2, b"c"), (3, b"d"), (4, b"e")] == payloads(message_set)
    assert [2, 3, 4, 5] == [each.next_offset for each in message_set]
    assert 6 == message_set.next_offset, "a program that goes on there passes the marker"
    assert [-1, 1_000, 1_000, 1_000] == [each.message.timestamp for each in message_set]


def test_partial_message_at_the_end_is_left_out() -> None:
    first, second = messages(1, 0, b"a"), messages(1, 1, b"b")
    message_set = ByteBufferMessageSet(first + second[:-1])
    assert [(0, b"a")] == payloads(message_set)
    assert (len(first), len(first) + len(second) - 1) == (message_set.valid_bytes, message_set.size_in_bytes)
    assert 1 == message_set.next_offset


def test_fetch_that_is_too_small_for_a_message_has_no_valid_bytes() -> None:
    message_set = ByteBufferMessageSet(messages(1, 7, b"a" * 100)[:50], 7)
    assert [] == list(message_set)
    assert (0, 50, 7) == (message_set.valid_bytes, message_set.size_in_bytes, message_set.next_offset)


def test_damaged_message_is_an_error_where_it_lies() -> None:
    damaged = bytearray(messages(1, 0, b"a") + messages(1, 1, b"b"))
    damaged[-1] ^= 1
    found = iter(ByteBufferMessageSet(damaged))
    assert b"a" == next(found).message.payload
    with pytest.raises(CorruptRecordError, match="offset 1"):
        next(found)
