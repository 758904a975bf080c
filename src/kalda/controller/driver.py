"""Runs the controller on one broker: takes part in elections, and while in office turns what happens in
coordination into events for the core and the core's effects into writes and requests.

Every broker runs a driver; at most one is in office. Watches only say *that* something changed: the driver
then reads it whole, with the next watch armed by the read, so nothing is missed and a burst of changes is one
event. One task owns the context; watches and answers of brokers leave a mark for it and return.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, assert_never

from kalda.common.clock import Clock
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.channels import Channels
from kalda.controller.context import ControllerContext
from kalda.controller.core import step
from kalda.controller.effects import (
    BrokerRequest,
    CreatePartitionStates,
    DeleteTopicZnodes,
    Effect,
    RejectTopicDeletion,
    RevisitBrokers,
    Send,
    StopReplica,
    UpdatePartitionStates,
)
from kalda.controller.events import (
    AssignmentsChanged,
    BrokerFellBehind,
    BrokersChanged,
    ControllerElected,
    Event,
    PartitionStatesCreated,
    PartitionStatesUpdated,
    ReplicasStopped,
    TopicDeletionsRequested,
    TopicsChanged,
    TopicsDeleted,
)
from kalda.controller.ports import BrokerChannel
from kalda.coordination import paths
from kalda.coordination.cluster import Cluster
from kalda.coordination.controller_store import ControllerMovedError, ControllerStore, elect
from kalda.coordination.errors import CoordinationError, NoNodeError, SessionExpiredError
from kalda.coordination.port import SessionState, WatchEvent
from kalda.coordination.schema import SchemaError

_RETRY_SECONDS: Final = 1.0
"""Pause after coordination failed, before the same is tried again."""

_log: Final = logging.getLogger(__name__)


class _Signal(Enum):
    """What may have changed; taken up in this order."""

    SESSION = auto()
    CONTROLLER = auto()
    BROKERS = auto()
    TOPICS = auto()
    DELETIONS = auto()


class ControllerDriver:
    """The controller of one broker. The broker registers itself first, then runs `run` as one of its tasks.

    `is_unclean_election_default` is the broker's ``unclean.leader.election.enable``, for topics that do not
    set it.
    """

    def __init__(
        self,
        broker_id: int,
        cluster: Cluster,
        channel: BrokerChannel,
        clock: Clock,
        *,
        is_topic_deletion_enabled: bool = True,
        is_unclean_election_default: bool = False,
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._channel = channel
        self._clock = clock
        self._is_topic_deletion_enabled = is_topic_deletion_enabled
        self._is_unclean_election_default = is_unclean_election_default
        self._signals: set[_Signal] = set()
        self._changed_topics: set[str] = set()
        self._events: deque[Event] = deque()
        """Answers of brokers. Bounded by the requests under way."""
        self._wake = asyncio.Event()
        self._known = asyncio.Event()
        self._controller_id: int | None = None
        self._store: ControllerStore | None = None
        """The writes of our term. Invariant: None exactly while we are not in office."""
        self._context = self._empty_context()
        self._channels: Channels

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

    async def wait_ready(self) -> None:
        """Return when a controller is known and, if it is this broker, this broker has been told all."""
        await self._known.wait()
        if self.is_active:
            await self._channels.wait_idle(self._broker_id)

    async def run(self) -> None:
        """Take part in elections and govern while in office; ends only by cancellation or a fault.

        Leaves office when cancelled, so that another broker is elected at once.
        """
        self._cluster.coordination.add_state_listener(self._on_state)
        self._mark(_Signal.CONTROLLER)
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

    # Marks: called from watches and channels, on the loop; they only leave a note.

    def _mark(self, signal: _Signal) -> None:
        self._signals.add(signal)
        self._wake.set()

    def _on_controller(self, event: WatchEvent) -> None:
        self._mark(_Signal.CONTROLLER)

    def _on_brokers(self, event: WatchEvent) -> None:
        self._mark(_Signal.BROKERS)

    def _on_topics(self, event: WatchEvent) -> None:
        self._mark(_Signal.TOPICS)

    def _on_deletions(self, event: WatchEvent) -> None:
        self._mark(_Signal.DELETIONS)

    def _on_assignment(self, event: WatchEvent) -> None:
        self._changed_topics.add(event.path.rpartition("/")[2])
        self._wake.set()

    def _on_state(self, state: SessionState) -> None:
        if state in (SessionState.EXPIRED, SessionState.CONNECTED, SessionState.CLOSED):
            self._mark(_Signal.SESSION)

    def _on_answer(
        self, broker_id: int, request: BrokerRequest, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        if isinstance(request, StopReplica):
            self._events.append(ReplicasStopped(broker_id, request, errors))
            self._wake.set()
        else:
            for partition, code in errors.items():
                if code is not ErrorCode.NONE:
                    _log.warning("broker %d refused its role in %s: %s", broker_id, partition, code.name)

    def _on_overflow(self, broker_id: int) -> None:
        self._events.append(BrokerFellBehind(broker_id))
        self._wake.set()

    # The owner task.

    async def _take_up(self) -> None:
        try:
            for signal in _Signal:
                if signal in self._signals:
                    self._signals.discard(signal)
                    await self._take_up_signal(signal)
            if self.is_active:
                await self._take_up_assignments()
                while self._events:
                    await self._step(self._events.popleft())
        except ControllerMovedError as error:
            _log.warning("no longer controller: %s", error)
            self._leave_office()
            self._mark(_Signal.CONTROLLER)
        except SessionExpiredError:
            self._leave_office()
        except (CoordinationError, SchemaError) as error:
            # What was read or written by halves is done again from a clean slate.
            _log.error("the controller could not work, starting over: %s", error)
            await self._resign_quietly()
            await asyncio.sleep(_RETRY_SECONDS)
            self._mark(_Signal.CONTROLLER)

    async def _take_up_signal(self, signal: _Signal) -> None:
        match signal:
            case _Signal.SESSION:
                self._leave_office()
                if self._cluster.coordination.state is SessionState.CONNECTED:
                    await self._elect()
            case _Signal.CONTROLLER:
                await self._elect()
            case _Signal.BROKERS:
                if self.is_active:
                    await self._step(BrokersChanged(await self._cluster.brokers(self._on_brokers)))
            case _Signal.TOPICS:
                if self.is_active:
                    await self._take_up_topics()
            case _Signal.DELETIONS:
                if self.is_active:
                    marked = await self._cluster.topics_to_delete(self._on_deletions)
                    await self._step(TopicDeletionsRequested(frozenset(marked)))
            case _:
                assert_never(signal)

    async def _take_up_topics(self) -> None:
        names = frozenset(await self._cluster.topics(self._on_topics))
        added = sorted(names - self._context.assignments.keys())
        assignments = await self._cluster.topic_assignments(added, self._on_assignment)
        await self._step(TopicsChanged(names, assignments))

    async def _take_up_assignments(self) -> None:
        topics, self._changed_topics = self._changed_topics, set()
        if topics:
            assignments = await self._cluster.topic_assignments(sorted(topics), self._on_assignment)
            await self._step(AssignmentsChanged(assignments))

    async def _elect(self) -> None:
        controller_id = await self._cluster.controller_id(self._on_controller)
        if self.is_active and controller_id != self._broker_id:
            self._leave_office()
        if controller_id == self._broker_id and not self.is_active:
            await self._clear_lost_term()
            controller_id = await self._cluster.controller_id(self._on_controller)
        if controller_id is None:
            store = await elect(self._cluster.coordination, self._clock, self._broker_id)
            if store is not None:
                self._controller_id = self._broker_id
                await self._take_office(store)
                return
            controller_id = await self._cluster.controller_id(self._on_controller)
        self._controller_id = controller_id
        if controller_id is not None and not self.is_active:
            self._known.set()

    async def _clear_lost_term(self) -> None:
        # A term of this session that could not be resigned, e.g. because the disk was full. One of an
        # earlier session ends when that expires; the watch tells.
        stat = await self._cluster.coordination.exists(paths.CONTROLLER)
        if stat is not None and stat.ephemeral_owner == self._cluster.coordination.session_id:
            with contextlib.suppress(NoNodeError):
                await self._cluster.coordination.delete(paths.CONTROLLER, stat.version)

    async def _take_office(self, store: ControllerStore) -> None:
        _log.info("broker %d is controller with epoch %d", self._broker_id, store.epoch)
        self._store = store
        self._context = self._empty_context()
        self._events.clear()
        self._changed_topics.clear()
        cluster = self._cluster
        brokers = await cluster.brokers(self._on_brokers)
        topics = await cluster.topics(self._on_topics)
        assignments = await cluster.topic_assignments(topics, self._on_assignment)
        states = await cluster.partition_states(
            TopicPartition(topic, number)
            for topic, assignment in assignments.items()
            for number in assignment.partitions
        )
        marked = await cluster.topics_to_delete(self._on_deletions)
        unclean = await self._unclean_topics(assignments.keys())
        event = ControllerElected(store.epoch, brokers, assignments, states, frozenset(marked), unclean)
        await self._step(event)
        self._known.set()

    async def _unclean_topics(self, topics: Iterable[str]) -> frozenset[str]:
        default = "true" if self._is_unclean_election_default else "false"
        configs = await self._cluster.configs("topics")
        return frozenset(
            topic
            for topic in topics
            if configs.get(topic, {}).get("unclean.leader.election.enable", default) == "true"
        )

    def _leave_office(self) -> None:
        if self._store is not None:
            _log.info("broker %d is no longer controller", self._broker_id)
        self._store = None
        self._controller_id = None
        self._known.clear()
        self._channels.close()
        self._events.clear()
        self._changed_topics.clear()
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
        return ControllerContext(self._broker_id, is_topic_deletion_enabled=self._is_topic_deletion_enabled)

    async def _step(self, event: Event) -> None:
        """Feed one event to the core, and the outcomes of its writes before anything else."""
        pending = deque([event])
        while pending:
            effects = step(self._context, pending.popleft())
            self._channels.set_brokers(self._context.live_brokers)
            for effect in effects:
                outcome = await self._perform(effect)
                if outcome is not None:
                    pending.append(outcome)

    async def _perform(self, effect: Effect) -> Event | None:
        store = self._store
        assert store is not None, "effects are performed in office only"
        match effect:
            case Send():
                self._channels.send(effect.broker_id, effect.request)
                return None
            case CreatePartitionStates():
                return PartitionStatesCreated(await store.create_partition_states(effect.states))
            case UpdatePartitionStates():
                outcome = await store.update_partition_states(effect.states)
                return PartitionStatesUpdated(outcome.updated, outcome.conflicts)
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
