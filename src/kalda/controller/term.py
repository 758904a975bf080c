"""One term of a controller: what it knows, and how it turns what happens into steps of the core.

A term begins with the election that the driver won and is thrown away when office is left, so nothing of it
can leak into the next. All of it runs in the driver's one task, but for the answers of brokers, which only
leave an event. What must not be broken: an event and the outcomes of its writes are one step, and nothing
comes between; and every write is checked in coordination against the epoch of this term.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, assert_never

from kalda.common import invariants
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.log_text import numbers_text
from kalda.common.types import TopicPartition
from kalda.controller import elections, reassignment
from kalda.controller.brokers import led_partitions
from kalda.controller.channel_manager import ControllerChannelManager
from kalda.controller.context import ControllerContext
from kalda.controller.core import step
from kalda.controller.effects import (
    BrokerRequest,
    CreatePartitionStates,
    DeleteTopicZnodes,
    Effect,
    LeaderAndIsr,
    RejectTopicDeletion,
    RevisitBrokers,
    Send,
    StopReplica,
    UpdatePartitionStates,
    WriteAssignments,
)
from kalda.controller.event_queue import EventQueue
from kalda.controller.events import (
    AssignmentsChanged,
    AssignmentsWritten,
    BrokerFellBehind,
    BrokersChanged,
    ControlledShutdownRequested,
    ControllerElected,
    DeletionCompletionRequested,
    ElectionType,
    Event,
    LeaderAndIsrResponseReceived,
    LeaderElectionRequested,
    LeaderImbalanceCheckDue,
    LogDirFailuresNotified,
    PartitionStatesCreated,
    PartitionStatesRead,
    PartitionStatesUpdated,
    ReassignmentsRequested,
    StopReplicaResponseReceived,
    TopicDeletionsRequested,
    TopicsChanged,
    TopicsDeleted,
    UncleanElectionChanged,
)
from kalda.controller.statistics import ControllerStatistics, ElectionCounts, statistics_of
from kalda.controller.term_session import TermSession
from kalda.controller.znode_watches import Signal, ZnodeWatches
from kalda.zk.client import paths
from kalda.zk.client.controller_store import ControllerMovedError, ControllerStore
from kalda.zk.client.schema import BrokerInfo, PartitionState, ReplicaAssignment, TopicAssignment

logger: Final = logging.getLogger(__name__)


class Term:
    """One broker's term; `begin` comes first.

    What reads or writes raises what `TermSession.reliably` does, and `ControllerMovedError` where a later
    controller has written.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        session: TermSession,
        watches: ZnodeWatches,
        channels: ControllerChannelManager,
        mark: Callable[[Signal], None],
        election_counts: ElectionCounts,
    ) -> None:
        self.context: Final = context
        self.store: Final = store
        self.events: Final[deque[Event]] = deque()
        """Answers of brokers. Bounded by the requests under way."""
        self._reliably: Final = session.reliably
        self._watches: Final = watches
        self._channels: Final = channels
        self._mark: Final = mark
        self._election_counts: Final = election_counts
        self._legacy_moves: dict[TopicPartition, tuple[int, ...]] = {}
        """What `/admin/reassign_partitions` still holds."""
        self._statistics: ControllerStatistics | None = None

    def statistics(self) -> ControllerStatistics:
        """Return the figures of the cluster."""
        if self._statistics is None:
            self._statistics = statistics_of(self.context)
        elif invariants.enabled:
            recount = statistics_of(self.context)
            assert recount == self._statistics, f"cached {self._statistics}, counted {recount}"
        return self._statistics

    async def begin(self) -> None:
        """Read everything, once, and tell the brokers."""
        watches = self._watches
        watches.forget_changes()
        await self._reliably(watches.controller_id)
        brokers = await self._reliably(watches.brokers)
        topics = await self._reliably(watches.topics)
        assignments = await self._assignments(topics)
        partitions = [
            TopicPartition(t, number) for t, each in assignments.items() for number in each.partitions
        ]
        states = await self._reliably(lambda: watches.states(partitions))
        marked = await self._reliably(watches.topics_to_delete)
        unclean = await self._reliably(lambda: watches.unclean_topics(assignments))
        allowed = frozenset(topic for topic, is_allowed in unclean.items() if is_allowed)
        await self.step(
            ControllerElected(self.store.epoch, brokers, assignments, self._own(states), marked, allowed)
        )

    # Notes: left for the owner task.

    def note_answer(
        self, broker: BrokerInfo, request: BrokerRequest, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        """Take in what a broker answered for each partition."""
        failed = {partition: code for partition, code in errors.items() if code is not ErrorCode.NONE}
        if isinstance(request, StopReplica):
            self.events.append(StopReplicaResponseReceived(broker.id, request, errors))
        elif isinstance(request, LeaderAndIsr) and (failed or self.context.has_unfit_replicas(broker.id)):
            self.events.append(LeaderAndIsrResponseReceived(broker.id, broker.epoch, request, errors))
        for code in set(failed.values()):
            self._note_refusal(broker.id, request, code, [p for p in failed if failed[p] is code])

    def note_overflow(self, broker_id: int) -> None:
        """A broker takes requests too slowly: what waited for it was thrown away."""
        self.events.append(BrokerFellBehind(broker_id))

    def note_config_changed(self, topic: str) -> None:
        """A topic's configuration is another: it may allow unclean elections now."""
        self._watches.changed_configs.add(topic)
        self._mark(Signal.UNCLEAN_ELECTION)

    def note_unclean_default_changed(self) -> None:
        """Topics that do not set ``unclean.leader.election.enable`` have another."""
        self._watches.changed_configs.update(self.context.assignments)
        self._mark(Signal.UNCLEAN_ELECTION)

    def note_reconnected(self) -> None:
        """Watches of topics and partitions may have been missed."""
        self._watches.changed_topics.update(self.context.assignments)
        self._watches.changed_partitions.update(self.context.reassigning)

    def _note_refusal(
        self, broker_id: int, request: BrokerRequest, code: ErrorCode, partitions: list[TopicPartition]
    ) -> None:
        kind, count, first = type(request).__name__, len(partitions), partitions[0]
        if code is ErrorCode.INELIGIBLE_REPLICA:
            reason = "a log directory is full, or a sync failed"
            logger.warning(
                "broker %d cannot write to %d partitions (%s, ...): %s", broker_id, count, first, reason
            )
            return
        logger.warning(
            "broker %d refused %s of %d partitions (%s, ...): %s", broker_id, kind, count, first, code.name
        )
        # Watches will tell, too; but who was paused should not go on for as long as they take.
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._mark(Signal.CONTROLLER)
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            self._mark(Signal.BROKERS)

    # What may have changed in coordination.

    async def process(self, signal: Signal) -> None:
        """Read what the signal is about, and act on it."""
        watches = self._watches
        match signal:
            case Signal.BROKERS:
                await self.step(BrokersChanged(await self._reliably(watches.brokers)))
            case Signal.TOPICS:
                await self._process_topics()
            case Signal.DELETIONS:
                await self.step(TopicDeletionsRequested(await self._reliably(watches.topics_to_delete)))
            case Signal.ASSIGNMENTS:
                changed, watches.changed_topics = watches.changed_topics, set()
                found = await self._assignments(changed)
                self._note_recreated(found)
                await self.step(AssignmentsChanged(found))
            case Signal.STATES:
                await self._process_states(watches.changed_partitions)
            case Signal.ISR_CHANGES:
                names, partitions = await self._reliably(watches.isr_changes)
                await self._refresh(partitions)
                await self._delete_messages(names)
            case Signal.LOG_DIRS:
                names, broker_ids = await self._reliably(watches.log_dir_events)
                if broker_ids:
                    await self.step(LogDirFailuresNotified(broker_ids))
                await self._delete_messages(names)
            case Signal.UNCLEAN_ELECTION:
                topics, watches.changed_configs = watches.changed_configs, set()
                configs = await self._reliably(lambda: watches.unclean_topics(topics))
                await self.step(UncleanElectionChanged(configs))
            case Signal.LEGACY_REASSIGNMENT:
                await self._process_legacy_reassignment()
            case Signal.LEGACY_ELECTION:
                await self._process_legacy_election()
            case Signal.BALANCE:
                await self.step(LeaderImbalanceCheckDue())
            case _:
                raise AssertionError(f"{signal} is taken up elsewhere")

    async def _process_topics(self) -> None:
        watches = self._watches
        names = await self._reliably(watches.topics)
        added = names - self.context.assignments.keys()
        assignments = await self._assignments(added)
        unclean = await self._reliably(lambda: watches.unclean_topics(sorted(added)))
        await self.step(TopicsChanged(names, assignments, frozenset(t for t in unclean if unclean[t])))

    async def _assignments(self, topics: Collection[str]) -> dict[str, TopicAssignment]:
        """Read assignments; topics without an id get one, for clients ask by id (KIP-516)."""
        found = await self._reliably(lambda: self._watches.assignments(topics))
        return await self._reliably(lambda: self.store.give_topic_ids(found))

    def _note_recreated(self, found: Mapping[str, TopicAssignment]) -> None:
        # A topic deleted by hand and made anew between two reads has other settings, too.
        known = self.context.assignments
        for topic in found.keys() & known.keys():
            if found[topic].topic_id != known[topic].topic_id:
                self.note_config_changed(topic)

    async def _process_states(self, changed: set[TopicPartition]) -> None:
        # Those that no longer move are left to the notifications of changed ISRs.
        moving = [partition for partition in changed if partition in self.context.reassigning]
        changed.clear()
        states = await self._reliably(lambda: self._watches.watched_states(moving))
        await self.step(PartitionStatesRead(self._own(states)))

    async def _process_legacy_reassignment(self) -> None:
        targets = await self._reliably(self._watches.legacy_reassignment)
        self._legacy_moves = targets or {}
        if targets is None:
            return
        if not targets:
            await self._delete_messages([paths.REASSIGN_PARTITIONS])
            self._mark(Signal.LEGACY_REASSIGNMENT)
            return
        errors, changes = reassignment.validate_reassignments(self.context, targets, must_live=False)
        for partition, error in errors.items():
            replicas = numbers_text(targets[partition])
            logger.warning("%s does not move to replicas %s: %s", partition, replicas, error.message)
        await self.step(ReassignmentsRequested(changes))

    async def _process_legacy_election(self) -> None:
        partitions = await self._reliably(self._watches.legacy_election)
        if partitions is None:
            return
        for partition, code in (await self.elect_leaders(ElectionType.PREFERRED, partitions)).items():
            if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                logger.warning("the preferred replica does not lead %s: %s", partition, code.message)
        await self._delete_messages([paths.PREFERRED_REPLICA_ELECTION])
        self._mark(Signal.LEGACY_ELECTION)

    # Requests, served one after the other.

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Take leadership from a broker; return what it still leads, or raise `ApiError`."""
        known = self.context.live_brokers.get(broker_id)
        if known is None or known.epoch < broker_epoch:
            # It has registered, but the watch that tells of it has not fired yet.
            await self.step(BrokersChanged(await self._reliably(self._watches.brokers)))
            known = self.context.live_brokers.get(broker_id)
        if known is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} does not live.")
        if broker_epoch != -1 and broker_epoch < known.epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} has restarted: its epoch is {known.epoch}, not {broker_epoch}.",
            )
        logger.info("broker %d shuts down", broker_id)
        await self._refresh(self.context.partitions_on(broker_id))
        await self.step(ControlledShutdownRequested(broker_id))
        return led_partitions(self.context, broker_id)

    async def complete_deletions(self, topics: Collection[str]) -> None:
        """Complete deletions that only dead brokers hold up."""
        await self.step(DeletionCompletionRequested(tuple(topics)))

    async def elect_leaders(
        self, election: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders of these partitions, or of all; of all, those that need none are not listed."""
        wanted = list(self.context.all_partitions()) if partitions is None else list(partitions)
        await self._refresh(wanted)
        refused, electable = elections.validate_elections(self.context, election, wanted)
        await self.step(LeaderElectionRequested(election, tuple(electable)))
        held = {p: elections.outcome(self.context, election, p) for p in electable}
        if partitions is None:
            refused = {p: code for p, code in refused.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
        return {**refused, **held}

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        """Begin to move partitions, or cancel (None) their moves; return for each why not, or None."""
        await self._refresh(targets)
        errors, changes = reassignment.validate_reassignments(self.context, targets)
        await self.step(ReassignmentsRequested(changes))
        return {partition: errors.get(partition) for partition in targets}

    def reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the moves under way, of these partitions or of all."""
        context = self.context
        wanted = context.reassigning if partitions is None else partitions
        return {p: context.assignment_of(p) for p in wanted if p in context.reassigning}

    async def _refresh(self, partitions: Collection[TopicPartition]) -> None:
        """Learn what leaders wrote whose notification has not come yet."""
        known = [partition for partition in partitions if partition in self.context.partition_status]
        states = await self._reliably(lambda: self._watches.states(known))
        await self.step(PartitionStatesRead(self._own(states)))

    def _own(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> Mapping[TopicPartition, PartitionState]:
        """Return states as they are, unless a later controller has written one of them.

        Raises:
            ControllerMovedError: it has.
        """
        epoch = self.store.epoch
        for partition, state in states.items():
            if state.controller_epoch > epoch:
                raise ControllerMovedError(
                    f"{partition} was written in epoch {state.controller_epoch}, ours is {epoch}"
                )
        return states

    # Steps.

    async def step(self, event: Event) -> None:
        """Feed one event to the core, and the outcomes of its writes before anything else."""
        queue = EventQueue(event)
        while (upcoming := queue.next_event()) is not None:
            effects = step(self.context, upcoming)
            self._statistics = None
            self._channels.set_brokers(self.context.live_brokers)
            for effect in effects:
                outcome = await self._reliably(partial(self._perform, effect))
                if outcome is not None:
                    queue.add_outcome(effect, outcome)
            if queue.is_settled:
                for found in await self._follow_moves():
                    queue.add(found)

    async def _follow_moves(self) -> list[Event]:
        """Watch the states of partitions that begin to move; tidy up after those that have."""
        context, watches = self.context, self._watches
        done = {p for p, target in self._legacy_moves.items() if not self._moves_to(p, target)}
        if done:
            self._legacy_moves = {p: t for p, t in self._legacy_moves.items() if p not in done}
            remaining = self._legacy_moves
            await self._reliably(lambda: self.store.set_legacy_reassignment(remaining))
            if not remaining:
                self._mark(Signal.LEGACY_REASSIGNMENT)
        beginning = [
            p for p in context.reassigning if p not in watches.watched_partitions and p in context.states
        ]
        if not beginning:
            return []
        states = await self._reliably(lambda: watches.watched_states(beginning))
        return [PartitionStatesRead(self._own(states))]

    def _moves_to(self, partition: TopicPartition, target: tuple[int, ...]) -> bool:
        return (
            partition in self.context.reassigning and self.context.assignment_of(partition).target == target
        )

    async def _perform(self, effect: Effect) -> Event | None:
        """Do what the core asks; all of it may be done twice, should the answer have been lost."""
        store = self.store
        match effect:
            case Send():
                self._channels.send(effect.broker_id, effect.request)
                return None
            case CreatePartitionStates():
                return PartitionStatesCreated(await store.create_partition_states(effect.states))
            case UpdatePartitionStates():
                before = {partition: self.context.states.get(partition) for partition in effect.states}
                outcome = await store.update_partition_states(effect.states)
                for partition, state in outcome.updated.items():
                    self._election_counts.note(before[partition], state)
                return PartitionStatesUpdated(outcome.updated, outcome.conflicts, effect.strategy)
            case WriteAssignments():
                return AssignmentsWritten(await store.write_assignments(effect.changes))
            case DeleteTopicZnodes():
                await store.delete_topics(effect.topics)
                return TopicsDeleted(effect.topics)
            case RejectTopicDeletion():
                await store.remove_deletion_marks(effect.topics)
                return None
            case RevisitBrokers():
                return BrokersChanged(effect.brokers)
            case _:
                assert_never(effect)

    async def _delete_messages(self, names: list[str]) -> None:
        if names:
            await self._reliably(lambda: self.store.delete_messages(names))
