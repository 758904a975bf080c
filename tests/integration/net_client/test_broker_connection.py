"""The blocking connection against servers that misbehave, over real sockets."""

import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from kalda.common.clock import SystemClock
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint
from kalda.net.client.broker_connection import FIRST_CAPACITY, BrokerConnection
from kalda.net.client.client_config import ClientConfig
from kalda.net.client.client_errors import BrokerConnectionError, RequestTimedOutError, UnsupportedApiError
from kalda.net.client.cluster_client import ClusterClient
from kalda.protocol.codec import encode
from kalda.protocol.headers import read_request_header
from kalda.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kalda.protocol.messages.fetch import FetchRequest
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

CLOCK = SystemClock()
Handler = Callable[[socket.socket, bytes], bool]
"""Gets a connection and a request; tells whether to read on."""

SERVED = [
    ApiVersion(api_key=3, min_version=0, max_version=12),
    ApiVersion(api_key=18, min_version=0, max_version=3),
]


class FakeBroker:
    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="fake-broker")
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.settimeout(10)
                while (request := read_frame(connection)) is not None and self.handler(connection, request):
                    pass


def read_frame(connection: socket.socket) -> bytes | None:
    try:
        size = connection.recv(4, socket.MSG_WAITALL)
        return connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL) if len(size) == 4 else None
    except OSError:
        return None


def reply(connection: socket.socket, request: bytes, body: bytes, *, tagged: bool = False) -> bool:
    header, _ = read_request_header(request)
    payload = struct.pack(">i", header.correlation_id) + (b"\0" if tagged else b"") + body
    connection.sendall(struct.pack(">i", len(payload)) + payload)
    return True


def is_api_versions(request: bytes) -> bool:
    return read_request_header(request)[0].api_key == 18


def reply_versions(connection: socket.socket, request: bytes) -> bool:
    version = read_request_header(request)[0].api_version
    if version > 3:
        refusal = ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=SERVED)
        return reply(connection, request, encode(refusal, 0))
    return reply(connection, request, encode(ApiVersionsResponse(api_keys=SERVED), version))


@pytest.fixture
def serve() -> Iterator[Callable[[Handler], FakeBroker]]:
    brokers: list[FakeBroker] = []

    def start(handler: Handler) -> FakeBroker:
        def with_versions(connection: socket.socket, request: bytes) -> bool:
            if is_api_versions(request):
                return reply_versions(connection, request)
            return handler(connection, request)

        brokers.append(FakeBroker(with_versions))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


def connect(broker: FakeBroker, seconds: float = 5) -> BrokerConnection:
    return BrokerConnection.open(
        "127.0.0.1",
        broker.port,
        client_id="test",
        receive_buffer_bytes=-1,
        deadline=CLOCK.monotonic() + seconds,
        clock=CLOCK,
    )


def metadata_of(broker: FakeBroker) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=broker.port)], cluster_id="c"
    )


def test_an_older_broker_is_asked_again_in_a_version_that_it_knows(
    serve: Callable[[Handler], FakeBroker],
) -> None:
    broker = serve(
        lambda connection, request: reply(connection, request, encode(metadata_of(broker), 12), tagged=True)
    )

    connection = connect(broker)
    response = connection.call(MetadataRequest(topics=None), MetadataResponse, CLOCK.monotonic() + 5)

    assert "c" == response.cluster_id
    with pytest.raises(UnsupportedApiError, match="share no version of Fetch"):
        connection.send(FetchRequest(), CLOCK.monotonic() + 5)
    connection.close()


def junk_size(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(b"\x7f\xff\xff\xff")
    return True


def wrong_correlation(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(struct.pack(">iix", 5, 12345))
    return True


def truncated_body(connection: socket.socket, request: bytes) -> bool:
    return reply(connection, request, b"\0\0", tagged=True)


def hang_up(connection: socket.socket, request: bytes) -> bool:
    return False


def half_an_answer(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(struct.pack(">i", 100) + b"x" * 50)
    return False


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (junk_size, "a frame of 2147483647 bytes"),
        (wrong_correlation, "response 12345 came where Metadata 2 was due"),
        (truncated_body, "sent a bad answer"),
        (hang_up, "closed the connection"),
        (half_an_answer, "closed the connection"),
    ],
)
def test_a_bad_answer_closes_the_connection(
    serve: Callable[[Handler], FakeBroker], handler: Handler, message: str
) -> None:
    connection = connect(serve(handler))

    with pytest.raises(BrokerConnectionError, match=message):
        connection.call(MetadataRequest(topics=None), MetadataResponse, CLOCK.monotonic() + 5)
    assert connection.is_closed


def test_announced_size_takes_no_memory(serve: Callable[[Handler], FakeBroker]) -> None:
    """A broker, or what poses as one, must not make an executor touch 1 GiB with four bytes."""

    def announce_much(connection: socket.socket, request: bytes) -> bool:
        connection.sendall(struct.pack(">i", 500_000_000) + b"x" * 50)
        return False

    connection = connect(serve(announce_much))
    tracemalloc.start()
    try:
        with pytest.raises(BrokerConnectionError, match="closed the connection"):
            connection.call(MetadataRequest(topics=None), MetadataResponse, CLOCK.monotonic() + 5)
        assert tracemalloc.get_traced_memory()[1] < 2 * FIRST_CAPACITY
    finally:
        tracemalloc.stop()


def test_large_answer_arrives_whole(serve: Callable[[Handler], FakeBroker]) -> None:
    """It is 3 MB, larger than the first buffer, which grows twice."""
    brokers = [MetadataResponseBroker(node_id=node, host="h" * 1000, port=1) for node in range(3000)]
    body = encode(MetadataResponse(brokers=brokers), 12)

    def answer(connection: socket.socket, request: bytes) -> bool:
        return reply(connection, request, body, tagged=True)

    connection = connect(serve(answer))
    response = connection.call(MetadataRequest(topics=None), MetadataResponse, CLOCK.monotonic() + 5)
    assert brokers == response.brokers
    connection.close()


def test_silence_ends_in_a_time_out_and_a_closed_connection(serve: Callable[[Handler], FakeBroker]) -> None:
    """A late answer must never be taken for the answer to a later request."""
    connection = connect(serve(lambda *_: True))

    with pytest.raises(RequestTimedOutError, match="no answer from"):
        connection.call(MetadataRequest(topics=None), MetadataResponse, CLOCK.monotonic() + 0.2)
    assert connection.is_closed


def test_nobody_listening_is_told_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    config = ClientConfig((("127.0.0.1", port),), default_api_timeout_ms=300, retry_backoff_ms=20)

    with (
        ClusterClient(config) as client,
        pytest.raises(
            RequestTimedOutError, match=f"gave up after 300 ms; last: no connection to 127.0.0.1:{port}"
        ),
    ):
        client.metadata()


def test_a_connection_that_the_broker_ended_while_idle_is_not_used(
    serve: Callable[[Handler], FakeBroker],
) -> None:
    def answer_once(connection: socket.socket, request: bytes) -> bool:
        reply(connection, request, encode(metadata_of(broker), 12), tagged=True)
        return False

    broker = serve(answer_once)
    with ClusterClient(ClientConfig((("127.0.0.1", broker.port),))) as client:
        deadline = CLOCK.monotonic() + 5
        connection = client.borrow(BrokerEndpoint(0, "127.0.0.1", broker.port), deadline)
        connection.call(MetadataRequest(topics=None), MetadataResponse, deadline)
        client.give_back(connection)
        while not connection.is_stale:
            assert CLOCK.monotonic() < deadline

        assert "c" == client.metadata().cluster_id
    assert 2 == broker.connections


def test_requests_are_pipelined_and_answered_in_order(serve: Callable[[Handler], FakeBroker]) -> None:
    answered: list[int] = []

    def answer(connection: socket.socket, request: bytes) -> bool:
        answered.append(len(answered))
        body = MetadataResponse(cluster_id=f"answer-{answered[-1]}")
        return reply(connection, request, encode(body, 12), tagged=True)

    connection = connect(serve(answer))
    deadline = CLOCK.monotonic() + 5
    for _ in range(3):
        connection.send(MetadataRequest(topics=None), deadline)

    assert 3 == connection.in_flight
    assert ["answer-0", "answer-1", "answer-2"] == [
        connection.receive(MetadataResponse, deadline).cluster_id for _ in range(3)
    ]
    connection.close()
