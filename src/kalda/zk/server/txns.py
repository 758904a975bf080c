"""Transaction records: what the write-ahead log holds and the data tree applies.

Records and their layout are ZooKeeper's (`TxnHeader` followed by the transaction). A transaction says what
*became* of the tree, never what was asked: a sequential name is complete, a version is the new one; so
applying it needs no decision and cannot fail.
"""

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

from kalda.zk.proto.jute import INT, JuteError, Reader, write_buffer, write_int, write_text

_HEADER: Final = struct.Struct(">qiqqi")

CREATE: Final = 1
DELETE: Final = 2
SET_DATA: Final = 5
CHECK: Final = 13
MULTI: Final = 14
CREATE_SESSION: Final = -10
CLOSE_SESSION: Final = -11


@dataclass(frozen=True, slots=True)
class Acl:
    """One entry of an access list: permission bits, scheme, id."""

    permissions: int
    scheme: str
    id: str


OPEN_ACL: Final = (Acl(31, "world", "anyone"),)
"""Anyone may do anything: ZooKeeper's ``OPEN_ACL_UNSAFE``."""


@dataclass(frozen=True, slots=True)
class CreateTxn:
    """A znode was created. `parent_cversion` is the parent's count of creations with this one."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    ephemeral: bool
    parent_cversion: int


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
class CheckTxn:
    """A version was checked and found right; changes nothing, keeps a place among a multi's results."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class CreateSessionTxn:
    """A session began; a time-out of 0 marks one that lives in the server's process and dies with it."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSessionTxn:
    """A session ended and these ephemeral znodes with it."""

    paths: tuple[str, ...]


NodeTxn: TypeAlias = CreateTxn | DeleteTxn | SetDataTxn | CheckTxn


@dataclass(frozen=True, slots=True)
class MultiTxn:
    """Several changes that happened as one."""

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
    CheckTxn: CHECK,
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
    if isinstance(body, CreateTxn):
        write_text(out, body.path)
        write_buffer(out, body.data)
        out += _OPEN_ACL_BYTES if body.acl is OPEN_ACL else _acl_bytes(body.acl)
        out.append(1 if body.ephemeral else 0)
        write_int(out, body.parent_cversion)
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
            write_buffer(out, bytes(inner))
    elif isinstance(body, CreateSessionTxn):
        write_int(out, body.timeout_ms)
    else:
        write_int(out, len(body.paths))
        for path in body.paths:
            write_text(out, path)


def _read_body(reader: Reader, kind: int) -> TxnBody:
    if kind == MULTI:
        return MultiTxn(tuple(_read_multi_item(reader) for _ in range(reader.count(8))))
    if kind == CREATE_SESSION:
        return CreateSessionTxn(reader.int32())
    if kind == CLOSE_SESSION:
        return CloseSessionTxn(tuple(reader.text() for _ in range(reader.count(INT.size))))
    return _read_node_txn(reader, kind)


def _read_multi_item(reader: Reader) -> NodeTxn:
    kind = reader.int32()
    raw = reader.buffer()
    if raw is None:
        raise JuteError("a transaction of a multi is null")
    return _read_node_txn(Reader(raw), kind)


def _read_node_txn(reader: Reader, kind: int) -> NodeTxn:
    if kind == CREATE:
        path, data = reader.text(), reader.buffer()
        return CreateTxn(path, data, read_acls(reader), reader.boolean(), reader.int32())
    if kind == SET_DATA:
        return SetDataTxn(reader.text(), reader.buffer(), reader.int32())
    if kind == DELETE:
        return DeleteTxn(reader.text())
    if kind == CHECK:
        return CheckTxn(reader.text(), reader.int32())
    raise JuteError(f"transaction type {kind} is not known")
