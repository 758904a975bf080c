"""Checks that a step of the controller's core kept the invariants; runs where full checks are enabled.

`ControllerContext.check_invariants` covers the controller's state; this module covers what a step writes and
sends. Facts that an edit of a znode by hand could break are not asserted.
"""

from collections.abc import Iterable
from typing import Final

from kalda.cluster.schema import NO_LEADER, PartitionState
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext
from kalda.controller.effects import (
    BrokerRequest,
    CreatePartitionStates,
    Effect,
    LeaderAndIsr,
    Send,
    StopReplica,
    UpdateMetadata,
    UpdatePartitionStates,
)
from kalda.controller.partition_state_machine import ElectionStrategy

_REPLICAS_PER_STEP: Final = 64
"""Replicas whose check one step may cost on average: a larger context is checked every few steps only."""


def check_step(context: ControllerContext, effects: Iterable[Effect]) -> None:
    """Assert that a step's effects fit the context, and every few steps that the context is sound."""
    for effect in effects:
        if isinstance(effect, CreatePartitionStates):
            for partition, state in effect.states.items():
                assert partition not in context.states, f"{partition} has a state, it is not created"
                assert state.leader_epoch == 0, f"{partition} begins with leader epoch {state.leader_epoch}"
                _check_state(context, partition, state)
        elif isinstance(effect, UpdatePartitionStates):
            for partition, state in effect.states.items():
                _check_update(context, partition, state, effect.strategy)
        elif isinstance(effect, Send):
            _check_request(context, effect.broker_id, effect.request)
    context.steps_unchecked += 1
    if context.steps_unchecked * _REPLICAS_PER_STEP >= len(context.replica_status):
        context.steps_unchecked = 0
        context.check_invariants()


def _check_state(context: ControllerContext, partition: TopicPartition, state: PartitionState) -> None:
    live, isr, replicas = context.live_brokers.keys(), state.isr, set(context.replicas_of(partition))
    assert isr, f"{partition} would have no in-sync replica"
    assert len(isr) == len(set(isr)), f"{partition} would have the ISR {isr}"
    assert replicas.issuperset(isr) or replicas.isdisjoint(isr), f"{partition}: ISR {isr} of {replicas}"
    assert state.leader == NO_LEADER or state.leader in isr, f"{partition}: {state.leader} is not in {isr}"
    assert state.leader == NO_LEADER or state.leader in live, f"{partition}: {state.leader} is not in {live}"
    assert state.controller_epoch == context.epoch, f"{partition}: {state} is not of epoch {context.epoch}"
    assert partition.topic not in context.topics_to_delete, f"{partition} is being deleted"


def _check_update(
    context: ControllerContext, partition: TopicPartition, state: PartitionState, strategy: ElectionStrategy
) -> None:
    _check_state(context, partition, state)
    before, replicas = context.states[partition], context.replicas_of(partition)
    assert state.leader_epoch == before.leader_epoch + 1, f"{partition}: {before} becomes {state}"
    assert state.version == before.version, f"{partition}: {before} becomes {state}"
    added = set(state.isr) - set(before.isr)
    assert not added or state.leader_recovering, f"{partition}: {added} enter the ISR {before.isr}"
    assert added <= set(replicas), f"{partition}: {added} enter the ISR, the replicas are {replicas}"
    if strategy is ElectionStrategy.REASSIGNMENT and context.assignment_of(partition).is_being_reassigned:
        target = context.assignment_of(partition).target
        assert set(state.isr) == set(target), f"{partition} moves to {target} with the ISR {state.isr}"


def _check_request(context: ControllerContext, broker_id: int, request: BrokerRequest) -> None:
    assert broker_id in context.live_brokers, f"a {type(request).__name__} goes to dead broker {broker_id}"
    assert request.controller_epoch == context.epoch, f"a request of epoch {request.controller_epoch}"
    if isinstance(request, LeaderAndIsr):
        for leadership in request.partitions:
            name, replicas = leadership.topic_partition, leadership.replicas
            assert broker_id in replicas, (
                f"broker {broker_id} is to host {name}, whose replicas are {replicas}"
            )
    elif isinstance(request, StopReplica) and request.delete:
        hosted = {p for p in context.partitions_on(broker_id) if p.topic not in context.topics_to_delete}
        wrong = hosted & set(request.partitions)
        assert not wrong, f"broker {broker_id} is to delete assigned replicas of {sorted(wrong)}"
    elif isinstance(request, UpdateMetadata):
        announced = {broker.id for broker in request.brokers}
        assert announced == context.live_brokers.keys(), f"{announced} are announced as live"
