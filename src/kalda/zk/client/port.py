"""The coordination port: what the cluster needs of ZooKeeper, whoever provides it.

Two engines fill it: the in-process server (`kalda.zk.server`) and a client of a ZooKeeper ensemble. It is
not a general ZooKeeper client: no ACLs, no asynchronous handles, only what brokers and the controller use.

The one thing not to break is order. A session's operations take effect in the order in which they were
called; a watch's callback runs before any later operation of that session returns data newer than the change
it reports, so whoever reads, acts and re-arms never misses a change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, Protocol, TypeAlias

from kalda.zk.client.zookeeper_errors import ZooKeeperError

ANY_VERSION: Final = -1
"""As an expected version: whatever the znode's version is."""


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
    """Changes of the data since creation; what conditional writes compare."""
    cversion: int
    """Creations and deletions of children."""
    aversion: int
    """Changes of the ACL."""
    ephemeral_owner: int
    """Session id of an ephemeral znode's owner, else 0."""
    data_length: int
    num_children: int
    pzxid: int
    """Transaction that last created or deleted a child."""


class EventType(IntEnum):
    """What a watch reports; the numbers are ZooKeeper's."""

    NONE = -1
    """The session's state changed. Callbacks never see it: a session's end drops its watches silently, and
    state listeners are told."""
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change that a watch saw."""

    type: EventType
    path: str


class SessionState(Enum):
    """How the session stands; what a state listener is told."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The server cannot be reached for now; ephemeral znodes live on until the session expires."""
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
    """Create a znode; its result is the path, which a sequential znode's counter completes."""

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
    """What it takes to be taken for a session's owner: by this a process ends what its former life left."""

    session_id: int
    password: bytes


class ZooKeeperClient(Protocol):
    """One session with a coordination service.

    Every method raises `SessionExpiredError` once the session is over, `ConnectionLossError` while the
    service cannot be reached, and `BadArgumentsError` for a path that ZooKeeper would refuse; only what is
    raised beyond these is listed below. A write returns after the change is durable.
    """

    @property
    def session_id(self) -> int:
        """The session's id, which `Stat.ephemeral_owner` carries; changes when a new session is opened."""
        ...

    @property
    def session_key(self) -> SessionKey | None:
        """What a later process needs to end this session; None where a session dies with its process."""
        ...

    @property
    def state(self) -> SessionState:
        """How the session stands now."""
        ...

    def add_state_listener(self, listener: StateListener) -> None:
        """Have `listener` called at each change of the session's state."""
        ...

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Read a znode; `watch` then reports its next change of data or its deletion.

        Raises:
            NoNodeError: there is none; no watch is left behind (use `exists` to wait for creation).
        """
        ...

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Return whether a znode is there; `watch` reports its next creation, change of data or deletion."""
        ...

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """List a znode's children by name, sorted; `watch` reports the next creation or deletion of one.

        Raises:
            NoNodeError: there is no such znode; no watch is left behind.
        """
        ...

    async def get_many(
        self, paths: Sequence[str], watch: WatchCallback | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes in one go, pipelined; None stands where there is no znode (and no watch)."""
        ...

    async def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a znode and return its path.

        Raises:
            NodeExistsError: it is there already.
            NoNodeError: its parent is not.
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
        """Do all the operations or none; the results stand in their order.

        Raises:
            ZooKeeperError: that of the operation that failed; its `operation_index` tells which.
        """
        ...

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | ZooKeeperError]:
        """Do many independent transactions in order, pipelined so that they share the waits for the disk.

        Each is all-or-nothing by itself and has its own outcome; an error is returned in its place, not
        raised, save those that end the session.
        """
        ...

    async def end_session(self, key: SessionKey) -> None:
        """End another session, that of a process which is gone, as its own `close` would have.

        Does nothing if it is over; best effort, in bounded time: its time-out ends it in any case.
        """
        ...

    async def close(self) -> None:
        """End the session: its ephemeral znodes are deleted, durably, and its watches dropped."""
        ...
