"""Registers a broker in the cluster (the ephemeral znode `/brokers/ids/N`) and decides its id.

The registration lasts as long as the ZooKeeper session. When the session expires, the broker registers again
in the next one, with a new broker epoch, which fences requests to and from the earlier registration. A znode
that an earlier session of this process left is replaced at once (KAFKA-7165).

A broker that was killed and restarts finds the znode of its previous process until that session expires. If
it has the session's key (`SessionFile`) and the znode has the addresses that it now listens on itself, the
znode can only be its own, and it closes that session. Otherwise it waits until the session expires.

The registration of another broker's session is never deleted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kalda.broker.metadata.session_file import SessionFile
from kalda.cluster import paths, schema
from kalda.cluster.cluster_store import BrokerIdInUseError, ClusterStore
from kalda.cluster.engine_migration.marker import require_open
from kalda.cluster.schema import BrokerInfo
from kalda.common import invariants
from kalda.common.backoff import jittered
from kalda.events.event import NO_EVENTS, EventKind, EventSink, Plain
from kalda.runtime.clock import Clock
from kalda.runtime.filesystem import FileSystem
from kalda.storage.checkpoints import MetaProperties, read_meta_properties
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import SessionState, WatchEvent

logger: Final = logging.getLogger(__name__)

WAIT_MARGIN_MS: Final = 5_000
"""Added to the session time-out while waiting for another session to expire: a ZooKeeper server checks for
expired sessions once per tick, 2 s by default, and the other session's time-out may be a little longer."""

_RETRY_SECONDS: Final = 1.0
"""Seconds between attempts after ZooKeeper failed, and between checks of a conflicting znode."""

_RECENT_SESSIONS_MAX: Final = 16
"""The most sessions of this process whose znodes it may replace; older ones have expired."""


class BrokerIdentityError(Exception):
    """The log directories belong to another broker or cluster, which the message names."""


class RegistrationState(Enum):
    """The state of a broker's registration."""

    NOT_REGISTERED = "not registered"
    """At the start, and from the expiry of the session until the next registration."""
    REGISTERED = "registered"
    OUT_OF_REACH = "out of reach"
    """Registered, but without a connection to ZooKeeper; the session may expire."""
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class RegistrationStatistics:
    """The state of a broker's registration, and how often it changed."""

    state: RegistrationState
    broker_epoch: int
    registrations: int
    expiries: int
    disconnects: int


class BrokerRegistration:
    """One broker's registration: `start`, then `run` until cancelled, then `withdraw`.

    `info_factory` returns the content of the znode; it is called for each registration, because addresses may
    change while the broker runs.
    """

    def __init__(
        self,
        cluster: ClusterStore,
        info_factory: Callable[[], BrokerInfo],
        *,
        clock: Clock,
        session_timeout_ms: int,
        session_file: SessionFile | None = None,
        events: EventSink = NO_EVENTS,
    ) -> None:
        self._cluster = cluster
        self._session_file = session_file
        self._events: Final = events
        self._lost_at: float | None = None
        """When the connection to ZooKeeper was lost, in monotonic seconds; None while there is one."""
        self._previous_key = session_file.read() if session_file is not None else None
        """The session of the previous process; None after it was closed, or if there is none."""
        self._info_factory = info_factory
        self._clock = clock
        self._wait_seconds = (session_timeout_ms + WAIT_MARGIN_MS) / 1000
        self._state = RegistrationState.NOT_REGISTERED
        self._broker_id = -1
        self._epoch = -1
        self._newest_epoch = -1
        """The epoch of the last registration; epochs never decrease."""
        self._own_sessions: dict[int, None] = {}
        """Sessions of this process, oldest first; their znodes may be replaced."""
        self._watched_session = 0
        """The session that has a watch on the znode; 0 for none."""
        self._changed = asyncio.Event()
        self._registrations = 0
        self._expiries = 0
        self._disconnects = 0

    @property
    def broker_epoch(self) -> int:
        """The zxid of the transaction that created the registration (KIP-380); -1 without one."""
        return self._epoch

    @property
    def state(self) -> RegistrationState:
        """The state of the registration."""
        return self._state

    @property
    def is_healthy(self) -> bool:
        """Whether the broker is registered and connected to ZooKeeper."""
        return self._state is RegistrationState.REGISTERED

    @property
    def engine_name(self) -> str:
        """The name of the engine that keeps the registration."""
        return self._cluster.zookeeper.engine_name

    def statistics(self) -> RegistrationStatistics:
        """Return the figures for health checks and metrics."""
        return RegistrationStatistics(
            self._state, self._epoch, self._registrations, self._expiries, self._disconnects
        )

    async def start(self) -> int:
        """Register, after another session with the same id has ended; return the broker epoch.

        Raises:
            BrokerIdInUseError: another live broker has the id.
            ZooKeeperError: ZooKeeper refused, or did not answer for the time-out of a session.
        """
        self._cluster.zookeeper.add_state_listener(self._on_session)
        return await self._register()

    async def run(self) -> None:
        """Register again whenever the session expires or the znode is deleted, until cancelled.

        Raises:
            BrokerIdInUseError: another live broker has registered with the id; this one must stop.
        """
        while True:
            try:
                if self._state is RegistrationState.NOT_REGISTERED:
                    await self._register()
                elif self._state is RegistrationState.REGISTERED:
                    await self._watch()
            except ZooKeeperError as error:
                if self._state is RegistrationState.NOT_REGISTERED:
                    logger.warning("broker %d is not registered yet: %s", self._broker_id, error)
                await asyncio.sleep(jittered(_RETRY_SECONDS, self._cluster.random))
                self._changed.set()
            await self._changed.wait()
            self._changed.clear()

    async def update(self) -> None:
        """Rewrite the registration with its present contents, unless the broker is not registered yet.

        Raises:
            ZooKeeperError: it could not be written.
        """
        if self._state in (RegistrationState.REGISTERED, RegistrationState.OUT_OF_REACH):
            await self._cluster.update_broker(self._info_factory())

    async def withdraw(self) -> None:
        """Delete the registration. If ZooKeeper does not answer, the session's expiry deletes it."""
        was, self._state = self._state, RegistrationState.WITHDRAWN
        if was not in (RegistrationState.REGISTERED, RegistrationState.OUT_OF_REACH):
            return
        self._epoch = -1
        try:
            await self._cluster.unregister_broker(self._broker_id)
        except ZooKeeperError as error:
            logger.warning("broker %d could not delete its registration: %s", self._broker_id, error)
        else:
            logger.info("broker %d has deleted its registration", self._broker_id)

    async def _register(self) -> int:
        info = self._info_factory()
        self._broker_id = info.id
        deadline = self._clock.monotonic() + self._wait_seconds
        is_logged = False
        while True:
            session_id = self._note_session()
            try:
                epoch = await self._cluster.register_broker(info, frozenset(self._own_sessions))
                # A migration closes the engine before it looks for registrations.
                await require_open(self._cluster.zookeeper)
            except BrokerIdInUseError as error:
                if self._clock.monotonic() >= deadline:
                    raise
                if await self._close_previous_session(info):
                    continue
                if not is_logged:
                    is_logged = True
                    logger.warning(
                        "%s; waiting at most %.1f s for that session to end", error, self._wait_seconds
                    )
                await self._wait_gone()
            except ZooKeeperError as error:
                # A write in flight may have been made when the connection broke; the next attempt finds it.
                if (
                    self._clock.monotonic() >= deadline
                    or self._cluster.zookeeper.state is SessionState.CLOSED
                ):
                    raise
                logger.warning("broker %d is not registered yet: %s", info.id, error)
                await asyncio.sleep(jittered(_RETRY_SECONDS, self._cluster.random))
            else:
                if self._accept(info, session_id, epoch):
                    # `run` sets a watch on the znode.
                    self._changed.set()
                    return epoch

    def _accept(self, info: BrokerInfo, session_id: int, epoch: int) -> bool:
        """Store a registration and return True, unless its session has already ended."""
        zookeeper = self._cluster.zookeeper
        if zookeeper.session_id != session_id or zookeeper.state is SessionState.EXPIRED:
            return False
        if invariants.enabled:
            assert epoch >= self._newest_epoch >= -1, f"broker epoch {epoch} after {self._newest_epoch}"
        self._epoch = self._newest_epoch = epoch
        self._registrations += 1
        self._emit(EventKind.BROKER_REGISTERED, {"broker_epoch": epoch})
        is_out_of_reach = zookeeper.state is SessionState.SUSPENDED
        self._state = RegistrationState.OUT_OF_REACH if is_out_of_reach else RegistrationState.REGISTERED
        if invariants.enabled:
            self.check_invariants()
        logger.info(
            "broker %d is registered at %s with epoch %d: %s",
            info.id,
            paths.broker(info.id),
            epoch,
            ", ".join(endpoint.connection_string for endpoint in info.endpoints),
        )
        return True

    async def _close_previous_session(self, info: BrokerInfo) -> bool:
        """Close the session that holds our registration if it is the previous process's; return whether."""
        key, self._previous_key = self._previous_key, None
        if key is None:
            return False
        zookeeper = self._cluster.zookeeper
        try:
            data, stat = await zookeeper.get(paths.broker(info.id))
            found = schema.decode_broker(info.id, data)
        except (ZooKeeperError, schema.SchemaError):
            return False
        if stat.ephemeral_owner != key.session_id or found.endpoints != info.endpoints:
            return False
        logger.info("broker %d closes session %#x of its previous process", info.id, key.session_id)
        await zookeeper.end_session(key)
        return True

    async def _watch(self) -> None:
        """Set a watch on the znode; register again if it was deleted or replaced."""
        zookeeper = self._cluster.zookeeper
        session_id, epoch = zookeeper.session_id, self._epoch
        if self._watched_session == session_id:
            return
        stat = await zookeeper.exists(paths.broker(self._broker_id), self._on_znode)
        self._watched_session = session_id
        is_ours = stat is not None and stat.czxid == epoch
        if is_ours or self._state is not RegistrationState.REGISTERED or self._epoch != epoch:
            return
        logger.warning(
            "%s was deleted while its session lasts; broker %d registers again",
            paths.broker(self._broker_id),
            self._broker_id,
        )
        self._state = RegistrationState.NOT_REGISTERED
        self._epoch = -1
        self._changed.set()

    def _on_znode(self, _: WatchEvent) -> None:
        # A watch fires once; `_watch` sets the next one.
        self._watched_session = 0
        self._changed.set()

    def _lost_for(self) -> float:
        return 0.0 if self._lost_at is None else round(self._clock.monotonic() - self._lost_at, 3)

    def _emit(self, kind: str, details: Mapping[str, Plain]) -> None:
        self._events.emit(kind, {"broker": self._broker_id}, details)

    def check_invariants(self) -> None:
        """Check that there is a broker epoch exactly while there is a registration."""
        is_registered = self._state in (RegistrationState.REGISTERED, RegistrationState.OUT_OF_REACH)
        assert is_registered == (self._epoch >= 0), f"{self._state.value} with broker epoch {self._epoch}"

    def _note_session(self) -> int:
        session_id = self._cluster.zookeeper.session_id
        key = self._cluster.zookeeper.session_key
        # Written before the session is used, so that the next process can close it after a kill.
        if self._session_file is not None and key is not None and session_id not in self._own_sessions:
            self._session_file.write(key)
        self._own_sessions[session_id] = None
        while len(self._own_sessions) > _RECENT_SESSIONS_MAX:
            del self._own_sessions[next(iter(self._own_sessions))]
        return session_id

    async def _wait_gone(self) -> None:
        """Wait until the conflicting znode may have been deleted."""
        gone = asyncio.Event()

        def on_event(_: WatchEvent) -> None:
            gone.set()

        if await self._cluster.zookeeper.exists(paths.broker(self._broker_id), on_event) is None:
            return
        try:
            async with asyncio.timeout(_RETRY_SECONDS):
                await gone.wait()
        except TimeoutError:
            return

    def _on_session(self, session: SessionState) -> None:
        if self._state is RegistrationState.WITHDRAWN:
            return
        if session is SessionState.EXPIRED:
            self._expiries += 1
            self._emit(EventKind.SESSION_EXPIRED, {"broker_epoch": self._epoch, "seconds": self._lost_for()})
            self._state = RegistrationState.NOT_REGISTERED
            self._epoch = -1
            logger.warning(
                "broker %d lost its registration because its %s session expired",
                self._broker_id,
                self._cluster.zookeeper.engine_name,
            )
        elif session is SessionState.SUSPENDED:
            self._disconnects += 1
            self._lost_at = self._clock.monotonic()
            self._emit(EventKind.SESSION_LOST, {"broker_epoch": self._epoch})
            if self._state is RegistrationState.REGISTERED:
                self._state = RegistrationState.OUT_OF_REACH
                logger.warning(
                    "broker %d lost its %s connection; serving from cached metadata until it reconnects",
                    self._broker_id,
                    self._cluster.zookeeper.engine_name,
                )
        elif session is SessionState.CONNECTED:
            if self._lost_at is not None:
                self._emit(
                    EventKind.SESSION_RESTORED, {"broker_epoch": self._epoch, "seconds": self._lost_for()}
                )
                self._lost_at = None
            if self._state is RegistrationState.OUT_OF_REACH:
                self._state = RegistrationState.REGISTERED
                logger.info(
                    "broker %d has reconnected to %s and is still registered",
                    self._broker_id,
                    self._cluster.zookeeper.engine_name,
                )
            self._changed.set()
        if invariants.enabled:
            self.check_invariants()


def read_stored_identities(file_system: FileSystem, log_dirs: tuple[str, ...]) -> dict[str, MetaProperties]:
    """Return the `meta.properties` of each log directory that has one.

    Raises:
        BrokerIdentityError: they name different brokers.
        CorruptCheckpointError: one cannot be read.
    """
    found: dict[str, MetaProperties] = {}
    for directory in log_dirs:
        try:
            properties = read_meta_properties(file_system, directory)
        except OSError as error:
            # The log manager decides whether the broker can start without this directory.
            logger.error("%s cannot be read: %s", directory, error)
            continue
        if properties is not None:
            found[directory] = properties
    if len({properties.broker_id for properties in found.values()}) > 1:
        listing = ", ".join(f"{path} broker.id={each.broker_id}" for path, each in found.items())
        raise BrokerIdentityError(
            f"`log.dirs` holds the data of different brokers ({listing}): directories were shared or copied; "
            "give each broker its own"
        )
    return found


async def decide_broker_id(
    cluster: ClusterStore,
    stored: Mapping[str, MetaProperties],
    *,
    configured: int,
    is_generation_enabled: bool,
    reserved_max: int,
) -> int:
    """Return the broker's id: the configured one, the one in its directories, or a generated one.

    A generated id is above `reserved.broker.max.id`. The caller writes it to `meta.properties` before the
    broker serves, so that the next start finds it.

    Raises:
        BrokerIdentityError: the directories belong to another broker, or generation is disabled.
    """
    for directory, properties in stored.items():
        if configured >= 0 and properties.broker_id != configured:
            raise BrokerIdentityError(
                f"{directory} belongs to broker.id={properties.broker_id}, but `broker.id`={configured}: set "
                f"`broker.id`={properties.broker_id} if the data was moved here, or give the broker a "
                "directory of its own"
            )
        return properties.broker_id
    if configured >= 0:
        return configured
    if not is_generation_enabled:
        raise BrokerIdentityError(
            "the broker has no id: set `broker.id`, or `broker.id.generation.enable`=true to be given one"
        )
    broker_id = await cluster.next_broker_id(reserved_max)
    logger.info("generated the broker id %d", broker_id)
    return broker_id


def check_cluster_id(stored: Mapping[str, MetaProperties], cluster_id: str) -> None:
    """Check that no log directory has the data of another cluster.

    Raises:
        BrokerIdentityError: a directory belongs to another cluster.
    """
    for directory, properties in stored.items():
        if properties.cluster_id and properties.cluster_id != cluster_id:
            raise BrokerIdentityError(
                f"{directory} belongs to cluster.id={properties.cluster_id}, this cluster has "
                f"cluster.id={cluster_id}: `zookeeper.connect` may be wrong, or the directory is another "
                "cluster's"
            )
