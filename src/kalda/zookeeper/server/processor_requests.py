"""The requests that pass through the chain of prep, sync and final processor, and their operations.

The prep processor sets a request's transaction or error, the sync processor holds the request until the
transaction is durable, and the final processor completes it. Reads take the same path, so that a session sees
its own writes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import ANY_VERSION, Operation, OperationResult, Stat
from kalda.zookeeper.server.acl import Identity
from kalda.zookeeper.server.data_tree import DataTree
from kalda.zookeeper.server.txns import OPEN_ACL, Txn
from kalda.zookeeper.server.watches import WatchTable


class CreateMode(IntEnum):
    """How a znode is created; the numbers are the flags on ZooKeeper's wire."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    """Deleted by the server some time after its last child was deleted."""
    PERSISTENT_WITH_TTL = 5
    """Deleted by the server when it has no children and was not changed for its time to live."""
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6

    @property
    def is_sequential(self) -> bool:
        """Whether the server appends the parent's counter to the name."""
        return self in _SEQUENTIAL_MODES

    @property
    def is_ephemeral(self) -> bool:
        """Whether the znode is deleted at the end of its session."""
        return self in _EPHEMERAL_MODES

    @property
    def has_ttl(self) -> bool:
        """Whether the znode has a time to live."""
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
    """Create a znode of any mode; its result is a `Created`.

    `Create` of the client port has an open access list and fewer modes; its result is the path alone.
    """

    path: str
    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    mode: CreateMode = CreateMode.PERSISTENT
    ttl_ms: int = -1
    """Time to live of the modes that have one; -1 for all others."""


@dataclass(frozen=True, slots=True)
class Created:
    """The result of a `CreateNode`: the final path, and the znode's `Stat`."""

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
    """Delete a container or a znode with a time to live, on behalf of the server; its result is None.

    It fails if the znode has children or belongs to a session.
    """

    path: str


NodeOperation: TypeAlias = Operation | CreateNode | SetAcl | DeleteContainer
NodeResult: TypeAlias = OperationResult | Created


@dataclass(frozen=True, slots=True)
class Multi:
    """Several operations of which all take effect or none."""

    operations: Sequence[NodeOperation]


@dataclass(frozen=True, slots=True)
class CreateSession:
    """Create the request's session. A time-out of 0 marks a session that ends with this process."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the request's session and delete its ephemeral znodes."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the tree, and optionally set watches, after all earlier requests have been applied."""

    read: Callable[[DataTree, WatchTable], object]


Write: TypeAlias = NodeOperation | Multi | CreateSession | CloseSession


class Request:
    """One request in the processor chain. The final processor calls `on_done` once with its outcome.

    The outcome is the list of a write's results, the value that a `Read` returned, or a `ZooKeeperError`.
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
        """The client's identities for access lists; None for this process itself, which may do everything."""
        self.txn: Txn | None = None
        self.error: ZooKeeperError | None = None


class Processor(Protocol):
    """One stage of the chain. It passes every request on, in the order of arrival."""

    def process(self, request: Request) -> None:
        """Process a request and pass it on, now or later."""
        ...
