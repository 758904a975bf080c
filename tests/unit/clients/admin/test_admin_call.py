"""The rounds of an admin call: each key ends exactly once, and only errors that pass are tried again."""

from collections.abc import Iterable, Sequence

import pytest

from kalda.clients.admin.admin_call import (
    UNKNOWN_PATIENCE_S,
    AdminCall,
    AdminOperation,
    AdminRequest,
    Answers,
    Dispatch,
    Place,
    RequestContext,
)
from kalda.clients.admin.routes import AnyBroker, Broker, Controller, Coordinator, PartitionLeader, Route
from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import (
    BrokerConnectionError,
    BrokerResponseError,
    ClientError,
    RequestTimedOutError,
    UnsupportedApiError,
    error_for,
)
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

CONTEXT = RequestContext(0, NodeApiVersions("broker:9092", {}, {}), 1000)
BACKOFF_S = 0.5
TIMEOUT_MS = 10_000


class Delete(AdminOperation[str, str]):
    """An operation with any route; the value of a key is its name in capitals."""

    title = "delete"

    def __init__(self, route: Route[str]) -> None:
        self._route = route

    @property
    def route(self) -> Route[str]:
        return self._route

    def requests(self, keys: Sequence[str], context: RequestContext) -> Iterable[AdminRequest[str, str]]:
        message = DeleteGroupsRequest(groups_names=list(keys))
        yield AdminRequest.of(message, DeleteGroupsResponse, keys, self._read)

    @staticmethod
    def _read(response: DeleteGroupsResponse, answers: Answers[str, str]) -> None:
        for each in response.results:
            if each.error_code:
                answers.fail(each.group_id, each.error_code, "so says the broker")
            else:
                answers.succeed(each.group_id, each.group_id.upper())


COORDINATOR: Coordinator[str] = Coordinator(CoordinatorType.GROUP, lambda key: key)
LEADER: PartitionLeader[str] = PartitionLeader(lambda key: TopicPartition(key, 0))


def call_on(route: Route[str], *keys: str, retries_max: int = 1000) -> AdminCall[str, str]:
    return AdminCall(
        Delete(route),
        keys,
        now=0.0,
        timeout_ms=TIMEOUT_MS,
        backoff=lambda failures: BACKOFF_S * failures,
        retries_max=retries_max,
    )


def answer(call: AdminCall[str, str], dispatch: Dispatch[str], now: float, **codes: ErrorCode) -> None:
    """Answer a dispatch with an error code for each key of the response."""
    (request,) = call.operation.requests(dispatch.keys, CONTEXT)
    results = [DeletableGroupResult(group_id=key, error_code=code) for key, code in codes.items()]
    call.received(request, DeleteGroupsResponse(results=results), now, "broker 1 (h:9092)")


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        (AnyBroker(), Place.ANY),
        (Controller(), Place.CONTROLLER),
        (Broker(lambda key: 7), 7),
        (Broker(lambda key: None), Place.ANY),
        (COORDINATOR, None),
        (LEADER, None),
    ],
)
def test_each_route_has_its_destination(route: Route[str], expected: object) -> None:
    """None is a broker that has to be looked up first."""
    (dispatch,) = call_on(route, "a").due(0.0)

    assert expected == dispatch.target


def test_keys_with_the_same_destination_share_a_request() -> None:
    dispatches = call_on(Broker(len), "a", "bb", "c", "a").due(0.0)

    assert [Dispatch(("a", "c"), 1), Dispatch(("bb",), 2)] == dispatches


def test_a_key_in_flight_is_not_sent_again() -> None:
    call = call_on(AnyBroker(), "a")
    call.due(0.0)

    assert [] == call.due(9.0)
    assert TIMEOUT_MS / 1000 == call.next_due()


def test_partial_failure_keeps_what_succeeded() -> None:
    call = call_on(AnyBroker(), "a", "b")
    (dispatch,) = call.due(0.0)

    answer(call, dispatch, 0.0, a=ErrorCode.NONE, b=ErrorCode.INVALID_GROUP_ID)

    assert call.is_done
    outcomes = call.outcomes()
    assert {"a": "A"} == outcomes.results
    error = outcomes.errors["b"]
    assert ErrorCode.INVALID_GROUP_ID == error.code
    assert "delete b at broker 1 (h:9092): INVALID_GROUP_ID: so says the broker" == str(error)


def test_a_key_that_the_response_leaves_out_fails() -> None:
    """A broker's bug must not become an endless wait."""
    call = call_on(AnyBroker(), "a", "b")
    (dispatch,) = call.due(0.0)

    answer(call, dispatch, 0.0, a=ErrorCode.NONE)

    with pytest.raises(
        BrokerResponseError, match=r"delete b: the response of broker 1 \(h:9092\) does not mention it"
    ):
        call.outcomes()["b"]


def test_a_coordinator_that_moved_is_looked_up_again_for_its_keys_only() -> None:
    call = call_on(COORDINATOR, "a", "b")
    assert [Dispatch(("a", "b"), None)] == call.due(0.0)
    call.located({"a": 1, "b": 1}, 0.0)
    (dispatch,) = call.due(0.0)
    assert Dispatch(("a", "b"), 1) == dispatch

    answer(call, dispatch, 0.0, a=ErrorCode.NOT_COORDINATOR, b=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    assert [] == call.due(BACKOFF_S - 0.01)
    assert BACKOFF_S == call.next_due()
    assert [Dispatch(("a",), None), Dispatch(("b",), 1)] == call.due(BACKOFF_S)


def test_the_wait_grows_with_the_failures_of_a_key() -> None:
    call = call_on(Controller(), "a")
    now = 0.0
    waits = []
    for _ in range(3):
        (dispatch,) = call.due(now)
        answer(call, dispatch, now, a=ErrorCode.NOT_CONTROLLER)
        waits.append(call.next_due() - now)
        now = call.next_due()

    assert [BACKOFF_S, 2 * BACKOFF_S, 3 * BACKOFF_S] == waits


def test_retries_are_bounded() -> None:
    call = call_on(Controller(), "a", retries_max=1)
    for now in (0.0, BACKOFF_S):
        (dispatch,) = call.due(now)
        answer(call, dispatch, now, a=ErrorCode.NOT_CONTROLLER)

    assert ErrorCode.NOT_CONTROLLER == call.outcomes().errors["a"].code


@pytest.mark.parametrize("error", [BrokerConnectionError("refused"), RequestTimedOutError("too slow")])
def test_a_lost_broker_is_looked_up_again(error: ClientError) -> None:
    call = call_on(LEADER, "a")
    call.due(0.0)
    call.located({"a": 3}, 0.0)
    (dispatch,) = call.due(0.0)

    call.failed(dispatch.keys, error, 0.0, was_sent=True)

    assert [Dispatch(("a",), None)] == call.due(BACKOFF_S)


def test_an_error_after_a_lost_response_says_that_the_request_may_have_taken_effect() -> None:
    """A topic that "exists already" may be the one that the lost request created."""
    call = call_on(Controller(), "a")
    (dispatch,) = call.due(0.0)
    call.failed(dispatch.keys, BrokerConnectionError("lost"), 0.0, was_sent=True)
    (dispatch,) = call.due(BACKOFF_S)

    answer(call, dispatch, BACKOFF_S, a=ErrorCode.TOPIC_ALREADY_EXISTS)

    expected = ["An earlier request of this call got no response; it may have taken effect."]
    assert expected == call.outcomes().errors["a"].__notes__


def test_a_broker_without_the_api_ends_the_keys() -> None:
    call = call_on(AnyBroker(), "a", "b")
    (dispatch,) = call.due(0.0)

    call.failed(dispatch.keys, UnsupportedApiError("no version"), 0.0, was_sent=False)

    assert ["a", "b"] == list(call.outcomes().errors)


def test_when_the_time_is_up_the_last_failure_is_the_cause() -> None:
    call = call_on(Controller(), "a", "b")
    (dispatch,) = call.due(0.0)
    answer(call, dispatch, 0.0, a=ErrorCode.NONE, b=ErrorCode.NOT_CONTROLLER)

    call.expire(TIMEOUT_MS / 1000 - 0.01)
    assert not call.is_done
    call.expire(TIMEOUT_MS / 1000)

    outcomes = call.outcomes()
    assert {"a": "A"} == outcomes.results
    error = outcomes.errors["b"]
    assert isinstance(error, RequestTimedOutError)
    assert str(error).startswith(
        "delete b: gave up after 10000 ms; last: delete b at broker 1 (h:9092): NOT_"
    )
    assert isinstance(error.__cause__, BrokerResponseError)


def test_keys_that_waited_for_a_broker_say_why_none_answers() -> None:
    call = call_on(AnyBroker(), "a")
    call.due(0.0)
    refused = BrokerConnectionError("Connection refused")

    call.expire(TIMEOUT_MS / 1000, refused)

    error = call.outcomes().errors["a"]
    assert "delete a: gave up after 10000 ms; last: Connection refused" == str(error)
    assert refused is error.__cause__


def test_keys_at_a_broker_that_does_not_answer_do_not_say_why_others_cannot_be_reached() -> None:
    call = call_on(AnyBroker(), "a")
    (dispatch,) = call.due(0.0)
    call.prepare(dispatch, CONTEXT)

    call.expire(TIMEOUT_MS / 1000, BrokerConnectionError("Connection refused"))

    error = call.outcomes().errors["a"]
    assert "delete a: gave up after 10000 ms" == str(error)
    assert error.__cause__ is None


def test_a_response_after_the_end_of_a_key_is_ignored() -> None:
    call = call_on(AnyBroker(), "a")
    (dispatch,) = call.due(0.0)
    call.expire(TIMEOUT_MS / 1000)

    answer(call, dispatch, 11.0, a=ErrorCode.NONE)
    call.failed(dispatch.keys, BrokerConnectionError("lost"), 11.0, was_sent=True)

    assert isinstance(call.outcomes().errors["a"], RequestTimedOutError)


def test_an_unknown_topic_is_looked_for_a_short_time_only() -> None:
    """A new topic appears within moments; a misspelt name must not take a minute."""
    call = call_on(LEADER, "a")
    unknown = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "find the leader of a-0")
    now = 0.0
    while now < UNKNOWN_PATIENCE_S:
        assert [Dispatch(("a",), None)] == call.due(now)
        call.located({"a": unknown}, now)
        now = call.next_due()
    assert not call.is_done
    call.due(now)
    call.located({"a": unknown}, now)

    assert unknown is call.outcomes().errors["a"]


def test_an_error_of_a_look_up_that_stays_ends_the_key() -> None:
    call = call_on(COORDINATOR, "a", "b")
    call.due(0.0)

    refused = error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, "coordinator of group 'a'")
    call.located({"a": refused, "b": 4}, 0.0)

    assert [Dispatch(("b",), 4)] == call.due(0.0)


def test_no_keys_are_done_at_once() -> None:
    call = call_on(Controller())

    assert call.is_done
    assert {} == call.outcomes().results
