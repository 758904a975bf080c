"""A broker's place in the cluster: the ephemeral `/brokers/ids/N`, kept through session expiries, and its id.

The registration lives as long as the session with coordination. When that expires and a new one is opened, it
is made again, with a new broker epoch, by which the controller and the other brokers tell the two lives
apart. A znode that an earlier session of this very process left behind is replaced at once (KAFKA-7165).

A broker that was killed and comes back finds the znode of its former life, as long as that session lasts. If
it remembers that session (`SessionMemory`) and the znode names the addresses that it now listens on itself,
nobody else can be meant, and it ends the session. Else it waits until it has expired.

What a maintainer must not break: never delete a registration of a session that was not ours.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kalda.broker.metadata.session_file import SessionMemory
from kalda.common.clock import Clock
from kalda.storage.checkpoints import MetaProperties, read_meta_properties
from kalda.storage.filesystem import FileSystem
from kalda.zk.client import paths, schema
from kalda.zk.client.cluster_store import BrokerIdInUseError, ClusterStore
from kalda.zk.client.port import SessionState, WatchEvent
from kalda.zk.client.schema import BrokerInfo
from kalda.zk.client.zookeeper_errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

WAIT_MARGIN_MS: Final = 5_000
"""Added to the session time-out when waiting for a former life to end: a ZooKeeper server looks for expired
sessions once per tick, 2 s by default, and the other session may be a little longer than ours."""

_RETRY_SECONDS: Final = 1.0
"""Pause after coordination failed, and between two looks at a znode in the way whose watch says nothing."""

_RECENT_SESSIONS_MAX: Final = 16
"""Former sessions of this process whose znodes it may replace; older ones are long expired."""


class BrokerIdentityError(Exception):
    """The log directories say that they belong to another broker or cluster; the message says which."""


class RegistrationState(Enum):
    """How a broker stands in the cluster."""

    NOT_REGISTERED = "not registered"
    """At the start, and after the session expired until it is registered again."""
    REGISTERED = "registered"
    OUT_OF_REACH = "out of reach"
    """Registered when last heard of, but coordination cannot be reached now; the session may expire."""
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class RegistrationStatistics:
    """How a broker stands with coordination, and how often that changed."""

    state: RegistrationState
    broker_epoch: int
    registrations: int
    expiries: int
    disconnects: int


class BrokerRegistration:
    """One broker's registration: `start`, then `run` until cancelled, then `withdraw`.

    `info_factory` makes what is registered; it is asked again for each registration, because addresses may
    change while the broker runs.
    """

    def __init__(
        self,
        cluster: ClusterStore,
        info_factory: Callable[[], BrokerInfo],
        *,
        clock: Clock,
        session_timeout_ms: int,
        memory: SessionMemory | None = None,
    ) -> None:
        self._cluster = cluster
        self._memory = memory
        self._former_key = memory.recall() if memory is not None else None
        """The session of the process before this one; None once it was ended, or there is nothing to end."""
        self._info_factory = info_factory
        self._clock = clock
        self._wait_seconds = (session_timeout_ms + WAIT_MARGIN_MS) / 1000
        self._state = RegistrationState.NOT_REGISTERED
        self._broker_id = -1
        self._epoch = -1
        self._own_sessions: dict[int, None] = {}
        """Sessions of this process, oldest first: what they left may be replaced."""
        self._watched_session = 0
        """The session whose watch will tell what becomes of the znode; 0 for none."""
        self._changed = asyncio.Event()
        self._registrations = 0
        self._expiries = 0
        self._disconnects = 0

    @property
    def broker_epoch(self) -> int:
        """The transaction that made the present registration (KIP-380); -1 while there is none."""
        return self._epoch

    @property
    def state(self) -> RegistrationState:
        """How the broker stands in the cluster."""
        return self._state

    @property
    def is_healthy(self) -> bool:
        """Whether the broker is registered and coordination can be reached."""
        return self._state is RegistrationState.REGISTERED

    def statistics(self) -> RegistrationStatistics:
        """Return what health checks and metrics show."""
        return RegistrationStatistics(
            self._state, self._epoch, self._registrations, self._expiries, self._disconnects
        )

    async def start(self) -> int:
        """Register, waiting for a former life to end if need be; return the broker epoch.

        Raises:
            BrokerIdInUseError: another live broker has the id.
            ZooKeeperError: coordination refuses, or cannot be reached for as long as a session lasts.
        """
        self._cluster.zookeeper.add_state_listener(self._on_session)
        return await self._register()

    async def run(self) -> None:
        """Register again when the session has expired or the znode was deleted, until cancelled.

        Raises:
            BrokerIdInUseError: meanwhile another live broker took the id; this one must end.
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
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()
            await self._changed.wait()
            self._changed.clear()

    async def withdraw(self) -> None:
        """Leave the cluster. The session's end does the same where coordination cannot be reached."""
        was, self._state = self._state, RegistrationState.WITHDRAWN
        if was not in (RegistrationState.REGISTERED, RegistrationState.OUT_OF_REACH):
            return
        self._epoch = -1
        try:
            await self._cluster.unregister_broker(self._broker_id)
        except ZooKeeperError as error:
            logger.warning("broker %d is not withdrawn from the cluster: %s", self._broker_id, error)
        else:
            logger.info("broker %d is withdrawn from the cluster", self._broker_id)

    async def _register(self) -> int:
        info = self._info_factory()
        self._broker_id = info.id
        deadline = self._clock.monotonic() + self._wait_seconds
        is_told = False
        while True:
            session_id = self._note_session()
            try:
                epoch = await self._cluster.register_broker(info, frozenset(self._own_sessions))
            except BrokerIdInUseError as error:
                if self._clock.monotonic() >= deadline:
                    raise
                if await self._end_former_life(info):
                    continue
                if not is_told:
                    is_told = True
                    logger.warning(
                        "%s; waiting at most %.1f s for that session to end", error, self._wait_seconds
                    )
                await self._wait_gone()
            except ZooKeeperError as error:
                # What was under way when the connection broke may have been done; registering again tells.
                if (
                    self._clock.monotonic() >= deadline
                    or self._cluster.zookeeper.state is SessionState.CLOSED
                ):
                    raise
                logger.warning("broker %d is not registered yet: %s", info.id, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                if self._accept(info, session_id, epoch):
                    # `run` looks whether it stays.
                    self._changed.set()
                    return epoch

    def _accept(self, info: BrokerInfo, session_id: int, epoch: int) -> bool:
        """Take note of a registration, unless its session is over already."""
        zookeeper = self._cluster.zookeeper
        if zookeeper.session_id != session_id or zookeeper.state is SessionState.EXPIRED:
            return False
        self._epoch = epoch
        self._registrations += 1
        is_out_of_reach = zookeeper.state is SessionState.SUSPENDED
        self._state = RegistrationState.OUT_OF_REACH if is_out_of_reach else RegistrationState.REGISTERED
        logger.info(
            "broker %d is registered at %s with epoch %d: %s",
            info.id,
            paths.broker(info.id),
            epoch,
            ", ".join(endpoint.connection_string for endpoint in info.endpoints),
        )
        return True

    async def _end_former_life(self, info: BrokerInfo) -> bool:
        """End the session that holds our registration if it is that of the process before this one."""
        key, self._former_key = self._former_key, None
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
        logger.info("broker %d ends session %#x, which its former life left", info.id, key.session_id)
        await zookeeper.end_session(key)
        return True

    async def _watch(self) -> None:
        """Notice a registration that somebody deleted, or put another in the place of."""
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
        # A watch tells once: the next look arms another.
        self._watched_session = 0
        self._changed.set()

    def _note_session(self) -> int:
        session_id = self._cluster.zookeeper.session_id
        key = self._cluster.zookeeper.session_key
        # Before it is used: whatever it holds when this process is killed, the next one can let go of.
        if self._memory is not None and key is not None and session_id not in self._own_sessions:
            self._memory.note(key)
        self._own_sessions[session_id] = None
        while len(self._own_sessions) > _RECENT_SESSIONS_MAX:
            del self._own_sessions[next(iter(self._own_sessions))]
        return session_id

    async def _wait_gone(self) -> None:
        """Return when the znode in the way may be gone."""
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
            self._state = RegistrationState.NOT_REGISTERED
            self._epoch = -1
            logger.warning("broker %d is out of the cluster: its session has expired", self._broker_id)
        elif session is SessionState.SUSPENDED:
            self._disconnects += 1
            if self._state is RegistrationState.REGISTERED:
                self._state = RegistrationState.OUT_OF_REACH
                logger.warning(
                    "broker %d lost its connection to coordination; it serves from cached metadata until it "
                    "is connected again",
                    self._broker_id,
                )
        elif session is SessionState.CONNECTED:
            if self._state is RegistrationState.OUT_OF_REACH:
                self._state = RegistrationState.REGISTERED
                logger.info(
                    "broker %d is connected to coordination again and still registered", self._broker_id
                )
            self._changed.set()


def read_stored_identities(file_system: FileSystem, log_dirs: tuple[str, ...]) -> dict[str, MetaProperties]:
    """Read each log directory's `meta.properties`; a new directory has none.

    Raises:
        BrokerIdentityError: they name different brokers.
        CorruptCheckpointError: one cannot be read.
    """
    found: dict[str, MetaProperties] = {}
    for directory in log_dirs:
        try:
            properties = read_meta_properties(file_system, directory)
        except OSError as error:
            # The log manager decides whether the broker can do without this directory.
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
    """Return the broker's id: the configured one, that of its directories, or a new one of coordination's.

    A new one is above `reserved.broker.max.id`; whoever gets it writes it to `meta.properties` before it
    serves, so that it is the same at the next start.

    Raises:
        BrokerIdentityError: the directories belong to another broker, or there is no id and none may be made.
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
    logger.info("this broker is given the id %d", broker_id)
    return broker_id


def check_cluster_id(stored: Mapping[str, MetaProperties], cluster_id: str) -> None:
    """Refuse to join a cluster with the data of another.

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
