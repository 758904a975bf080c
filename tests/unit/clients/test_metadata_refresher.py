"""The refresher in virtual time, with a port that answers as the test says."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import BrokerConnectionError, ClientError, RequestTimedOutError, UnsupportedApiError
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.metadata_refresher import MetadataRefresher
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.metadata import MetadataResponse
from tests.runtimes import runtime_with
from tests.unit.clients.metadata_responses import partition, response, topic
from tests.virtual_time import LoopClock, run_virtual

Answer = MetadataResponse | Exception
DEAD = BrokerConnectionError("no connection to b:1: Connection refused")
GOOD = response(topic("t", partition(0, 0, 1)))


class ScriptedPort:
    """Takes `latency_seconds` for each request, then gives what `answer` returns."""

    def __init__(
        self, answer: Callable[[], Answer], latency_seconds: float = 0.01, version: int = 12
    ) -> None:
        self.answer = answer
        self.latency_seconds = latency_seconds
        self.version = version
        self.asked_at: list[float] = []
        self.rebootstraps_at: list[float] = []
        self.idle_checks = 0

    async def send_to_any(
        self,
        request: VersionedRequest,
        response_class: type[MetadataResponse],
        *,
        timeout_ms: int | None = None,
    ) -> MetadataResponse:
        self.asked_at.append(now())
        request.build(self.version)
        await asyncio.sleep(self.latency_seconds)
        answer = self.answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def rebootstrap(self) -> None:
        self.rebootstraps_at.append(now())

    def close_idle(self) -> None:
        self.idle_checks += 1


def now() -> float:
    """Seconds since the start of the test."""
    return round(asyncio.get_running_loop().time() - 1000.0, 3)


class Harness:
    def __init__(self, port: ScriptedPort, **options: int) -> None:
        config = CommonClientConfig.from_options({"bootstrap_servers": "b:1", **options})
        self.port = port
        self.metadata = Metadata()
        self.refresher = MetadataRefresher(port, config, self.metadata, runtime_with(clock=LoopClock()))


def run(harness: Callable[[], Harness], scenario: Callable[[Harness], Awaitable[None]]) -> None:
    async def main() -> None:
        made = harness()
        made.refresher.start()
        try:
            await scenario(made)
        finally:
            await made.refresher.close()

    run_virtual(main())


def test_metadata_is_asked_for_at_the_start_and_then_when_it_is_old() -> None:
    port = ScriptedPort(lambda: GOOD)

    async def scenario(_: Harness) -> None:
        await asyncio.sleep(900)

    run(lambda: Harness(port, metadata_max_age_ms=300_000), scenario)

    assert [0, 300, 600] == [round(each) for each in port.asked_at]


def test_requests_for_an_update_are_merged_and_spaced() -> None:
    """A sender that finds a stale leader a thousand times a second must not ask as often."""
    port = ScriptedPort(lambda: GOOD)

    async def scenario(harness: Harness) -> None:
        await asyncio.sleep(1)
        for _ in range(1000):
            harness.metadata.request_update()
            await asyncio.sleep(0.001)

    run(lambda: Harness(port, retry_backoff_ms=100), scenario)

    assert 8 <= len(port.asked_at) <= 15


def test_a_new_topic_is_asked_for_without_a_pause() -> None:
    port = ScriptedPort(lambda: GOOD)

    async def scenario(harness: Harness) -> None:
        await asyncio.sleep(0.02)
        harness.metadata.add_topic("t", 0.0)
        await asyncio.sleep(0.02)

    run(lambda: Harness(port, retry_backoff_ms=1000), scenario)

    assert [0.0, 0.02] == port.asked_at


def test_a_topic_without_a_leader_is_asked_for_again_with_growing_waits() -> None:
    answers = [response(topic("t", partition(0, -1, 1)))] * 5
    port = ScriptedPort(lambda: answers.pop() if answers else GOOD)

    async def scenario(harness: Harness) -> None:
        harness.metadata.add_topic("t", 0.0)
        await asyncio.sleep(60)

    run(lambda: Harness(port, retry_backoff_ms=100, retry_backoff_max_ms=1000), scenario)

    waits = [after - before - 0.01 for before, after in zip(port.asked_at, port.asked_at[1:], strict=False)]
    for wait, expected in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0], strict=True):
        assert pytest.approx(expected, rel=0.21) == wait


def test_a_cluster_that_is_gone_is_asked_about_once_a_second_and_found_again() -> None:
    alive: list[bool] = []
    port = ScriptedPort(lambda: GOOD if alive else DEAD, latency_seconds=0.001)

    async def scenario(harness: Harness) -> None:
        await asyncio.sleep(60)
        assert 50 <= len(port.asked_at) <= 85
        alive.append(True)
        await asyncio.sleep(1.3)
        assert 1 == harness.metadata.snapshot.version

    run(lambda: Harness(port), scenario)


def test_a_caller_gets_metadata_that_was_asked_for_after_the_call() -> None:
    port = ScriptedPort(lambda: GOOD, latency_seconds=1.0)

    async def scenario(harness: Harness) -> None:
        await asyncio.sleep(0.5)
        snapshot = await harness.refresher.refresh(10)
        assert 2 == snapshot.version
        assert 2.0 == now()

    run(lambda: Harness(port), scenario)


def test_a_caller_that_waits_gets_the_last_failure_when_the_time_is_up() -> None:
    port = ScriptedPort(lambda: DEAD)

    async def scenario(harness: Harness) -> None:
        with pytest.raises(RequestTimedOutError, match=r"no metadata from b:1 within 3 s; last: .*refused"):
            await harness.refresher.refresh(3)
        assert 3.0 == now()

    run(lambda: Harness(port), scenario)


def test_a_failure_that_no_attempt_would_change_is_raised_at_once() -> None:
    port = ScriptedPort(lambda: UnsupportedApiError("too old"))

    async def scenario(harness: Harness) -> None:
        with pytest.raises(UnsupportedApiError, match="too old"):
            await harness.refresher.refresh(30)
        assert now() < 1

    run(lambda: Harness(port), scenario)


def test_a_fault_of_the_program_does_not_end_the_task(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Answer] = [ZeroDivisionError("bug")]
    port = ScriptedPort(lambda: answers.pop() if answers else GOOD)

    async def scenario(harness: Harness) -> None:
        with pytest.raises(ClientError, match="ZeroDivisionError"):
            await harness.refresher.refresh(30)
        assert 1 == (await harness.refresher.refresh(30)).version

    run(lambda: Harness(port), scenario)
    assert "could not be processed" in caplog.text


def test_metadata_without_brokers_is_not_taken() -> None:
    """A broker that has just started does not know the cluster yet."""
    answers: list[Answer] = [GOOD, response(brokers=())]
    port = ScriptedPort(lambda: answers.pop() if len(answers) > 1 else answers[0])

    async def scenario(harness: Harness) -> None:
        seen: list[ClusterMetadata] = []
        harness.metadata.on_update.append(seen.append)
        await asyncio.sleep(5)
        assert [1] == [each.version for each in seen]

    run(lambda: Harness(port), scenario)
    assert 2 == len(port.asked_at)


def test_a_caller_that_waits_during_close_gets_an_error() -> None:
    port = ScriptedPort(lambda: GOOD, latency_seconds=100)

    async def main() -> None:
        harness = Harness(port)
        call = asyncio.create_task(harness.refresher.refresh(50))
        await asyncio.sleep(1)
        await harness.refresher.close()
        with pytest.raises(BrokerConnectionError, match="this client was closed"):
            await call

    run_virtual(main())


def test_bootstrap_servers_come_first_after_the_trigger_time() -> None:
    """KIP-1102: the known brokers may belong to a cluster that moved away."""
    port = ScriptedPort(lambda: DEAD)

    async def scenario(_: Harness) -> None:
        await asyncio.sleep(19)
        assert [] == port.rebootstraps_at
        await asyncio.sleep(3)

    run(lambda: Harness(port, metadata_recovery_rebootstrap_trigger_ms=20_000), scenario)

    assert 20 <= port.rebootstraps_at[0] < 21.5


def test_a_broker_that_demands_it_sends_the_client_back_to_its_bootstrap_servers() -> None:
    """KIP-1102: the cluster behind the addresses may be another one now."""
    answers = [MetadataResponse(error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED)), GOOD]
    port = ScriptedPort(lambda: answers.pop(0) if len(answers) > 1 else answers[0])

    async def scenario(harness: Harness) -> None:
        assert 1 == (await harness.refresher.refresh(5.0)).version

    run(lambda: Harness(port), scenario)
    assert 1 == len(port.rebootstraps_at)


def test_callers_wait_for_nothing_but_the_answer_however_many_came_before() -> None:
    """A program may list groups, or begin to use a topic, many times in a row."""
    port = ScriptedPort(lambda: GOOD, latency_seconds=0.01)

    async def scenario(harness: Harness) -> None:
        await harness.refresher.refresh(5.0)
        began = now()
        for _ in range(50):
            await harness.refresher.refresh(5.0)
        assert 0.5 == round(now() - began, 3)

    run(lambda: Harness(port), scenario)


def test_idle_connections_are_looked_for_as_often_as_their_time_asks() -> None:
    port = ScriptedPort(lambda: GOOD)

    async def scenario(_: Harness) -> None:
        await asyncio.sleep(60)

    run(lambda: Harness(port, connections_max_idle_ms=10_000), scenario)
    assert port.idle_checks >= 12


@pytest.mark.parametrize(("version", "epoch"), [(8, -1), (9, 1)])
def test_epochs_count_from_the_version_that_has_them_right(version: int, epoch: int) -> None:
    port = ScriptedPort(lambda: GOOD, version=version)

    async def scenario(harness: Harness) -> None:
        harness.metadata.add_topic("t", 0.0)
        await asyncio.sleep(1)
        found = harness.metadata.snapshot.topics["t"].partitions[0]
        assert (epoch, ErrorCode.NONE) == (found.leader_epoch, found.error)

    run(lambda: Harness(port), scenario)


def test_a_failure_for_good_is_reported_and_an_unreachable_broker_is_not() -> None:
    answers: list[Exception] = [DEAD, UnsupportedApiError("no Metadata"), DEAD]
    port = ScriptedPort(lambda: answers.pop(0) if answers else GOOD)
    failures: list[ClientError] = []

    async def scenario(harness: Harness) -> None:
        harness.metadata.on_failure = failures.append
        await asyncio.sleep(10)

    run(lambda: Harness(port), scenario)

    assert ["no Metadata"] == [str(each) for each in failures]
