"""A controlled shutdown ends, whatever the controller does."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from kalda.broker.control_plane import controlled_shutdown
from kalda.broker.control_plane.controlled_shutdown import (
    ControlledShutdown,
    report_leaderships,
    wait_zookeeper_silent,
)
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.driver import ControllerDriver
from kalda.controller.effects import UpdateMetadata
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from kalda.protocol.schema import Message
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import ConnectionLossError
from kalda.zookeeper.port import ZooKeeperClient

OURS, OTHER = 1, 2
Outcome = list[TopicPartition] | ErrorCode | Exception
REMAINING = [TopicPartition("t", 0)]


class StoppingBroker:
    """Broker 1, which wants to stop; `outcomes` are the controller's answers, the last one for ever."""

    def __init__(self, controller_id: int | None, *outcomes: Outcome, **settings: str) -> None:
        properties = {"broker.id": "1", "controlled.shutdown.retry.backoff.ms": "0"}
        properties |= {name.replace("_", "."): value for name, value in settings.items()}
        self.outcomes = list(outcomes)
        self.asked = 0
        self.closed = 0
        self.is_silent = False
        self.cache = MetadataCache()
        controller = SimpleNamespace(controller_id=controller_id, controlled_shutdown=self.by_call)
        self.shutdown = ControlledShutdown(
            OURS,
            BrokerConfig.from_properties(properties),
            self.cache,
            cast("ControllerDriver", controller),
            self,
            broker_epoch=lambda: 7,
            stop_following=lambda: None,
        )
        self.live(OURS, OTHER)

    def live(self, *broker_ids: int, controller_id: int = -1) -> None:
        brokers = [BrokerInfo(each, (ListenerEndpoint("PLAINTEXT", "h", each),)) for each in broker_ids]
        self.cache.apply(UpdateMetadata(controller_id, 1, [], brokers))

    async def run(self) -> str:
        return await self.shutdown.run()

    def outcome(self) -> Outcome:
        self.asked += 1
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def by_call(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        assert (OURS, 7) == (broker_id, broker_epoch)
        outcome = self.outcome()
        if isinstance(outcome, ErrorCode):
            raise ApiError(outcome)
        assert isinstance(outcome, list)
        return outcome

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        assert ("h", OTHER, 30) == (host, port, options.timeout_seconds)
        if self.is_silent:
            await asyncio.Event().wait()
        return cast("PeerConnection", self)

    async def request(self, request: Message, *, timeout_seconds: float) -> Message:
        assert ControlledShutdownRequest(broker_id=OURS, broker_epoch=7) == request
        outcome = self.outcome()
        if isinstance(outcome, ErrorCode):
            return ControlledShutdownResponse(error_code=outcome)
        assert isinstance(outcome, list)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=each.topic, partition_index=each.partition) for each in outcome
            ]
        )

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("controller_id", [OURS, OTHER])
async def test_once_is_enough_when_all_is_well(controller_id: int) -> None:
    stopping = StoppingBroker(controller_id, [])
    assert not await stopping.run()
    assert 1 == stopping.asked
    assert (controller_id == OTHER) == stopping.closed


@pytest.mark.parametrize("controller_id", [OURS, OTHER])
async def test_it_is_tried_again_while_partitions_remain_and_after_failures(controller_id: int) -> None:
    for failure in (
        REMAINING,
        ErrorCode.NOT_CONTROLLER,
        ConnectionLossError("lost"),
        ConnectionError("gone"),
    ):
        stopping = StoppingBroker(controller_id, failure, failure, [])
        assert not await stopping.run()
        assert 3 == stopping.asked


@pytest.mark.parametrize("controller_id", [OURS, OTHER])
@pytest.mark.parametrize("failure", [REMAINING, ErrorCode.STALE_BROKER_EPOCH, TimeoutError()])
async def test_it_is_given_up_after_the_attempts_that_the_settings_allow(
    controller_id: int, failure: Outcome
) -> None:
    stopping = StoppingBroker(controller_id, failure, controlled_shutdown_max_retries="2")
    assert await stopping.run()
    assert 2 == stopping.asked


async def test_without_a_controller_it_is_given_up() -> None:
    stopping = StoppingBroker(None, [])
    assert "no controller is known" == await stopping.run()
    assert 0 == stopping.asked


async def test_what_was_told_of_the_controller_serves_while_coordination_says_nothing() -> None:
    stopping = StoppingBroker(None, [])
    stopping.live(OURS, OTHER, controller_id=OTHER)
    assert not await stopping.run()


async def test_it_may_be_switched_off() -> None:
    stopping = StoppingBroker(OTHER, [], controlled_shutdown_enable="false")
    assert not await stopping.run()
    assert 0 == stopping.asked


async def test_the_last_broker_asks_nobody() -> None:
    stopping = StoppingBroker(OURS, REMAINING)
    stopping.live(OURS)
    assert "no other broker is left" == await stopping.run()
    assert 0 == stopping.asked


async def test_who_becomes_the_last_one_waits_no_longer() -> None:
    """Brokers that stop together: whoever is left has nobody to hand over to."""
    stopping = StoppingBroker(OTHER, REMAINING, controlled_shutdown_retry_backoff_ms="3600000")
    task = asyncio.ensure_future(stopping.run())
    while not stopping.asked:  # noqa: ASYNC110
        await asyncio.sleep(0)
    stopping.live(OURS)
    assert "no other broker is left" == await task
    assert 1 == stopping.asked


async def test_a_controller_whose_process_does_not_answer_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is paused or its machine hangs; every further attempt would wait as long."""
    monkeypatch.setattr(controlled_shutdown, "SILENCE_SECONDS_MAX", 0.0)
    stopping = StoppingBroker(OTHER, [])
    stopping.is_silent = True
    assert "controller 2 at h:2 has not answered for 0 s" == await stopping.run()
    assert 0 == stopping.asked


class SomeCoordination:
    """Coordination whose reads do what the test says."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)

    async def exists(self, path: str) -> None:
        if not self.outcomes:
            await asyncio.Event().wait()
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome


async def test_coordination_is_silent_only_once_it_does_not_answer() -> None:
    zookeeper = SomeCoordination(None, None, None)
    silent = asyncio.ensure_future(
        wait_zookeeper_silent(cast("ZooKeeperClient", zookeeper), seconds=3600, probe_seconds=0)
    )
    while zookeeper.outcomes:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert not silent.done()
    silent.cancel()
    await wait_zookeeper_silent(cast("ZooKeeperClient", zookeeper), seconds=0)


async def test_coordination_that_only_fails_is_silent_too() -> None:
    """A session without a connection fails every call at once."""
    failing = SomeCoordination(*[ConnectionLossError("lost")] * 3)
    await wait_zookeeper_silent(cast("ZooKeeperClient", failing), seconds=0)


def test_one_line_says_how_many_leaderships_stay_and_why(caplog: pytest.LogCaptureFixture) -> None:
    """Only those that another broker could have: the others were never to be moved."""

    def hosted(topic: str, number: int, replicas: tuple[int, ...], *, leads: bool) -> SimpleNamespace:
        name = TopicPartition(topic, number)
        return SimpleNamespace(topic_partition=name, replicas=replicas, is_leader=leads)

    partitions = [hosted("t", number, (1, 2), leads=True) for number in range(7)]
    partitions += [hosted("alone", 0, (1,), leads=True), hosted("followed", 0, (1, 2), leads=False)]
    manager = SimpleNamespace(partitions={each.topic_partition: each for each in partitions})
    report_leaderships(OURS, cast("ReplicaManager", manager), "no other broker is left")
    assert [
        "broker 1 stops while it leads 7 partitions (t-0, t-1, t-2, t-3, t-4, ...): no other broker is left"
    ] == [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
