"""Handles broker events: start, failure, restart, controlled shutdown, failed or full log directories."""

from collections.abc import Mapping

from kalda.cluster.schema import BrokerInfo
from kalda.common.errors import ErrorCode
from kalda.common.steps import Steps
from kalda.common.types import TopicPartition
from kalda.controller import topic_deletion
from kalda.controller.context import ControllerContext, Replica
from kalda.controller.effects import Effect, RevisitBrokers
from kalda.controller.events import LeaderAndIsrResponseReceived
from kalda.controller.partition_leadership import (
    Write,
    decide_states,
    take_replica_offline,
    update_status,
    without_pending_write,
)
from kalda.controller.replica_state_machine import ReplicaStatus
from kalda.controller.request_batch import RequestBatch


def on_brokers_changed(
    context: ControllerContext, brokers: Mapping[int, BrokerInfo], batch: RequestBatch
) -> Steps[list[Effect]]:
    """Replace leaders on dead brokers, send new brokers the full state, send all brokers the live ones."""
    before = context.live_brokers
    restarted = {b for b in brokers.keys() & before.keys() if brokers[b].epoch != before[b].epoch}
    context.live_brokers = {b: info for b, info in brokers.items() if b not in restarted}
    dead = before.keys() - context.live_brokers.keys()
    arrived = context.live_brokers.keys() - before.keys()
    context.shutting_down -= dead
    concerned: dict[TopicPartition, None] = {}
    for broker_id in sorted(dead):
        context.offline_dirs.pop(broker_id, None)
        context.full_dirs.pop(broker_id, None)
        for partition in context.partitions_on(broker_id):
            yield
            concerned[partition] = None
            take_replica_offline(context, Replica(partition, broker_id))
    for broker_id in sorted(arrived):
        concerned.update(dict.fromkeys(context.partitions_on(broker_id)))
    for partition in concerned:
        yield
        if partition in context.states:
            update_status(context, partition)
    for broker_id in sorted(arrived):
        yield from send_full_state(context, broker_id, batch)
    writes = yield from decide_states(context, concerned)
    if context.live_brokers != before:
        batch.add_metadata(without_pending_write(context, concerned, writes))
    deletions = yield from topic_deletion.resume_deletions(context, context.topics_to_delete, batch)
    revisit = [RevisitBrokers(brokers)] if restarted else []
    return [*writes, *deletions, *revisit]


def send_full_state(context: ControllerContext, broker_id: int, batch: RequestBatch) -> Steps[None]:
    """Send a new broker everything: its own replicas, and the metadata of every partition."""
    roles = _roles(context, broker_id)
    for partition in roles:
        yield
        if context.is_serving(partition, broker_id):
            context.move_replica(Replica(partition, broker_id), ReplicaStatus.ONLINE)
    for partition, epoch in context.pending_deletions.get(broker_id, {}).items():
        batch.add_stop(broker_id, partition, delete=True, epoch=epoch)
    kept = [partition for partition in roles if broker_id not in context.returned.get(partition, ())]
    if len(kept) == len(roles):
        batch.add_all_roles(broker_id, roles)
    else:
        # A role that is about to be taken away is not sent: the broker would lead with what is left of its
        # log. A full request without the role would have the log set aside.
        batch.add_roles(broker_id, kept)
    batch.add_all_metadata(broker_id)


def on_fell_behind(context: ControllerContext, broker_id: int, batch: RequestBatch) -> Steps[list[Effect]]:
    """Send the full state again to a broker whose request queue was dropped."""
    if broker_id not in context.live_brokers:
        return []
    for partition in context.partitions_on(broker_id):
        yield
        replica = Replica(partition, broker_id)
        if context.replica_status[replica] is ReplicaStatus.DELETION_STARTED:
            context.move_replica(replica, ReplicaStatus.DELETION_INELIGIBLE)
    yield from send_full_state(context, broker_id, batch)
    return (yield from topic_deletion.resume_deletions(context, context.topics_to_delete, batch))


def on_controlled_shutdown(
    context: ControllerContext, broker_id: int, batch: RequestBatch
) -> Steps[list[Write]]:
    """Move a broker's leaderships to other in-sync replicas, and remove it from the ISRs where it follows.

    The broker stays marked as shutting down until it is gone. A repeated request retries the leaderships that
    could not be moved. A partition without other replicas stays: its broker serves it to the end.
    """
    if broker_id not in context.live_brokers:
        return []
    context.shutting_down.add(broker_id)
    concerned = [p for p in _roles(context, broker_id) if len(context.replicas_of(p)) > 1]
    for partition in concerned:
        yield
        replica = Replica(partition, broker_id)
        is_stopped = context.replica_status[replica] is ReplicaStatus.OFFLINE
        if context.states[partition].leader != broker_id and not is_stopped:
            batch.add_stop(broker_id, partition, delete=False)
            context.move_replica(replica, ReplicaStatus.OFFLINE)
    return (yield from decide_states(context, concerned))


def led_partitions(context: ControllerContext, broker_id: int) -> list[TopicPartition]:
    """Return the partitions with several replicas that a broker leads: its shutdown takes them offline."""
    return [
        partition
        for partition in _roles(context, broker_id)
        if context.states[partition].leader == broker_id and len(context.replicas_of(partition)) > 1
    ]


def on_log_dir_failures(
    context: ControllerContext, broker_ids: frozenset[int], batch: RequestBatch
) -> list[Write]:
    """Send brokers LeaderAndIsr for all their replicas: the responses name the replicas that are offline."""
    for broker_id in sorted(broker_ids & context.live_brokers.keys()):
        batch.add_roles(broker_id, _roles(context, broker_id))
    return []


def _roles(context: ControllerContext, broker_id: int) -> list[TopicPartition]:
    return [
        partition
        for partition in context.partitions_on(broker_id)
        if partition in context.states and partition.topic not in context.topics_to_delete
    ]


def on_leader_and_isr_response(
    context: ControllerContext, event: LeaderAndIsrResponseReceived, batch: RequestBatch
) -> Steps[list[Write]]:
    """Record replicas whose log directory failed, is full, or works again; elect other leaders where needed.

    INELIGIBLE_REPLICA means that the broker accepted the request but the log directory is full: the replica
    serves reads, and is leader or in sync only where no other in-sync replica can be.
    """
    broker_id = event.broker_id
    info = context.live_brokers.get(broker_id)
    if info is None or info.epoch != event.broker_epoch or event.request.controller_epoch != context.epoch:
        return []
    hosted = context.partitions_on(broker_id)
    offline_before, full_before = (
        context.offline_dirs.get(broker_id, set()),
        context.full_dirs.get(broker_id, set()),
    )
    offline, full = set(offline_before), set(full_before)
    for partition in [leadership.topic_partition for leadership in event.request.partitions]:
        yield
        code = event.errors.get(partition, ErrorCode.NONE)
        if code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INELIGIBLE_REPLICA):
            (offline.add if code is ErrorCode.KAFKA_STORAGE_ERROR else offline.discard)(partition)
            (full.add if code is ErrorCode.INELIGIBLE_REPLICA else full.discard)(partition)
    offline.intersection_update(hosted)
    full.intersection_update(hosted)
    context.offline_dirs[broker_id], context.full_dirs[broker_id] = offline, full
    differing = (offline ^ offline_before) | (full ^ full_before)
    changed = [partition for partition in hosted if partition in differing]
    for partition in changed:
        yield
        if partition in offline - offline_before:
            take_replica_offline(context, Replica(partition, broker_id))
        if partition in context.states:
            update_status(context, partition)
    writes = yield from decide_states(context, changed)
    if changed:
        batch.add_metadata(without_pending_write(context, changed, writes))
    return writes
