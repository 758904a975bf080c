"""The prep processor: validates writes and turns them into transactions.

It must see changes that are not in the tree yet, or two pipelined writes would both be checked against the
same version. `_pending` holds one record per changed znode until the final processor has applied the change.
If the disk fails, `reset` drops all pending changes, because later ones were prepared on top of lost ones.
Sans-IO: the caller passes the time.

Checks come in ZooKeeper's order, so that a request with two faults gets the same error as from ZooKeeper.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from kalda.common import invariants
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    ZooKeeperError,
)
from kalda.zookeeper.path_validation import check_path
from kalda.zookeeper.port import ANY_VERSION, Check, Create, Delete, SetData
from kalda.zookeeper.server import acl as access
from kalda.zookeeper.server.acl import BUILT_IN_SCHEMES, Identity, check_permission, normalise_acl
from kalda.zookeeper.server.data_tree import INT_MAX, SYSTEM_PATHS, DataTree, parent_path
from kalda.zookeeper.server.ephemeral_owner import CONTAINER_OWNER, TTL_MS_MAX, is_session, ttl_owner
from kalda.zookeeper.server.processor_requests import (
    CloseSession,
    CreateMode,
    CreateNode,
    CreateSession,
    DeleteContainer,
    Multi,
    NodeOperation,
    Processor,
    Read,
    Request,
    SetAcl,
    Write,
)
from kalda.zookeeper.server.txns import (
    OPEN_ACL,
    AnyCreateTxn,
    CheckTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTtlTxn,
    CreateTxn,
    DeleteTxn,
    MultiTxn,
    NodeTxn,
    SetAclTxn,
    SetDataTxn,
    Txn,
    TxnBody,
)

DATA_BYTES_MAX: Final = 1024 * 1024 - 1
"""ZooKeeper's default ``jute.maxbuffer``: this server refuses what an ensemble refuses."""

DATA_BYTES_LIMIT: Final = 64 * 1024 * 1024
"""The maximum of ``jute.maxbuffer``, and of the data of one multi: with its paths a transaction stays well
below the 128 MiB up to which recovery of the log looks for records."""

MULTI_OPERATIONS_MAX: Final = 10_000
"""A multi is one record of the log and is applied without interruption; the bound keeps both short."""


_SESSIONLESS: Final = (CreateSession, DeleteContainer)
_NEVER_IN_MULTI: Final = (SetAcl, DeleteContainer)
_WITH_DATA: Final = (Create, CreateNode, SetData)


class _PendingNode(NamedTuple):
    """A znode as it will be when all pending transactions have been applied."""

    exists: bool
    version: int
    created_count: int
    aversion: int
    child_count: int
    ephemeral_owner: int
    acl: tuple[Acl, ...]


_ABSENT: Final = _PendingNode(False, 0, 0, 0, 0, 0, ())


class PrepProcessor:
    """First in the chain. It assigns zxids; a refused write uses none."""

    def __init__(
        self,
        tree: DataTree,
        time_ms: Callable[[], int],
        next_processor: Processor,
        *,
        data_bytes_max: int = DATA_BYTES_MAX,
        acl_schemes: frozenset[str] = BUILT_IN_SCHEMES,
        own_acl: Callable[[str], tuple[Acl, ...]] | None = None,
    ) -> None:
        """`acl_schemes` may be in access lists; `own_acl` gives the list of a path that this process creates.

        Without `own_acl` anyone may change what this process creates.
        """
        if not 0 < data_bytes_max <= DATA_BYTES_LIMIT:
            raise ValueError(f"jute.maxbuffer={data_bytes_max} is not between 1 and {DATA_BYTES_LIMIT}")
        self._tree = tree
        self._data_bytes_max = data_bytes_max
        self._acl_schemes = acl_schemes
        self._own_acl = own_acl
        self._time_ms = time_ms
        self._next = next_processor
        self._last_zxid = tree.last_zxid
        self._pending: dict[str, tuple[int, _PendingNode]] = {}
        """By path: the newest pending transaction that changes the znode, and the result."""
        self._touched: deque[tuple[int, str]] = deque()
        self._pending_sessions: dict[int, tuple[int, bool]] = {}
        """By session: the newest pending transaction that creates (True) or ends (False) it."""
        self._touched_sessions: deque[tuple[int, int]] = deque()
        self._undo: dict[str, tuple[int, _PendingNode] | None] = {}

    def process(self, request: Request) -> None:
        """Set the request's transaction or error and pass the request on."""
        operation = request.operation
        if isinstance(operation, Read):
            if not self._session_lives(request.session_id):
                request.error = _session_expired(request.session_id)
        else:
            try:
                self._prepare(request, operation)
            except ZooKeeperError as error:
                request.error = error
        self._next.process(request)

    def settle(self, zxid: int) -> None:
        """Drop pending changes up to `zxid`, which the tree now holds."""
        touched = self._touched
        while touched and touched[0][0] <= zxid:
            _, path = touched.popleft()
            pending = self._pending.get(path)
            if pending is not None and pending[0] <= zxid:
                del self._pending[path]
        sessions = self._touched_sessions
        while sessions and sessions[0][0] <= zxid:
            _, session_id = sessions.popleft()
            change = self._pending_sessions.get(session_id)
            if change is not None and change[0] <= zxid:
                del self._pending_sessions[session_id]
        assert zxid <= self._last_zxid, f"{zxid:#x} was applied, {self._last_zxid:#x} is the last prepared"
        if invariants.enabled:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Assert that what is pending lies between the tree and the last prepared transaction."""
        first, last = self._tree.last_zxid + 1, self._last_zxid
        for path, (zxid, node) in self._pending.items():
            assert first <= zxid <= last, f"{path} is pending since {zxid:#x}, not in [{first:#x}, {last:#x}]"
            assert node.child_count >= 0, f"{path} has {node.child_count} pending children"
        for session_id, (zxid, _) in self._pending_sessions.items():
            assert first <= zxid <= last, f"session {session_id:#x} is pending since {zxid:#x}"
        if not self._touched:
            assert not self._pending, f"{self._pending.keys()} are pending for ever"

    def reset(self) -> None:
        """Drop all pending changes; the next transaction follows the tree's last one."""
        self._pending.clear()
        self._touched.clear()
        self._pending_sessions.clear()
        self._touched_sessions.clear()
        self._last_zxid = self._tree.last_zxid

    def _prepare(self, request: Request, operation: Write) -> None:
        session_id = request.session_id
        # The server deletes containers without a session, and a session to create does not exist yet.
        if not isinstance(operation, _SESSIONLESS) and not self._session_lives(session_id):
            raise _session_expired(session_id)
        self._undo.clear()
        zxid = self._last_zxid + 1
        try:
            body = self._body(operation, request, zxid)
        except ZooKeeperError:
            self._roll_back()
            raise
        self._last_zxid = zxid
        self._touched.extend([(zxid, path) for path in self._undo])
        request.txn = Txn(session_id, request.cxid, zxid, self._time_ms(), body)

    def _body(self, operation: Write, request: Request, zxid: int) -> TxnBody:
        if isinstance(operation, Multi):
            return self._multi(operation, request, zxid)
        if isinstance(operation, CreateSession):
            session_id = request.session_id
            assert not self._session_lives(session_id), f"session {session_id:#x} begins twice"
            self._touch_session(session_id, True, zxid)
            return CreateSessionTxn(operation.timeout_ms)
        if isinstance(operation, CloseSession):
            return self._close_session(request.session_id, zxid)
        return self._node_txn(operation, request, zxid)

    def _multi(self, multi: Multi, request: Request, zxid: int) -> MultiTxn:
        if len(multi.operations) > MULTI_OPERATIONS_MAX:
            raise BadArgumentsError(
                f"a multi of {len(multi.operations)} operations is above {MULTI_OPERATIONS_MAX}; split it"
            )
        txns: list[NodeTxn] = []
        data_bytes = 0
        for index, operation in enumerate(multi.operations):
            try:
                if isinstance(operation, _NEVER_IN_MULTI):
                    raise BadArgumentsError(
                        f"{type(operation).__name__} cannot be part of a multi", operation.path
                    )
                if isinstance(operation, _WITH_DATA):
                    data_bytes += len(operation.data or b"")
                    if data_bytes > DATA_BYTES_LIMIT:
                        raise BadArgumentsError(
                            f"a multi with more than {DATA_BYTES_LIMIT} bytes of data does not fit into the "
                            "log; split it",
                            operation.path,
                        )
                txns.append(self._node_txn(operation, request, zxid))
            except ZooKeeperError as error:
                error.operation_index = index
                raise
        return MultiTxn(tuple(txns))

    def _node_txn(self, operation: NodeOperation, request: Request, zxid: int) -> NodeTxn:
        identities = request.identities
        if isinstance(operation, SetData):
            return self._set_data(operation, identities, zxid)
        if isinstance(operation, CreateNode):
            return self._create_node(operation, request, zxid)
        if isinstance(operation, Create):
            mode = _MODES[operation.ephemeral, operation.sequential]
            acl = OPEN_ACL if self._own_acl is None else self._own_acl(operation.path)
            created = CreateNode(operation.path, operation.data, acl, mode)
            return self._create_node(created, request, zxid)
        if isinstance(operation, Delete):
            return self._delete(operation, identities, zxid)
        if isinstance(operation, SetAcl):
            return self._set_acl(operation, identities, zxid)
        if isinstance(operation, DeleteContainer):
            return self._delete_container(operation, zxid)
        assert isinstance(operation, Check), f"{operation} is no operation"
        check_path(operation.path)
        node = self._existing(operation.path)
        if node.acl is not OPEN_ACL:
            check_permission(node.acl, access.READ, identities, operation.path)
        _check_version(operation.path, operation.version, node.version)
        return CheckTxn(operation.path, operation.version)

    def _create_node(self, operation: CreateNode, request: Request, zxid: int) -> AnyCreateTxn:
        path, mode = operation.path, operation.mode
        _check_ttl(operation)
        if "/" not in path or "\0" in path:
            raise BadArgumentsError(f"path {path!r} must start with / and have no null character", path)
        self._check_size(path, operation.data)
        acl = operation.acl
        if acl is not OPEN_ACL:
            acl = normalise_acl(acl, request.identities, path, self._acl_schemes)
        parent_name = parent_path(path)
        parent = self._node(parent_name)
        if not parent.exists:
            raise NoNodeError(f"{path} cannot be created: {parent_name} does not exist", parent_name)
        if parent.acl is not OPEN_ACL:
            check_permission(parent.acl, access.CREATE, request.identities, parent_name)
        if mode.is_sequential:
            if parent.created_count >= INT_MAX:
                raise BadArgumentsError(f"{parent_name} has had too many children for another number", path)
            path = f"{path}{parent.created_count:010d}"
        # Only now, because a sequential name may be nothing but its number: "/q/" becomes "/q/0000000000".
        check_path(path)
        if self._node(path).exists:
            raise NodeExistsError(f"{path} exists", path)
        if is_session(parent.ephemeral_owner):
            raise NoChildrenForEphemeralsError(
                f"{path} cannot be created: {parent_name} is ephemeral", parent_name
            )
        created_count = min(parent.created_count + 1, INT_MAX)
        self._touch(
            parent_name,
            parent._replace(created_count=created_count, child_count=parent.child_count + 1),
            zxid,
        )
        owner, txn = _creation(operation, path, acl, created_count, request.session_id)
        self._touch(path, _PendingNode(True, 0, 0, 0, 0, owner, acl), zxid)
        return txn

    def _set_data(self, operation: SetData, identities: tuple[Identity, ...] | None, zxid: int) -> SetDataTxn:
        path = operation.path
        check_path(path)
        self._check_size(path, operation.data)
        node = self._existing(path)
        if node.acl is not OPEN_ACL:
            check_permission(node.acl, access.WRITE, identities, path)
        _check_version(path, operation.version, node.version)
        version = _next_version(node.version)
        self._touch(path, node._replace(version=version), zxid)
        return SetDataTxn(path, operation.data, version)

    def _set_acl(self, operation: SetAcl, identities: tuple[Identity, ...] | None, zxid: int) -> SetAclTxn:
        path = operation.path
        check_path(path)
        acl = normalise_acl(operation.acl, identities, path, self._acl_schemes)
        node = self._existing(path)
        check_permission(node.acl, access.ADMIN, identities, path)
        _check_version(path, operation.version, node.aversion)
        aversion = _next_version(node.aversion)
        self._touch(path, node._replace(aversion=aversion, acl=acl), zxid)
        return SetAclTxn(path, acl, aversion)

    def _delete(self, operation: Delete, identities: tuple[Identity, ...] | None, zxid: int) -> DeleteTxn:
        path = operation.path
        # ZooKeeper looks for a znode of a name that it would refuse to create, and finds none.
        if "/" not in path or "\0" in path or path in SYSTEM_PATHS:
            raise BadArgumentsError(f"{path!r} cannot be deleted", path)
        parent_name = parent_path(path)
        parent = self._existing(parent_name)
        if parent.acl is not OPEN_ACL:
            check_permission(parent.acl, access.DELETE, identities, parent_name)
        node = self._existing(path)
        _check_version(path, operation.version, node.version)
        if node.child_count:
            raise NotEmptyError(f"{path} has {node.child_count} children", path)
        self._touch_deleted(path, zxid)
        return DeleteTxn(path)

    def _delete_container(self, operation: DeleteContainer, zxid: int) -> DeleteTxn:
        path = operation.path
        check_path(path)
        if path in SYSTEM_PATHS:
            raise BadArgumentsError(f"{path} cannot be deleted", path)
        node = self._existing(path)
        if node.child_count:
            raise NotEmptyError(f"{path} has {node.child_count} children", path)
        if node.ephemeral_owner == 0 or is_session(node.ephemeral_owner):
            # ZooKeeper refuses an ephemeral znode with this error, but deletes a plain one, which is unsafe.
            raise BadVersionError(f"{path} is neither a container nor has it a time to live", path)
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
        self._touch_session(session_id, False, zxid)
        return CloseSessionTxn(tuple(sorted(owned)))

    def _touch_deleted(self, path: str, zxid: int) -> None:
        parent_name = parent_path(path)
        parent = self._node(parent_name)
        assert parent.child_count > 0, f"{parent_name} has no children, but {path} is one"
        self._touch(path, _ABSENT, zxid)
        self._touch(parent_name, parent._replace(child_count=parent.child_count - 1), zxid)

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
        return _PendingNode(
            True,
            node.version,
            node.created_count,
            node.aversion,
            len(self._tree.children(path)),
            node.ephemeral_owner,
            node.acl,
        )

    def _existing(self, path: str) -> _PendingNode:
        node = self._node(path)
        if not node.exists:
            raise NoNodeError(f"{path} does not exist", path)
        return node

    def _check_size(self, path: str, data: bytes | None) -> None:
        if data is not None and len(data) > self._data_bytes_max:
            raise BadArgumentsError(
                f"the {len(data)} bytes for {path} are above {self._data_bytes_max} (jute.maxbuffer)", path
            )

    def _session_lives(self, session_id: int) -> bool:
        pending = self._pending_sessions.get(session_id)
        return session_id in self._tree.sessions if pending is None else pending[1]

    def _touch_session(self, session_id: int, lives: bool, zxid: int) -> None:
        self._pending_sessions[session_id] = (zxid, lives)
        self._touched_sessions.append((zxid, session_id))


def _check_version(path: str, expected: int, found: int) -> None:
    if expected not in (ANY_VERSION, found):
        raise BadVersionError(f"{path} has version {found}, expected {expected}", path)


def _next_version(version: int) -> int:
    # The number wraps as in Java, but skips -1, which clients send for any version.
    if version == INT_MAX:
        return -INT_MAX - 1
    return version + 1 if version != -2 else 0


def _check_ttl(operation: CreateNode) -> None:
    ttl_ms = operation.ttl_ms
    if operation.mode.has_ttl:
        if not 0 < ttl_ms <= TTL_MS_MAX:
            raise BadArgumentsError(
                f"a time to live of {ttl_ms} ms is not between 1 and {TTL_MS_MAX}", operation.path
            )
    elif ttl_ms >= 0:
        raise BadArgumentsError(
            f"mode {operation.mode.name} has no time to live, but {ttl_ms} ms are given", operation.path
        )


_MODES: Final = {
    (False, False): CreateMode.PERSISTENT,
    (True, False): CreateMode.EPHEMERAL,
    (False, True): CreateMode.PERSISTENT_SEQUENTIAL,
    (True, True): CreateMode.EPHEMERAL_SEQUENTIAL,
}
"""The mode of each pair of `Create.ephemeral` and `Create.sequential`."""


def _creation(
    operation: CreateNode, path: str, acl: tuple[Acl, ...], created_count: int, session_id: int
) -> tuple[int, AnyCreateTxn]:
    """Return the new znode's owner field and the transaction."""
    mode, data = operation.mode, operation.data
    if mode is CreateMode.CONTAINER:
        return CONTAINER_OWNER, CreateContainerTxn(path, data, acl, created_count)
    if mode.has_ttl:
        ttl_ms = operation.ttl_ms
        return ttl_owner(ttl_ms), CreateTtlTxn(path, data, acl, created_count, ttl_ms)
    owner = session_id if mode.is_ephemeral else 0
    return owner, CreateTxn(path, data, acl, owner != 0, created_count)


def _session_expired(session_id: int) -> SessionExpiredError:
    return SessionExpiredError(f"session {session_id:#x} is over or unknown")
