"""The compiled codec does what the reference codec does: for every message, version and any bytes."""

from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.protocol import codec
from kalda.protocol.codec_reference import decode_reference, encode_reference
from kalda.protocol.messages.delete_topics import DeleteTopicsRequest
from kalda.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message
from kalda.protocol.wire_format import ELEMENTS_MAX, STEP_ELEMENTS
from tests.property.protocol.declared_messages import (
    MESSAGE_VERSION_IDS,
    MESSAGE_VERSIONS,
    filled,
    structs,
)

T = TypeVar("T")

every_message_version = pytest.mark.parametrize(
    ("message_class", "version"), MESSAGE_VERSIONS, ids=MESSAGE_VERSION_IDS
)
quick = settings(max_examples=8, deadline=None, database=None)
quick_junk = settings(max_examples=14, deadline=None, database=None)


def in_steps(message_class: type[Message], version: int, data: bytes) -> Message:
    """Read a message with the codec that works in steps."""
    return finished(codec.decode_in_steps(message_class, version, data, ELEMENTS_MAX))


def finished(steps: Generator[None, None, T]) -> T:
    """Run steps to their end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def decoded_or_none(decoder: Any, message_class: type[Message], version: int, data: bytes) -> Message | None:
    """The message, or None where the bytes are refused; any other exception fails the test."""
    try:
        message: Message = decoder(message_class, version, data)
    except ProtocolError:
        return None
    return message


@every_message_version
def test_both_codecs_write_the_same_bytes_and_read_them_back(
    message_class: type[Message], version: int
) -> None:
    """One declaration, two codecs: the quick one may differ from the plain one in speed only."""

    @quick
    @given(structs(message_class, version))
    def check(message: Message) -> None:
        data = codec.encode(message, version)
        assert data == encode_reference(message, version)
        assert message == codec.decode(message_class, version, data)
        assert message == decode_reference(message_class, version, data)
        chunks = codec.encode_chunks(message, version)
        assert data == b"".join(chunks)  # type: ignore[arg-type]  # all are bytes
        assert message == in_steps(message_class, version, data)
        assert chunks == finished(codec.encode_in_steps(message, version))

    check()


@every_message_version
def test_a_message_cut_anywhere_is_refused(message_class: type[Message], version: int) -> None:
    """A truncated request must end in our error, wherever it was cut, and never in a half-read message."""
    data = codec.encode(filled(message_class, version), version)
    for size in range(len(data)):
        for decoder in (codec.decode, decode_reference, in_steps):
            with pytest.raises(ProtocolError):
                decoder(message_class, version, data[:size])
    for decoder in (codec.decode, decode_reference):
        with pytest.raises(ProtocolError, match="left over"):
            decoder(message_class, version, data + b"\0")


@every_message_version
def test_junk_is_refused_or_read_alike(message_class: type[Message], version: int) -> None:
    """Bytes from a hostile or broken peer raise nothing but ProtocolError, in both codecs or in neither."""
    valid = codec.encode(filled(message_class, version), version)
    positions = st.integers(0, max(0, len(valid) - 1))

    @quick_junk
    @given(st.binary(max_size=60), st.lists(st.tuples(positions, st.integers(0, 255)), max_size=3))
    def check(junk: bytes, changes: list[tuple[int, int]]) -> None:
        damaged = bytearray(valid)
        for position, byte in changes if valid else ():
            damaged[position] = byte
        for data in (junk, bytes(damaged)):
            read = decoded_or_none(codec.decode, message_class, version, data)
            assert read == decoded_or_none(decode_reference, message_class, version, data)
            # Bytes behind the message are allowed in steps.
            assert read is None or read == in_steps(message_class, version, data)

    check()


@pytest.mark.parametrize("field", ["topic_names", "partition_indexes"])
def test_a_large_array_takes_many_steps(field: str) -> None:
    """Between the steps the event loop does other work, whatever the array holds."""
    count = 10_000
    message: Message
    if field == "topic_names":
        message = DeleteTopicsRequest(topic_names=[f"t{index}" for index in range(count)])
        version = 5
    else:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(count)))
        message, version = OffsetFetchRequest(group_id="g", topics=[topic]), 7
    data = codec.encode(message, version)
    assert count // STEP_ELEMENTS < sum(
        1 for _ in codec.decode_in_steps(type(message), version, data, count + 1)
    )
    assert message == in_steps(type(message), version, data)
    with pytest.raises(ProtocolError, match=f"more than {count - 1} elements"):
        finished(codec.decode_in_steps(type(message), version, data, count - 1))


def test_the_parts_of_a_large_message_are_joined_in_steps() -> None:
    """100,000 parts that were joined and let go in one piece held the event loop of a broker for 10 ms."""
    message = DeleteTopicsRequest(topic_names=[f"t{index}" for index in range(20_000)])
    joined: list[int] = []

    class Parts(list[Any]):
        """Notes how many parts are taken at once."""

        def __getitem__(self, wanted: Any) -> Any:
            found = super().__getitem__(wanted)
            if isinstance(wanted, slice):
                joined.append(len(found))
            return found

    def encoder(_: Any) -> Generator[None, None, list[Any]]:
        yield
        return Parts(codec._encode_parts(message, 5))

    codec._stepped_encoders[DeleteTopicsRequest, 5] = encoder
    try:
        chunks = finished(codec.encode_in_steps(message, 5))
    finally:
        del codec._stepped_encoders[DeleteTopicsRequest, 5]
    assert [codec.encode(message, 5)] == chunks
    assert 20_000 < sum(joined)
    assert max(joined) <= 1024


@every_message_version
def test_any_readable_buffer_and_position_will_do(message_class: type[Message], version: int) -> None:
    """The broker reads from a view of its receive buffer, with the header still before the body."""
    message = filled(message_class, version)
    data = b"\xff" * 7 + codec.encode(message, version)
    for buffer in (data, bytearray(data), memoryview(data)):
        assert message == codec.decode(message_class, version, buffer, 7)
