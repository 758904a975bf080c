"""What travels through the chain of processors.

A request is made by a session, gets its transaction (or its error) from the prep processor, waits in the sync
processor until that is durable, and is finished by the final one. Reads travel the same way, so that a
session sees its own writes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kalda.coordination.errors import CoordinationError
from kalda.coordination.port import Operation
from kalda.zk.server.data_tree import DataTree
from kalda.zk.server.txns import Txn
from kalda.zk.server.watches import WatchTable


@dataclass(frozen=True, slots=True)
class Multi:
    """All or nothing."""

    operations: Sequence[Operation]


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


Write: TypeAlias = Operation | Multi | CreateSession | CloseSession


class Request:
    """One request on its way. The final processor calls `on_done`, once.

    It gets the results of a write as a list, what a `Read` returned, or the `CoordinationError`.
    """

    __slots__ = ("cxid", "error", "on_done", "operation", "session_id", "txn")

    def __init__(
        self, session_id: int, operation: Write | Read, on_done: Callable[[object], None], cxid: int = 0
    ) -> None:
        self.session_id: Final = session_id
        self.operation: Final = operation
        self.on_done: Final = on_done
        self.cxid: Final = cxid
        self.txn: Txn | None = None
        self.error: CoordinationError | None = None


class Processor(Protocol):
    """One link of the chain. It hands every request on, in the order in which it got them."""

    def process(self, request: Request) -> None:
        """Do this link's part."""
        ...
