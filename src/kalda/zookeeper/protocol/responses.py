"""Encodes the responses and watch events of ZooKeeper's client protocol.

A response is a header (request id, newest transaction, error code) and, if the error code is 0, the
operation's record. The functions take plain values, not objects of the server, so that a read costs one
``struct.pack`` and a join.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from kalda.zookeeper.protocol.jute import INT, write_buffer, write_int, write_text
from kalda.zookeeper.protocol.op_codes import ERROR, NOTIFICATION_XID, OK, OpCode
from kalda.zookeeper.protocol.requests import AclEntry, write_acl

HEADER: Final = struct.Struct(">iqi")
_FRAMED_HEADER: Final = struct.Struct(">iiqi")
_CONNECT: Final = struct.Struct(">iiq")
_MULTI_HEADER: Final = struct.Struct(">i?i")
_EVENT: Final = struct.Struct(">ii")

STAT: Final = struct.Struct(">qqqqiiiqiiq")
"""czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren, pzxid."""

SYNC_CONNECTED: Final = 3
"""The keeper state of every watch event."""

NO_ZXID: Final = -1
"""The zxid in the header of an event that belongs to no transaction."""

_MULTI_END: Final = _MULTI_HEADER.pack(ERROR, True, ERROR)


def connect_response(
    timeout_ms: int, session_id: int, password: bytes, *, with_read_only: bool, read_only: bool = False
) -> bytes:
    """Return the framed response to a connect request; time-out and id 0 mean that the session is over."""
    body = bytearray(_CONNECT.pack(0, timeout_ms, session_id))
    write_buffer(body, password)
    if with_read_only:
        body.append(1 if read_only else 0)
    return INT.pack(len(body)) + bytes(body)


def reply(xid: int, zxid: int, error: int = OK, body: bytes = b"") -> bytes:
    """Return a framed response."""
    return _FRAMED_HEADER.pack(HEADER.size + len(body), xid, zxid, error) + body


def reply_header(xid: int, zxid: int, body_bytes: int) -> bytes:
    """Return the start of a framed response whose body follows in pieces of `body_bytes` in total."""
    return _FRAMED_HEADER.pack(HEADER.size + body_bytes, xid, zxid, OK)


def event(kind: int, path: str, zxid: int = NO_ZXID) -> bytes:
    """Return a framed watch event."""
    raw = path.encode()
    size = HEADER.size + _EVENT.size + INT.size + len(raw)
    return (
        _FRAMED_HEADER.pack(size, NOTIFICATION_XID, zxid, OK)
        + _EVENT.pack(kind, SYNC_CONNECTED)
        + INT.pack(len(raw))
        + raw
    )


def path_body(path: str) -> bytes:
    """Return the record of create and sync."""
    raw = path.encode()
    return INT.pack(len(raw)) + raw


def path_stat_body(path: str, stat: bytes) -> bytes:
    """Return the record of create2, createContainer and createTTL; `stat` as packed by `STAT`."""
    return path_body(path) + stat


def data_body(data: bytes | None, stat: bytes) -> bytes:
    """Return the record of getData."""
    if data is None:
        return INT.pack(-1) + stat
    return INT.pack(len(data)) + data + stat


def large_data_body(data: bytes, stat: bytes) -> tuple[bytes, memoryview, bytes]:
    """Return the record of getData in pieces; the data is a view, not a copy."""
    return INT.pack(len(data)), memoryview(data), stat


def texts_body(texts: Iterable[str]) -> bytes:
    """Return the record of getChildren and getEphemerals, and the start of that of getChildren2."""
    parts = [b""]
    for text in texts:
        raw = text.encode()
        parts.append(INT.pack(len(raw)))
        parts.append(raw)
    parts[0] = INT.pack(len(parts) // 2)
    return b"".join(parts)


def acl_body(acl: Iterable[AclEntry], stat: bytes) -> bytes:
    """Return the record of getACL."""
    out = bytearray()
    write_acl(out, acl)
    return bytes(out) + stat


def token_body(token: bytes | None) -> bytes:
    """Return the record of sasl."""
    return INT.pack(-1) if token is None else INT.pack(len(token)) + token


def number_body(number: int) -> bytes:
    """Return the record of getAllChildrenNumber, and of addWatch, whose number is 0."""
    return INT.pack(number)


def client_infos_body(infos: Sequence[tuple[str, str]]) -> bytes:
    """Return the record of whoAmI: scheme and name of each identity."""
    out = bytearray()
    write_int(out, len(infos))
    for scheme, user in infos:
        write_text(out, scheme)
        write_text(out, user)
    return bytes(out)


MultiResult: TypeAlias = tuple[OpCode, bytes] | int
"""An operation's code and record, or its error code."""


def multi_body(results: Iterable[MultiResult]) -> bytes:
    """Return the record of multi and multiRead."""
    parts: list[bytes] = []
    for result in results:
        if isinstance(result, int):
            parts.append(_MULTI_HEADER.pack(ERROR, False, result))
            parts.append(INT.pack(result))
        else:
            op_code, body = result
            parts.append(_MULTI_HEADER.pack(op_code, False, OK))
            parts.append(body)
    parts.append(_MULTI_END)
    return b"".join(parts)
