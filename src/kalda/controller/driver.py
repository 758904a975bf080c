"""Runs the controller on one broker: elections, and the term while this broker is the active controller.

Every broker runs a `ControllerDriver`; at most one broker is the active controller. One task owns the term:
watches, responses of brokers and requests of operators only mark work for it and return. A controller that
may have lost its election must write nothing that ZooKeeper does not check against the term's controller
epoch.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.controller_store import ControllerMovedError, ControllerStore, elect
from kalda.cluster.schema import BrokerInfo, PartitionState, ReplicaAssignment, SchemaError
from kalda.common import invariants
from kalda.common.backoff import jittered
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import UUID, TopicPartition
from kalda.controller import term_session
from kalda.controller.channel_manager import ControllerChannelManager
from kalda.controller.context import ControllerContext
from kalda.controller.controller_events import ControllerEvents
from kalda.controller.effects import BrokerRequest
from kalda.controller.events import ElectionType
from kalda.controller.isr_requests import IsrRequest
from kalda.controller.ports import BrokerChannel
from kalda.controller.request_queue import RequestQueue
from kalda.controller.statistics import ControllerStatistics, ElectionCounts
from kalda.controller.term import Term
from kalda.controller.term_session import TermSession
from kalda.controller.znode_watches import ACTIVE_SIGNALS, Signal, ZnodeWatches
from kalda.events.event import NO_EVENTS, EventSink
from kalda.runtime.clock import Clock
from kalda.zookeeper.errors import (
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from kalda.zookeeper.port import SessionState

_FIRST_BALANCE_CHECK_SECONDS: Final = 5.0
"""From an election to the first leader imbalance check, as in Kafka."""

UNATTENDED_SECONDS: Final = 30.0
"""How long a broker that may not be elected waits for an eligible one. The registration of one that has died
ends with its session, after 18 s by default."""

Result = TypeVar("Result")

logger: Final = logging.getLogger(__name__)


class ControllerDriver:
    """The controller of one broker. The broker registers itself, then runs `run` as one of its tasks.

    `is_unclean_election_default` returns the broker's ``unclean.leader.election.enable``, for topics that do
    not set it. `balance_check_seconds` is ``leader.imbalance.check.interval.seconds``, or None if
    ``auto.leader.rebalance.enable`` is false. `is_eligible` returns whether this broker may be elected; a
    broker that may not is elected all the same where none is for `UNATTENDED_SECONDS`.
    """

    def __init__(
        self,
        broker_id: int,
        cluster: ClusterStore,
        channel: BrokerChannel,
        clock: Clock,
        *,
        is_topic_deletion_enabled: bool = True,
        is_unclean_election_default: Callable[[], bool] = lambda: False,
        is_eligible: Callable[[], bool] = lambda: True,
        balance_check_seconds: float | None = 300,
        leader_imbalance_percentage: int = 10,
        events: EventSink = NO_EVENTS,
    ) -> None:
        self._broker_id = broker_id
        self._cluster = cluster
        self._zookeeper = cluster.zookeeper
        self._channel = channel
        self._clock = clock
        self._is_topic_deletion_enabled = is_topic_deletion_enabled
        self._is_eligible = is_eligible
        self._balance_check_seconds = balance_check_seconds
        self._leader_imbalance_percentage = leader_imbalance_percentage
        self._events: Final = events
        self._watches = ZnodeWatches(cluster, self._mark, is_unclean_election_default)
        self._signals: set[Signal] = set()
        self._wake = asyncio.Event()
        self._requests = RequestQueue(self._wake.set)
        self._known = asyncio.Event()
        self._controller_id: int | None = None
        self._session = TermSession(cluster.zookeeper, cluster.random)
        self._epoch = 0
        self.election_counts: Final = ElectionCounts()
        self._term: Term | None = None
        """None exactly while this broker is not the active controller."""
        self._balance_timer: asyncio.TimerHandle | None = None
        self._unattended_timer: asyncio.TimerHandle | None = None
        """Runs while there is no controller and this broker may not be elected."""
        self._is_unattended = False
        """Whether it has run out, so that this broker takes part in elections."""
        self._channels: ControllerChannelManager

    # For the broker.

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller."""
        return self._term is not None

    @property
    def controller_id(self) -> int | None:
        """The active controller's broker id as last read, or None."""
        return self._controller_id

    @property
    def epoch(self) -> int:
        """The controller epoch of this broker's last term; 0 before the first."""
        return self._epoch

    def statistics(self) -> ControllerStatistics:
        """Return the controller's statistics; all 0 while another broker is the active controller."""
        return ControllerStatistics() if self._term is None else self._term.statistics()

    async def wait_ready(self) -> None:
        """Wait until a controller is known and, if it is this broker, has sent this broker everything."""
        await self._known.wait()
        if self.is_active:
            await self._channels.wait_idle(self._broker_id)

    async def run(self) -> None:
        """Take part in elections and run the term while elected; ends only by cancellation or a fault.

        Resigns when cancelled, so that another broker is elected at once.
        """
        self._zookeeper.add_state_listener(self._on_state)
        self._mark(Signal.CONTROLLER)
        async with asyncio.TaskGroup() as group:
            self._channels = ControllerChannelManager(
                self._channel, group, self._on_answer, self._on_overflow, self._cluster.random
            )
            try:
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    await self._process_signals()
            finally:
                self._set_unattended_timer(None)
                self._channels.close()
                await self._resign_quietly()

    def on_topic_config_changed(self, topic: str) -> None:
        """Record that a topic's configuration changed: it may allow unclean elections now."""
        if self._term is not None:
            self._term.note_config_changed(topic)

    def on_unclean_default_changed(self) -> None:
        """Record that the broker's ``unclean.leader.election.enable`` changed."""
        if self._term is not None:
            self._term.note_unclean_default_changed()

    def on_eligibility_changed(self) -> None:
        """Record that `is_eligible` may return something else now; a controller that is not, resigns."""
        self._mark(Signal.ELIGIBILITY)

    # Requests. They run in the owner task, one at a time, and raise `ApiError`: NOT_CONTROLLER if this broker
    # is not the active controller or stops being it meanwhile, REQUEST_TIMED_OUT if too many requests wait.

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaderships off a broker that is about to stop; return the partitions that it still leads.

        A `broker_epoch` of -1 is not compared.

        Raises:
            ApiError: STALE_BROKER_EPOCH: the broker has restarted since; BROKER_NOT_AVAILABLE: it is not
            live.
        """
        return await self._ask(lambda term: term.shut_down(broker_id, broker_epoch))

    async def check_registration(self, broker_id: int, broker_epoch: int) -> None:
        """Check that a broker is registered, in this registration.

        Raises:
            ApiError: BROKER_ID_NOT_REGISTERED, or STALE_BROKER_EPOCH: it has restarted since.
        """
        await self._ask(
            lambda term: term.check_registration(broker_id, broker_epoch, ErrorCode.BROKER_ID_NOT_REGISTERED)
        )

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the names of those topics that the controller knows.

        A leader may use the id of a topic before this broker's metadata has it.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return self._active_term().topic_names(topic_ids)

    async def alter_in_sync_replicas(
        self, broker_id: int, broker_epoch: int, requests: Mapping[TopicPartition, IsrRequest]
    ) -> dict[TopicPartition, PartitionState | ErrorCode]:
        """Change in-sync replicas for the leader of the partitions; return each stored state or error.

        Raises:
            ApiError: STALE_BROKER_EPOCH: the broker has restarted since, or is not live.
        """
        return await self._ask(lambda term: term.alter_in_sync_replicas(broker_id, broker_epoch, requests))

    async def elect_leaders(
        self, election: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders of these partitions, or of all; of all, those that need no election are left out."""
        return await self._ask(lambda term: term.elect_leaders(election, partitions))

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, ApiError | None]:
        """Start reassignments, or cancel them (None); return for each partition its error or None.

        Without `may_change_factor`, a change of the replication factor is refused (KIP-860).
        """
        return await self._ask(
            lambda term: term.alter_reassignments(targets, may_change_factor=may_change_factor)
        )

    async def complete_deletions(self, topics: Collection[str]) -> None:
        """Complete the deletion of topics that waits for dead brokers only: new topics reuse their names."""
        await self._ask(lambda term: term.complete_deletions(topics))

    def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the reassignments in progress, of these partitions or of all.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return self._active_term().reassignments(partitions)

    def _active_term(self) -> Term:
        if self._term is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return self._term

    async def _ask(self, work: Callable[[Term], Awaitable[Result]]) -> Result:
        # The end of a term fails all waiting requests, so this term is the one that serves the request.
        term = self._active_term()
        return await self._requests.ask(lambda: work(term))

    # Callbacks of watches, channels and callers, on the loop; they only mark work for the owner task.

    def _mark(self, signal: Signal) -> None:
        self._signals.add(signal)
        self._wake.set()

    def _on_state(self, state: SessionState) -> None:
        self._session.on_state()
        if state is not SessionState.SUSPENDED:
            self._mark(Signal.SESSION)

    def _on_answer(
        self, broker: BrokerInfo, request: BrokerRequest, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        if self._term is not None:
            self._term.note_answer(broker, request, errors)
            if self._term.events:
                self._wake.set()

    def _on_overflow(self, broker_id: int) -> None:
        if self._term is not None:
            self._term.note_overflow(broker_id)
            self._wake.set()

    # The owner task.

    async def _process_signals(self) -> None:
        try:
            for signal in Signal:
                if signal in self._signals:
                    self._signals.discard(signal)
                    await self._process_signal(signal)
            while (term := self._term) is not None and (term.events or self._requests):
                if term.events:
                    await term.step(term.events.popleft())
                if self._requests:
                    await self._requests.serve()
        except ControllerMovedError as error:
            logger.warning("no longer controller: %s", error)
            self._stop_being_controller()
            self._mark(Signal.CONTROLLER)
        except SessionExpiredError:
            self._stop_being_controller()
        except ConnectionLossError as error:
            # A term's operations wait for the connection, so an election failed; its outcome is unknown.
            logger.info(
                "no controller election while %s cannot be reached: %s", self._zookeeper.engine_name, error
            )
            self._stop_being_controller()
            await self._session.pause()
            self._mark(Signal.CONTROLLER)
        except (ZooKeeperError, SchemaError) as error:
            # The term may have read or written half of something; a new one starts from a clean slate.
            logger.error("the controller failed and resigns: %s", error)
            await self._resign_quietly()
            await asyncio.sleep(jittered(term_session.RETRY_SECONDS, self._cluster.random))
            self._mark(Signal.CONTROLLER)

    async def _process_signal(self, signal: Signal) -> None:
        if signal is Signal.SESSION:
            await self._process_session()
        elif signal is Signal.ELIGIBILITY:
            await self._process_eligibility()
        elif signal is Signal.CONTROLLER:
            await self._elect()
        elif self._term is not None:
            await self._term.process(signal)
            if signal is Signal.BALANCE:
                self._set_balance_timer(self._balance_check_seconds)

    async def _process_session(self) -> None:
        zookeeper = self._zookeeper
        is_same = self._session.is_same
        if zookeeper.state is SessionState.CONNECTED and is_same and self._term is not None:
            # The session has not expired, so the term continues, but watches may have been missed.
            logger.info(
                "%s can be reached again, broker %d is still controller",
                zookeeper.engine_name,
                self._broker_id,
            )
            self._term.note_reconnected()
            self._signals.update((Signal.CONTROLLER, *ACTIVE_SIGNALS))
            return
        if zookeeper.state is SessionState.SUSPENDED and is_same:
            # The connection is lost again; the next reconnect marks the next signal.
            return
        if not is_same or zookeeper.state is not SessionState.CONNECTED:
            self._stop_being_controller()
            self._watches.forget()
        if zookeeper.state is SessionState.CONNECTED:
            await self._elect()

    async def _process_eligibility(self) -> None:
        if self._is_eligible():
            if self._controller_id is None:
                self._mark(Signal.CONTROLLER)
        elif self.is_active:
            logger.info(
                "broker %d resigns: others are eligible for controller and it is not "
                "(`kalda.controller.eligible`)",
                self._broker_id,
            )
            await self._resign_quietly()
            self._mark(Signal.CONTROLLER)

    # Elections.

    async def _elect(self) -> None:
        # A term stays bound to the session that elected it, so that its writes fail once that one expired.
        if not self.is_active:
            self._session.begin()
        read = self._watches.controller_id
        controller_id = await (self._session.reliably(read) if self.is_active else read())
        if self.is_active and controller_id != self._broker_id:
            self._stop_being_controller()
        if controller_id == self._broker_id and not self.is_active:
            await self._clear_lost_term()
            controller_id = await self._watches.controller_id()
        if controller_id is None and self._takes_part():
            store = await elect(self._zookeeper, self._clock, self._broker_id)
            if store is not None:
                self._controller_id = self._broker_id
                await self._become_controller(store)
                return
            # Another broker was faster; reading its id again also sets the watch for the next election.
            controller_id = await self._watches.controller_id()
        self._controller_id = controller_id
        if controller_id is not None and not self.is_active:
            self._is_unattended = False
            self._set_unattended_timer(None)
            self._known.set()

    def _takes_part(self) -> bool:
        """Return whether this broker may be elected now; if not, it waits a while for the others."""
        if self._is_eligible() or self._is_unattended:
            self._set_unattended_timer(None)
            self._is_unattended = False
            return True
        if self._unattended_timer is None:
            self._set_unattended_timer(UNATTENDED_SECONDS)
        return False

    def _on_unattended(self) -> None:
        logger.warning(
            "no eligible broker became controller within %.0f s: broker %d takes part in the election",
            UNATTENDED_SECONDS,
            self._broker_id,
        )
        self._unattended_timer, self._is_unattended = None, True
        self._mark(Signal.CONTROLLER)

    def _set_unattended_timer(self, seconds: float | None) -> None:
        if self._unattended_timer is not None:
            self._unattended_timer.cancel()
            self._unattended_timer = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._unattended_timer = loop.call_later(seconds, self._on_unattended)

    async def _clear_lost_term(self) -> None:
        # Resigning this session's term failed, e.g. because the server's disk was full. The znode of an
        # earlier session goes when that session expires, which fires the watch.
        stat = await self._zookeeper.exists(paths.CONTROLLER)
        if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
            with contextlib.suppress(NoNodeError):
                await self._zookeeper.delete(paths.CONTROLLER, stat.version)

    async def _become_controller(self, store: ControllerStore) -> None:
        logger.info("broker %d is controller with epoch %d", self._broker_id, store.epoch)
        if invariants.enabled:
            # Not always: an operator may have deleted /controller_epoch.
            assert store.epoch > self._epoch, f"epoch {store.epoch} follows {self._epoch}"
        self._epoch = store.epoch
        context = ControllerContext(
            self._broker_id,
            is_topic_deletion_enabled=self._is_topic_deletion_enabled,
            leader_imbalance_percentage=self._leader_imbalance_percentage,
        )
        self._term = Term(
            context,
            store,
            self._session,
            self._watches,
            self._channels,
            self._mark,
            self.election_counts,
            ControllerEvents(self._broker_id, self._events),
        )
        await self._term.begin()
        self._known.set()
        for signal in (
            Signal.ISR_CHANGES,
            Signal.LOG_DIRS,
            Signal.LEGACY_REASSIGNMENT,
            Signal.LEGACY_ELECTION,
        ):
            self._mark(signal)
        self._set_balance_timer(_FIRST_BALANCE_CHECK_SECONDS)

    def _stop_being_controller(self) -> None:
        if self._term is not None:
            logger.info("broker %d is no longer controller", self._broker_id)
        self._term = None
        self._controller_id = None
        self._known.clear()
        self._channels.close()
        self._watches.forget_changes()
        self._set_balance_timer(None)
        self._requests.refuse()

    async def _resign_quietly(self) -> None:
        term = self._term
        self._stop_being_controller()
        if term is None:
            return
        try:
            await term.store.resign()
        except (ZooKeeperError, ControllerMovedError) as error:
            logger.info("the end of the session will end the term: %s", error)

    def _set_balance_timer(self, seconds: float | None) -> None:
        if self._balance_timer is not None:
            self._balance_timer.cancel()
            self._balance_timer = None
        if seconds is not None and self._balance_check_seconds is not None:
            loop = asyncio.get_running_loop()
            self._balance_timer = loop.call_later(seconds, self._mark, Signal.BALANCE)
