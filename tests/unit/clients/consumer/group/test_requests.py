import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.consumer.group.requests import GroupRequests
from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import RequestTimedOutError
from kalda.clients.network_client import NetworkClient, coordinator_node_id
from kalda.common.types import BrokerEndpoint
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kalda.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kalda.protocol.schema import Message
from kalda.runtime.clock import ManualClock
from tests.virtual_time import run_virtual

COORDINATOR = coordinator_node_id(3)


class Network:
    """Holds JoinGroup until `gate` is set, as a coordinator does; an abandoned request stays in flight."""

    def __init__(self) -> None:
        self.metadata = SimpleNamespace(
            snapshot=SimpleNamespace(brokers={3: BrokerEndpoint(3, "localhost", 9092)})
        )
        self.clock = ManualClock()
        self.config = CommonClientConfig.from_options({"bootstrap_servers": "h:1"})
        self.gate = asyncio.Event()
        self.in_flight = 0
        self.sent: list[tuple[str, int]] = []

    async def coordinator(self, key: str, kind: CoordinatorType) -> int:
        return COORDINATOR

    def in_flight_count(self, node_id: int) -> int:
        return self.in_flight if node_id == COORDINATOR else 0

    async def send(self, node_id: int, request: Message, response_class: Any, **_: object) -> Any:
        self.sent.append((request.SCHEMA.name, node_id))
        if response_class is JoinGroupResponse:
            self.in_flight += 1
            await self.gate.wait()
            self.in_flight -= 1
        return response_class()


def requests_over(network: Network) -> GroupRequests:
    return GroupRequests(cast(NetworkClient, network), "g")


async def test_requests_do_not_wait_behind_a_join_that_the_coordinator_holds() -> None:
    """They would time out there, and with their connection the join would be lost, too."""
    network = Network()
    requests = requests_over(network)
    join = asyncio.create_task(requests.send(JoinGroupRequest(), JoinGroupResponse))
    await asyncio.sleep(0)
    await requests.send(OffsetFetchRequest(), OffsetFetchResponse)
    network.gate.set()
    await join
    await requests.send(OffsetFetchRequest(), OffsetFetchResponse)

    assert [COORDINATOR, 3, COORDINATOR] == [node for _, node in network.sent]


async def test_a_member_leaves_although_its_join_is_held() -> None:
    """The join was given up here, but the coordinator still holds it."""
    network = Network()
    requests = requests_over(network)
    join = asyncio.create_task(requests.send(JoinGroupRequest(), JoinGroupResponse))
    await asyncio.sleep(0)
    join.cancel()
    await asyncio.gather(join, return_exceptions=True)
    await requests.send(LeaveGroupRequest(), LeaveGroupResponse)

    assert ("LeaveGroupRequest", 3) == network.sent[-1]


def test_the_time_of_a_request_bounds_the_look_up_of_the_coordinator() -> None:
    """`close` has its time-out; brokers that are gone answer no FindCoordinator."""

    class Silent(Network):
        async def coordinator(self, key: str, kind: CoordinatorType) -> int:
            await asyncio.sleep(3600)
            return COORDINATOR

    async def run() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(RequestTimedOutError, match="coordinator of group g within 5000 ms"):
            await requests_over(Silent()).send(LeaveGroupRequest(), LeaveGroupResponse, timeout_ms=5000)
        assert 5.0 == pytest.approx(loop.time() - began)

    run_virtual(run())
