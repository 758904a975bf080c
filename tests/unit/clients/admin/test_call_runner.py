"""Admin calls on a network whose answers the test gives: what is in flight at a time, and how calls end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kalda.clients.admin.admin_call import (
    UNKNOWN_PATIENCE_S,
    AdminOperation,
    AdminRequest,
    Answers,
    RequestContext,
)
from kalda.clients.admin.call_runner import AdminCallRunner
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import AnyBroker, Broker, Controller, Coordinator, PartitionLeader, Route
from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import BrokerConnectionError, IllegalStateError, RequestTimedOutError
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.network_client import BOOTSTRAP_ID_BASE
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kalda.protocol.messages.metadata import MetadataRequest
from tests.unit.clients import metadata_responses
from tests.unit.clients.scripted_network import ScriptedNetwork, settle
from tests.virtual_time import LoopClock, run_virtual

BACKOFF_S = 0.1
IN_FLIGHT_MAX = 32


class Delete(AdminOperation[str, str]):
    """An operation with any route and one request for each key; a key's value is its name in capitals."""

    title = "delete"

    def __init__(self, route: Route[str]) -> None:
        self._route = route

    @property
    def route(self) -> Route[str]:
        return self._route

    def requests(self, keys: Sequence[str], context: RequestContext) -> Iterable[AdminRequest[str, str]]:
        for key in keys:
            if key == "too long":
                raise ValueError("no request can carry it")
            message = DeleteGroupsRequest(groups_names=[key])
            yield AdminRequest.of(message, DeleteGroupsResponse, [key], self._read)

    @staticmethod
    def _read(response: DeleteGroupsResponse, answers: Answers[str, str]) -> None:
        for each in response.results:
            if each.error_code:
                answers.fail(each.group_id, each.error_code)
            else:
                answers.succeed(each.group_id, each.group_id.upper())


class Calling:
    """A runner of calls, whose time is 10 seconds, and of requests, whose time is 4."""

    def __init__(self) -> None:
        endpoints = {number: BrokerEndpoint(number, "h", 9092) for number in (1, 2)}
        self.network = ScriptedNetwork(LoopClock(), ClusterMetadata(1, "c", 1, endpoints, {}))
        client: Any = self.network
        self.runner = AdminCallRunner(
            client, default_timeout_ms=10_000, request_timeout_ms=4_000, retries_max=1_000
        )

    async def start(self, route: Route[str], *keys: str) -> "asyncio.Task[Outcomes[str, str]]":
        call = asyncio.ensure_future(self.runner.run(Delete(route), keys))
        await settle()
        return call

    async def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest request."""
        (key,) = self.network.oldest(DeleteGroupsRequest).groups_names
        result = DeletableGroupResult(group_id=key, error_code=int(code))
        self.network.answer(DeleteGroupsResponse(results=[result]), DeleteGroupsRequest)
        await settle()

    def nodes(self) -> list[int]:
        return [sent.node_id for sent in self.network.sent]


def calling(scenario: Callable[[Calling], Awaitable[None]]) -> None:
    """Run a scenario; tasks that it leaves behind fail it."""

    async def run() -> None:
        await scenario(Calling())

    run_virtual(run())


def error_of(call: "asyncio.Task[Outcomes[str, str]]", key: str) -> Exception:
    error = call.result().errors[key]
    assert isinstance(error, Exception)
    return error


def test_brokers_are_asked_at_the_same_time() -> None:
    async def scenario(it: Calling) -> None:
        call = await it.start(Broker(int), "1", "2")
        assert {1, 2} == set(it.nodes())
        await it.answer()
        await it.answer()
        assert {"1": "1", "2": "2"} == dict(await call)

    calling(scenario)


def test_many_requests_to_one_broker_go_some_at_a_time() -> None:
    async def scenario(it: Calling) -> None:
        call = await it.start(AnyBroker(), *(f"g{number}" for number in range(IN_FLIGHT_MAX + 3)))
        assert IN_FLIGHT_MAX == len(it.network.in_flight)
        await it.answer()
        assert IN_FLIGHT_MAX == len(it.network.in_flight)
        assert IN_FLIGHT_MAX + 1 == len(it.network.sent)
        while it.network.in_flight:
            await it.answer()
        assert IN_FLIGHT_MAX + 3 == len(dict(await call))

    calling(scenario)


def test_a_key_that_may_succeed_later_is_sent_again_after_the_back_off() -> None:
    """The others have ended and are not sent again."""

    async def scenario(it: Calling) -> None:
        call = await it.start(AnyBroker(), "a", "b")
        await it.answer()
        await it.answer(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        await asyncio.sleep(BACKOFF_S * 0.9)
        assert 2 == len(it.network.sent)
        await asyncio.sleep(BACKOFF_S * 0.2)
        assert ["b"] == it.network.oldest(DeleteGroupsRequest).groups_names
        await it.answer()
        assert {"a": "A", "b": "B"} == dict(await call)

    calling(scenario)


def test_a_key_is_sent_again_while_another_one_still_waits_for_its_answer() -> None:
    async def scenario(it: Calling) -> None:
        call = await it.start(AnyBroker(), "a", "b")
        await it.answer(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        await asyncio.sleep(BACKOFF_S * 1.1)
        assert 3 == len(it.network.sent)
        assert ["b"] == it.network.oldest(DeleteGroupsRequest).groups_names
        await it.answer()
        await it.answer()
        assert {"a": "A", "b": "B"} == dict(await call)

    calling(scenario)


def test_a_lost_connection_asks_for_metadata_and_the_request_goes_out_again() -> None:
    async def scenario(it: Calling) -> None:
        call = await it.start(AnyBroker(), "a")
        before = it.network.update_count
        await it.network.lose()
        await asyncio.sleep(BACKOFF_S * 1.1)
        assert before < it.network.update_count
        assert (2, 1) == (len(it.network.sent), it.network.connect_count)
        await it.answer()
        assert {"a": "A"} == dict(await call)

    calling(scenario)


def test_a_controller_that_is_none_any_more_is_looked_up_again() -> None:
    """Its connection is fine, so nothing else would renew the metadata within the time of the call."""

    async def scenario(it: Calling) -> None:
        call = await it.start(Controller(), "a")
        before = it.network.update_count
        await it.answer(ErrorCode.NOT_CONTROLLER)
        assert before < it.network.update_count
        it.network.metadata.snapshot = replace(it.network.metadata.snapshot, controller_id=2)
        await asyncio.sleep(BACKOFF_S * 1.1)
        assert [1, 2] == it.nodes()
        await it.answer()
        assert {"a": "A"} == dict(await call)
        # What the call changed is known to that controller before other brokers.
        second = await it.start(AnyBroker(), "b")
        assert [1, 2, 2] == it.nodes()
        await it.answer()
        await second

    calling(scenario)


def test_a_cluster_without_a_controller_is_asked_for_one_again() -> None:
    async def scenario(it: Calling) -> None:
        it.network.metadata.snapshot = replace(it.network.metadata.snapshot, controller_id=-1)
        call = await it.start(Controller(), "a")
        assert ([], 1) == (it.nodes(), it.network.update_count)
        it.network.metadata.snapshot = replace(it.network.metadata.snapshot, controller_id=2)
        await asyncio.sleep(BACKOFF_S * 1.1)
        assert [2] == it.nodes()
        await it.answer()
        await call

    calling(scenario)


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    async def scenario(it: Calling) -> None:
        call = await it.start(Coordinator(CoordinatorType.GROUP, str), "a")
        first = it.network.coordinator_id
        assert ([first], 0) == (it.nodes(), it.network.forget_count)
        it.network.coordinator_id -= 1
        await it.answer(ErrorCode.NOT_COORDINATOR)
        await asyncio.sleep(BACKOFF_S * 1.1)
        assert ([first, first - 1], 1) == (it.nodes(), it.network.forget_count)
        await it.answer()
        assert {"a": "A"} == dict(await call)

    calling(scenario)


def test_the_leader_of_a_partition_is_looked_up_first() -> None:
    async def scenario(it: Calling) -> None:
        call = await it.start(PartitionLeader(lambda key: TopicPartition(key, 0)), "t")
        topic = metadata_responses.topic("t", metadata_responses.partition(0, 2, 5))
        it.network.answer(metadata_responses.response(topic, brokers=(1, 2)), MetadataRequest)
        await settle()
        assert 2 == it.nodes()[-1]
        await it.answer()
        assert {"t": "T"} == dict(await call)

    calling(scenario)


def test_a_broker_that_is_not_in_the_cluster_is_looked_for_for_a_while() -> None:
    async def scenario(it: Calling) -> None:
        before = it.network.clock.monotonic()
        call = await it.start(Broker(int), "7")
        await asyncio.wait([call])
        assert "broker 7 is not in the cluster (brokers: 1, 2)" in str(error_of(call, "7"))
        assert it.network.update_count
        assert it.network.clock.monotonic() - before == pytest.approx(UNKNOWN_PATIENCE_S, abs=1.0)

    calling(scenario)


def test_a_broker_that_never_answers_ends_the_call_when_its_time_is_over() -> None:
    """Each request has its own, shorter time: another one is sent before."""

    async def scenario(it: Calling) -> None:
        before = it.network.clock.monotonic()
        call = await it.start(AnyBroker(), "a")
        await asyncio.wait([call])
        assert isinstance(error_of(call, "a"), RequestTimedOutError)
        assert 10.0 == pytest.approx(it.network.clock.monotonic() - before)
        assert [4_000, 4_000] == [sent.timeout_ms for sent in it.network.sent[:2]]
        assert 2_000 > it.network.sent[2].timeout_ms

    calling(scenario)


def test_a_broker_that_cannot_be_reached_ends_the_call_with_the_cause() -> None:
    async def scenario(it: Calling) -> None:
        it.network.unreachable = {1, 2}
        call = await it.start(AnyBroker(), "a")
        await asyncio.wait([call])
        assert isinstance(error_of(call, "a").__cause__, BrokerConnectionError)

    calling(scenario)


def test_a_call_that_waits_for_metadata_to_its_end_says_why_none_comes() -> None:
    """The wait for metadata ends at the same moment as the call."""

    async def scenario(it: Calling) -> None:
        it.network.metadata.snapshot = replace(it.network.metadata.snapshot, version=0)
        it.network.last_failure = BrokerConnectionError("Connection refused")
        call = await it.start(AnyBroker(), "a")
        await asyncio.wait([call])
        assert "delete a: gave up after 10000 ms; last: Connection refused" == str(error_of(call, "a"))

    calling(scenario)


def test_a_bootstrap_server_is_asked_without_metadata() -> None:
    async def scenario(it: Calling) -> None:
        it.network.metadata.snapshot = replace(it.network.metadata.snapshot, version=0, brokers={})
        call = await it.start(Broker(int), str(BOOTSTRAP_ID_BASE))
        assert [BOOTSTRAP_ID_BASE] == it.nodes()
        await it.answer()
        assert {"-2": "-2"} == dict(await call)

    calling(scenario)


def test_a_request_that_cannot_be_built_raises_its_own_error() -> None:
    """Not the group of errors of the tasks behind it."""

    async def scenario(it: Calling) -> None:
        with pytest.raises(ValueError, match="no request can carry it"):
            await it.runner.run(Delete(Broker(lambda key: len(key) % 2 + 1)), ["a", "too long"])

    calling(scenario)


def test_a_call_that_is_cancelled_leaves_nothing_in_flight() -> None:
    async def scenario(it: Calling) -> None:
        call = await it.start(Broker(int), "1", "2")
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert all(sent.future.cancelled() for sent in it.network.in_flight)

    calling(scenario)


def test_a_closed_client_runs_no_calls() -> None:
    async def scenario(it: Calling) -> None:
        it.network.is_closed = True
        with pytest.raises(IllegalStateError, match="closed"):
            await it.runner.run(Delete(AnyBroker()), ["a"])
        with pytest.raises(IllegalStateError, match="closed"):
            await it.runner.broker_ids(None)

    calling(scenario)


def test_brokers_are_listed_from_new_metadata() -> None:
    async def scenario(it: Calling) -> None:
        assert [1, 2] == await it.runner.broker_ids(None)
        assert 1 == it.network.refresh_count

    calling(scenario)
