"""Collects the requests of one step, so that each broker gets at most one request of each kind."""

from collections.abc import Iterable

from kalda.cluster.schema import LEADER_DURING_DELETE, NO_LEADER, PartitionState
from kalda.common.steps import Steps
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext
from kalda.controller.effects import (
    Effect,
    LeaderAndIsr,
    PartitionLeadership,
    Send,
    StopReplica,
    UpdateMetadata,
)

_NO_STATE = PartitionState(NO_LEADER, -1, (), -1)


class RequestBatch:
    """The requests of one step. LeaderAndIsr comes before UpdateMetadata, because a broker must be leader
    before the metadata of other brokers directs clients to it. StopReplica comes last, except for a broker
    that gets the full metadata: by that it moves replicas aside that it does not have any more, and could
    not delete them.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._full: set[int] = set()
        self._metadata: dict[TopicPartition, None] = {}
        self._metadata_full: set[int] = set()
        self._is_metadata_due = False
        self._stop: dict[tuple[int, bool], dict[TopicPartition, int]] = {}

    def add_leader_and_isr(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, is_new: bool = False
    ) -> None:
        """Send live brokers of these the partition's leadership, and every live broker its metadata."""
        for broker_id in broker_ids:
            if broker_id in self._context.live_brokers:
                self._leader_and_isr.setdefault(broker_id, {})[partition] = is_new
        self.add_metadata([partition])

    def add_roles(self, broker_id: int, roles: Iterable[TopicPartition]) -> None:
        """Send a broker leadership that it should have already; other brokers get no metadata."""
        entries = self._leader_and_isr.setdefault(broker_id, {})
        for partition in roles:
            entries.setdefault(partition, False)

    def add_all_roles(self, broker_id: int, roles: Iterable[TopicPartition]) -> None:
        """Send a new broker the leadership of all its replicas in a full request, even if it has none."""
        self._full.add(broker_id)
        self.add_roles(broker_id, roles)

    def add_metadata(self, changed: Iterable[TopicPartition] = ()) -> None:
        """Send every live broker the live brokers, and the metadata of these partitions."""
        self._is_metadata_due = True
        self._metadata.update(dict.fromkeys(changed))

    def add_all_metadata(self, broker_id: int) -> None:
        """Send one broker the metadata of every partition."""
        self._metadata_full.add(broker_id)
        self._is_metadata_due = True

    def add_stop(
        self, broker_id: int, partition: TopicPartition, *, delete: bool, epoch: int | None = None
    ) -> None:
        """Have a live broker stop its replica and, with `delete`, delete it.

        The deletion of a topic overrides any leader epoch. Otherwise the broker ignores the request if its
        replica has a newer leader epoch than `epoch`, or than the partition's current one if `epoch` is None.
        """
        if broker_id not in self._context.live_brokers:
            return
        state = self._context.states.get(partition, _NO_STATE)
        is_being_deleted = partition.topic in self._context.topics_to_delete
        if epoch is None:
            epoch = LEADER_DURING_DELETE if is_being_deleted else state.leader_epoch
        self._stop.setdefault((broker_id, delete), {})[partition] = epoch

    def effects(self) -> Steps[list[Effect]]:
        """Return the requests collected."""
        context = self._context
        identity = (context.controller_id, context.epoch)
        built: dict[tuple[TopicPartition, bool], PartitionLeadership] = {}

        def leaderships(entries: Iterable[tuple[TopicPartition, bool]]) -> Steps[list[PartitionLeadership]]:
            found: list[PartitionLeadership] = []
            for entry in entries:
                yield
                if entry not in built:
                    built[entry] = self._leadership(*entry)
                found.append(built[entry])
            return found

        brokers = [context.live_brokers[broker_id] for broker_id in sorted(context.live_brokers)]
        effects: list[Effect] = []
        # A new broker needs the addresses of the others before the first request to follow one of them.
        effects.extend(
            Send(broker_id, UpdateMetadata(*identity, [], brokers)) for broker_id in sorted(self._full)
        )
        for broker_id, roles in sorted(self._leader_and_isr.items()):
            hosted = yield from leaderships(roles.items())
            effects.append(Send(broker_id, LeaderAndIsr(*identity, hosted, is_full=broker_id in self._full)))
        stops = [
            Send(broker_id, StopReplica(*identity, list(epochs), delete, epochs))
            for (broker_id, delete), epochs in sorted(self._stop.items())
        ]
        effects.extend(each for each in stops if each.broker_id in self._metadata_full)
        if self._is_metadata_due:
            changed = yield from leaderships((p, False) for p in self._metadata if self._is_known(p))
            everything: list[PartitionLeadership] = []
            if self._metadata_full:
                known = filter(self._is_known, context.all_partitions())
                everything = yield from leaderships((p, False) for p in known)
            for broker_id in sorted(context.live_brokers):
                is_full = broker_id in self._metadata_full
                sent = everything if is_full else changed
                effects.append(Send(broker_id, UpdateMetadata(*identity, sent, brokers, is_full)))
        effects.extend(each for each in stops if each.broker_id not in self._metadata_full)
        return effects

    def _is_known(self, partition: TopicPartition) -> bool:
        # A partition that never had a leader is not announced: clients would take it for an offline one.
        return partition in self._context.states or partition.topic in self._context.topics_to_delete

    def _leadership(self, partition: TopicPartition, is_new: bool) -> PartitionLeadership:
        context = self._context
        topic_assignment = context.assignments[partition.topic]
        assignment = topic_assignment.partitions[partition.partition]
        state = context.states.get(partition, _NO_STATE)
        is_being_deleted = partition.topic in context.topics_to_delete
        return PartitionLeadership(
            topic=partition.topic,
            topic_id=topic_assignment.topic_id,
            partition=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if is_being_deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.version,
            replicas=assignment.replicas,
            is_new=is_new,
            offline_replicas=tuple(r for r in assignment.replicas if not context.is_serving(partition, r)),
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
        )
