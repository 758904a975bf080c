"""Which in-sync replicas a leader of Apache Kafka gets from the controller."""

from dataclasses import replace

import pytest

from kalda.cluster.schema import BrokerInfo, PartitionState, ReplicaAssignment, TopicAssignment
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.controller.context import ControllerContext
from kalda.controller.isr_requests import IsrRequest, decide, outcomes

P = TopicPartition("t", 0)
STORED = PartitionState(1, 5, (1, 2), 3, version=9)


def context() -> ControllerContext:
    made = ControllerContext(1)
    made.live_brokers = {broker_id: BrokerInfo(broker_id, ()) for broker_id in (1, 2, 3)}
    made.shutting_down = {3}
    made.assignments["t"] = TopicAssignment("t", ZERO_UUID, {0: ReplicaAssignment((1, 2, 3, 4, 5, 6))})
    made.live_brokers[5] = BrokerInfo(5, (), epoch=50)
    made.live_brokers[6] = BrokerInfo(6, ())
    made.full_dirs[6] = {P}
    made.states[P] = STORED
    return made


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (IsrRequest(5, 9, (1,)), replace(STORED, isr=(1,))),
        (IsrRequest(5, 9, (1, 2, 5)), replace(STORED, isr=(1, 2, 5))),
        (IsrRequest(5, 9, (1, 2, 5), broker_epochs={1: 0, 5: 50}), replace(STORED, isr=(1, 2, 5))),
        (IsrRequest(5, 9, (1, 2, 5), broker_epochs={5: -1}), replace(STORED, isr=(1, 2, 5))),
        # A repeated request names the version before.
        (IsrRequest(5, 8, (2, 1)), STORED),
        (IsrRequest(5, 8, (1,)), ErrorCode.INVALID_UPDATE_VERSION),
        (IsrRequest(4, 9, (1,)), ErrorCode.FENCED_LEADER_EPOCH),
        (IsrRequest(6, 9, (1,)), ErrorCode.NOT_CONTROLLER),
        (IsrRequest(5, 10, (1, 2)), ErrorCode.NOT_CONTROLLER),
        (IsrRequest(4, 10, (1, 2)), ErrorCode.NOT_CONTROLLER),
        (IsrRequest(5, 9, (1,), is_leader_recovering=True), ErrorCode.INVALID_REQUEST),
        (IsrRequest(5, 9, (2,)), ErrorCode.INVALID_REQUEST),
        (IsrRequest(5, 9, (1, 1)), ErrorCode.INVALID_REQUEST),
        (IsrRequest(5, 9, (1, 9)), ErrorCode.INVALID_REQUEST),
        (IsrRequest(5, 9, ()), ErrorCode.INVALID_REQUEST),
        pytest.param(IsrRequest(5, 9, (1, 2, 3)), ErrorCode.INELIGIBLE_REPLICA, id="shuts-down"),
        pytest.param(IsrRequest(5, 9, (1, 2, 4)), ErrorCode.INELIGIBLE_REPLICA, id="is-dead"),
        pytest.param(IsrRequest(5, 9, (1, 2, 6)), ErrorCode.INELIGIBLE_REPLICA, id="has-a-full-disk"),
        pytest.param(
            IsrRequest(5, 9, (1, 2, 5), broker_epochs={5: 49}), ErrorCode.INELIGIBLE_REPLICA, id="restarted"
        ),
    ],
)
def test_what_the_leader_gets(request_: IsrRequest, expected: PartitionState | ErrorCode) -> None:
    assert expected == decide(context(), 1, P, request_)


def test_only_the_leader_may_ask() -> None:
    assert ErrorCode.INVALID_REQUEST == decide(context(), 2, P, IsrRequest(5, 9, (2,)))
    ghost = TopicPartition("ghost", 0)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == decide(context(), 1, ghost, IsrRequest(5, 9, (1,)))


def test_a_dead_replica_may_stay_while_another_goes() -> None:
    made = context()
    made.states[P] = replace(STORED, isr=(1, 2, 4))
    assert replace(STORED, isr=(1, 4)) == decide(made, 1, P, IsrRequest(5, 9, (1, 4)))


def test_a_leader_that_recovers_is_alone_until_it_has_recovered() -> None:
    """It was elected by an unclean election (KIP-704)."""
    made = context()
    recovering = made.states[P] = replace(STORED, isr=(1,), leader_recovering=True)
    both = IsrRequest(5, 9, (1, 2), is_leader_recovering=True)
    assert ErrorCode.INVALID_REQUEST == decide(made, 1, P, both)
    assert replace(recovering, leader_recovering=False) == decide(made, 1, P, IsrRequest(5, 9, (1,)))
    recovered = replace(recovering, isr=(1, 2), leader_recovering=False)
    assert recovered == decide(made, 1, P, IsrRequest(5, 9, (1, 2)))


def test_a_conflict_with_an_own_lost_write_is_a_success() -> None:
    wanted = replace(STORED, isr=(1,))
    written, other = replace(wanted, version=10), replace(STORED, version=10)
    assert {P: written} == outcomes({P: wanted}, {P: written})
    assert {P: ErrorCode.INVALID_UPDATE_VERSION} == outcomes({P: wanted}, {P: other})
    assert {P: ErrorCode.INVALID_UPDATE_VERSION} == outcomes({P: wanted}, {P: None})
