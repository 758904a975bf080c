"""A real broker process against requests that are wrong: it answers an error or closes, and serves on."""

import random
import socket
import struct
from collections.abc import Iterator

import pytest

from kalda.broker.requests.handlers import HANDLERS
from kalda.common.api_keys import KALDA_KEYS_FROM, ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol import codec, registry
from kalda.protocol.headers import RequestHeader, request_header
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kalda.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kalda.protocol.schema import Message
from kalda.records.record import RecordBatchBuilder
from kalda.testing import KaldaProcess


@pytest.fixture(scope="module")
def kalda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    """A broker of its own: its log is looked through, and it shall hold nothing that others wrote."""
    with KaldaProcess(tmp_path_factory.mktemp("hostile") / "data") as process:
        yield process


def connect(kalda: KaldaProcess, timeout_seconds: float = 30.0) -> socket.socket:
    host, _, port = kalda.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout_seconds)


def receive_frame(sock: socket.socket) -> bytes | None:
    """Return the next frame, or None if the broker closed the connection."""
    received = b""
    try:
        while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
            piece = sock.recv(1 << 16)
            if not piece:
                return None
            received += piece
    except ConnectionResetError:
        return None
    return received[4:]


def exchange(kalda: KaldaProcess, frame: bytes) -> bytes | None:
    with connect(kalda) as sock:
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        return receive_frame(sock)


def request_frame(key: ApiKey, version: int, request: Message | None = None) -> bytes:
    spec = registry.spec(key)
    header = RequestHeader(int(key), version, 77, "hostile")
    body = codec.encode(request or spec.request_class(), version)
    return request_header(header, registry.request_header_version(key, version)) + body


def sample_requests() -> list[bytes]:
    """Well-formed requests of every API, newest version, with something in those of the data path."""
    builder = RecordBatchBuilder()
    builder.append(timestamp=1_700_000_000_000, key=b"k", value=b"v" * 50)
    filled: dict[ApiKey, Message] = {
        ApiKey.PRODUCE: ProduceRequest(
            acks=1,
            timeout_ms=100,
            topic_data=[
                TopicProduceData(
                    name="hostile",
                    partition_data=[PartitionProduceData(index=0, records=bytes(builder.build()))],
                )
            ],
        ),
        ApiKey.FETCH: FetchRequest(
            max_wait_ms=1,
            min_bytes=0,
            topics=[FetchTopic(partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
        ),
        ApiKey.METADATA: MetadataRequest(topics=[MetadataRequestTopic(name="hostile")]),
        ApiKey.API_VERSIONS: ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    }
    return [request_frame(handler.key, handler.versions[1], filled.get(handler.key)) for handler in HANDLERS]


def assert_serves(kalda: KaldaProcess) -> None:
    answer = exchange(kalda, request_frame(ApiKey.API_VERSIONS, 0))
    assert answer is not None
    assert ErrorCode.NONE == codec.decode(ApiVersionsResponse, 0, answer, 4).error_code


def test_every_sample_is_answered(kalda: KaldaProcess) -> None:
    """What the other tests break is whole to begin with."""
    for frame in sample_requests():
        answer = exchange(kalda, frame)
        assert answer is not None, f"{frame!r} was not answered"
        assert struct.pack(">i", 77) == answer[:4]


def test_unknown_version_of_api_versions_lists_what_is_served(kalda: KaldaProcess) -> None:
    """KIP-511: error 35 in version 0, and the list, so that the client can step down."""
    header = struct.pack(">hhih", ApiKey.API_VERSIONS, 120, 5, 4) + b"test\0"
    answer = exchange(kalda, header + b"something from the future")
    assert answer is not None
    response = codec.decode(ApiVersionsResponse, 0, answer, 4)
    assert ErrorCode.UNSUPPORTED_VERSION == response.error_code
    listed = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    # Kalda's own APIs are for its own clients, and a broker without a metrics port asks for no telemetry.
    left_out = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    kafkas = [each for each in HANDLERS if each.key < KALDA_KEYS_FROM and each.key not in left_out]
    assert {int(handler.key): handler.versions_advertised for handler in kafkas} == listed


@pytest.mark.parametrize(("key", "version"), [(0, 99), (1, -1), (3, 99), (52, 0), (999, 0), (-5, 0)])
def test_unknown_api_or_version_is_closed(kalda: KaldaProcess, key: int, version: int) -> None:
    assert exchange(kalda, struct.pack(">hhih", key, version, 1, 4) + b"test\0") is None
    assert_serves(kalda)


def test_request_truncated_anywhere_is_closed(kalda: KaldaProcess) -> None:
    """Every API, every length that is too short."""
    answered = [
        (frame, length)
        for frame in sample_requests()
        for length in range(len(frame))
        if exchange(kalda, frame[:length]) is not None
    ]
    assert [] == answered
    assert_serves(kalda)
    assert "Traceback" not in kalda.log()


def test_bytes_behind_a_request_are_passed_over(kalda: KaldaProcess) -> None:
    """As in Kafka: some clients leave a few. Produce and Fetch are parsed to their last byte, though."""
    frames = zip(HANDLERS, sample_requests(), strict=True)
    closed = [handler.key.title for handler, frame in frames if exchange(kalda, frame + bytes(3)) is None]
    assert set(closed) <= {"Produce", "Fetch"}


def test_damaged_requests_never_reach_a_bug(kalda: KaldaProcess) -> None:
    """Random damage is answered, closed, or waits as it asks to; nothing in the log is our own failure."""
    seed = 20_260_101
    rng = random.Random(seed)
    samples = sample_requests()
    for number in range(600):
        frame = bytearray(rng.choice(samples))
        for _ in range(rng.choice([1, 1, 2, 5])):
            frame[rng.randrange(8, len(frame))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        with connect(kalda, timeout_seconds=0.2) as sock:
            sock.sendall(struct.pack(">i", len(frame)) + frame)
            try:
                answer = receive_frame(sock)
            except TimeoutError:
                continue
            if answer is not None:
                assert len(answer) >= 4, f"seed {seed}, request {number}: {bytes(frame).hex()}"
    assert_serves(kalda)
    assert "Traceback" not in kalda.log(), f"seed {seed}"


def test_junk_streams_leave_the_broker_serving(kalda: KaldaProcess) -> None:
    rng = random.Random(99)
    for _ in range(100):
        with connect(kalda) as sock:
            sock.sendall(rng.randbytes(rng.randrange(1, 2000)))
            sock.shutdown(socket.SHUT_WR)
            assert receive_frame(sock) is None
    assert_serves(kalda)
    assert "Traceback" not in kalda.log()
