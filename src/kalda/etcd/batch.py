"""Puts calls of a session into requests: as many as one transaction of etcd takes, in order. Sans-IO.

A request with writes is fenced (`kalda.etcd.fence`): its condition is that the key of the session exists (the
session lasts) with the version that the last request left, and it changes that key. So a request that seems
lost can never take effect behind a later one, and `kalda.etcd.settlement` finds out afterwards what it did.

etcd evaluates the conditions of all inner transactions before it changes anything. So a transaction that
depends on an earlier one of the same request waits for the next request. Reads are behind the writes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kalda.etcd import messages
from kalda.etcd.fence import Fence
from kalda.etcd.keys import parent_of
from kalda.etcd.messages import OpResponse
from kalda.etcd.transaction import OPERATIONS_OF_REQUEST_MAX, Transaction
from kalda.zookeeper.call_group import CallGroup
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import Operation

_BATCH_BYTES_MAX: Final = 524_288
_OVERHEAD: Final = 1
"""The operation on the session's key in front of each request."""


class Call:
    """One call of the session, and the group that waits for its outcome."""

    __slots__ = ("group", "index", "path")

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.group: CallGroup | None = None
        self.index = 0

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller was cancelled."""
        return self.group is not None and self.group.is_abandoned

    def complete(self, outcome: object) -> None:
        """Give the caller a result or an error."""
        if self.group is not None:
            self.group.complete(self.index, outcome)


class ReadCall(Call):
    """Some reads; `convert` makes the result of their responses and the revision of the store."""

    __slots__ = ("convert", "operations")

    def __init__(
        self, path: str, operations: Sequence[bytes], convert: Callable[[Sequence[OpResponse], int], Any]
    ) -> None:
        super().__init__(path)
        self.operations: Final = operations
        self.convert: Final = convert


class WriteCall(Call):
    """Some operations that take effect together; `is_single` for one that is no transaction of the port."""

    __slots__ = ("is_single", "operations", "transaction")

    def __init__(self, path: str, operations: Sequence[Operation], *, is_single: bool) -> None:
        super().__init__(path)
        self.operations: Final = operations
        self.is_single: Final = is_single
        self.transaction: Transaction | None = None

    def outcome_of(self, outcome: Any) -> Any:
        """Return the outcome as the caller expects it: without position and list for a single operation."""
        if self.is_single:
            if isinstance(outcome, ZooKeeperError):
                outcome.operation_index = None
            elif isinstance(outcome, list):
                return outcome[0]
        return outcome


class Batch:
    """One request."""

    def __init__(self) -> None:
        self.calls: Final[list[tuple[Call, int]]] = []
        """Each call with the position of its first response."""
        self._operations: Final[list[bytes]] = []
        self._written: set[str] = set()
        self._parents: set[str] = set()
        """Parents of written znodes."""
        self._counted: set[str] = set()
        self._inner = 0
        self._bytes = 0
        self._reads = False
        self._is_full = False

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return any(isinstance(call, WriteCall) for call, _ in self.calls)

    def add_read(self, call: ReadCall) -> bool:
        """Add a call if there is room."""
        if not self._has_room(len(call.operations), 0, 0):
            return False
        self._reads = True
        self.calls.append((call, len(self._operations) + _OVERHEAD))
        self._operations.extend(call.operations)
        return True

    def add_write(self, call: WriteCall, transaction: Transaction) -> bool:
        """Add a call if there is room and it does not depend on another one of the request."""
        if (
            self._reads
            or not self._has_room(1, transaction.size, transaction.bytes)
            or self._depends(transaction)
        ):
            return False
        call.transaction = transaction
        self.calls.append((call, len(self._operations) + _OVERHEAD))
        inner = messages.txn(transaction.compares, transaction.success, transaction.failure)
        self._operations.append(messages.txn_op(inner))
        self._written |= transaction.written
        self._parents.update(map(parent_of, transaction.written))
        self._counted |= transaction.counted
        self._inner = max(self._inner, transaction.size)
        self._bytes += transaction.bytes
        # It may have to be sent again, and what follows must not overtake it.
        self._is_full = transaction.is_sequential
        return True

    def request(self, fence: Fence) -> bytes:
        """Return the request of a session."""
        if not self.writes:
            return messages.txn((), (fence.read(), *self._operations))
        return messages.txn((fence.holds,), (fence.put(is_request=True), *self._operations), (fence.read(),))

    def _has_room(self, operations: int, inner: int, size: int) -> bool:
        if not self.calls:
            return True
        count = len(self._operations) + operations + _OVERHEAD
        return (
            not self._is_full
            and count + max(self._inner, inner) <= OPERATIONS_OF_REQUEST_MAX
            and self._bytes + size <= _BATCH_BYTES_MAX
        )

    def _depends(self, transaction: Transaction) -> bool:
        written = transaction.written
        return bool(
            self._written & written
            or self._counted & transaction.counted
            or self._written & transaction.read_paths.keys()
            or self._parents & transaction.read_children.keys()
        )
