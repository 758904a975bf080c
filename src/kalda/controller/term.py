"""Runs one term of a controller: turns signals, responses and requests into steps of the core.

A term starts with an election that this broker won and is discarded when the broker stops being controller,
so no state leaks into the next term. Everything runs in the driver's owner task, except that responses of
brokers append events. Two rules must not be broken: an event and the outcomes of its writes are one step,
without another event between; and ZooKeeper checks every write against the controller epoch of this term.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, assert_never

from kalda.cluster import paths
from kalda.cluster.controller_store import ControllerMovedError, ControllerStore
from kalda.cluster.schema import (
    UNKNOWN_BROKER_EPOCH,
    BrokerInfo,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from kalda.common import invariants
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.log_text import numbers_text
from kalda.common.turns import Turns, between, between_many
from kalda.common.types import UUID, TopicPartition, is_other_topic
from kalda.controller import elections, isr_requests, reassignment
from kalda.controller.brokers import led_partitions
from kalda.controller.channel_manager import ControllerChannelManager
from kalda.controller.context import ControllerContext
from kalda.controller.controller_events import ControllerEvents
from kalda.controller.core import steps
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
from kalda.controller.isr_requests import IsrRequest
from kalda.controller.statistics import ControllerStatistics, ElectionCounts, statistics_of
from kalda.controller.term_session import TermSession
from kalda.controller.znode_watches import Signal, ZnodeWatches

logger: Final = logging.getLogger(__name__)


class Term:
    """One term of this broker; call `begin` first.

    A method that reads or writes raises the errors of `TermSession.reliably`, and `ControllerMovedError` if a
    later controller has written.
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
        causes: ControllerEvents,
    ) -> None:
        self.context: Final = context
        self.store: Final = store
        self.events: Final[deque[Event]] = deque()
        """Responses of brokers. Bounded by the outstanding requests."""
        self._reliably: Final = session.reliably
        self._watches: Final = watches
        self._channels: Final = channels
        self._mark: Final = mark
        self._election_counts: Final = election_counts
        self._causes: Final = causes
        self._legacy_moves: dict[TopicPartition, tuple[int, ...]] = {}
        """The reassignments that `/admin/reassign_partitions` still lists."""
        self._statistics: ControllerStatistics | None = None
        self._is_stepping = False
        """Statistics that are counted during a step are of a part of it, and kept to its end."""

    def statistics(self) -> ControllerStatistics:
        """Return the controller's statistics."""
        if self._statistics is None:
            self._statistics = statistics_of(self.context)
        elif invariants.enabled and not self._is_stepping:
            recount = statistics_of(self.context)
            assert recount == self._statistics, f"cached {self._statistics}, counted {recount}"
        return self._statistics

    async def begin(self) -> None:
        """Read everything once and send it to the brokers."""
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

    # Notes for the owner task.

    def note_answer(
        self, broker: BrokerInfo, request: BrokerRequest, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        """Record a broker's response, with its error code for each partition."""
        failed = {partition: code for partition, code in errors.items() if code is not ErrorCode.NONE}
        if isinstance(request, StopReplica):
            self.events.append(StopReplicaResponseReceived(broker.id, request, errors))
        elif isinstance(request, LeaderAndIsr) and (failed or self.context.has_unfit_replicas(broker.id)):
            self.events.append(LeaderAndIsrResponseReceived(broker.id, broker.epoch, request, errors))
        for code in set(failed.values()):
            self._note_refusal(broker.id, request, code, [p for p in failed if failed[p] is code])

    def note_overflow(self, broker_id: int) -> None:
        """Record that the queue of a slow broker was dropped."""
        self.events.append(BrokerFellBehind(broker_id))

    def note_config_changed(self, topic: str) -> None:
        """Record that a topic's configuration changed: it may allow unclean elections now."""
        self._watches.changed_configs.add(topic)
        self._mark(Signal.UNCLEAN_ELECTION)

    def note_unclean_default_changed(self) -> None:
        """Record that the default of ``unclean.leader.election.enable`` changed."""
        self._watches.changed_configs.update(self.context.assignments)
        self._mark(Signal.UNCLEAN_ELECTION)

    def note_reconnected(self) -> None:
        """Record that watches of topics and partitions may have been missed."""
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
        # The watches fire too, but a controller that was paused should not continue until they do.
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._mark(Signal.CONTROLLER)
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            self._mark(Signal.BROKERS)

    # Changes in ZooKeeper.

    async def process(self, signal: Signal) -> None:
        """Read the state that may have changed, and pass it to the core."""
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
                found = await self._assignments(sorted(changed))
                self._note_recreated(found)
                await self.step(AssignmentsChanged(found))
            case Signal.STATES:
                await self._process_states(watches.changed_partitions)
            case Signal.ISR_CHANGES:
                names, partitions = await self._reliably(watches.isr_changes)
                await self._refresh(partitions)
                await self._delete_messages(names)
            case Signal.LOG_DIRS:
                names, notified = await self._reliably(watches.log_dir_events)
                if notified:
                    ended = tuple(each for each in notified if each.ended_by)
                    broker_ids = frozenset(each.broker_id for each in notified if not each.ended_by)
                    await self.step(LogDirFailuresNotified(broker_ids, ended))
                await self._delete_messages(names)
            case Signal.UNCLEAN_ELECTION:
                topics, watches.changed_configs = sorted(watches.changed_configs), set()
                configs = await self._reliably(lambda: watches.unclean_topics(topics))
                await self.step(UncleanElectionChanged(configs))
            case Signal.LEGACY_REASSIGNMENT:
                await self._process_legacy_reassignment()
            case Signal.LEGACY_ELECTION:
                await self._process_legacy_election()
            case Signal.BALANCE:
                await self.step(LeaderImbalanceCheckDue())
            case _:
                raise AssertionError(f"{signal} is processed by the driver")

    async def _process_topics(self) -> None:
        watches = self._watches
        names = await self._reliably(watches.topics)
        added = names - self.context.assignments.keys()
        assignments = await self._assignments(sorted(added))
        unclean = await self._reliably(lambda: watches.unclean_topics(sorted(added)))
        await self.step(TopicsChanged(names, assignments, frozenset(t for t in unclean if unclean[t])))

    async def _assignments(self, topics: Collection[str]) -> dict[str, TopicAssignment]:
        """Read assignments; topics without an id get one, because clients fetch by id (KIP-516)."""
        found = await self._reliably(lambda: self._watches.assignments(topics))
        return await self._reliably(lambda: self.store.give_topic_ids(found, self.context.assignments))

    def _note_recreated(self, found: Mapping[str, TopicAssignment]) -> None:
        # A topic that was deleted by hand and created again between two reads has other settings too.
        known = self.context.assignments
        for topic in found.keys() & known.keys():
            if is_other_topic(found[topic].topic_id, known[topic].topic_id):
                self.note_config_changed(topic)

    async def _process_states(self, changed: set[TopicPartition]) -> None:
        # Leaders send ISR change notifications for partitions that are not being reassigned any more.
        moving = sorted(partition for partition in changed if partition in self.context.reassigning)
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

    # Requests, one at a time.

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaderships off a broker; return the partitions it still leads, or raise `ApiError`."""
        await self.check_registration(broker_id, broker_epoch, ErrorCode.BROKER_NOT_AVAILABLE, may_omit=True)
        logger.info("broker %d shuts down", broker_id)
        await self._refresh(self.context.partitions_on(broker_id))
        await self.step(ControlledShutdownRequested(broker_id))
        return led_partitions(self.context, broker_id)

    async def alter_in_sync_replicas(
        self, broker_id: int, broker_epoch: int, requests: Mapping[TopicPartition, IsrRequest]
    ) -> dict[TopicPartition, PartitionState | ErrorCode]:
        """Store the in-sync replicas that a leader asks for; return each stored state or error."""
        await self.check_registration(broker_id, broker_epoch, ErrorCode.STALE_BROKER_EPOCH)
        await self._refresh(requests)
        context = self.context
        outcomes: dict[TopicPartition, PartitionState | ErrorCode] = {}
        for index, (partition, request) in enumerate(requests.items()):
            # The owner task does nothing else meanwhile, so the context stays as it is.
            await between_many(index)
            outcomes[partition] = isr_requests.decide(context, broker_id, partition, request)
        wanted = {
            partition: state
            for partition, state in outcomes.items()
            if isinstance(state, PartitionState) and state != context.states[partition]
        }
        if wanted:
            written = await self._reliably(lambda: self.store.update_partition_states(wanted))
            outcomes |= written.updated | isr_requests.outcomes(wanted, written.conflicts)
            stored = {p: state for p, state in outcomes.items() if isinstance(state, PartitionState)}
            await self.step(PartitionStatesRead(self._own(stored)))
        return outcomes

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the names of those topics that exist."""
        assignments = self.context.assignments
        return {each.topic_id: name for name, each in assignments.items() if each.topic_id in topic_ids}

    async def check_registration(
        self, broker_id: int, broker_epoch: int, unknown: ErrorCode, *, may_omit: bool = False
    ) -> None:
        """Check that a broker is live, in this registration; with `may_omit`, the epoch may be unknown.

        Raises:
            ApiError: `unknown`: it is not live; STALE_BROKER_EPOCH: it is live in another registration.
        """
        known = self.context.live_brokers.get(broker_id)
        if known is None or known.epoch < broker_epoch:
            # It has registered, but the watch has not fired yet.
            await self.step(BrokersChanged(await self._reliably(self._watches.brokers)))
            known = self.context.live_brokers.get(broker_id)
        if known is None:
            raise ApiError(unknown, f"Broker {broker_id} is not live.")
        if broker_epoch != known.epoch and not (may_omit and broker_epoch == UNKNOWN_BROKER_EPOCH):
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} has restarted: its epoch is {known.epoch}, not {broker_epoch}.",
            )

    async def complete_deletions(self, topics: Collection[str]) -> None:
        """Complete deletions of topics that wait for dead brokers only."""
        await self.step(DeletionCompletionRequested(tuple(topics)))

    async def elect_leaders(
        self, election: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders of these partitions, or of all; of all, those that need no election are left out."""
        wanted = list(self.context.all_partitions()) if partitions is None else list(partitions)
        await self._refresh(wanted)
        refused, electable = elections.validate_elections(self.context, election, wanted)
        await self.step(LeaderElectionRequested(election, tuple(electable)))
        held = {p: elections.outcome(self.context, election, p) for p in electable}
        if partitions is None:
            refused = {p: code for p, code in refused.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
        return {**refused, **held}

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, ApiError | None]:
        """Start reassignments, or cancel them (None); return for each partition its error or None."""
        await self._refresh(targets)
        errors: dict[TopicPartition, ApiError] = {}
        changes: dict[TopicPartition, ReplicaAssignment] = {}
        for index, (partition, target) in enumerate(targets.items()):
            # The owner task does nothing else meanwhile, so the context stays as it is.
            await between(index)
            refused, accepted = reassignment.validate_reassignments(
                self.context, {partition: target}, may_change_factor=may_change_factor
            )
            errors |= refused
            changes |= accepted
        await self.step(ReassignmentsRequested(changes))
        return {partition: errors.get(partition) for partition in targets}

    def reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the reassignments in progress, of these partitions or of all."""
        context = self.context
        wanted = context.reassigning if partitions is None else partitions
        return {p: context.assignment_of(p) for p in wanted if p in context.reassigning}

    async def _refresh(self, partitions: Collection[TopicPartition]) -> None:
        """Read states that leaders may have written without a notification so far."""
        known = [partition for partition in partitions if partition in self.context.partition_status]
        states = await self._reliably(lambda: self._watches.states(known))
        await self.step(PartitionStatesRead(self._own(states)))

    def _own(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> Mapping[TopicPartition, PartitionState]:
        """Return the states unchanged.

        Raises:
            ControllerMovedError: a later controller has written one of them.
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
        """Feed one event to the core, then the outcomes of its writes, before any other event."""
        queue = EventQueue(event)
        self._causes.begin(event, self.context.live_brokers)
        while (upcoming := queue.next_event()) is not None:
            if upcoming is not event:
                self._causes.follow(upcoming)
            self._is_stepping = True
            try:
                effects = await Turns.of_brokers().result(steps(self.context, upcoming))
            finally:
                self._is_stepping = False
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
        """Watch the states of partitions with a new reassignment; clean up after completed ones."""
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
        """Perform an effect; it may be performed twice if the first response was lost."""
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
                self._causes.written(before, outcome.updated)
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
