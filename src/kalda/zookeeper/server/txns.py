"""Encodes the transaction records of the write-ahead log and the data tree, in ZooKeeper's layout.

A record is a `TxnHeader` followed by the transaction. A transaction describes the resulting change, not the
request: a sequential name is complete and a version is the new one, so applying it needs no decision and
cannot fail.

Records that only ZooKeeper writes can be read too: create2 (a create under another number), reconfig (a
change of data), failed requests, creations without a counter, ends of sessions without paths.
"""

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.protocol.jute import (
    INT,
    JuteError,
    Reader,
    write_buffer,
    write_int,
    write_long,
    write_text,
)

_HEADER: Final = struct.Struct(">qiqqi")

CREATE: Final = 1
DELETE: Final = 2
SET_DATA: Final = 5
SET_ACL: Final = 7
CHECK: Final = 13
MULTI: Final = 14
CREATE2: Final = 15
RECONFIG: Final = 16
CREATE_CONTAINER: Final = 19
DELETE_CONTAINER: Final = 20
CREATE_TTL: Final = 21
ERROR: Final = -1
CREATE_SESSION: Final = -10
CLOSE_SESSION: Final = -11


OPEN_ACL: Final[tuple[Acl, ...]] = (Acl(31, "world", "anyone"),)
"""Anyone may do anything: ZooKeeper's ``OPEN_ACL_UNSAFE``."""

NEXT_CVERSION: Final = -1
"""A parent's counter in old records: one more than its current value."""


@dataclass(frozen=True, slots=True)
class CreateTxn:
    """A znode was created. `parent_cversion` is the parent's count of creations with this one."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    ephemeral: bool
    parent_cversion: int


@dataclass(frozen=True, slots=True)
class CreateContainerTxn:
    """A container was created: a znode that the server deletes some time after its last child."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    parent_cversion: int


@dataclass(frozen=True, slots=True)
class CreateTtlTxn:
    """A znode was created that the server deletes when it is unchanged and childless for `ttl_ms`."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    parent_cversion: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class DeleteTxn:
    """A znode was deleted."""

    path: str


@dataclass(frozen=True, slots=True)
class SetDataTxn:
    """A znode's data was replaced; `version` is the new one."""

    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetAclTxn:
    """A znode's access list was replaced; `version` is the new aversion."""

    path: str
    acl: tuple[Acl, ...]
    version: int


@dataclass(frozen=True, slots=True)
class CheckTxn:
    """A version check succeeded; it changes nothing, but has a result in a multi."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class CreateSessionTxn:
    """A session was created; a time-out of 0 marks a session that ends with the server's process."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSessionTxn:
    """A session ended, and these ephemeral znodes with it; None (old records) means all that it owned."""

    paths: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ErrorTxn:
    """A request failed and changed nothing: ZooKeeper logs such requests, this server does not."""

    code: int


AnyCreateTxn: TypeAlias = CreateTxn | CreateContainerTxn | CreateTtlTxn
CREATE_TXNS: Final = (CreateTxn, CreateContainerTxn, CreateTtlTxn)
"""For `isinstance`: a union would be built at each call."""

NodeTxn: TypeAlias = AnyCreateTxn | DeleteTxn | SetDataTxn | SetAclTxn | CheckTxn | ErrorTxn


@dataclass(frozen=True, slots=True)
class MultiTxn:
    """Several changes that take effect as one."""

    txns: tuple[NodeTxn, ...]


TxnBody: TypeAlias = NodeTxn | MultiTxn | CreateSessionTxn | CloseSessionTxn


@dataclass(frozen=True, slots=True)
class Txn:
    """One transaction. `zxid` orders all of them; `time_ms` is the wall clock when it was prepared."""

    session_id: int
    cxid: int
    zxid: int
    time_ms: int
    body: TxnBody


_TYPES: Final[dict[type, int]] = {
    CreateTxn: CREATE,
    DeleteTxn: DELETE,
    SetDataTxn: SET_DATA,
    SetAclTxn: SET_ACL,
    CheckTxn: CHECK,
    CreateContainerTxn: CREATE_CONTAINER,
    CreateTtlTxn: CREATE_TTL,
    ErrorTxn: ERROR,
    MultiTxn: MULTI,
    CreateSessionTxn: CREATE_SESSION,
    CloseSessionTxn: CLOSE_SESSION,
}


def encode_txn(txn: Txn) -> bytes:
    """Return the record's bytes: header and body."""
    out = bytearray(_HEADER.pack(txn.session_id, txn.cxid, txn.zxid, txn.time_ms, _TYPES[type(txn.body)]))
    _write_body(out, txn.body)
    return bytes(out)


def decode_txn(data: bytes) -> Txn:
    """Read what `encode_txn` wrote; bytes after the body (ZooKeeper 3.6 adds a digest) are ignored.

    Raises:
        JuteError: it is not a transaction of a kind known here.
    """
    reader = Reader(data)
    session_id, cxid, zxid, time_ms, kind = reader.unpack(_HEADER)
    return Txn(session_id, cxid, zxid, time_ms, _read_body(reader, kind))


def peek_zxid(data: bytes) -> int:
    """Return a record's transaction id without decoding the rest.

    Raises:
        JuteError: it is shorter than a header.
    """
    return Reader(data).unpack(_HEADER)[2]


def is_error(data: bytes) -> bool:
    """Return whether a record is that of a failed request.

    Raises:
        JuteError: it is shorter than a header.
    """
    return Reader(data).unpack(_HEADER)[4] == ERROR


def write_acls(out: bytearray, acls: tuple[Acl, ...]) -> None:
    """Append an access list."""
    write_int(out, len(acls))
    for acl in acls:
        write_int(out, acl.permissions)
        write_text(out, acl.scheme)
        write_text(out, acl.id)


def read_acls(reader: Reader) -> tuple[Acl, ...]:
    """Read an access list; the open one, which nearly all znodes have, is recognised by its bytes."""
    if reader.skip(_OPEN_ACL_BYTES):
        return OPEN_ACL
    return tuple(Acl(reader.int32(), reader.text(), reader.text()) for _ in range(reader.count(12)))


def _acl_bytes(acls: tuple[Acl, ...]) -> bytes:
    out = bytearray()
    write_acls(out, acls)
    return bytes(out)


_OPEN_ACL_BYTES: Final = _acl_bytes(OPEN_ACL)


def _write_body(out: bytearray, body: TxnBody) -> None:
    if isinstance(body, CREATE_TXNS):
        _write_create(out, body)
    elif isinstance(body, SetDataTxn):
        write_text(out, body.path)
        write_buffer(out, body.data)
        write_int(out, body.version)
    elif isinstance(body, DeleteTxn):
        write_text(out, body.path)
    elif isinstance(body, CheckTxn):
        write_text(out, body.path)
        write_int(out, body.version)
    elif isinstance(body, MultiTxn):
        write_int(out, len(body.txns))
        for txn in body.txns:
            write_int(out, _TYPES[type(txn)])
            inner = bytearray()
            _write_body(inner, txn)
            write_buffer(out, inner)
    elif isinstance(body, SetAclTxn):
        write_text(out, body.path)
        write_acls(out, body.acl)
        write_int(out, body.version)
    elif isinstance(body, CreateSessionTxn):
        write_int(out, body.timeout_ms)
    elif isinstance(body, CloseSessionTxn):
        paths = body.paths or ()
        write_int(out, len(paths))
        for path in paths:
            write_text(out, path)
    else:
        write_int(out, body.code)


def _write_create(out: bytearray, body: AnyCreateTxn) -> None:
    write_text(out, body.path)
    write_buffer(out, body.data)
    out += _OPEN_ACL_BYTES if body.acl is OPEN_ACL else _acl_bytes(body.acl)
    if isinstance(body, CreateTxn):
        out.append(1 if body.ephemeral else 0)
    write_int(out, body.parent_cversion)
    if isinstance(body, CreateTtlTxn):
        write_long(out, body.ttl_ms)


def _read_body(reader: Reader, kind: int) -> TxnBody:
    if kind == MULTI:
        return _read_multi(reader)
    if kind == CREATE_SESSION:
        return CreateSessionTxn(reader.int32())
    if kind == CLOSE_SESSION:
        # Before 3.6, and by a setting after it, there are no paths; then nothing follows, or a digest.
        try:
            return CloseSessionTxn(tuple(reader.text() for _ in range(reader.count(INT.size))))
        except JuteError:
            return CloseSessionTxn(None)
    return _read_node_txn(reader, kind)


def _read_multi(reader: Reader) -> MultiTxn | ErrorTxn:
    parts = tuple(_read_multi_item(reader) for _ in range(reader.count(8)))
    for part in parts:
        if isinstance(part, ErrorTxn):
            # ZooKeeper logs the operations before the failed one as if they had taken effect.
            return part
    return MultiTxn(parts)


def _read_multi_item(reader: Reader) -> NodeTxn:
    kind = reader.int32()
    raw = reader.buffer()
    if raw is None:
        raise JuteError("a transaction of a multi is null")
    return _read_node_txn(Reader(raw), kind)


def _read_node_txn(reader: Reader, kind: int) -> NodeTxn:
    if kind in (CREATE, CREATE2):
        path, data, acl = reader.text(), reader.buffer(), read_acls(reader)
        ephemeral = reader.boolean()
        # Before 3.4 the record ends here.
        cversion = reader.int32() if reader.remaining >= INT.size else NEXT_CVERSION
        return CreateTxn(path, data, acl, ephemeral, cversion)
    if kind in (SET_DATA, RECONFIG):
        return SetDataTxn(reader.text(), reader.buffer(), reader.int32())
    if kind in (DELETE, DELETE_CONTAINER):
        return DeleteTxn(reader.text())
    if kind == CHECK:
        return CheckTxn(reader.text(), reader.int32())
    if kind == SET_ACL:
        return SetAclTxn(reader.text(), read_acls(reader), reader.int32())
    if kind == CREATE_CONTAINER:
        return CreateContainerTxn(reader.text(), reader.buffer(), read_acls(reader), reader.int32())
    if kind == CREATE_TTL:
        path, data, acl = reader.text(), reader.buffer(), read_acls(reader)
        return CreateTtlTxn(path, data, acl, reader.int32(), reader.int64())
    if kind == ERROR:
        return ErrorTxn(reader.int32())
    raise JuteError(f"transaction type {kind} is not known")
