"""Runs one replica fetcher: the task that fetches from one leader for one `FetcherCore`.

It connects, sends the core's requests, passes responses to the core, and waits while the core has nothing to
fetch. The leader holds a fetch without records for up to ``replica.fetch.wait.max.ms``. A partition that
begins to be followed meanwhile cannot wait that long, because acks=all producers of its leader wait for it:
the fetcher closes the connection, and its next fetch names every partition.

There is no await between a response and the next request, and tenures end on the event loop, so no response
is applied to a log that this broker no longer follows.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda.broker.replicas.follower.fetch_state import FetchState
from kalda.broker.replicas.follower.fetcher_core import FetcherCore
from kalda.broker.replicas.follower.leader_bounds import ask_leader_bounds
from kalda.broker.replicas.follower.ports import LeaderConnection, LeaderDialer
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.events.event import NO_EVENTS, EventKind, EventSink, Plain
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.fast.fetch_response import HIGHEST_VERSION, LOWEST_VERSION, parse_fetch_response
from kalda.protocol.fetch_session import TOPIC_IDS_FROM
from kalda.protocol.protocol_errors import ProtocolError
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition

logger: Final = logging.getLogger(__name__)

INTERRUPT_SECONDS: Final = 0.01
"""How long after a partition begins to be followed the current fetch is aborted. The controller sends
partitions by the hundred; one abort serves them all."""
INTERRUPT_SPACING_SECONDS: Final = 0.1
"""The least time between two aborts, so that partitions that catch up make progress."""
FIRST_RECONNECT_MS: Final = 50
"""The first pause after a connection failed; it doubles up to ``replica.fetch.backoff.ms``."""
IDLE_SECONDS: Final = 10.0
"""How long a fetcher without partitions keeps its connection: leaders often return to their partitions."""
RESOLVED_PER_REQUEST: Final = 500
"""Partitions in one request for the leader's bounds: tens of kilobytes."""


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """The settings of a fetcher."""

    backoff_seconds: float
    socket_timeout_seconds: float
    receive_buffer_bytes: int


class ReplicaFetcher:
    """Follows partitions of one leader until it has had none for `IDLE_SECONDS`."""

    def __init__(
        self,
        name: str,
        core: FetcherCore,
        settings: FetcherSettings,
        *,
        broker_id: int,
        dialer: LeaderDialer,
        find_leader: Callable[[], BrokerEndpoint | None],
        broker_epoch: Callable[[], int],
        wake: "Callable[[Partition], object]",
        on_connected: Callable[[int], object],
        clock: Clock,
        random: Random,
        events: EventSink = NO_EVENTS,
    ) -> None:
        """`find_leader` returns the leader's endpoint if known; `wake` is called for moved watermarks.

        `on_connected` is called with the highest version of Fetch that both brokers support. It may unfollow
        partitions.
        """
        self.name: Final = name
        self.core: Final = core
        self.is_over = False
        """Whether it ended because it had no partitions; it follows nothing any more."""
        self._settings: Final = settings
        self._broker_id: Final = broker_id
        self._dialer: Final = dialer
        self._find_leader: Final = find_leader
        self._broker_epoch: Final = broker_epoch
        self._wake: Final = wake
        self._on_connected: Final = on_connected
        self._clock: Final = clock
        self._events: Final = events
        self._attention: Final = asyncio.Event()
        self._connection: LeaderConnection | None = None
        self._requests = 0
        self._is_parked = False
        """Whether a fetch is under way, the only request that may be aborted."""
        self._is_interrupted = False
        self._interrupted_request = -1
        """The number of the fetch that the timer is for."""
        self._interrupt_timer: asyncio.TimerHandle | None = None
        self._interrupts_from = 0.0
        """The earliest time of the next abort, in the loop's time."""
        self._failures = 0
        self._backoff: Final = ExponentialBackoff(
            FIRST_RECONNECT_MS, round(settings.backoff_seconds * 1000), random.uniform
        )

    def follow(self, partition: "Partition") -> None:
        """Fetch a partition from now on."""
        assert not self.is_over, f"{self.name} is over"
        if self.core.follow(partition):
            self._attention.set()
            self._interrupt_after(INTERRUPT_SECONDS)

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition; when this returns, the fetcher does not touch its log any more."""
        self.core.unfollow(topic_partition)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the leader."""
        return self._connection is not None

    def nudge(self) -> None:
        """Retry the connection now: the cluster metadata has changed."""
        if self._connection is None:
            self._attention.set()

    async def run(self) -> None:
        """Fetch until there was nothing to follow for `IDLE_SECONDS`, or until cancelled."""
        try:
            while not self.is_over:
                try:
                    connection = self._connection = await self._connect()
                    await self._exchange(connection)
                except (ConnectionError, ProtocolError) as error:
                    await self._on_failure(error)
                finally:
                    self._hang_up()
        finally:
            self._cancel_timer()

    # One connection.

    async def _connect(self) -> LeaderConnection:
        endpoint = self._find_leader()
        if endpoint is None:
            raise ConnectionError(f"the address of broker {self.core.leader_id} is not known yet")
        self._attention.clear()
        return await self._dialer.dial(
            endpoint.host,
            endpoint.port,
            DialOptions(
                client_id=self.name,
                timeout_seconds=self._settings.socket_timeout_seconds,
                receive_buffer_bytes=self._settings.receive_buffer_bytes,
            ),
        )

    async def _exchange(self, connection: LeaderConnection) -> None:
        """Send requests and apply responses until the connection fails or there is nothing to follow."""
        core, clock, timeout = self.core, self._clock, self._settings.socket_timeout_seconds
        is_by_id = core.session.is_by_id
        needed, highest = (TOPIC_IDS_FROM, HIGHEST_VERSION) if is_by_id else (LOWEST_VERSION, LOWEST_VERSION)
        offered = connection.version_of(ApiKey.FETCH)
        self._on_connected(offered)
        version = min(offered, highest)
        if version < needed:
            raise ConnectionError(
                f"broker {core.leader_id} supports Fetch up to version {version}, but a follower needs "
                f"{needed}; upgrade it"
            )
        loop = asyncio.get_running_loop()
        while True:
            # A `follow` during an await below sets this again.
            self._attention.clear()
            if core.resolving:
                await self._resolve(connection, core.resolving[:RESOLVED_PER_REQUEST])
            body = core.request(version, self._broker_epoch(), clock.monotonic())
            if body is None:
                if not core.resolving and not await self._wait_for_work():
                    return
                continue
            self._requests += 1
            urgent = core.next_urgent()
            if urgent is not None:
                self._interrupt_after(max(INTERRUPT_SECONDS, urgent - clock.monotonic()))
            self._is_parked = True
            try:
                frame = await connection.request_raw(ApiKey.FETCH, version, body, timeout_seconds=timeout)
            finally:
                self._is_parked = False
            advanced = core.on_answer(parse_fetch_response(frame, version=version), clock.monotonic())
            # The next response is received into the same memory.
            del frame
            # Else a leader that accepts, answers nothing and hangs up would be dialled with the first pause.
            if self._failures and core.is_served:
                logger.info("%s: fetching from leader %d again", self.name, core.leader_id)
                self._failures = 0
            if advanced:
                # The next fetch, which the leader's producers wait for, is sent before this broker's readers.
                loop.call_soon(self._wake_all, advanced)

    async def _resolve(self, connection: LeaderConnection, states: list[FetchState]) -> None:
        bounds = await ask_leader_bounds(
            connection, self._broker_id, states, self._settings.socket_timeout_seconds
        )
        now = self._clock.monotonic()
        for state, found in bounds:
            if isinstance(found, int):
                self.core.on_bounds_error(state, found, now)
            else:
                self.core.on_bounds(state, found, now)

    def _wake_all(self, partitions: "Sequence[Partition]") -> None:
        for partition in partitions:
            self._wake(partition)

    async def _wait_for_work(self) -> bool:
        """Wait until there may be something to fetch; return False if the fetcher ends."""
        core = self.core
        now = self._clock.monotonic()
        due = core.next_due(now)
        if await self._is_attended(IDLE_SECONDS if due is None else max(0.0, due - now)):
            return True
        if core.states:
            return True
        self.is_over = True
        return False

    async def _is_attended(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._attention.wait()
        except TimeoutError:
            return False
        return True

    # Failures and interruptions.

    async def _on_failure(self, error: Exception) -> None:
        """Drop the current request, and pause unless the fetcher itself closed the connection."""
        self._hang_up()
        self.core.connection_lost()
        if self._is_interrupted:
            self._is_interrupted = False
            return
        if not self.core.states:
            self.is_over = True
            return
        self._failures += 1
        pause = self._backoff.seconds(self._failures)
        if self._failures == 1:
            logger.info("%s: %s; retrying", self.name, error)
            details: dict[str, Plain] = {"leader": self.core.leader_id, "reason": str(error)}
            self._events.emit_seldom(EventKind.REPLICATION_FAILED, {}, details)
        elif self._failures % 20 == 0:
            logger.warning("%s: %d failures in a row, the last: %s", self.name, self._failures, error)
        self._attention.clear()
        await self._is_attended(pause)

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _interrupt_after(self, seconds: float) -> None:
        """Abort the current fetch unless its response arrives in this time."""
        if not self._is_parked:
            return
        loop = asyncio.get_running_loop()
        timer, when = self._interrupt_timer, max(loop.time() + seconds, self._interrupts_from)
        if timer is not None:
            if timer.when() <= when and self._interrupted_request == self._requests:
                return
            timer.cancel()
        self._interrupted_request = self._requests
        self._interrupt_timer = loop.call_at(when, self._interrupt)

    def _interrupt(self) -> None:
        self._interrupt_timer = None
        is_same = self._requests == self._interrupted_request
        if self._is_parked and is_same and self._connection is not None:
            self._interrupts_from = asyncio.get_running_loop().time() + INTERRUPT_SPACING_SECONDS
            self._is_interrupted = True
            self._connection.close()

    def _cancel_timer(self) -> None:
        if self._interrupt_timer is not None:
            self._interrupt_timer.cancel()
            self._interrupt_timer = None

    def __repr__(self) -> str:
        return f"ReplicaFetcher({self.name}, {len(self.core.states)} partitions)"
