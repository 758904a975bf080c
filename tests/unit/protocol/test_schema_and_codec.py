"""The schema language and what the codec does beside plain fields."""

import copy
import traceback
import uuid
from typing import Any

import pytest

from kalda.protocol import codec
from kalda.protocol.codec_decoder import decoder_source
from kalda.protocol.codec_encoder import encoder_source
from kalda.protocol.codec_reference import decode_reference, encode_reference
from kalda.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kalda.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kalda.protocol.protocol_errors import MessageError, ProtocolError
from kalda.protocol.schema import (
    BYTES,
    FLOAT64,
    INT8,
    INT32,
    STRING,
    UINT16,
    UINT32,
    UUID_KIND,
    Message,
    Struct,
    VersionRange,
    array,
    parse_versions,
    wire,
)
from kalda.protocol.wire_format import ELEMENTS_MAX, encode_uvarint, read_uvarint


class Extra(Struct):
    """A struct with what no message of today has."""

    weight: float = wire(FLOAT64, "0+")
    port: int = wire(UINT16, "1+")


class EveryKind(Message, versions="0-2", flexible="1+"):
    """Kinds and shapes that the declared messages lack."""

    blob: bytes | None = wire(BYTES, "0+", nullable="1+")
    mask: int = wire(UINT32, "0+")
    ids: list[uuid.UUID] = wire(array(UUID_KIND), "0+")
    names: list[str] | None = wire(array(STRING), "0+", nullable="0+", default=None)
    numbers: list[int] | None = wire(array(INT32), "0+", nullable="0+")
    plain: Extra = wire(Extra, "0+")
    maybe: Extra | None = wire(Extra, "1+", nullable="1+", default=None)
    late_tag: int = wire(INT8, "1+", default=5, tag=1, tagged="2+")
    first_tag: bytes | None = wire(BYTES, "2+", nullable="2+", default=None, tag=0)
    maybe_tag: Extra | None = wire(Extra, "2+", nullable="2+", tag=2)


class Row(Struct):
    """An array inside an array."""

    names: list[str] = wire(array(STRING), "0+")


class Rows(Message, versions="0"):
    """Arrays of arrays."""

    rows: list[Row] = wire(array(Row), "0+")


class FileSlice:
    """Records that are not bytes."""

    size = 300


def every_kind(version: int) -> EveryKind:
    value = EveryKind(
        blob=b"\0\xff",
        mask=2**32 - 1,
        ids=[uuid.UUID(int=number) for number in range(20)],
        names=["", "é"],
        numbers=list(range(200)),
        plain=Extra(weight=0.5),
    )
    if version >= 1:
        value.maybe = Extra(weight=-1.5, port=65_535)
        value.late_tag = 6
    if version >= 2:
        value.first_tag = b"t" * 200
        value.maybe_tag = Extra(weight=2.5)
    return value


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_kind_is_written_and_read_alike(version: int) -> None:
    """The language is wider than today's messages; both codecs know all of it."""
    empty = EveryKind(ids=[], names=[], numbers=None)
    if version >= 2:
        empty.maybe_tag = None
    for value in (every_kind(version), EveryKind(), empty):
        data = codec.encode(value, version)
        assert data == encode_reference(value, version)
        assert codec.decode(EveryKind, version, data) == value == decode_reference(EveryKind, version, data)
        for size in range(len(data)):
            for decoder in (codec.decode, decode_reference):
                with pytest.raises(ProtocolError):
                    decoder(EveryKind, version, data[:size])


def test_tagged_fields_come_in_order_of_tag_wherever_they_are_declared() -> None:
    data = codec.encode(EveryKind(late_tag=6, first_tag=b"x"), 2)
    assert data.endswith(bytes.fromhex("02 00 02 0278 01 01 06".replace(" ", "")))


def test_a_struct_that_is_null_looks_otherwise_in_the_tagged_section() -> None:
    data = codec.encode(EveryKind(maybe=None, maybe_tag=None), 2)
    assert data.endswith(bytes.fromhex("ff 01 02 01 00".replace(" ", "")))


@pytest.mark.parametrize("decoder", [codec.decode, decode_reference])
def test_unknown_tagged_fields_are_skipped(decoder: Any) -> None:
    """A newer peer may send what we have not heard of."""
    data = codec.encode(MetadataRequest(topics=None), 12)
    assert data.endswith(b"\0")
    newer = data[:-1] + b"\x02" + b"\x07\x03abc" + encode_uvarint(300) + b"\x00"
    assert MetadataRequest(topics=None) == decoder(MetadataRequest, 12, newer)
    with pytest.raises(ProtocolError):
        decoder(MetadataRequest, 12, data[:-1] + b"\x01\x07\x04abc")


@pytest.mark.parametrize("decoder", [codec.decode, decode_reference])
def test_a_known_tagged_field_must_fill_its_size(decoder: Any) -> None:
    data = codec.encode(EveryKind(), 2)
    for size in (b"\x00", b"\x02"):
        with pytest.raises(ProtocolError):
            decoder(EveryKind, 2, data[:-1] + b"\x01\x01" + size + b"\x06\x00")


@pytest.mark.parametrize("decoder", [codec.decode, decode_reference])
@pytest.mark.parametrize(("version", "count"), [(1, b"\x7f\xff\xff\xff"), (9, b"\xff\xff\xff\xff\x0f")])
def test_a_count_beyond_the_bytes_is_refused_before_anything_is_made(
    decoder: Any, version: int, count: bytes
) -> None:
    """Two billion topics in ten bytes must cost nothing."""
    with pytest.raises(ProtocolError):
        decoder(MetadataRequest, version, count + bytes(8))
    with pytest.raises(ProtocolError):
        decoder(EveryKind, 0, bytes(8) + b"\x7f\xff\xff\xff")


@pytest.mark.parametrize("decoder", [codec.decode, decode_reference])
def test_a_frame_of_tiny_elements_is_refused(decoder: Any) -> None:
    """Two bytes of wire make seventy of memory: a frame of them must not take the broker down."""
    nameless = encode_uvarint(ELEMENTS_MAX + 2) + b"\1\0" * (ELEMENTS_MAX + 1)
    with pytest.raises(ProtocolError, match="1000000 elements"):
        decoder(MetadataRequest, 9, nameless + b"\0\0\0\0")


def test_the_bound_on_elements_holds_over_all_arrays_of_a_message() -> None:
    """Splitting the elements over many arrays does not help."""
    half = ELEMENTS_MAX // 2
    row = half.to_bytes(4, "big") + b"\0\0" * half
    assert half == len(codec.decode(Rows, 0, b"\0\0\0\1" + row).rows[0].names)
    with pytest.raises(ProtocolError, match="1000000 elements"):
        codec.decode(Rows, 0, b"\0\0\0\2" + row + row)


@pytest.mark.parametrize("decoder", [codec.decode, decode_reference])
@pytest.mark.parametrize("body", [b"\1\0\0\0", b"\2\2x"], ids=["of the message", "of a topic"])
def test_a_frame_of_tagged_fields_is_refused(decoder: Any, body: bytes) -> None:
    """Each costs as much time as an element, known or not."""
    with pytest.raises(ProtocolError, match="1000000 elements"):
        decoder(MetadataRequest, 9, body + encode_uvarint(ELEMENTS_MAX + 1) + bytes(2 * ELEMENTS_MAX + 2))


@pytest.mark.parametrize("decoder", [codec.decode, decode_reference])
def test_text_must_be_utf_8_and_short(decoder: Any) -> None:
    with pytest.raises(ProtocolError, match=r"utf-8|UTF-8"):
        decoder(MetadataRequest, 1, b"\0\0\0\1\0\2\xff\xff")
    long = encode_uvarint(2) + encode_uvarint(32_769) + b"x" * 32_768
    with pytest.raises(ProtocolError):
        decoder(MetadataRequest, 9, long + b"\0\0\0\0\0")


def test_records_stay_views_of_the_buffer() -> None:
    """Records are never copied on the way in."""
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"abc")])]
    )
    buffer = bytearray(codec.encode(request, 9))
    records = codec.decode(ProduceRequest, 9, buffer).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is buffer


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=item) for index, item in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 12])
def test_sized_records_are_chunks_of_their_own(version: int) -> None:
    """Slices of a file go from the segment to the socket; only their size is written here."""
    first, second = FileSlice(), FileSlice()
    chunks = codec.encode_chunks(fetch_response(first, b"bytes", second, None), version)
    assert [bytes, FileSlice, bytes, FileSlice, bytes] == [type(chunk) for chunk in chunks]
    assert (first, second) == (chunks[1], chunks[3])
    joined = b"".join(chunk if isinstance(chunk, bytes) else b"r" * chunk.size for chunk in chunks)
    assert joined == codec.encode(fetch_response(b"r" * 300, b"bytes", b"r" * 300, None), version)


def test_large_bytes_of_a_large_message_are_not_copied() -> None:
    """Fifteen connections that did not read the response to a group's leader held 860 MB of copies."""
    metadata = [bytes(600_000), b"small", bytes(600_000)]
    members = [JoinGroupResponseMember(member_id="m", metadata=each) for each in metadata]
    response = JoinGroupResponse(members=members)
    chunks = codec.encode_chunks(response, 5)
    assert [metadata[0], metadata[2]] == [chunk for chunk in chunks if any(chunk is one for one in metadata)]
    assert codec.encode(response, 5) == b"".join(chunks)  # type: ignore[arg-type]  # no records

    assert 1 == len(codec.encode_chunks(JoinGroupResponse(members=members[:2]), 5))


def test_sized_records_cannot_become_one_piece() -> None:
    with pytest.raises(MessageError, match="encode_chunks"):
        codec.encode(fetch_response(FileSlice()), 4)


def test_a_message_is_a_value_with_slots() -> None:
    """Compared and shown by value, closed to unknown names, with fresh lists and structs each time."""
    first, second = MetadataRequest(), MetadataRequest()
    assert first == second
    assert first != MetadataRequest(topics=None)
    assert first != MetadataResponse()
    assert first.topics is not None
    first.topics.append(MetadataRequestTopic(name="a"))
    assert [] == second.topics
    assert EveryKind().plain is not EveryKind().plain
    assert first == copy.deepcopy(first)
    assert "name='a'" in repr(first)
    assert not hasattr(first, "__dict__")
    unknown: dict[str, Any] = {"topicz": []}
    with pytest.raises(TypeError, match="topicz"):
        MetadataRequest(**unknown)
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("3+", VersionRange(3, 32_767), "3+"),
        ("0-4", VersionRange(0, 4), "0-4"),
        ("2", VersionRange(2, 2), "2"),
        ("none", VersionRange(0, -1), "none"),
    ],
)
def test_version_ranges_are_read_and_shown(text: str, expected: VersionRange, shown: str) -> None:
    assert expected == parse_versions(text)
    assert str(expected) == shown
    assert not expected.includes(expected.lowest - 1)
    assert (text != "none") == expected.includes(expected.lowest)


@pytest.mark.parametrize("text", ["", "x", "1-", "+", "-1"])
def test_a_version_range_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_versions(text)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2**31 - 1, 2**35 - 1])
def test_uvarints_round_trip(value: int) -> None:
    data = encode_uvarint(value)
    assert read_uvarint(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))
    with pytest.raises(IndexError):
        read_uvarint(data[:-1], 0)


def test_a_traceback_shows_the_emitted_line() -> None:
    """Whoever debugs a wrong field must see the code that met it."""
    with pytest.raises(MessageError) as caught:
        codec.encode(ProduceRequest(timeout_ms="soon"), 9)  # type: ignore[arg-type]  # the misuse under test
    assert caught.value.__cause__ is not None
    shown = "".join(traceback.format_exception(caught.value.__cause__))
    assert "<kalda ProduceRequest v9 encode>" in shown
    assert "message.timeout_ms" in shown


def test_runs_of_fixed_fields_are_one_call() -> None:
    """What makes the codec quick: no call per field."""
    written = encoder_source(MetadataResponse, 12)
    assert "v17.error_code, v17.partition_index, v17.leader_id, v17.leader_epoch, n19 + 1" in written
    read = decoder_source(MetadataResponse, 12)
    assert "v20.error_code, v20.partition_index, v20.leader_id, v20.leader_epoch, n21 = unpack" in read
