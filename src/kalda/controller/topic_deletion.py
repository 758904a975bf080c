"""Deletes every replica of a topic that is marked for deletion, then the topic's znodes.

A replica on a dead broker delays the deletion until the broker is back. Only a new topic of the same name
ends the wait: the dead broker recognises its old replica by the topic id when it is back. Deletion can be
resumed at every point: the mark in ZooKeeper is removed last, so a new controller starts over, and deleting a
replica that is gone is no error.
"""

from collections.abc import Collection, Iterable

from kalda.cluster.schema import LEADER_DURING_DELETE
from kalda.common.errors import ErrorCode
from kalda.common.steps import Steps
from kalda.controller.context import ControllerContext, Replica
from kalda.controller.effects import DeleteTopicZnodes, Effect, RejectTopicDeletion
from kalda.controller.events import StopReplicaResponseReceived
from kalda.controller.partition_state_machine import PartitionStatus
from kalda.controller.replica_state_machine import ReplicaStatus
from kalda.controller.request_batch import RequestBatch

_GONE = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Response codes after which a broker does not have the replica."""


def request_deletions(
    context: ControllerContext, topics: Iterable[str], batch: RequestBatch
) -> Steps[list[Effect]]:
    """Start deleting newly marked topics; reject topics that do not exist, or all if deletion is disabled."""
    wanted = sorted(set(topics) - context.topics_to_delete)
    accepted = [
        topic for topic in wanted if topic in context.assignments and context.is_topic_deletion_enabled
    ]
    rejected = tuple(topic for topic in wanted if topic not in accepted)
    context.topics_to_delete.update(accepted)
    for topic in accepted:
        yield
        batch.add_metadata(context.partitions_of(topic))
    effects: list[Effect] = [RejectTopicDeletion(rejected)] if rejected else []
    effects += yield from resume_deletions(context, accepted, batch)
    return effects


def resume_deletions(
    context: ControllerContext, topics: Collection[str], batch: RequestBatch
) -> Steps[list[Effect]]:
    """Continue the deletion of topics: stop replicas on live brokers, finish topics without replicas."""
    finished: list[str] = []
    for topic in sorted(topics):
        if topic not in context.topics_to_delete or topic in context.topics_without_replicas:
            continue
        is_finished = True
        for replica in context.topic_replicas(topic):
            yield
            status = context.replica_status[replica]
            if status is ReplicaStatus.DELETION_SUCCESSFUL:
                continue
            is_finished = False
            if status is ReplicaStatus.DELETION_STARTED:
                continue
            if replica.broker_id in context.live_brokers:
                context.move_replica(replica, ReplicaStatus.OFFLINE)
                context.move_replica(replica, ReplicaStatus.DELETION_STARTED)
                batch.add_stop(replica.broker_id, replica.partition, delete=True)
            elif status is not ReplicaStatus.DELETION_INELIGIBLE:
                context.move_replica(replica, ReplicaStatus.OFFLINE)
                context.move_replica(replica, ReplicaStatus.DELETION_INELIGIBLE)
        if is_finished:
            finished.append(topic)
    context.topics_without_replicas.update(finished)
    return [DeleteTopicZnodes(tuple(finished))] if finished else []


def complete_deletions(
    context: ControllerContext, topics: Iterable[str], batch: RequestBatch
) -> Steps[list[Effect]]:
    """Complete the deletion of topics whose remaining replicas are all on dead brokers.

    A live broker must have deleted its replica first: it could still serve the replica under the topic's
    name.
    """
    complete: list[str] = []
    for topic in topics:
        if topic not in context.topics_to_delete:
            continue
        left = [
            replica
            for replica in context.topic_replicas(topic)
            if context.replica_status[replica] is not ReplicaStatus.DELETION_SUCCESSFUL
        ]
        if any(replica.broker_id in context.live_brokers for replica in left):
            continue
        for replica in left:
            yield
            context.move_replica(replica, ReplicaStatus.OFFLINE)
            context.move_replica(replica, ReplicaStatus.DELETION_STARTED)
            context.move_replica(replica, ReplicaStatus.DELETION_SUCCESSFUL)
        complete.append(topic)
    return (yield from resume_deletions(context, complete, batch))


def on_stop_replica_response(
    context: ControllerContext, event: StopReplicaResponseReceived, batch: RequestBatch
) -> Steps[list[Effect]]:
    """Record which replicas a broker has deleted."""
    if not event.request.delete or event.request.controller_epoch != context.epoch:
        return []
    progressed: set[str] = set()
    statuses = context.replica_status
    for partition in event.request.partitions:
        yield
        if event.errors.get(partition, ErrorCode.NONE) in _GONE:
            context.pending_deletions.get(event.broker_id, {}).pop(partition, None)
    for replica in [Replica(partition, event.broker_id) for partition in event.request.partitions]:
        yield
        if statuses.get(replica) is not ReplicaStatus.DELETION_STARTED:
            continue
        if event.errors.get(replica.partition, ErrorCode.NONE) in _GONE:
            context.move_replica(replica, ReplicaStatus.DELETION_SUCCESSFUL)
            progressed.add(replica.partition.topic)
        else:
            context.move_replica(replica, ReplicaStatus.DELETION_INELIGIBLE)
    complete = {
        topic
        for topic in progressed
        if all(
            statuses[replica] is ReplicaStatus.DELETION_SUCCESSFUL
            for replica in context.topic_replicas(topic)
        )
    }
    return (yield from resume_deletions(context, complete, batch))


def on_topics_deleted(context: ControllerContext, topics: Iterable[str]) -> Steps[None]:
    """Remove topics whose znodes have been deleted from the context."""
    for topic in topics:
        if topic not in context.topics_without_replicas:
            continue
        dead = []
        for replica in list(context.topic_replicas(topic)):
            yield
            context.move_replica(replica, ReplicaStatus.NON_EXISTENT)
            if replica.broker_id not in context.live_brokers:
                dead.append(replica)
        for partition in context.partitions_of(topic):
            yield
            context.move_partition(partition, PartitionStatus.OFFLINE)
            context.move_partition(partition, PartitionStatus.NON_EXISTENT)
        context.forget_topic(topic)
        for replica in dead:
            # A topic of the same name has lower epochs, which must not protect the old replica.
            context.pending_deletions.setdefault(replica.broker_id, {})[replica.partition] = (
                LEADER_DURING_DELETE
            )
