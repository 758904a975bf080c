"""Dispatch on a fake socket: which request reaches which handler, and what each kind of failure says."""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any

import pytest

from kalda.broker.requests import dispatch as dispatch_module
from kalda.broker.requests.api import ApiHandler, Pending, RawResult, RequestContext
from kalda.broker.requests.dispatch import Dispatcher
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.metrics import Counter, DerivedHistogram, Metrics
from kalda.protocol import codec
from kalda.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kalda.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kalda.zookeeper.errors import ConnectionLossError
from tests.unit.broker.handler_parts import NO_SERVICES
from tests.unit.net.fakes import Harness, framed

Handle = Callable[[Any, RequestContext], Any]


def request_frame(
    key: int,
    version: int,
    body: bytes = b"",
    *,
    correlation_id: int = 7,
    tail: bytes = b"",
    client: str = "me",
) -> bytes:
    """A request frame; `tail` ends the header: the tagged fields where the version is flexible."""
    return struct.pack(">hhih", key, version, correlation_id, len(client)) + client.encode() + tail + body


def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])


def produce_error(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, error_code=int(code), base_offset=-1)
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def find_coordinator_error(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=int(code))


def unused_raw(context: RequestContext, frame: memoryview, position: int) -> RawResult:
    raise AssertionError("not expected to be called")


class Broker:
    """A dispatcher behind a connection on a fake socket."""

    def __init__(
        self,
        *,
        raw: Any = unused_raw,
        find: Handle | None = None,
        find_error: Callable[[Any, ErrorCode], object] = find_coordinator_error,
        tasks: asyncio.TaskGroup | None = None,
    ) -> None:
        self.metrics = Metrics()
        handlers = [
            ApiHandler(
                access=None,
                key=ApiKey.PRODUCE,
                versions=(3, 11),
                advertised=(0, 11),
                build_raw=lambda _: raw,
                error_response=produce_error,
            ),
            ApiHandler(
                access=None,
                key=ApiKey.API_VERSIONS,
                versions=(0, 4),
                build=lambda _: api_versions,
                error_response=lambda request, code: ApiVersionsResponse(error_code=int(code)),
            ),
            ApiHandler(
                access=None,
                key=ApiKey.FIND_COORDINATOR,
                versions=(0, 2),
                build=lambda _: find or (lambda request, context: FindCoordinatorResponse(host=request.key)),
                error_response=find_error,
            ),
        ]
        self.dispatcher = Dispatcher(NO_SERVICES, handlers, self.metrics, tasks)
        self.harness = Harness(self.dispatcher.on_frame)

    def ask(self, *frames: bytes) -> bytes:
        self.harness.receive(b"".join(map(framed, frames)))
        return self.harness.take_sent()

    @property
    def closed(self) -> list[str]:
        return self.harness.owner.closed

    def instrument(self, name: str, **labels: str) -> Any:
        families = {family.name: family for family in self.metrics.families()}
        return families[name].samples.get(tuple(sorted(labels.items())))


def test_handler_of_few_clusters_is_built_with_its_first_request() -> None:
    broker = Broker()
    built: list[object] = []

    def build(services: object) -> Handle:
        built.append(services)
        return lambda request, context: HeartbeatResponse(throttle_time_ms=3)

    handler = ApiHandler(
        access=None,
        key=ApiKey.HEARTBEAT,
        versions=(1, 3),
        build=build,
        is_built_when_used=True,
        error_response=lambda request, code: HeartbeatResponse(error_code=int(code)),
    )
    broker.dispatcher.add_handler(handler, NO_SERVICES, broker.metrics)
    assert [] == built
    frame = request_frame(ApiKey.HEARTBEAT, 1, codec.encode(HeartbeatRequest(), 1), correlation_id=5)
    for _ in range(2):
        sent = broker.ask(frame)
        assert 3 == codec.decode(HeartbeatResponse, 1, sent, 8).throttle_time_ms
    assert [NO_SERVICES] == built


def find_frame(key: str = "group", correlation_id: int = 7) -> bytes:
    body = codec.encode(FindCoordinatorRequest(key=key), 1)
    return request_frame(ApiKey.FIND_COORDINATOR, 1, body, correlation_id=correlation_id)


def find_answer(sent: bytes) -> FindCoordinatorResponse:
    size, _ = struct.unpack_from(">ii", sent)
    assert 4 + size == len(sent)
    return codec.decode(FindCoordinatorResponse, 1, sent, 8)


def produce_frame(version: int, acks: int = 1) -> bytes:
    request = ProduceRequest(
        acks=acks,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=b"")])],
    )
    tail = b"\0" if version >= 9 else b""
    return request_frame(ApiKey.PRODUCE, version, codec.encode(request, version), tail=tail)


class TestRawHandlers:
    @pytest.mark.parametrize(
        ("version", "tail"),
        [(8, b""), (9, b"\0"), (9, b"\x02\x00\x03abc\x05\x00")],
        ids=["v1 header", "no tagged fields", "unknown tagged fields"],
    )
    def test_body_position_is_behind_the_header(self, version: int, tail: bytes) -> None:
        seen: list[tuple[Any, ...]] = []

        def raw(context: RequestContext, frame: memoryview, position: int) -> RawResult:
            seen.append((context.correlation_id, context.client_id, bytes(frame[position:])))
            return b"reply"

        broker = Broker(raw=raw)
        sent = broker.ask(request_frame(0, version, b"body", tail=tail, correlation_id=42, client="kcat"))
        assert b"reply" == sent
        assert [(42, "kcat", b"body")] == seen

    def test_client_id_may_be_null_empty_or_change(self) -> None:
        seen: list[str | None] = []

        def raw(context: RequestContext, frame: memoryview, position: int) -> RawResult:
            seen.append(context.client_id)
            return None

        null = struct.pack(">hhih", 0, 8, 1, -1)
        broker = Broker(raw=raw)
        clients = ("a", "a", "bé", "")
        broker.ask(null, *(request_frame(0, 8, client=client.encode().decode("latin-1")) for client in "aa"))
        broker.ask(*(struct.pack(">hhih", 0, 8, 1, len(c.encode())) + c.encode() for c in clients), null)
        assert [None, "a", "a", *clients, None] == seen

    def test_no_reply_keeps_the_order(self) -> None:
        """acks=0 sends nothing, and what comes after it is answered as usual."""
        replies: list[bytes | None] = [None, b"second", None, b"fourth"]
        broker = Broker(raw=lambda *_: replies.pop(0))
        assert b"secondfourth" == broker.ask(*[request_frame(0, 8)] * 4)

    def test_pending_reply_is_sent_when_complete_and_holds_later_ones(self) -> None:
        pending = Pending[Any]()
        replies: list[Any] = [pending, b"second"]
        broker = Broker(raw=lambda *_: replies.pop(0))
        assert b"" == broker.ask(request_frame(0, 8), request_frame(0, 8))
        pending.complete([b"first", b"-"])
        assert b"first-second" == broker.harness.take_sent()

    def test_pending_that_was_completed_at_once(self) -> None:
        pending = Pending[Any]()
        pending.complete(b"done")
        assert b"done" == Broker(raw=lambda *_: pending).ask(request_frame(0, 8))

    def test_pending_without_reply_lets_later_ones_pass(self) -> None:
        pending = Pending[Any]()
        replies: list[Any] = [pending, b"second"]
        broker = Broker(raw=lambda *_: replies.pop(0))
        assert b"" == broker.ask(request_frame(0, 8), request_frame(0, 8))
        pending.complete(None)
        assert b"second" == broker.harness.take_sent()

    def test_pending_is_abandoned_when_the_peer_goes(self) -> None:
        """Else a peer that connects, waits and leaves in a loop fills the purgatory."""
        pending = Pending[Any]()
        abandoned: list[bool] = []
        pending.on_abandoned = lambda: abandoned.append(True)
        broker = Broker(raw=lambda *_: pending)
        broker.ask(request_frame(0, 8))
        broker.harness.receive(ConnectionResetError())
        assert [True] == abandoned
        pending.complete(b"too late")
        assert b"" == broker.harness.take_sent()

    def test_unexpected_failure_is_answered_and_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        def raw(context: RequestContext, frame: memoryview, position: int) -> RawResult:
            raise RuntimeError("on purpose")

        broker = Broker(raw=raw)
        sent = broker.ask(produce_frame(9))
        response = codec.decode(ProduceResponse, 9, sent, 9)
        assert 3 == response.responses[0].partition_responses[0].index
        assert ErrorCode.UNKNOWN_SERVER_ERROR == response.responses[0].partition_responses[0].error_code
        assert [] == broker.closed
        assert "on purpose" in caplog.text

    def test_unexpected_failure_with_acks_0_closes(self) -> None:
        """The client asked for no answer, so closing is the only way to tell it."""

        def raw(context: RequestContext, frame: memoryview, position: int) -> RawResult:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

        broker = Broker(raw=raw)
        assert b"" == broker.ask(produce_frame(9, acks=0))
        assert 1 == len(broker.closed)

    def test_requests_and_errors_are_counted(self) -> None:
        def raw(context: RequestContext, frame: memoryview, position: int) -> RawResult:
            context.count_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return b"reply"

        broker = Broker(raw=raw)
        broker.ask(*[request_frame(0, 8)] * 3)
        latency = broker.instrument("kafka_network_requestmetrics_totaltimems", request="Produce")
        assert isinstance(latency, DerivedHistogram)
        assert 3 == latency.read().count
        errors = broker.instrument(
            "kafka_network_requestmetrics_errors", request="Produce", error="NOT_LEADER_OR_FOLLOWER"
        )
        assert isinstance(errors, Counter)
        assert 3 == errors.value


class TestMessages:
    def test_response_is_encoded_in_the_version_of_the_request(self) -> None:
        broker = Broker()
        sent = broker.ask(find_frame("my-group", correlation_id=99))
        assert (99,) == struct.unpack_from(">i", sent, 4)
        assert "my-group" == find_answer(sent).host

    def test_api_error_becomes_its_code(self) -> None:
        def find(request: object, context: RequestContext) -> object:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        broker = Broker(find=find)
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE == find_answer(broker.ask(find_frame())).error_code
        errors = broker.instrument(
            "kafka_network_requestmetrics_errors",
            request="FindCoordinator",
            error="COORDINATOR_NOT_AVAILABLE",
        )
        assert 1 == errors.value

    def test_unexpected_failure_becomes_unknown_server_error(self, caplog: pytest.LogCaptureFixture) -> None:
        def find(request: object, context: RequestContext) -> object:
            raise KeyError("on purpose")

        broker = Broker(find=find)
        assert ErrorCode.UNKNOWN_SERVER_ERROR == find_answer(broker.ask(find_frame())).error_code
        assert [logging.ERROR] == [record.levelno for record in caplog.records]

    def test_coordination_that_is_away_is_no_fault_of_the_broker(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def find(request: object, context: RequestContext) -> object:
            raise ConnectionLossError("cannot be reached")

        broker = Broker(find=find)
        assert ErrorCode.REQUEST_TIMED_OUT == find_answer(broker.ask(find_frame())).error_code
        assert [(logging.WARNING, None)] == [(record.levelno, record.exc_info) for record in caplog.records]

    def test_message_that_quotes_more_than_a_string_may_hold_is_cut(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        refused = FindCoordinatorResponse(
            error_code=int(ErrorCode.INVALID_REQUEST), error_message="é" * 32_767 + " is no group"
        )
        answer = find_answer(Broker(find=lambda *_: refused).ask(find_frame()))
        assert (ErrorCode.INVALID_REQUEST, "é" * 1000 + "…") == (answer.error_code, answer.error_message)
        assert [] == caplog.records

    @pytest.mark.parametrize(
        ("text", "sent"),
        [("h" * 40_000, "h" * 32_764 + "…"), ("é" * 20_000, "é" * 16_382 + "…"), ("h\ud800", "h?")],
    )
    def test_a_text_that_no_response_can_carry_ends_none(self, text: str, sent: str) -> None:
        """One topic in ZooKeeper with such a name ended the metadata of all clients."""
        broker = Broker(find=lambda *_: FindCoordinatorResponse(host=text, port=9092))
        answer = find_answer(broker.ask(find_frame()))
        assert (ErrorCode.NONE, sent, 9092) == (answer.error_code, answer.host, answer.port)

    def test_response_that_cannot_be_encoded_becomes_unknown_server_error(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker(find=lambda *_: FindCoordinatorResponse(port=1 << 40))
        assert ErrorCode.UNKNOWN_SERVER_ERROR == find_answer(broker.ask(find_frame())).error_code
        assert 1 == len(caplog.records)

    def test_pending_response_is_sent_when_complete(self) -> None:
        pending = Pending[FindCoordinatorResponse]()
        broker = Broker(find=lambda *_: pending)
        assert b"" == broker.ask(find_frame())
        pending.complete(FindCoordinatorResponse(host="later"))
        assert "later" == find_answer(broker.harness.take_sent()).host

    def test_pending_response_may_fail(self) -> None:
        pending = Pending[FindCoordinatorResponse]()
        broker = Broker(find=lambda *_: pending)
        broker.ask(find_frame())
        pending.fail(ApiError(ErrorCode.REQUEST_TIMED_OUT))
        assert ErrorCode.REQUEST_TIMED_OUT == find_answer(broker.harness.take_sent()).error_code


class TestCoroutines:
    async def test_coroutine_is_answered_in_its_place(self) -> None:
        gate = asyncio.Event()

        async def find(request: FindCoordinatorRequest, context: RequestContext) -> object:
            if request.key == "slow":
                await gate.wait()
            return FindCoordinatorResponse(host=request.key)

        async with asyncio.TaskGroup() as tasks:
            broker = Broker(find=find, tasks=tasks)
            assert b"" == broker.ask(find_frame("slow"), find_frame("fast"))
            await asyncio.sleep(0)
            assert b"" == broker.harness.take_sent()
            gate.set()
        sent = broker.harness.take_sent()
        half = len(sent) // 2
        assert ["slow", "fast"] == [find_answer(sent[:half]).host, find_answer(sent[half:]).host]

    async def test_failing_coroutine_spares_the_group(self, caplog: pytest.LogCaptureFixture) -> None:
        async def find(request: object, context: RequestContext) -> object:
            raise RuntimeError("on purpose")

        async with asyncio.TaskGroup() as tasks:
            broker = Broker(find=find, tasks=tasks)
            broker.ask(find_frame())
        assert ErrorCode.UNKNOWN_SERVER_ERROR == find_answer(broker.harness.take_sent()).error_code
        assert 1 == len(caplog.records)

    async def test_answer_that_cannot_be_given_ends_the_connection_not_the_broker(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A bug in one handler's error response must not cancel the group that all handlers run in."""

        async def find(request: object, context: RequestContext) -> object:
            raise RuntimeError("on purpose")

        async with asyncio.TaskGroup() as tasks:
            broker = Broker(find=find, find_error=lambda request, code: 1 / 0, tasks=tasks)
            broker.ask(find_frame())
        assert ["FindCoordinator cannot be answered"] == broker.closed

    async def test_running_handlers_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatch_module, "TASKS_MAX", 3)
        running = 0
        most = 0

        async def find(request: object, context: RequestContext) -> object:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return FindCoordinatorResponse()

        async with asyncio.TaskGroup() as tasks:
            broker = Broker(find=find, tasks=tasks)
            broker.ask(*[find_frame()] * 20)
        assert 3 == most
        assert broker.harness.connection.is_quiet
        latency = broker.instrument("kafka_network_requestmetrics_totaltimems", request="FindCoordinator")
        assert 20 == latency.read().count


class TestRefusals:
    def test_api_versions_of_an_unknown_version_is_answered_in_version_0(self) -> None:
        """KIP-511: the client reads the list and steps down."""
        broker = Broker()
        sent = broker.ask(request_frame(18, 99, b"whatever this is", tail=b"\0"))
        response = codec.decode(ApiVersionsResponse, 0, sent, 8)
        assert ErrorCode.UNSUPPORTED_VERSION == response.error_code
        assert [(18, 4)] == [(api.api_key, api.max_version) for api in response.api_keys]
        assert [] == broker.closed

    def test_version_that_is_only_advertised_gets_its_error(self) -> None:
        """Old producers are told in their own format; librdkafka needs the version advertised."""
        broker = Broker()
        response = codec.decode(ProduceResponse, 2, broker.ask(produce_frame(2)), 8)
        assert ErrorCode.UNSUPPORTED_VERSION == response.responses[0].partition_responses[0].error_code

    @pytest.mark.parametrize(
        "frame",
        [
            pytest.param(request_frame(3, 1), id="API without a handler"),
            pytest.param(request_frame(32000, 0), id="API that does not exist"),
            pytest.param(request_frame(-1, 0), id="negative API"),
            pytest.param(request_frame(0, 12, tail=b"\0"), id="version above"),
            pytest.param(request_frame(0, -1), id="version below"),
            pytest.param(request_frame(10, 3), id="version above, not advertised"),
            pytest.param(request_frame(10, 1, b"\x00\x10short"), id="truncated body"),
            pytest.param(struct.pack(">hhih", 10, 1, 7, 500) + b"me", id="client id over the end"),
            pytest.param(struct.pack(">hhih", 10, 1, 7, 2) + b"\xff\xfe", id="client id not UTF-8"),
            pytest.param(request_frame(0, 9), id="no tagged fields"),
            pytest.param(request_frame(0, 9, tail=b"\x01\x00\x09ab"), id="tagged field over the end"),
            pytest.param(b"", id="empty frame"),
            pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", id="HTTP"),
            pytest.param(bytes.fromhex("16030100f1010000ed0303"), id="TLS"),
        ],
    )
    def test_what_cannot_be_read_ends_the_connection(
        self, frame: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As Kafka does: InvalidRequestException closes the channel. Nothing counts as our own failure."""
        broker = Broker()
        good = find_frame()
        sent = broker.ask(good, frame, good)
        assert "group" == find_answer(sent).host
        assert 1 == len(broker.closed)
        assert [] == caplog.records

    def test_bytes_behind_a_request_are_passed_over(self) -> None:
        """As in Kafka; librdkafka 2.16 leaves three zero bytes behind a MetadataRequest for all topics."""
        broker = Broker()
        sent = broker.ask(request_frame(10, 1, b"\x00\x05group\x00\x00\x00\x00"))
        assert "group" == find_answer(sent).host
        assert [] == broker.closed

    @pytest.mark.parametrize("length", range(len(find_frame())))
    def test_request_truncated_anywhere_ends_the_connection(
        self, length: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker()
        assert b"" == broker.ask(find_frame()[:length])
        assert 1 == len(broker.closed)
        assert [] == caplog.records
