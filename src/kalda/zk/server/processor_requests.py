"""What travels through the chain of processors.

A request is made by a session, gets its transaction (or its error) from the prep processor, waits in the sync
processor until that is durable, and is finished by the final one. Reads travel the same way, so that a
session sees its own writes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

from kalda.zk.client.port import ANY_VERSION, Operation, OperationResult, Stat
from kalda.zk.client.zookeeper_errors import ZooKeeperError
from kalda.zk.server.acl import Identity
from kalda.zk.server.data_tree import DataTree
from kalda.zk.server.txns import OPEN_ACL, Acl, Txn
from kalda.zk.server.watches import WatchTable


class CreateMode(IntEnum):
    """How a znode is created; the numbers are the flags on ZooKeeper's wire."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    """Deleted by the server some time after its last child went."""
    PERSISTENT_WITH_TTL = 5
    """Deleted by the server when it has no children and was not changed for its time to live."""
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6

    @property
    def is_sequential(self) -> bool:
        """Whether the parent's counter completes the name."""
        return self in _SEQUENTIAL_MODES

    @property
    def is_ephemeral(self) -> bool:
        """Whether the znode goes with its session."""
        return self in _EPHEMERAL_MODES

    @property
    def has_ttl(self) -> bool:
        """Whether a time to live belongs to it."""
        return self in _TTL_MODES


_SEQUENTIAL_MODES: Final = frozenset(
    (
        CreateMode.PERSISTENT_SEQUENTIAL,
        CreateMode.EPHEMERAL_SEQUENTIAL,
        CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL,
    )
)
_EPHEMERAL_MODES: Final = frozenset((CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL))
_TTL_MODES: Final = frozenset((CreateMode.PERSISTENT_WITH_TTL, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL))


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Create a znode of any kind; its result is a `Created`.

    The port's `Create` is this with an open access list and two of the modes; its result is the path alone.
    """

    path: str
    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    mode: CreateMode = CreateMode.PERSISTENT
    ttl_ms: int = -1
    """Time to live of the modes that have one; -1 for all others."""


@dataclass(frozen=True, slots=True)
class Created:
    """What became of a `CreateNode`: the path, which a counter may have completed, and the znode's `Stat`."""

    path: str
    stat: Stat


@dataclass(frozen=True, slots=True)
class SetAcl:
    """Replace a znode's access list if its aversion is the expected one; its result is the new `Stat`."""

    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class DeleteContainer:
    """Delete a container or a znode with a time to live, at the server's own wish; its result is None.

    Fails if it has children, or if a session owns it.
    """

    path: str


NodeOperation: TypeAlias = Operation | CreateNode | SetAcl | DeleteContainer
NodeResult: TypeAlias = OperationResult | Created


@dataclass(frozen=True, slots=True)
class Multi:
    """All or nothing."""

    operations: Sequence[NodeOperation]


@dataclass(frozen=True, slots=True)
class CreateSession:
    """Begin the request's session. A time-out of 0: it lives in this process and dies with it."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the request's session and delete its ephemeral znodes."""


@dataclass(frozen=True, slots=True)
class Read:
    """Look at the tree, and perhaps set watches, when all that came before has been applied."""

    read: Callable[[DataTree, WatchTable], object]


Write: TypeAlias = NodeOperation | Multi | CreateSession | CloseSession


class Request:
    """One request on its way. The final processor calls `on_done`, once.

    It gets the results of a write as a list, what a `Read` returned, or the `ZooKeeperError`.
    """

    __slots__ = ("cxid", "error", "identities", "on_done", "operation", "session_id", "txn")

    def __init__(
        self,
        session_id: int,
        operation: Write | Read,
        on_done: Callable[[object], None],
        cxid: int = 0,
        identities: tuple[Identity, ...] | None = None,
    ) -> None:
        self.session_id: Final = session_id
        self.operation: Final = operation
        self.on_done: Final = on_done
        self.cxid: Final = cxid
        self.identities: Final = identities
        """Who asks, for access lists; None: this process itself, to which nothing is forbidden."""
        self.txn: Txn | None = None
        self.error: ZooKeeperError | None = None


class Processor(Protocol):
    """One link of the chain. It hands every request on, in the order in which it got them."""

    def process(self, request: Request) -> None:
        """Do this link's part."""
        ...
