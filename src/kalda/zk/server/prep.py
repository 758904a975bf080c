"""The prep processor: decides whether a write is allowed and what it does to the tree.

It must see the changes that are on their way to the disk but not in the tree yet, or two pipelined writes
would be judged by the same version. They are kept in `_pending`, one record per touched znode, until the
final processor has applied them. If the disk fails, `reset` forgets them all: then nothing that was prepared
on top of a lost write may survive either. Sans-IO; the time is handed in.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kalda.coordination.errors import (
    BadArgumentsError,
    BadVersionError,
    CoordinationError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kalda.coordination.port import ANY_VERSION, Check, Create, Delete, Operation, SetData
from kalda.zk.server.data_tree import SYSTEM_PATHS, DataTree, parent_path
from kalda.zk.server.requests import CloseSession, CreateSession, Multi, Processor, Read, Request, Write
from kalda.zk.server.txns import (
    OPEN_ACL,
    CheckTxn,
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    MultiTxn,
    NodeTxn,
    SetDataTxn,
    Txn,
    TxnBody,
)

DATA_BYTES_MAX: Final = 1024 * 1024 - 1
"""ZooKeeper's default ``jute.maxbuffer``: what is refused by an ensemble is refused here too."""

MULTI_OPERATIONS_MAX: Final = 10_000
"""A multi is one record in the log and is applied in one go; a bound keeps both short."""

_SEQUENCE_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _PendingNode:
    """A znode as it will be when all prepared transactions have been applied."""

    exists: bool
    version: int
    created_count: int
    child_count: int
    ephemeral_owner: int


_ABSENT: Final = _PendingNode(False, 0, 0, 0, 0)


def check_path(path: str) -> None:
    """Refuse what ZooKeeper refuses as a path.

    Raises:
        BadArgumentsError: says what is wrong with it.
    """
    if not path.startswith("/"):
        raise BadArgumentsError(f"path {path!r} must start with /", path)
    if path == "/":
        return
    for name in path[1:].split("/"):
        if not name:
            raise BadArgumentsError(f"path {path!r} has an empty name", path)
        if name in (".", ".."):
            raise BadArgumentsError(f"path {path!r} has a relative name", path)
    if not path.isascii() or not path.isprintable():
        for character in path:
            if _is_forbidden(ord(character)):
                raise BadArgumentsError(f"path {path!r} has the character {character!r}", path)


def _is_forbidden(code: int) -> bool:
    return code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF


class PrepProcessor:
    """First in the chain. Numbers transactions: a write that is refused uses no number."""

    def __init__(self, tree: DataTree, time_ms: Callable[[], int], next_processor: Processor) -> None:
        self._tree = tree
        self._time_ms = time_ms
        self._next = next_processor
        self._last_zxid = tree.last_zxid
        self._pending: dict[str, tuple[int, _PendingNode]] = {}
        """By path: the newest transaction that touches it, and what it leaves."""
        self._touched: deque[tuple[int, str]] = deque()
        self._pending_sessions: dict[int, bool] = {}
        """Sessions about to begin (True) or to end (False)."""
        self._undo: dict[str, tuple[int, _PendingNode] | None] = {}

    def process(self, request: Request) -> None:
        """Give the request its transaction or its error and pass it on."""
        operation = request.operation
        if isinstance(operation, Read):
            if not self._session_lives(request.session_id):
                request.error = _session_expired(request.session_id)
        else:
            try:
                self._prepare(request, operation)
            except CoordinationError as error:
                request.error = error
        self._next.process(request)

    def settle(self, zxid: int) -> None:
        """Forget what the tree now holds itself: everything up to `zxid` has been applied."""
        touched = self._touched
        while touched and touched[0][0] <= zxid:
            _, path = touched.popleft()
            pending = self._pending.get(path)
            if pending is not None and pending[0] <= zxid:
                del self._pending[path]
        if zxid == self._last_zxid:
            self._pending_sessions.clear()

    def reset(self) -> None:
        """Forget all that was prepared and not applied; the next transaction follows the tree's last."""
        self._pending.clear()
        self._touched.clear()
        self._pending_sessions.clear()
        self._last_zxid = self._tree.last_zxid

    def _prepare(self, request: Request, operation: Write) -> None:
        session_id = request.session_id
        if not isinstance(operation, CreateSession) and not self._session_lives(session_id):
            raise _session_expired(session_id)
        self._undo.clear()
        zxid = self._last_zxid + 1
        try:
            body = self._body(operation, session_id, zxid)
        except CoordinationError:
            self._roll_back()
            raise
        self._last_zxid = zxid
        self._touched.extend((zxid, path) for path in self._undo)
        request.txn = Txn(session_id, request.cxid, zxid, self._time_ms(), body)

    def _body(self, operation: Write, session_id: int, zxid: int) -> TxnBody:
        if isinstance(operation, Multi):
            return self._multi(operation, session_id, zxid)
        if isinstance(operation, CreateSession):
            assert not self._session_lives(session_id), f"session {session_id:#x} begins twice"
            self._pending_sessions[session_id] = True
            return CreateSessionTxn(operation.timeout_ms)
        if isinstance(operation, CloseSession):
            return self._close_session(session_id, zxid)
        return self._node_txn(operation, session_id, zxid)

    def _multi(self, multi: Multi, session_id: int, zxid: int) -> MultiTxn:
        if len(multi.operations) > MULTI_OPERATIONS_MAX:
            raise BadArgumentsError(
                f"a multi of {len(multi.operations)} operations is above {MULTI_OPERATIONS_MAX}; split it"
            )
        txns: list[NodeTxn] = []
        for index, operation in enumerate(multi.operations):
            try:
                txns.append(self._node_txn(operation, session_id, zxid))
            except CoordinationError as error:
                error.operation_index = index
                raise
        return MultiTxn(tuple(txns))

    def _node_txn(self, operation: Operation, session_id: int, zxid: int) -> NodeTxn:
        if isinstance(operation, Create):
            return self._create(operation, session_id, zxid)
        check_path(operation.path)
        if isinstance(operation, SetData):
            return self._set_data(operation, zxid)
        if isinstance(operation, Delete):
            return self._delete(operation, zxid)
        assert isinstance(operation, Check), f"{operation} is no operation"
        node = self._existing(operation.path)
        _check_version(operation.path, operation.version, node.version)
        return CheckTxn(operation.path, operation.version)

    def _create(self, operation: Create, session_id: int, zxid: int) -> CreateTxn:
        # A sequential name may be nothing but its number: "/queue/" becomes "/queue/0000000000".
        check_path(operation.path + "0" if operation.sequential else operation.path)
        _check_size(operation.path, operation.data)
        parent_name = parent_path(operation.path)
        parent = self._node(parent_name)
        if not parent.exists:
            raise NoNodeError(
                f"{operation.path} cannot be created: {parent_name} does not exist", parent_name
            )
        if parent.ephemeral_owner:
            raise NoChildrenForEphemeralsError(
                f"{operation.path} cannot be created: {parent_name} is ephemeral", parent_name
            )
        path = operation.path
        if operation.sequential:
            if parent.created_count > _SEQUENCE_MAX:
                raise BadArgumentsError(f"{parent_name} has had too many children for another number", path)
            path = f"{path}{parent.created_count:010d}"
        if self._node(path).exists:
            raise NodeExistsError(f"{path} exists", path)
        owner = session_id if operation.ephemeral else 0
        self._touch(path, _PendingNode(True, 0, 0, 0, owner), zxid)
        created_count = parent.created_count + 1
        self._touch(
            parent_name,
            replace(parent, created_count=created_count, child_count=parent.child_count + 1),
            zxid,
        )
        return CreateTxn(path, operation.data, OPEN_ACL, operation.ephemeral, created_count)

    def _set_data(self, operation: SetData, zxid: int) -> SetDataTxn:
        path = operation.path
        _check_size(path, operation.data)
        node = self._existing(path)
        _check_version(path, operation.version, node.version)
        version = node.version + 1
        self._touch(path, replace(node, version=version), zxid)
        return SetDataTxn(path, operation.data, version)

    def _delete(self, operation: Delete, zxid: int) -> DeleteTxn:
        path = operation.path
        if path in SYSTEM_PATHS:
            raise BadArgumentsError(f"{path} cannot be deleted", path)
        node = self._existing(path)
        _check_version(path, operation.version, node.version)
        if node.child_count:
            raise NotEmptyError(f"{path} has {node.child_count} children", path)
        self._touch_deleted(path, zxid)
        return DeleteTxn(path)

    def _close_session(self, session_id: int, zxid: int) -> CloseSessionTxn:
        owned = set(self._tree.ephemerals(session_id))
        for path, (_, node) in self._pending.items():
            if node.exists and node.ephemeral_owner == session_id:
                owned.add(path)
            else:
                owned.discard(path)
        for path in owned:
            self._touch_deleted(path, zxid)
        self._pending_sessions[session_id] = False
        return CloseSessionTxn(tuple(sorted(owned)))

    def _touch_deleted(self, path: str, zxid: int) -> None:
        parent_name = parent_path(path)
        parent = self._node(parent_name)
        assert parent.child_count > 0, f"{parent_name} has no children, but {path} is one"
        self._touch(path, _ABSENT, zxid)
        self._touch(parent_name, replace(parent, child_count=parent.child_count - 1), zxid)

    def _touch(self, path: str, node: _PendingNode, zxid: int) -> None:
        if path not in self._undo:
            self._undo[path] = self._pending.get(path)
        self._pending[path] = (zxid, node)

    def _roll_back(self) -> None:
        for path, before in self._undo.items():
            if before is None:
                del self._pending[path]
            else:
                self._pending[path] = before
        self._undo.clear()

    def _node(self, path: str) -> _PendingNode:
        pending = self._pending.get(path)
        if pending is not None:
            return pending[1]
        node = self._tree.nodes.get(path)
        if node is None:
            return _ABSENT
        children = len(self._tree.children(path))
        return _PendingNode(True, node.version, node.created_count, children, node.ephemeral_owner)

    def _existing(self, path: str) -> _PendingNode:
        node = self._node(path)
        if not node.exists:
            raise NoNodeError(f"{path} does not exist", path)
        return node

    def _session_lives(self, session_id: int) -> bool:
        return self._pending_sessions.get(session_id, session_id in self._tree.sessions)


def _check_version(path: str, expected: int, found: int) -> None:
    if expected not in (ANY_VERSION, found):
        raise BadVersionError(f"{path} has version {found}, expected {expected}", path)


def _check_size(path: str, data: bytes) -> None:
    if len(data) > DATA_BYTES_MAX:
        raise BadArgumentsError(f"the {len(data)} bytes for {path} are above {DATA_BYTES_MAX}", path)


def _session_expired(session_id: int) -> SessionExpiredError:
    return SessionExpiredError(f"session {session_id:#x} is over or unknown")
