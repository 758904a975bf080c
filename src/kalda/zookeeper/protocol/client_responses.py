"""Decodes the responses and watch events that a client of ZooKeeper's protocol receives. Sans-IO.

Every function raises `JuteError` for bytes that are not the record.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kalda.zookeeper.protocol.jute import JuteError, Reader
from kalda.zookeeper.protocol.op_codes import ERROR, OpCode
from kalda.zookeeper.protocol.requests import AclEntry, read_acl
from kalda.zookeeper.protocol.responses import HEADER, STAT

_CONNECT: Final = struct.Struct(">iiq")
_EVENT: Final = struct.Struct(">ii")
_MULTI_HEADER: Final = struct.Struct(">i?i")
_TEXT_BYTES_MIN: Final = 4

RawStat = tuple[int, ...]
"""The fields of a stat, in the order of `STAT`."""


class ConnectResponse(NamedTuple):
    """What a server answers to a connect request; a time-out of 0 means that the session is over."""

    timeout_ms: int
    session_id: int
    password: bytes


class ReplyHeader(NamedTuple):
    """What stands in front of every record; `zxid` is the server's newest transaction, or not above 0."""

    xid: int
    zxid: int
    error: int


def read_connect(frame: bytes) -> ConnectResponse:
    """Read a connection's first frame."""
    reader = Reader(frame)
    _, timeout_ms, session_id = reader.unpack(_CONNECT)
    return ConnectResponse(timeout_ms, session_id, reader.buffer() or b"")


def read_reply(frame: bytes) -> tuple[ReplyHeader, Reader]:
    """Read a header; return it and the reader of the record behind it."""
    reader = Reader(frame)
    xid, zxid, error = reader.unpack(HEADER)
    return ReplyHeader(xid, zxid, error), reader


def read_event(reader: Reader) -> tuple[int, str]:
    """Read a watch event; return the number of its kind and its path."""
    kind, _ = reader.unpack(_EVENT)
    return kind, reader.text()


def read_stat(reader: Reader) -> RawStat:
    """Read the record of exists, setData and setACL."""
    return reader.unpack(STAT)


def read_data(reader: Reader) -> tuple[bytes, RawStat]:
    """Read the record of getData."""
    return reader.buffer() or b"", reader.unpack(STAT)


def read_children(reader: Reader) -> tuple[list[str], RawStat]:
    """Read the record of getChildren2."""
    names = [reader.text() for _ in range(reader.count(_TEXT_BYTES_MIN))]
    return names, reader.unpack(STAT)


def read_access_list(reader: Reader) -> tuple[tuple[AclEntry, ...], RawStat]:
    """Read the record of getACL."""
    return read_acl(reader), reader.unpack(STAT)


def read_token(reader: Reader) -> bytes:
    """Read the record of sasl."""
    return reader.buffer() or b""


MultiOutcome = str | RawStat | None
"""The result of one operation: of create the path, of setData the stat, of the others None."""


class MultiError(NamedTuple):
    """The error code of one operation of a failed multi; 0 is "rolled back"."""

    code: int


def read_multi(reader: Reader) -> Iterator[MultiOutcome | MultiError]:
    """Read the record of multi, one result after the other."""
    while True:
        kind, is_done, _ = reader.unpack(_MULTI_HEADER)
        if is_done:
            return
        if kind == ERROR:
            yield MultiError(reader.int32())
        elif kind == OpCode.CREATE:
            yield reader.text()
        elif kind == OpCode.SET_DATA:
            yield reader.unpack(STAT)
        elif kind in (OpCode.DELETE, OpCode.CHECK):
            yield None
        else:
            raise JuteError(f"operation {kind} has no result in this multi")
