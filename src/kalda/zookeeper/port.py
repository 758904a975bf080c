"""The `ZooKeeperClient` port: the operations that brokers and the controller need of ZooKeeper.

Three engines implement it: `EmbeddedClient`, for a server in the same process (`kalda.zookeeper.server`),
`EnsembleClient`, for ZooKeeper servers over the wire (`kalda.zookeeper.client`), and `EtcdClient`, for etcd
(`kalda.etcd`). It is not a general ZooKeeper client: it has no access lists and no asynchronous handles.

Every engine must keep the order. A session's operations take effect in the order of the calls. A watch's
callback runs before any later operation of the session returns data newer than the reported change; so a
caller that reads, acts and sets the watch again never misses a change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, Protocol, TypeAlias

from kalda.zookeeper.errors import ZooKeeperError

ANY_VERSION: Final = -1
"""As an expected version: matches every version of the znode."""

ZOOKEEPER_NAME: Final = "ZooKeeper"
"""What log lines call the embedded engine and an ensemble."""

ZOOKEEPER_OPERATIONS_MAX: Final = 1_000
"""Operations of a transaction that stay below ZooKeeper's limit of 1 MB, at some 300 bytes each."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A znode's metadata, under ZooKeeper's names. Times are wall-clock milliseconds."""

    czxid: int
    """Transaction that created the znode. For a broker's registration this is its broker epoch (KIP-380)."""
    mzxid: int
    """Transaction that last changed its data."""
    ctime: int
    mtime: int
    version: int
    """The number of changes of the data; conditional writes compare it."""
    cversion: int
    """The number of creations and deletions of children."""
    aversion: int
    """The number of changes of the access list."""
    ephemeral_owner: int
    """Session id of an ephemeral znode's owner, else 0."""
    data_length: int
    num_children: int
    pzxid: int
    """Transaction that last created or deleted a child."""


class EventType(IntEnum):
    """The kind of change that a watch reports; the numbers are ZooKeeper's."""

    NONE = -1
    """The session's state changed. Callbacks never get it: the end of a session drops its watches without an
    event, and state listeners are called."""
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change that a watch reports."""

    type: EventType
    path: str


class SessionState(Enum):
    """The state of a session, which state listeners receive."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is lost; ephemeral znodes stay until the session expires."""
    EXPIRED = "expired"
    """The session is over. Ephemeral znodes and watches are gone."""
    CLOSED = "closed"
    """This side closed the session."""


WatchCallback: TypeAlias = Callable[[WatchEvent], None]
"""Called on the event loop, once; must not block and must not raise."""

StateListener: TypeAlias = Callable[[SessionState], None]
"""Called on the event loop at each change of state; must not block and must not raise."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode; the result is its path, with the counter of a sequential znode."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a znode's data if its version is the expected one; its result is the new `Stat`."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode without children if its version is the expected one; its result is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but fail the transaction unless the znode has this version; its result is None."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check
OperationResult: TypeAlias = str | Stat | None


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The credentials of a session. A restarted process uses them to end the session it had before."""

    session_id: int
    password: bytes


class ZooKeeperClient(Protocol):
    """One session with ZooKeeper.

    Every method raises `SessionExpiredError` once the session is over, `ConnectionLossError` while ZooKeeper
    cannot be reached, and `BadArgumentsError` for a path that ZooKeeper refuses; the methods list only
    further errors. A write returns after the change is durable.
    """

    @property
    def session_id(self) -> int:
        """The session's id, which `Stat.ephemeral_owner` carries; changes when a new session is opened."""
        ...

    @property
    def session_key(self) -> SessionKey | None:
        """The credentials to end this session from a later process; None if it ends with its process."""
        ...

    @property
    def state(self) -> SessionState:
        """The session's current state."""
        ...

    @property
    def engine_name(self) -> str:
        """The name of the engine in log lines: ZooKeeper or etcd."""
        ...

    @property
    def operations_max(self) -> int:
        """How many operations a transaction may have; ZooKeeper bounds only their bytes."""
        ...

    def add_state_listener(self, listener: StateListener) -> None:
        """Register a callback for changes of the session's state."""
        ...

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Read a znode; `watch` then reports its next change of data or its deletion.

        Raises:
            NoNodeError: the znode does not exist; no watch is set (use `exists` to wait for its creation).
        """
        ...

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Return a znode's metadata or None; `watch` reports the next creation, data change or deletion."""
        ...

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """List a znode's children by name, sorted; `watch` reports the next creation or deletion of one.

        Raises:
            NoNodeError: the znode does not exist; no watch is set.
        """
        ...

    async def get_many(
        self, paths: Sequence[str], watch: WatchCallback | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes, pipelined; None stands for a znode that does not exist, which gets no watch."""
        ...

    async def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a znode and return its path.

        Raises:
            NodeExistsError: the znode exists.
            NoNodeError: its parent does not exist.
            NoChildrenForEphemeralsError: its parent is ephemeral.
            StorageError: the change could not be made durable.
        """
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a znode's data.

        Raises:
            NoNodeError, BadVersionError, StorageError: nothing was changed.
        """
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode.

        Raises:
            NoNodeError, BadVersionError, NotEmptyError, StorageError: nothing was changed.
        """
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Perform all of the operations or none; return their results in order.

        Raises:
            ZooKeeperError: the error of the failed operation, whose position is its `operation_index`.
        """
        ...

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | ZooKeeperError]:
        """Perform many independent transactions in order, pipelined so that they share waits for the disk.

        Each is atomic and has its own outcome: its results or its error. Only errors that end the session are
        raised.
        """
        ...

    async def end_session(self, key: SessionKey) -> None:
        """End the session of a process that is gone, as its own `close` would have.

        Does nothing if the session is over. Best effort in bounded time: the time-out ends it in any case.
        """
        ...

    async def close(self) -> None:
        """End the session, delete its ephemeral znodes durably, and drop its watches."""
        ...
