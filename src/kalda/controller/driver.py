"""Runs the controller on one broker: takes part in elections, and while in office turns what happens in
coordination into events for the core and the core's effects into writes and requests.

Every broker runs a driver; at most one is in office. One task owns the context: watches, answers of brokers
and requests of operators leave a mark for it and return. What must not be broken: an event and the outcomes
of its writes are one step, and nothing comes between; and whoever may have lost office writes nothing that
coordination does not check against the epoch of its term.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar, assert_never

from kalda.common.clock import Clock
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller import elections, reassignment
from kalda.controller.agenda import Agenda
from kalda.controller.brokers import led_by
from kalda.controller.channels import Channels
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
from kalda.controller.events import (
    AssignmentsChanged,
    AssignmentsWritten,
    BalanceCheckDue,
    BrokerFellBehind,
    BrokersChanged,
    ControllerElected,
    ElectionType,
    Event,
    LeadersRequested,
    LogDirsFailed,
    PartitionStatesCreated,
    PartitionStatesRead,
    PartitionStatesUpdated,
    ReassignmentsRequested,
    ReplicasStopped,
    RolesAnswered,
    ShutdownRequested,
    TopicDeletionsRequested,
    TopicsChanged,
    TopicsDeleted,
    UncleanElectionChanged,
)
from kalda.controller.ports import BrokerChannel
from kalda.controller.readings import IN_OFFICE, Readings, Signal
from kalda.controller.requests import Requests
from kalda.controller.statistics import ControllerStatistics, statistics_of
from kalda.coordination import paths
from kalda.coordination.cluster import Cluster
from kalda.coordination.controller_store import ControllerMovedError, ControllerStore, elect
from kalda.coordination.errors import (
    ConnectionLossError,
    CoordinationError,
    NoNodeError,
    SessionExpiredError,
)
from kalda.coordination.port import SessionState
from kalda.coordination.schema import (
    BrokerInfo,
    PartitionState,
    ReplicaAssignment,
    SchemaError,
    TopicAssignment,
)

_RETRY_SECONDS: Final = 1.0
"""Pause after coordination failed, before the same is tried again."""

_FIRST_BALANCE_CHECK_SECONDS: Final = 5.0
"""From an election to the first look at the leaders' balance, as in Kafka."""

Result = TypeVar("Result")

_log: Final = logging.getLogger(__name__)


class ControllerDriver:
    """The controller of one broker. The broker registers itself first, then runs `run` as one of its tasks.

    `is_unclean_election_default` is the broker's ``unclean.leader.election.enable``, for topics that do not
    set it; `balance_check_seconds` is ``leader.imbalance.check.interval.seconds``, None where
    ``auto.leader.rebalance.enable`` is off.
    """

    def __init__(
        self,
        broker_id: int,
        cluster: Cluster,
        channel: BrokerChannel,
        clock: Clock,
        *,
        is_topic_deletion_enabled: bool = True,
        is_unclean_election_default: Callable[[], bool] = lambda: False,
        balance_check_seconds: float | None = 300,
        leader_imbalance_percentage: int = 10,
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._coordination = cluster.coordination
        self._channel = channel
        self._clock = clock
        self._is_topic_deletion_enabled = is_topic_deletion_enabled
        self._balance_check_seconds = balance_check_seconds
        self._leader_imbalance_percentage = leader_imbalance_percentage
        self._readings = Readings(cluster, self._mark, is_unclean_election_default)
        self._requests = Requests(self._on_request)
        self._signals: set[Signal] = set()
        self._events: deque[Event] = deque()
        """Answers of brokers. Bounded by the requests under way."""
        self._wake = asyncio.Event()
        self._known = asyncio.Event()
        self._state_changed = asyncio.Event()
        self._controller_id: int | None = None
        self._store: ControllerStore | None = None
        """The writes of our term. Invariant: None exactly while we are not in office."""
        self._session_id = 0
        """The session of our term, whose end ends it; out of office, that of the last election."""
        self._context = self._empty_context()
        self._legacy_moves: dict[TopicPartition, tuple[int, ...]] = {}
        """What `/admin/reassign_partitions` still holds."""
        self._balance_timer: asyncio.TimerHandle | None = None
        self._statistics: ControllerStatistics | None = None
        self._channels: Channels

    # For the broker.

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._store is not None

    @property
    def controller_id(self) -> int | None:
        """The controller's broker id, as last read; None while there is none."""
        return self._controller_id

    @property
    def epoch(self) -> int:
        """The epoch of our last term; 0 before the first."""
        return self._context.epoch

    def statistics(self) -> ControllerStatistics:
        """Return the figures of the cluster; all 0 while another broker is controller."""
        if self._statistics is None:
            self._statistics = statistics_of(self._context) if self.is_active else ControllerStatistics()
        return self._statistics

    async def wait_ready(self) -> None:
        """Return when a controller is known and, if it is this broker, this broker has been told all."""
        await self._known.wait()
        if self.is_active:
            await self._channels.wait_idle(self._broker_id)

    async def run(self) -> None:
        """Take part in elections and govern while in office; ends only by cancellation or a fault.

        Leaves office when cancelled, so that another broker is elected at once.
        """
        self._coordination.add_state_listener(self._on_state)
        self._mark(Signal.CONTROLLER)
        async with asyncio.TaskGroup() as group:
            self._channels = Channels(self._channel, group, self._on_answer, self._on_overflow)
            try:
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    await self._take_up()
            finally:
                self._channels.close()
                await self._resign_quietly()

    def on_topic_config_changed(self, topic: str) -> None:
        """A topic's configuration is another: it may allow unclean elections now."""
        if self.is_active:
            self._readings.changed_configs.add(topic)
            self._mark(Signal.UNCLEAN_ELECTION)

    def on_unclean_default_changed(self) -> None:
        """The broker's ``unclean.leader.election.enable`` is another."""
        self._readings.changed_configs.update(self._context.assignments)
        self._mark(Signal.UNCLEAN_ELECTION)

    # Requests. They run in the owner task, one after the other, and raise `ApiError`: NOT_CONTROLLER where
    # this broker is not in office or loses it on the way, REQUEST_TIMED_OUT where too many wait.

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Take leadership from a broker that is about to stop; return the partitions that it still leads.

        A `broker_epoch` of -1 is not compared.

        Raises:
            ApiError: STALE_BROKER_EPOCH: the broker has restarted since; BROKER_NOT_AVAILABLE: it does not
                live.
        """
        return await self._ask(lambda: self._shut_down(broker_id, broker_epoch))

    async def elect_leaders(
        self, election: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders of these partitions, or of all; of all, those that need none are not listed."""
        return await self._ask(lambda: self._elect_leaders(election, partitions))

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        """Begin to move partitions, or cancel (None) their moves; return for each why not, or None."""
        return await self._ask(lambda: self._alter_reassignments(targets))

    def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the moves under way, of these partitions or of all.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        if not self.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        context = self._context
        wanted = context.reassigning if partitions is None else partitions
        return {p: context.assignment_of(p) for p in wanted if p in context.reassigning}

    async def _ask(self, work: Callable[[], Awaitable[Result]]) -> Result:
        if not self.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return await self._requests.ask(work)

    # Marks: called from watches, channels and callers, on the loop; they only leave a note.

    def _mark(self, signal: Signal) -> None:
        self._signals.add(signal)
        self._wake.set()

    def _on_request(self) -> None:
        self._wake.set()

    def _on_state(self, state: SessionState) -> None:
        self._state_changed.set()
        if state is not SessionState.SUSPENDED:
            self._mark(Signal.SESSION)

    def _on_answer(
        self, broker: BrokerInfo, request: BrokerRequest, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        failed = {partition: code for partition, code in errors.items() if code is not ErrorCode.NONE}
        if isinstance(request, StopReplica):
            self._events.append(ReplicasStopped(broker.id, request, errors))
        elif isinstance(request, LeaderAndIsr) and (failed or self._context.offline_dirs.get(broker.id)):
            self._events.append(RolesAnswered(broker.id, broker.epoch, request, errors))
        for code in set(failed.values()):
            self._on_refusal(broker.id, request, code, [p for p in failed if failed[p] is code])
        if self._events:
            self._wake.set()

    def _on_refusal(
        self, broker_id: int, request: BrokerRequest, code: ErrorCode, partitions: list[TopicPartition]
    ) -> None:
        kind, count, first = type(request).__name__, len(partitions), partitions[0]
        _log.warning(
            "broker %d refused %s of %d partitions (%s, ...): %s", broker_id, kind, count, first, code.name
        )
        # Watches will tell, too; but who was paused should not go on for as long as they take.
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._mark(Signal.CONTROLLER)
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            self._mark(Signal.BROKERS)

    def _on_overflow(self, broker_id: int) -> None:
        self._events.append(BrokerFellBehind(broker_id))
        self._wake.set()

    # The owner task.

    async def _take_up(self) -> None:
        try:
            for signal in Signal:
                if signal in self._signals:
                    self._signals.discard(signal)
                    await self._take_up_signal(signal)
            while self.is_active and (self._events or self._requests):
                if self._events:
                    await self._step(self._events.popleft())
                if self._requests:
                    await self._requests.serve()
        except ControllerMovedError as error:
            _log.warning("no longer controller: %s", error)
            self._leave_office()
            self._mark(Signal.CONTROLLER)
        except SessionExpiredError:
            self._leave_office()
        except ConnectionLossError as error:
            # In office `_reliably` waits, so this is an attempt to be elected, whose outcome is not known.
            _log.info("no election while coordination cannot be reached: %s", error)
            self._leave_office()
            await self._pause()
            self._mark(Signal.CONTROLLER)
        except (CoordinationError, SchemaError) as error:
            # What was read or written by halves is done again from a clean slate.
            _log.error("the controller could not work, starting over: %s", error)
            await self._resign_quietly()
            await asyncio.sleep(_RETRY_SECONDS)
            self._mark(Signal.CONTROLLER)

    async def _take_up_signal(self, signal: Signal) -> None:
        if signal is Signal.SESSION:
            await self._take_up_session()
        elif signal is Signal.CONTROLLER:
            await self._elect()
        elif self.is_active:
            await self._take_up_in_office(signal)

    async def _take_up_in_office(self, signal: Signal) -> None:
        readings = self._readings
        match signal:
            case Signal.BROKERS:
                await self._step(BrokersChanged(await self._reliably(readings.brokers)))
            case Signal.TOPICS:
                await self._take_up_topics()
            case Signal.DELETIONS:
                await self._step(TopicDeletionsRequested(await self._reliably(readings.topics_to_delete)))
            case Signal.ASSIGNMENTS:
                changed, readings.changed_topics = readings.changed_topics, set()
                found = await self._assignments(changed)
                self._note_recreated(found)
                await self._step(AssignmentsChanged(found))
            case Signal.STATES:
                await self._take_up_states(readings.changed_partitions)
            case Signal.ISR_CHANGES:
                names, partitions = await self._reliably(readings.isr_changes)
                await self._refresh(partitions)
                await self._delete_messages(names)
            case Signal.LOG_DIRS:
                names, broker_ids = await self._reliably(readings.log_dir_events)
                if broker_ids:
                    await self._step(LogDirsFailed(broker_ids))
                await self._delete_messages(names)
            case Signal.UNCLEAN_ELECTION:
                topics, readings.changed_configs = readings.changed_configs, set()
                configs = await self._reliably(lambda: readings.unclean_topics(topics))
                await self._step(UncleanElectionChanged(configs))
            case Signal.LEGACY_REASSIGNMENT:
                await self._take_up_legacy_reassignment()
            case Signal.LEGACY_ELECTION:
                await self._take_up_legacy_election()
            case Signal.BALANCE:
                await self._step(BalanceCheckDue())
                self._set_balance_timer(self._balance_check_seconds)
            case _:
                raise AssertionError(f"{signal} is taken up elsewhere")

    async def _take_up_session(self) -> None:
        coordination = self._coordination
        is_same = coordination.session_id == self._session_id
        if coordination.state is SessionState.CONNECTED and is_same and self.is_active:
            # Back before the session expired: still in office, but watches may have been missed.
            _log.info("coordination can be reached again, broker %d is still controller", self._broker_id)
            self._readings.changed_topics.update(self._context.assignments)
            self._readings.changed_partitions.update(self._context.reassigning)
            self._signals.update((Signal.CONTROLLER, *IN_OFFICE))
            return
        if coordination.state is SessionState.SUSPENDED and is_same:
            # Lost again already; the next return brings the next signal.
            return
        if not is_same or coordination.state is not SessionState.CONNECTED:
            self._leave_office()
            self._readings.forget()
        if coordination.state is SessionState.CONNECTED:
            await self._elect()

    async def _take_up_topics(self) -> None:
        readings = self._readings
        names = await self._reliably(readings.topics)
        added = names - self._context.assignments.keys()
        assignments = await self._assignments(added)
        unclean = await self._reliably(lambda: readings.unclean_topics(sorted(added)))
        await self._step(TopicsChanged(names, assignments, frozenset(t for t in unclean if unclean[t])))

    async def _assignments(self, topics: Collection[str]) -> dict[str, TopicAssignment]:
        """Read assignments; topics without an id get one, for clients ask by id (KIP-516)."""
        found = await self._reliably(lambda: self._readings.assignments(topics))
        store = self._store_in_office()
        return await self._reliably(lambda: store.give_topic_ids(found))

    def _note_recreated(self, found: Mapping[str, TopicAssignment]) -> None:
        # A topic deleted by hand and made anew between two reads has other settings, too.
        known = self._context.assignments
        for topic in found.keys() & known.keys():
            if found[topic].topic_id != known[topic].topic_id:
                self.on_topic_config_changed(topic)

    async def _take_up_states(self, changed: set[TopicPartition]) -> None:
        # Those that no longer move are left to the notifications of changed ISRs.
        moving = [partition for partition in changed if partition in self._context.reassigning]
        changed.clear()
        states = await self._reliably(lambda: self._readings.watched_states(moving))
        await self._step(PartitionStatesRead(self._own(states)))

    async def _take_up_legacy_reassignment(self) -> None:
        targets = await self._reliably(self._readings.legacy_reassignment)
        self._legacy_moves = targets or {}
        if targets is None:
            return
        if not targets:
            await self._delete_messages([paths.REASSIGN_PARTITIONS])
            self._mark(Signal.LEGACY_REASSIGNMENT)
            return
        errors, changes = reassignment.judge_reassignments(self._context, targets, must_live=False)
        for partition, error in errors.items():
            _log.warning("%s does not move to %s: %s", partition, targets[partition], error.message)
        await self._step(ReassignmentsRequested(changes))

    async def _take_up_legacy_election(self) -> None:
        partitions = await self._reliably(self._readings.legacy_election)
        if partitions is None:
            return
        for partition, code in (await self._elect_leaders(ElectionType.PREFERRED, partitions)).items():
            if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                _log.warning("the preferred replica does not lead %s: %s", partition, code.message)
        await self._delete_messages([paths.PREFERRED_REPLICA_ELECTION])
        self._mark(Signal.LEGACY_ELECTION)

    # Elections.

    async def _elect(self) -> None:
        if not self.is_active:
            self._session_id = self._coordination.session_id
        read = self._readings.controller_id
        controller_id = await (self._reliably(read) if self.is_active else read())
        if self.is_active and controller_id != self._broker_id:
            self._leave_office()
        if controller_id == self._broker_id and not self.is_active:
            await self._clear_lost_term()
            controller_id = await self._readings.controller_id()
        if controller_id is None:
            store = await elect(self._coordination, self._clock, self._broker_id)
            if store is not None:
                self._controller_id = self._broker_id
                await self._take_office(store)
                return
            controller_id = await self._readings.controller_id()
        self._controller_id = controller_id
        if controller_id is not None and not self.is_active:
            self._known.set()

    async def _clear_lost_term(self) -> None:
        # A term of this session that could not be resigned, e.g. because the disk was full. One of an
        # earlier session ends when that expires; the watch tells.
        stat = await self._coordination.exists(paths.CONTROLLER)
        if stat is not None and stat.ephemeral_owner == self._coordination.session_id:
            with contextlib.suppress(NoNodeError):
                await self._coordination.delete(paths.CONTROLLER, stat.version)

    async def _take_office(self, store: ControllerStore) -> None:
        _log.info("broker %d is controller with epoch %d", self._broker_id, store.epoch)
        self._store = store
        self._context = self._empty_context()
        self._events.clear()
        readings = self._readings
        readings.forget_changes()
        await self._reliably(readings.controller_id)
        brokers = await self._reliably(readings.brokers)
        topics = await self._reliably(readings.topics)
        assignments = await self._assignments(topics)
        partitions = [
            TopicPartition(t, number) for t, each in assignments.items() for number in each.partitions
        ]
        states = await self._reliably(lambda: readings.states(partitions))
        marked = await self._reliably(readings.topics_to_delete)
        unclean = await self._reliably(lambda: readings.unclean_topics(assignments))
        allowed = frozenset(topic for topic, is_allowed in unclean.items() if is_allowed)
        await self._step(
            ControllerElected(store.epoch, brokers, assignments, self._own(states), marked, allowed)
        )
        self._known.set()
        for signal in (
            Signal.ISR_CHANGES,
            Signal.LOG_DIRS,
            Signal.LEGACY_REASSIGNMENT,
            Signal.LEGACY_ELECTION,
        ):
            self._mark(signal)
        self._set_balance_timer(_FIRST_BALANCE_CHECK_SECONDS)

    def _leave_office(self) -> None:
        if self._store is not None:
            _log.info("broker %d is no longer controller", self._broker_id)
        self._store = None
        self._controller_id = None
        self._known.clear()
        self._channels.close()
        self._events.clear()
        self._readings.forget_changes()
        self._legacy_moves = {}
        self._set_balance_timer(None)
        self._requests.refuse()
        self._statistics = None
        epoch = self._context.epoch
        self._context = self._empty_context()
        self._context.epoch = epoch

    async def _resign_quietly(self) -> None:
        store = self._store
        self._leave_office()
        if store is None:
            return
        try:
            await store.resign()
        except (CoordinationError, ControllerMovedError) as error:
            _log.info("the end of the session will end the term: %s", error)

    def _empty_context(self) -> ControllerContext:
        return ControllerContext(
            self._broker_id,
            is_topic_deletion_enabled=self._is_topic_deletion_enabled,
            leader_imbalance_percentage=self._leader_imbalance_percentage,
        )

    def _set_balance_timer(self, seconds: float | None) -> None:
        if self._balance_timer is not None:
            self._balance_timer.cancel()
            self._balance_timer = None
        if seconds is not None and self._balance_check_seconds is not None:
            loop = asyncio.get_running_loop()
            self._balance_timer = loop.call_later(seconds, self._mark, Signal.BALANCE)

    # Requests, in the owner task.

    async def _shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        known = self._context.live_brokers.get(broker_id)
        if known is None or known.epoch < broker_epoch:
            # It has registered, but the watch that tells of it has not fired yet.
            await self._step(BrokersChanged(await self._reliably(self._readings.brokers)))
            known = self._context.live_brokers.get(broker_id)
        if known is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} does not live.")
        if broker_epoch != -1 and broker_epoch < known.epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} has restarted: its epoch is {known.epoch}, not {broker_epoch}.",
            )
        _log.info("broker %d shuts down", broker_id)
        await self._refresh(self._context.partitions_on(broker_id))
        await self._step(ShutdownRequested(broker_id))
        return led_by(self._context, broker_id)

    async def _elect_leaders(
        self, election: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        wanted = list(self._context.all_partitions()) if partitions is None else list(partitions)
        await self._refresh(wanted)
        refused, electable = elections.judge_elections(self._context, election, wanted)
        await self._step(LeadersRequested(election, tuple(electable)))
        held = {p: elections.outcome(self._context, election, p) for p in electable}
        if partitions is None:
            refused = {p: code for p, code in refused.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
        return {**refused, **held}

    async def _alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        await self._refresh(targets)
        errors, changes = reassignment.judge_reassignments(self._context, targets)
        await self._step(ReassignmentsRequested(changes))
        return {partition: errors.get(partition) for partition in targets}

    async def _refresh(self, partitions: Collection[TopicPartition]) -> None:
        """Learn what leaders wrote whose notification has not come yet."""
        known = [partition for partition in partitions if partition in self._context.partition_status]
        states = await self._reliably(lambda: self._readings.states(known))
        await self._step(PartitionStatesRead(self._own(states)))

    def _own(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> Mapping[TopicPartition, PartitionState]:
        """Return states as they are, unless a later controller has written one of them.

        Raises:
            ControllerMovedError: it has.
        """
        store = self._store_in_office()
        for partition, state in states.items():
            if state.controller_epoch > store.epoch:
                raise ControllerMovedError(
                    f"{partition} was written in epoch {state.controller_epoch}, ours is {store.epoch}"
                )
        return states

    # Steps.

    async def _step(self, event: Event) -> None:
        """Feed one event to the core, and the outcomes of its writes before anything else."""
        agenda = Agenda(event)
        while (upcoming := agenda.next_event()) is not None:
            effects = step(self._context, upcoming)
            self._statistics = None
            self._channels.set_brokers(self._context.live_brokers)
            for effect in effects:
                outcome = await self._reliably(partial(self._perform, effect))
                if outcome is not None:
                    agenda.add_outcome(effect, outcome)
            if agenda.is_settled:
                for found in await self._follow_moves():
                    agenda.add(found)

    async def _follow_moves(self) -> list[Event]:
        """Watch the states of partitions that begin to move; tidy up after those that have."""
        context, readings = self._context, self._readings
        done = {p for p, target in self._legacy_moves.items() if not self._moves_to(p, target)}
        if done:
            self._legacy_moves = {p: t for p, t in self._legacy_moves.items() if p not in done}
            store, remaining = self._store_in_office(), self._legacy_moves
            await self._reliably(lambda: store.set_legacy_reassignment(remaining))
            if not remaining:
                self._mark(Signal.LEGACY_REASSIGNMENT)
        beginning = [
            p for p in context.reassigning if p not in readings.watched_partitions and p in context.states
        ]
        if not beginning:
            return []
        states = await self._reliably(lambda: readings.watched_states(beginning))
        return [PartitionStatesRead(self._own(states))]

    def _moves_to(self, partition: TopicPartition, target: tuple[int, ...]) -> bool:
        return (
            partition in self._context.reassigning and self._context.assignment_of(partition).target == target
        )

    async def _perform(self, effect: Effect) -> Event | None:
        """Do what the core asks; all of it may be done twice, should the answer have been lost."""
        store = self._store_in_office()
        match effect:
            case Send():
                self._channels.send(effect.broker_id, effect.request)
                return None
            case CreatePartitionStates():
                return PartitionStatesCreated(await store.create_partition_states(effect.states))
            case UpdatePartitionStates():
                outcome = await store.update_partition_states(effect.states)
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
            store = self._store_in_office()
            await self._reliably(lambda: store.delete_messages(names))

    def _store_in_office(self) -> ControllerStore:
        assert self._store is not None, "effects are performed in office only"
        return self._store

    async def _reliably(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        """Do something in office; if coordination cannot be reached, again when it can.

        A short interruption must not cost the cluster an election.

        Raises:
            SessionExpiredError: the term is over meanwhile.
        """
        while True:
            try:
                return await operation()
            except ConnectionLossError as error:
                _log.warning("coordination cannot be reached, the controller waits: %s", error)
            await self._wait_connected()

    async def _wait_connected(self) -> None:
        if self._coordination.state is SessionState.CONNECTED:
            # The listener hears of the loss later than the operation did, or it was a short one.
            await self._pause()
        while self._coordination.state is SessionState.SUSPENDED:
            await self._state_changed.wait()
            self._state_changed.clear()
        is_same = self._coordination.session_id == self._session_id
        if self._coordination.state is not SessionState.CONNECTED or not is_same:
            raise SessionExpiredError("the session of the controller's term is over")

    async def _pause(self) -> None:
        """Wait for the session's state to change, but not for long."""
        self._state_changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._state_changed.wait(), _RETRY_SECONDS)
