"""A controlled shutdown ends, whatever the controller does."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from kalda.broker.config import BrokerConfig
from kalda.broker.controller_link.controlled_shutdown import shut_down_gracefully
from kalda.broker.controller_link.requests import ControllerRequests
from kalda.broker.metadata_cache import MetadataCache
from kalda.broker.registration import BrokerRegistration
from kalda.broker.replication.follower.manager import ReplicaFetcherManager
from kalda.broker.services import BrokerServices
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.driver import ControllerDriver
from kalda.controller.effects import UpdateMetadata
from kalda.coordination.errors import ConnectionLossError
from kalda.coordination.schema import BrokerInfo, ListenerEndpoint
from kalda.net.peer.connection import PeerConnection
from kalda.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from kalda.protocol.schema import Message

OURS, OTHER = 1, 2
Outcome = list[TopicPartition] | ErrorCode | Exception
REMAINING = [TopicPartition("t", 0)]


class World:
    """Broker 1, which wants to stop; `outcomes` are the controller's answers, the last one for ever."""

    def __init__(self, controller_id: int | None, *outcomes: Outcome, **settings: str) -> None:
        properties = {"broker.id": "1", "controlled.shutdown.retry.backoff.ms": "0"}
        properties |= {name.replace("_", "."): value for name, value in settings.items()}
        self.outcomes = list(outcomes)
        self.asked = 0
        self.closed = 0
        self.cache = MetadataCache()
        self.services = BrokerServices()
        self.services.broker_id = OURS
        self.services.config = BrokerConfig.from_properties(properties)
        self.services.metadata_cache = self.cache
        controller = SimpleNamespace(controller_id=controller_id, controlled_shutdown=self.by_call)
        self.services.controller = cast("ControllerDriver", controller)
        self.services.replica_fetchers = cast("ReplicaFetcherManager", SimpleNamespace(unfollow=None))
        requests = SimpleNamespace(follow_no_more=lambda unfollow: None)
        self.services.controller_requests = cast("ControllerRequests", requests)
        self.services.registration = cast("BrokerRegistration", SimpleNamespace(broker_epoch=7))
        self.live(OURS, OTHER)

    def live(self, *broker_ids: int, controller_id: int = -1) -> None:
        brokers = [BrokerInfo(each, (ListenerEndpoint("PLAINTEXT", "h", each),)) for each in broker_ids]
        self.cache.apply(UpdateMetadata(controller_id, 1, [], brokers))

    async def run(self) -> bool:
        return await shut_down_gracefully(self.services, self)

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

    async def dial(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_seconds: float,
        receive_buffer_bytes: int = -1,
    ) -> PeerConnection:
        assert ("h", OTHER, 30) == (host, port, timeout_seconds)
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
    world = World(controller_id, [])
    assert await world.run()
    assert 1 == world.asked
    assert (controller_id == OTHER) == world.closed


@pytest.mark.parametrize("controller_id", [OURS, OTHER])
async def test_it_is_tried_again_while_partitions_remain_and_after_failures(controller_id: int) -> None:
    for failure in (
        REMAINING,
        ErrorCode.NOT_CONTROLLER,
        ConnectionLossError("lost"),
        ConnectionError("gone"),
    ):
        world = World(controller_id, failure, failure, [])
        assert await world.run()
        assert 3 == world.asked


@pytest.mark.parametrize("controller_id", [OURS, OTHER])
@pytest.mark.parametrize("failure", [REMAINING, ErrorCode.STALE_BROKER_EPOCH, TimeoutError()])
async def test_it_is_given_up_after_the_attempts_that_the_settings_allow(
    controller_id: int, failure: Outcome
) -> None:
    world = World(controller_id, failure, controlled_shutdown_max_retries="2")
    assert not await world.run()
    assert 2 == world.asked


async def test_without_a_controller_it_is_given_up() -> None:
    world = World(None, [])
    assert not await world.run()
    assert 0 == world.asked


async def test_what_was_told_of_the_controller_serves_while_coordination_says_nothing() -> None:
    world = World(None, [])
    world.live(OURS, OTHER, controller_id=OTHER)
    assert await world.run()


async def test_it_may_be_switched_off() -> None:
    world = World(OTHER, [], controlled_shutdown_enable="false")
    assert not await world.run()
    assert 0 == world.asked


async def test_the_last_broker_asks_nobody() -> None:
    world = World(OURS, REMAINING)
    world.live(OURS)
    assert await world.run()
    assert 0 == world.asked


async def test_who_becomes_the_last_one_waits_no_longer() -> None:
    """Brokers that stop together: whoever is left has nobody to hand over to."""
    world = World(OTHER, REMAINING, controlled_shutdown_retry_backoff_ms="3600000")
    task = asyncio.ensure_future(world.run())
    while not world.asked:  # noqa: ASYNC110
        await asyncio.sleep(0)
    world.live(OURS)
    assert await task
    assert 1 == world.asked
