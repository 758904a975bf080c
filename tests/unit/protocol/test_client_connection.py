"""The client's side of a connection, fed by hand."""

import pytest

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol import codec, registry
from kalda.protocol.client_connection import ClientConnection
from kalda.protocol.headers import RequestHeader, read_request_header, response_header
from kalda.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.protocol.protocol_errors import MessageError, ProtocolError
from kalda.protocol.schema import Message


def answer(correlation_id: int, response: Message, version: int) -> bytes:
    api_key = response.SCHEMA.api_key
    assert api_key is not None
    header = response_header(correlation_id, registry.response_header_version(api_key, version))
    return header + codec.encode(response, version)


def test_a_request_goes_out_as_one_frame() -> None:
    connection = ClientConnection("me")
    data = b"".join(connection.send_parts(MetadataRequest(topics=None), 12))
    assert len(data) - 4 == int.from_bytes(data[:4], "big")
    header, position = read_request_header(data, 4)
    assert RequestHeader(ApiKey.METADATA, 12, 0, "me") == header
    assert MetadataRequest(topics=None) == codec.decode(MetadataRequest, 12, data, position)
    assert (1, 0) == (connection.in_flight_count, connection.last_correlation_id)


def test_the_parts_of_a_request_are_its_frame_and_hold_the_records_uncopied() -> None:
    """A Produce request has a megabyte, which a vectored write takes from where it is."""
    records = bytearray(b"r" * 1000)
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    parts = ClientConnection("c").send_parts(request, 9)

    whole = b"".join(parts)
    assert len(whole) - 4 == int.from_bytes(whole[:4], "big")
    assert any(part is records for part in parts)


def test_responses_are_read_in_the_versions_that_were_asked() -> None:
    connection = ClientConnection(None)
    connection.send_parts(MetadataRequest(), 1)
    connection.send_parts(ProduceRequest(acks=1), 9)
    first, second = MetadataResponse(controller_id=4), ProduceResponse(throttle_time_ms=5)
    assert (0, first) == connection.receive_frame(answer(0, first, 1))
    assert (1, second) == connection.receive_frame(answer(1, second, 9))
    assert 0 == connection.in_flight_count


def test_a_produce_request_without_acks_has_no_answer() -> None:
    """Waiting for it would take the next response for its own."""
    connection = ClientConnection(None)
    connection.send_parts(ProduceRequest(acks=0), 9)
    assert 0 == connection.in_flight_count
    connection.send_parts(MetadataRequest(), 1)
    assert (1, MetadataResponse()) == connection.receive_frame(answer(1, MetadataResponse(), 1))


def test_an_old_broker_answers_api_versions_in_version_0() -> None:
    """It says UNSUPPORTED_VERSION and what it has, in the one form that every client can read."""
    connection = ClientConnection(None)
    connection.send_parts(ApiVersionsRequest(), 4)
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)],
    )
    assert (0, response) == connection.receive_frame(answer(0, response, 0))


def test_api_versions_answer_has_no_tagged_header_in_any_version() -> None:
    connection = ClientConnection(None)
    connection.send_parts(ApiVersionsRequest(), 4)
    body = codec.encode(ApiVersionsResponse(), 4)
    assert (0, ApiVersionsResponse()) == connection.receive_frame(b"\0\0\0\0" + body)


def test_each_connection_reads_the_api_versions_of_its_own_broker() -> None:
    """Responses are kept decoded, since most are the same; those of another release must not be mixed up."""
    for highest in (3, 4, 3):
        connection = ClientConnection(None)
        connection.send_parts(ApiVersionsRequest(), 4)
        keys = [ApiVersion(api_key=18, min_version=0, max_version=highest)]
        body = codec.encode(ApiVersionsResponse(api_keys=keys), 4)
        assert (0, ApiVersionsResponse(api_keys=keys)) == connection.receive_frame(b"\0\0\0\0" + body)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (answer(3, MetadataResponse(), 1), "response 3 came where Metadata 0 was due"),
        (b"\0\0\0\0junk", "cannot fit"),
        (b"\0\0", "truncated"),
    ],
)
def test_a_stream_that_slipped_is_an_error(stream: bytes, reason: str) -> None:
    connection = ClientConnection(None)
    connection.send_parts(MetadataRequest(), 1)
    with pytest.raises(ProtocolError, match=reason):
        connection.receive_frame(stream)


def test_a_response_that_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="nothing was asked"):
        ClientConnection(None).receive_frame(answer(0, MetadataResponse(), 1))


def test_misuse_is_refused_and_leaves_the_connection_as_it_was() -> None:
    connection = ClientConnection(None, in_flight_max=1)
    with pytest.raises(MessageError, match="not a request"):
        connection.send_parts(MetadataResponse(), 1)
    with pytest.raises(MessageError, match="versions"):
        connection.send_parts(MetadataRequest(), 99)
    assert -1 == connection.last_correlation_id
    connection.send_parts(MetadataRequest(), 1)
    with pytest.raises(MessageError, match="in flight"):
        connection.send_parts(MetadataRequest(), 1)
    connection.send_parts(ProduceRequest(acks=0), 9)
