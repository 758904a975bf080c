"""Translates operations of the wire protocol into processor requests, and outcomes into response records.

`plan` returns the operation for the processor chain and the function that encodes its outcome. Reads check
the access list in the final processor, when they run; the prep processor checks writes. Connections, frames
and time are not handled here.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn, Protocol, TypeAlias

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.errors import BadArgumentsError, NoAuthError, NoNodeError, ZooKeeperError
from kalda.zookeeper.port import Check, Delete, EventType, SetData, Stat
from kalda.zookeeper.protocol import responses
from kalda.zookeeper.protocol.op_codes import OK, RUNTIME_INCONSISTENCY, OpCode
from kalda.zookeeper.protocol.requests import (
    WORLD_ALL,
    AclEntry,
    CreateRequest,
    MultiRequest,
    PathNumberRequest,
    PathRequest,
    PathVersionRequest,
    PathWatchRequest,
    RequestRecord,
    SetAclRequest,
    SetDataRequest,
    SetWatchesRequest,
)
from kalda.zookeeper.protocol.responses import STAT, MultiResult
from kalda.zookeeper.server.acl import ADMIN, READ, Identity, check_permission
from kalda.zookeeper.server.data_tree import DataTree, Znode
from kalda.zookeeper.server.processor_requests import (
    Created,
    CreateMode,
    CreateNode,
    Multi,
    NodeOperation,
    Read,
    SetAcl,
    Write,
)
from kalda.zookeeper.server.txns import OPEN_ACL
from kalda.zookeeper.server.watches import Watcher, WatchKind, WatchTable
from kalda.zookeeper.server.wire_errors import (
    MarshallingError,
    NoWatcherError,
    ReconfigDisabledError,
    UnimplementedError,
)

logger: Final = logging.getLogger(__name__)

WATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""What the watches of one connection may take, of memory: some 180,000 of them. A controller with as many
topics has fewer."""

WATCH_BYTES_TOTAL_MAX: Final = 192 * 1024 * 1024
"""What all watches may take before clients that have not logged in get no more than an equal share."""

SET_WATCHES_PATHS_MAX: Final = 20_000
"""Paths of one setWatches, which take some 40 ms. ZooKeeper's client sends 128 KB at most."""

MULTI_READ_OPERATIONS_MAX: Final = 4_000
"""Reads of one multiRead, which take some 40 ms."""

MULTI_READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of the response of a multiRead; clients refuse responses above `jute.maxbuffer`, 1 MB by default."""

_LOGGED_IN: Final = frozenset(("sasl", "x509", "super"))
"""Schemes of identities that the server knows. Anybody may invent a digest identity."""

LARGE_DATA_BYTES: Final = 4096
"""Data of at least this size is sent as a view of the tree's bytes instead of a copy, so that a slow client
costs no memory."""

Body: TypeAlias = bytes | tuple[bytes | memoryview, ...]
"""A response's record, or its pieces; a memoryview shares data that the tree holds."""

Plan: TypeAlias = tuple[Write | Read, Callable[[object], Body] | None]
"""The operation for the chain, and the encoder of its outcome; None if the outcome is the body."""


class WireClient(Watcher, Protocol):
    """The requesting connection as operations see it; it is the watcher of all its watches."""

    @property
    def identities(self) -> tuple[Identity, ...]:
        """The identities that the client has proved."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed: then no watch is set."""
        ...

    def send_missed_event(self, kind: EventType, path: str) -> None:
        """Send the event of a change that happened while the client was disconnected."""
        ...


def plan(op_code: OpCode, record: RequestRecord, client: WireClient) -> Plan:
    """Return the plan of a request. One that cannot be served becomes a read that raises in its turn."""
    prepare = _WRITES.get(op_code)
    if prepare is not None:
        try:
            return prepare(record), _ENCODERS[op_code]
        except ZooKeeperError as error:
            return refuse(error), None
    if isinstance(record, MultiRequest) and op_code is OpCode.MULTI:
        return _multi(record)
    read = _READS.get(op_code)
    if read is None:
        return refuse(_unserved(op_code)), None
    return Read(partial(_guarded, read, client, record)), None


def refuse(error: ZooKeeperError) -> Read:
    """Return an operation that fails with `error` when its turn comes."""
    return Read(partial(_raise, error))


def failed_multi_body(operation_count: int, failed_index: int, code: int) -> bytes:
    """Return the record of a multi in which one operation failed, so that none took effect."""
    results: list[MultiResult] = [OK] * failed_index
    results.append(code)
    results.extend([RUNTIME_INCONSISTENCY] * (operation_count - failed_index - 1))
    return responses.multi_body(results)


def pack_stat(stat: Stat) -> bytes:
    """Return the wire form of a znode's metadata."""
    return STAT.pack(
        stat.czxid,
        stat.mzxid,
        stat.ctime,
        stat.mtime,
        stat.version,
        stat.cversion,
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children,
        stat.pzxid,
    )


def _guarded(
    read: Callable[..., Body],
    client: WireClient,
    record: RequestRecord,
    tree: DataTree,
    watches: WatchTable,
) -> Body:
    try:
        return read(client, record, tree, watches)
    except ZooKeeperError:
        raise
    except Exception as error:
        # A fault of one request must not stop the server; the client gets the error that ZooKeeper sends.
        logger.exception("serving a %s failed", type(record).__name__)
        raise MarshallingError(f"the request failed: {error}") from error


def _raise(error: ZooKeeperError, tree: DataTree, watches: WatchTable) -> NoReturn:
    raise error


def _unserved(op_code: OpCode) -> ZooKeeperError:
    if op_code is OpCode.RECONFIG:
        return ReconfigDisabledError("this server is standalone: there is no ensemble to reconfigure")
    return UnimplementedError(f"operation {op_code.name} is not served")


# Writes: from a record to an operation, and from a result to a record.


def _acl(entries: tuple[AclEntry, ...]) -> tuple[Acl, ...]:
    if entries is WORLD_ALL:
        return OPEN_ACL
    return tuple(Acl(*entry) for entry in entries)


def _create(record: RequestRecord) -> NodeOperation:
    assert isinstance(record, CreateRequest), f"{record} creates nothing"
    try:
        mode = CreateMode(record.flags)
    except ValueError:
        raise BadArgumentsError(
            f"create flags {record.flags} are not known, 0 to {max(CreateMode)} are", record.path
        ) from None
    return CreateNode(record.path, record.data, _acl(record.acl), mode, record.ttl_ms)


def _delete(record: RequestRecord) -> NodeOperation:
    assert isinstance(record, PathVersionRequest), f"{record} deletes nothing"
    return Delete(record.path, record.version)


def _check(record: RequestRecord) -> NodeOperation:
    assert isinstance(record, PathVersionRequest), f"{record} checks nothing"
    return Check(record.path, record.version)


def _set_data(record: RequestRecord) -> NodeOperation:
    assert isinstance(record, SetDataRequest), f"{record} sets no data"
    return SetData(record.path, record.data, record.version)


def _set_acl(record: RequestRecord) -> NodeOperation:
    assert isinstance(record, SetAclRequest), f"{record} sets no access list"
    return SetAcl(record.path, _acl(record.acl), record.version)


_WRITES: Final[dict[OpCode, Callable[[RequestRecord], NodeOperation]]] = {
    OpCode.CREATE: _create,
    OpCode.CREATE2: _create,
    OpCode.CREATE_CONTAINER: _create,
    OpCode.CREATE_TTL: _create,
    OpCode.DELETE: _delete,
    OpCode.SET_DATA: _set_data,
    OpCode.SET_ACL: _set_acl,
    OpCode.CHECK: _check,
}


def _created_path(result: object) -> bytes:
    assert isinstance(result, Created), f"{result!r} is no created znode"
    return responses.path_body(result.path)


def _created_stat(result: object) -> bytes:
    assert isinstance(result, Created), f"{result!r} is no created znode"
    return responses.path_stat_body(result.path, pack_stat(result.stat))


def _stat(result: object) -> bytes:
    assert isinstance(result, Stat), f"{result!r} is no stat"
    return pack_stat(result)


def _nothing(result: object) -> bytes:
    return b""


_RESULTS: Final[dict[OpCode, tuple[OpCode, Callable[[object], bytes]]]] = {
    OpCode.CREATE: (OpCode.CREATE, _created_path),
    # In a multi's response, a result with a stat has the number of create2.
    OpCode.CREATE2: (OpCode.CREATE2, _created_stat),
    OpCode.CREATE_CONTAINER: (OpCode.CREATE2, _created_stat),
    OpCode.CREATE_TTL: (OpCode.CREATE2, _created_stat),
    OpCode.DELETE: (OpCode.DELETE, _nothing),
    OpCode.SET_DATA: (OpCode.SET_DATA, _stat),
    OpCode.SET_ACL: (OpCode.SET_ACL, _stat),
    OpCode.CHECK: (OpCode.CHECK, _nothing),
}


def _only(encode: Callable[[object], bytes], outcome: object) -> bytes:
    assert isinstance(outcome, list), f"{outcome!r} is no outcome of a write"
    return encode(outcome[0])


_ENCODERS: Final[dict[OpCode, Callable[[object], Body]]] = {
    op_code: partial(_only, encode) for op_code, (_, encode) in _RESULTS.items()
}


def _multi(record: MultiRequest) -> Plan:
    op_codes: list[OpCode] = []
    operations: list[NodeOperation] = []
    for op_code, part in record.operations:
        try:
            operations.append(_WRITES[op_code](part))
        except ZooKeeperError as error:
            # ZooKeeper fails to parse such a multi.
            return refuse(MarshallingError(str(error), error.path)), None
        op_codes.append(op_code)
    return Multi(operations), partial(_multi_results, op_codes)


def _multi_results(op_codes: list[OpCode], outcome: object) -> bytes:
    assert isinstance(outcome, list), f"{outcome!r} is no outcome of a multi"
    results: list[MultiResult] = []
    for op_code, result in zip(op_codes, outcome, strict=True):
        kind, encode = _RESULTS[op_code]
        results.append((kind, encode(result)))
    return responses.multi_body(results)


# Reads: from a request's record and the tree to a response's record.


def _readable(tree: DataTree, path: str, permission: int, client: WireClient) -> Znode:
    node = tree.nodes.get(path)
    if node is None:
        raise NoNodeError(f"{path} does not exist", path)
    if node.acl is not OPEN_ACL:
        check_permission(node.acl, permission, client.identities, path)
    return node


def _stat_of(tree: DataTree, path: str) -> bytes:
    stat = tree.stat(path)
    assert stat is not None, f"{path} has a node but no stat"
    return pack_stat(stat)


def _require_place(client: WireClient, watches: WatchTable, path: str) -> None:
    """Raise `BadArgumentsError` if a connection may not have another watch."""
    held_bytes = watches.held_bytes(client)
    limit = WATCH_BYTES_MAX
    if watches.total_bytes > WATCH_BYTES_TOTAL_MAX and not any(
        identity.scheme in _LOGGED_IN for identity in client.identities
    ):
        limit = WATCH_BYTES_TOTAL_MAX // max(1, watches.watcher_count)
    if held_bytes + len(path) > limit:
        raise BadArgumentsError(
            f"the watches of the connection take {held_bytes} bytes of memory, and {limit} are allowed", path
        )


def _exists(client: WireClient, record: PathWatchRequest, tree: DataTree, watches: WatchTable) -> Body:
    path = record.path
    if path in tree.nodes:
        _readable(tree, path, READ, client)
    if record.watch and not client.is_gone:
        _require_place(client, watches, path)
        watches.add_data(path, client)
    if path not in tree.nodes:
        raise NoNodeError(f"{path} does not exist", path)
    return _stat_of(tree, path)


def _get_data(client: WireClient, record: PathWatchRequest, tree: DataTree, watches: WatchTable) -> Body:
    path = record.path
    node = _readable(tree, path, READ, client)
    if record.watch and not client.is_gone:
        _require_place(client, watches, path)
        watches.add_data(path, client)
    data = node.data
    if data is None or len(data) < LARGE_DATA_BYTES:
        return responses.data_body(data, _stat_of(tree, path))
    return responses.large_data_body(data, _stat_of(tree, path))


def _get_children(client: WireClient, record: PathWatchRequest, tree: DataTree, watches: WatchTable) -> bytes:
    path = record.path
    _readable(tree, path, READ, client)
    if record.watch and not client.is_gone:
        _require_place(client, watches, path)
        watches.add_children(path, client)
    return responses.texts_body(tree.children(path))


def _get_children2(client: WireClient, record: PathWatchRequest, tree: DataTree, watches: WatchTable) -> Body:
    return _get_children(client, record, tree, watches) + _stat_of(tree, record.path)


def _get_acl(client: WireClient, record: PathRequest, tree: DataTree, watches: WatchTable) -> Body:
    path = record.path
    node = _readable(tree, path, READ | ADMIN, client)
    entries = [AclEntry(entry.permissions, entry.scheme, entry.id) for entry in node.acl]
    try:
        check_permission(node.acl, ADMIN, client.identities, path)
    except NoAuthError:
        # A client without ADMIN permission does not get the password hashes.
        entries = [
            entry._replace(id=entry.id.split(":", 1)[0] + ":x") if entry.scheme == "digest" else entry
            for entry in entries
        ]
    return responses.acl_body(entries, _stat_of(tree, path))


def _sync(client: WireClient, record: PathRequest, tree: DataTree, watches: WatchTable) -> Body:
    return responses.path_body(record.path)


def _get_ephemerals(client: WireClient, record: PathRequest, tree: DataTree, watches: WatchTable) -> Body:
    owned = tree.ephemerals(client.session_id)
    return responses.texts_body(sorted(path for path in owned if path.startswith(record.path)))


def _get_all_children_number(
    client: WireClient, record: PathRequest, tree: DataTree, watches: WatchTable
) -> Body:
    _readable(tree, record.path, READ, client)
    return responses.number_body(tree.all_children_count(record.path))


def _multi_read(client: WireClient, record: MultiRequest, tree: DataTree, watches: WatchTable) -> Body:
    count = len(record.operations)
    if count > MULTI_READ_OPERATIONS_MAX:
        raise BadArgumentsError(
            f"a multiRead of {count} operations is above {MULTI_READ_OPERATIONS_MAX}; split it"
        )
    results: list[MultiResult] = []
    size = 0
    for op_code, part in record.operations:
        try:
            body = _READS[op_code](client, part, tree, watches)
        except ZooKeeperError as error:
            results.append(error.code)
        else:
            pieces = (body,) if isinstance(body, bytes) else body
            size += sum(map(len, pieces))
            if size > MULTI_READ_BYTES_MAX:
                raise BadArgumentsError(
                    f"the response of a multiRead is above {MULTI_READ_BYTES_MAX} bytes; split it"
                )
            results.append((op_code, b"".join(pieces)))
    return responses.multi_body(results)


def _who_am_i(client: WireClient, record: RequestRecord, tree: DataTree, watches: WatchTable) -> Body:
    return responses.client_infos_body(
        [
            (identity.scheme, identity.id.split(":", 1)[0] if identity.scheme == "digest" else identity.id)
            for identity in client.identities
        ]
    )


def _set_watches(client: WireClient, record: SetWatchesRequest, tree: DataTree, watches: WatchTable) -> Body:
    """Set the watches of a reconnected client again, or send at once the events that it missed."""
    if client.is_gone:
        return b""
    count = sum(map(len, record[1:]))
    if count > SET_WATCHES_PATHS_MAX:
        raise BadArgumentsError(f"setWatches of {count} paths is above {SET_WATCHES_PATHS_MAX}; split it")
    nodes, since = tree.nodes, record.relative_zxid
    for path in record.data:
        if path not in nodes:
            client.send_missed_event(EventType.DELETED, path)
        elif nodes[path].mzxid > since:
            client.send_missed_event(EventType.DATA_CHANGED, path)
        else:
            _require_place(client, watches, path)
            watches.add_data(path, client)
    for path in record.exist:
        if path in nodes:
            client.send_missed_event(EventType.CREATED, path)
        else:
            _require_place(client, watches, path)
            watches.add_data(path, client)
    for path in record.children:
        if path not in nodes:
            client.send_missed_event(EventType.DELETED, path)
        elif nodes[path].pzxid > since:
            client.send_missed_event(EventType.CHILDREN_CHANGED, path)
        else:
            _require_place(client, watches, path)
            watches.add_children(path, client)
    for path in record.persistent:
        _require_place(client, watches, path)
        watches.add_persistent(path, client, recursive=False)
    for path in record.persistent_recursive:
        _require_place(client, watches, path)
        watches.add_persistent(path, client, recursive=True)
    return b""


def _add_watch(client: WireClient, record: PathNumberRequest, tree: DataTree, watches: WatchTable) -> Body:
    if record.number not in (0, 1):
        raise BadArgumentsError(f"watch mode {record.number} is not known, 0 and 1 are", record.path)
    if not client.is_gone:
        _require_place(client, watches, record.path)
        watches.add_persistent(record.path, client, recursive=record.number == 1)
    return responses.number_body(OK)


def _check_watches(
    client: WireClient, record: PathNumberRequest, tree: DataTree, watches: WatchTable
) -> Body:
    if not watches.has(record.path, client, _watch_kind(record)):
        raise _no_watcher(record)
    return b""


def _remove_watches(
    client: WireClient, record: PathNumberRequest, tree: DataTree, watches: WatchTable
) -> Body:
    if not watches.remove_watch(record.path, client, _watch_kind(record)):
        raise _no_watcher(record)
    return b""


def _watch_kind(record: PathNumberRequest) -> WatchKind:
    try:
        return WatchKind(record.number)
    except ValueError:
        raise MarshallingError(
            f"kind of watch {record.number} is not known, {min(WatchKind)} to {max(WatchKind)} are",
            record.path,
        ) from None


def _no_watcher(record: PathNumberRequest) -> NoWatcherError:
    return NoWatcherError(f"no watch of kind {record.number} is set on {record.path}", record.path)


# The records' types differ by operation; the codec table pairs each operation with its own.
_READS: Final[dict[OpCode, Callable[..., Body]]] = {
    OpCode.EXISTS: _exists,
    OpCode.GET_DATA: _get_data,
    OpCode.GET_ACL: _get_acl,
    OpCode.GET_CHILDREN: _get_children,
    OpCode.GET_CHILDREN2: _get_children2,
    OpCode.SYNC: _sync,
    OpCode.MULTI_READ: _multi_read,
    OpCode.CHECK_WATCHES: _check_watches,
    OpCode.REMOVE_WATCHES: _remove_watches,
    OpCode.SET_WATCHES: _set_watches,
    OpCode.SET_WATCHES2: _set_watches,
    OpCode.ADD_WATCH: _add_watch,
    OpCode.GET_EPHEMERALS: _get_ephemerals,
    OpCode.GET_ALL_CHILDREN_NUMBER: _get_all_children_number,
    OpCode.WHO_AM_I: _who_am_i,
}
