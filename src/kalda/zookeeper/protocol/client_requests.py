"""Encodes the requests of a client of ZooKeeper's protocol. Sans-IO.

A `Request` is an operation and its record; `framed` puts the length and the header in front. Records that
servers read are in `kalda.zookeeper.protocol.requests`.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from kalda.zookeeper.protocol.jute import INT, write_buffer, write_int, write_text
from kalda.zookeeper.protocol.op_codes import ERROR, OpCode
from kalda.zookeeper.protocol.requests import AclEntry, write_acl

PING_XID: Final = -2
"""The request id of every heartbeat."""

EPHEMERAL_FLAG: Final = 1
SEQUENTIAL_FLAG: Final = 2

_FRAMED_HEADER: Final = struct.Struct(">iii")
_FRAMED_CONNECT: Final = struct.Struct(">iiqiq")
_MULTI_HEADER: Final = struct.Struct(">i?i")
_NEW_SESSION_PASSWORD: Final = bytes(16)


class Request(NamedTuple):
    """An operation and its encoded record."""

    op_code: OpCode
    record: bytes = b""


def framed(xid: int, request: Request) -> bytes:
    """Return a request as it is sent."""
    op_code, record = request
    return _FRAMED_HEADER.pack(_FRAMED_HEADER.size - INT.size + len(record), xid, op_code) + record


def connect(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """Return the framed request that opens a session, or resumes the one with this id.

    `last_zxid` is the newest transaction that the client knows; a server behind it refuses the client.
    """
    body = bytearray()
    write_buffer(body, password or _NEW_SESSION_PASSWORD)
    body.append(0)  # not content with a server that only reads
    size = _FRAMED_CONNECT.size - INT.size + len(body)
    return _FRAMED_CONNECT.pack(size, 0, last_zxid, timeout_ms, session_id) + body


def get_data(path: str, *, watch: bool) -> Request:
    """Ask for a znode's data and stat."""
    return Request(OpCode.GET_DATA, _path_watch(path, watch))


def exists(path: str, *, watch: bool) -> Request:
    """Ask for a znode's stat."""
    return Request(OpCode.EXISTS, _path_watch(path, watch))


def get_children(path: str, *, watch: bool) -> Request:
    """Ask for the names of a znode's children and its stat."""
    return Request(OpCode.GET_CHILDREN2, _path_watch(path, watch))


def create(path: str, data: bytes, acl: Iterable[AclEntry], *, ephemeral: bool, sequential: bool) -> Request:
    """Create a znode."""
    out = bytearray()
    write_text(out, path)
    write_buffer(out, data)
    write_acl(out, acl)
    write_int(out, (EPHEMERAL_FLAG if ephemeral else 0) | (SEQUENTIAL_FLAG if sequential else 0))
    return Request(OpCode.CREATE, bytes(out))


def set_data(path: str, data: bytes | None, version: int) -> Request:
    """Replace a znode's data."""
    out = bytearray()
    write_text(out, path)
    write_buffer(out, data)
    write_int(out, version)
    return Request(OpCode.SET_DATA, bytes(out))


def delete(path: str, version: int) -> Request:
    """Delete a znode."""
    return Request(OpCode.DELETE, _path_number(path, version))


def check(path: str, version: int) -> Request:
    """Check a znode's version, in a multi."""
    return Request(OpCode.CHECK, _path_number(path, version))


def get_acl(path: str) -> Request:
    """Ask for a znode's access list and stat."""
    out = bytearray()
    write_text(out, path)
    return Request(OpCode.GET_ACL, bytes(out))


def set_acl(path: str, acl: Iterable[AclEntry], version: int) -> Request:
    """Replace a znode's access list."""
    out = bytearray()
    write_text(out, path)
    write_acl(out, acl)
    write_int(out, version)
    return Request(OpCode.SET_ACL, bytes(out))


def multi(requests: Iterable[Request]) -> Request:
    """Do several writes or none."""
    parts = []
    for op_code, record in requests:
        parts.append(_MULTI_HEADER.pack(op_code, False, ERROR))
        parts.append(record)
    parts.append(_MULTI_HEADER.pack(ERROR, True, ERROR))
    return Request(OpCode.MULTI, b"".join(parts))


def sasl(token: bytes) -> Request:
    """Send a token of a login."""
    out = bytearray()
    write_buffer(out, token)
    return Request(OpCode.SASL, bytes(out))


def _path_watch(path: str, watch: bool) -> bytes:
    out = bytearray()
    write_text(out, path)
    out.append(watch)
    return bytes(out)


def _path_number(path: str, number: int) -> bytes:
    out = bytearray()
    write_text(out, path)
    write_int(out, number)
    return bytes(out)
