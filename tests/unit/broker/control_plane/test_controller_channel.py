"""The controller's channel: which broker it dials, what it makes of answers and failures."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from kalda.broker.control_plane.channel import (
    PARTITIONS_PER_REQUEST,
    ControllerChannel,
    ControllerRoute,
)
from kalda.broker.control_plane.requests import ControllerRequests
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import BrokerRequest, LeaderAndIsr, StopReplica, UpdateMetadata
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.leader_and_isr import (
    TYPE_FULL,
    TYPE_INCREMENTAL,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kalda.protocol.messages.stop_replica import StopReplicaPartitionError, StopReplicaResponse
from kalda.protocol.messages.update_metadata import UpdateMetadataResponse
from kalda.protocol.registry import spec
from kalda.protocol.schema import Message
from tests.unit.broker.control_plane.test_controller_wire import role

OURS, OTHER = 0, 1
PARTITION = TopicPartition("a", 0)


def info(broker_id: int, port: int = 9092, epoch: int = 5, listener: str = "INTERNAL") -> BrokerInfo:
    return BrokerInfo(broker_id, (ListenerEndpoint(listener, f"host{broker_id}", port),), epoch=epoch)


class FakePeer:
    """A connection that answers what the test says."""

    def __init__(self, harness: "ChannelHarness") -> None:
        self.harness = harness
        self.is_closed = False

    async def request(self, request: Message, *, timeout_seconds: float) -> Message:
        assert 7 == timeout_seconds
        self.harness.asked.append(request)
        try:
            return await self.harness.answer(request)
        except ConnectionError:
            self.is_closed = True
            raise

    def version_of(self, api_key: ApiKey) -> int:
        return spec(api_key).versions.highest

    def close(self) -> None:
        self.is_closed = True


class ControlDialer:
    """The dialer of the control plane: its connections are noted with the host in upper case."""

    def __init__(self, harness: "ChannelHarness") -> None:
        self.harness = harness

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        return await self.harness.dial(host.upper(), port, options)


class ChannelHarness:
    """A channel of broker 0, its own requests, and the peers that it dials."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int]] = []
        self.peers: list[FakePeer] = []
        self.asked: list[Message] = []
        self.applied: list[tuple[BrokerRequest, int]] = []
        self.refusal: ErrorCode | None = None
        self.answer: Callable[[Message], Awaitable[Message]] = self.all_well
        self.channel = ControllerChannel(
            OURS,
            cast("ControllerRequests", self),
            [ControllerRoute("CONTROL", ControlDialer(self)), ControllerRoute("INTERNAL", self)],
            timeout_ms=7000,
        )

    async def apply(self, request: BrokerRequest, broker_epoch: int) -> dict[TopicPartition, ErrorCode]:
        self.applied.append((request, broker_epoch))
        if self.refusal is not None:
            raise ApiError(self.refusal)
        return {}

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        assert ("0", 7) == (options.client_id, options.timeout_seconds)
        self.dialled.append((host, port))
        self.peers.append(FakePeer(self))
        return cast("PeerConnection", self.peers[-1])

    async def all_well(self, request: Message) -> Message:
        answers: dict[str, Message] = {
            "LeaderAndIsrRequest": LeaderAndIsrResponse(),
            "StopReplicaRequest": StopReplicaResponse(),
            "UpdateMetadataRequest": UpdateMetadataResponse(),
        }
        return answers[type(request).__name__]


def stop(*partitions: TopicPartition) -> StopReplica:
    return StopReplica(OURS, 3, list(partitions), True, dict.fromkeys(partitions, 4))


@pytest.mark.parametrize("kalda", [None, "0.1.0"])
async def test_what_a_broker_of_apache_kafka_knows_already_is_no_error(kalda: str | None) -> None:
    """After an election it answers so for every partition. For the whole request the code is an error."""
    harness = ChannelHarness()
    broker = replace(info(OTHER), kalda=kalda)
    stale, failed = ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR
    request = LeaderAndIsr(OURS, 3, [role("a", 0), role("a", 1)])
    both = [TopicPartition("a", 0), TopicPartition("a", 1)]
    codes = zip(both, (stale, failed), strict=True)
    partial = LeaderAndIsrResponse(
        partition_errors=[
            LeaderAndIsrPartitionError(topic_name=p.topic, partition_index=p.partition, error_code=code)
            for p, code in codes
        ]
    )
    for response, expected in (
        (partial, {both[1]: failed} | ({} if kalda is None else {both[0]: stale})),
        (LeaderAndIsrResponse(error_code=stale), dict.fromkeys(both, stale)),
    ):

        async def answer(_: Message, response: Message = response) -> Message:
            return response

        harness.answer = answer
        assert expected == await harness.channel.send(broker, request)


async def test_the_own_broker_is_called() -> None:
    harness = ChannelHarness()
    assert {} == await harness.channel.send(info(OURS, epoch=6), stop(PARTITION))
    assert [(stop(PARTITION), 6)] == harness.applied
    assert [] == harness.dialled


async def test_a_broker_with_a_control_plane_gets_its_requests_there() -> None:
    """A broker that was not restarted since it was set up has the inter-broker listener only (KIP-291)."""
    harness = ChannelHarness()
    both = BrokerInfo(
        OTHER,
        (ListenerEndpoint("INTERNAL", "data", 1), ListenerEndpoint("CONTROL", "control", 2, "SSL")),
        epoch=5,
    )
    for broker in (info(OTHER), both, both):
        await harness.channel.send(broker, stop(PARTITION))
    assert [("host1", 9092), ("CONTROL", 2)] == harness.dialled


async def test_leaders_are_named_with_the_listener_of_replication() -> None:
    harness = ChannelHarness()
    both = BrokerInfo(
        OTHER, (ListenerEndpoint("CONTROL", "control", 2), ListenerEndpoint("INTERNAL", "data", 1)), epoch=5
    )
    await harness.channel.send(both, UpdateMetadata(OURS, 3, [], [both]))
    await harness.channel.send(both, LeaderAndIsr(OURS, 3, [role("a", 0, leader=OTHER)]))
    request = harness.asked[-1]
    assert isinstance(request, LeaderAndIsrRequest)
    assert [("data", 1)] == [(each.host_name, each.port) for each in request.live_leaders]


async def test_one_connection_serves_while_the_registration_stands() -> None:
    """A broker that registered again may be another process behind the same address."""
    harness = ChannelHarness()
    for broker in (info(OTHER), info(OTHER), info(OTHER, epoch=6), info(OTHER, port=1, epoch=6)):
        await harness.channel.send(broker, stop(PARTITION))
    assert [("host1", 9092), ("host1", 9092), ("host1", 1)] == harness.dialled
    assert [True, True, False] == [peer.is_closed for peer in harness.peers]
    assert [5, 5, 6, 6] == [cast("Any", request).broker_epoch for request in harness.asked]


async def test_a_connection_that_failed_is_opened_anew() -> None:
    harness = ChannelHarness()

    async def fail(_: Message) -> Message:
        raise ConnectionError("gone")

    harness.answer = fail
    with pytest.raises(ConnectionError):
        await harness.channel.send(info(OTHER), stop(PARTITION))
    harness.answer = harness.all_well
    await harness.channel.send(info(OTHER), stop(PARTITION))
    assert 2 == len(harness.dialled)


async def test_a_broker_without_the_listener_cannot_be_reached() -> None:
    with pytest.raises(ConnectionError, match="broker 1 has no listener INTERNAL"):
        await ChannelHarness().channel.send(info(OTHER, listener="CLIENTS"), stop(PARTITION))


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH])
@pytest.mark.parametrize("broker_id", [OURS, OTHER])
async def test_a_refusal_is_the_answer_of_every_partition(code: ErrorCode, broker_id: int) -> None:
    """It is not tried again: the watches will tell who is controller, and who lives."""
    harness = ChannelHarness()
    harness.refusal = code

    async def refuse(request: Message) -> Message:
        answer = await harness.all_well(request)
        cast("Any", answer).error_code = code
        return answer

    harness.answer = refuse
    assert {PARTITION: code} == await harness.channel.send(info(broker_id), stop(PARTITION))
    roles = LeaderAndIsr(OURS, 3, [role("a", 0)])
    assert {PARTITION: code} == await harness.channel.send(info(broker_id), roles)
    assert {} == await harness.channel.send(info(broker_id), UpdateMetadata(OURS, 3, [role("a", 0)], []))


@pytest.mark.parametrize("broker_id", [OURS, OTHER])
async def test_a_broker_that_cannot_take_it_now_is_asked_again_later(broker_id: int) -> None:
    harness = ChannelHarness()
    harness.refusal = ErrorCode.BROKER_NOT_AVAILABLE

    async def refuse(_: Message) -> Message:
        return LeaderAndIsrResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)

    harness.answer = refuse
    with pytest.raises(ConnectionError, match=f"broker {broker_id} cannot take LeaderAndIsr now"):
        await harness.channel.send(info(broker_id), LeaderAndIsr(OURS, 3, [role("a", 0)]))


async def test_errors_of_partitions_come_back() -> None:
    harness = ChannelHarness()

    async def answer(_: Message) -> Message:
        error = StopReplicaPartitionError(
            topic_name="a", partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR
        )
        return StopReplicaResponse(partition_errors=[error])

    harness.answer = answer
    errors = await harness.channel.send(info(OTHER), stop(PARTITION, TopicPartition("b", 0)))
    assert {PARTITION: ErrorCode.KAFKA_STORAGE_ERROR} == errors


async def test_a_large_request_goes_in_parts_unless_it_lists_everything() -> None:
    roles = [role("a", number) for number in range(PARTITIONS_PER_REQUEST * 2 + 1)]
    harness = ChannelHarness()
    await harness.channel.send(info(OTHER), LeaderAndIsr(OURS, 3, roles))
    sizes = [len(cast("Any", each).topic_states[0].partition_states) for each in harness.asked]
    assert [PARTITIONS_PER_REQUEST, PARTITIONS_PER_REQUEST, 1] == sizes

    harness = ChannelHarness()
    await harness.channel.send(info(OTHER), LeaderAndIsr(OURS, 3, roles, is_full=True))
    (only,) = harness.asked
    assert len(roles) == len(cast("Any", only).topic_states[0].partition_states)

    harness = ChannelHarness()
    await harness.channel.send(info(OTHER), UpdateMetadata(OURS, 3, list(roles), [info(OTHER)], is_full=True))
    assert [TYPE_INCREMENTAL, TYPE_INCREMENTAL, TYPE_FULL] == [
        cast("Any", each).type for each in harness.asked
    ]
    assert [1, 1, 1] == [len(cast("Any", each).live_brokers) for each in harness.asked]


async def test_roles_come_with_the_addresses_of_leaders() -> None:
    harness = ChannelHarness()
    await harness.channel.send(info(OTHER), UpdateMetadata(OURS, 3, [], [info(0), info(1, port=5), info(2)]))
    await harness.channel.send(info(OTHER), LeaderAndIsr(OURS, 3, [role("a", 0, leader=1)]))
    request = harness.asked[-1]
    assert isinstance(request, LeaderAndIsrRequest)
    assert [(1, "host1", 5)] == [(each.broker_id, each.host_name, each.port) for each in request.live_leaders]


async def test_a_cancelled_request_leaves_no_open_connection_behind_when_the_channel_closes() -> None:
    harness = ChannelHarness()
    never = asyncio.Event()

    async def hang(_: Message) -> Message:
        await never.wait()
        return UpdateMetadataResponse()

    harness.answer = hang
    task = asyncio.ensure_future(harness.channel.send(info(OTHER), stop(PARTITION)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    harness.channel.close()
    assert all(peer.is_closed for peer in harness.peers)
