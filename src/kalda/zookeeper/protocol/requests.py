"""Requests of ZooKeeper's client protocol, with the functions that read them.

Reading raises `JuteError` for bytes that are not the record. Only `write_acl` writes, because responses carry
access lists too. The connect request has no header and comes first on a connection; every other request is a
header (request id, operation) and the operation's record.

Versions: the ``readOnly`` byte of the connect request came with ZooKeeper 3.4, containers and TTLs with 3.5,
addWatch, setWatches2, getEphemerals and multiRead with 3.6, whoAmI with 3.7.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from kalda.zookeeper.protocol.jute import (
    INT,
    JuteError,
    Reader,
    write_int,
    write_text,
)
from kalda.zookeeper.protocol.op_codes import OpCode

HEADER: Final = struct.Struct(">ii")
_CONNECT: Final = struct.Struct(">iqiq")
_MULTI_HEADER: Final = struct.Struct(">i?i")
_TEXT_BYTES_MIN: Final = INT.size
_ACL_BYTES_MIN: Final = 12


class AclEntry(NamedTuple):
    """One entry of an access list as the wire carries it."""

    permissions: int
    scheme: str
    id: str


WORLD_ALL: Final = (AclEntry(31, "world", "anyone"),)
"""Grants everything to every client; nearly every create request carries it."""


class ConnectRequest(NamedTuple):
    """The first frame. `read_only` is None from clients before 3.4, whose response has no such field."""

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None


class EmptyRequest(NamedTuple):
    """ping, closeSession and whoAmI, which have no record."""


class PathRequest(NamedTuple):
    """sync, getACL, getAllChildrenNumber, and getEphemerals, whose path is a prefix."""

    path: str


class PathWatchRequest(NamedTuple):
    """exists, getData, getChildren and getChildren2."""

    path: str
    watch: bool


class PathVersionRequest(NamedTuple):
    """delete and check."""

    path: str
    version: int


class PathNumberRequest(NamedTuple):
    """addWatch (`number` is its mode), checkWatches and removeWatches (the kind of watch)."""

    path: str
    number: int


class CreateRequest(NamedTuple):
    """create, create2, createContainer and createTTL; `ttl_ms` is -1 except in createTTL."""

    path: str
    data: bytes | None
    acl: tuple[AclEntry, ...]
    flags: int
    ttl_ms: int = -1


class SetDataRequest(NamedTuple):
    """setData."""

    path: str
    data: bytes | None
    version: int


class SetAclRequest(NamedTuple):
    """setACL."""

    path: str
    acl: tuple[AclEntry, ...]
    version: int


class AuthRequest(NamedTuple):
    """auth: the identity that the client claims; the type is always 0."""

    type: int
    scheme: str
    auth: bytes


class SaslRequest(NamedTuple):
    """sasl."""

    token: bytes


class SetWatchesRequest(NamedTuple):
    """setWatches, and with the last two fields setWatches2: the watches of a reconnected client."""

    relative_zxid: int
    data: tuple[str, ...]
    exist: tuple[str, ...]
    children: tuple[str, ...]
    persistent: tuple[str, ...] = ()
    persistent_recursive: tuple[str, ...] = ()


class ReconfigRequest(NamedTuple):
    """reconfig, which only ensembles serve; it is parsed so that the response can name it."""

    joining: str
    leaving: str
    new_members: str
    config_id: int


class MultiRequest(NamedTuple):
    """multi and multiRead."""

    operations: tuple["tuple[OpCode, RequestRecord]", ...]


RequestRecord: TypeAlias = (
    EmptyRequest
    | PathRequest
    | PathWatchRequest
    | PathVersionRequest
    | PathNumberRequest
    | CreateRequest
    | SetDataRequest
    | SetAclRequest
    | AuthRequest
    | SaslRequest
    | SetWatchesRequest
    | ReconfigRequest
    | MultiRequest
)


def read_connect_request(frame: bytes) -> ConnectRequest:
    """Read a connection's first frame.

    Raises:
        JuteError: it is cut short.
    """
    reader = Reader(frame)
    version, zxid, timeout_ms, session_id = reader.unpack(_CONNECT)
    password = reader.buffer() or b""
    read_only = reader.boolean() if reader.remaining else None
    return ConnectRequest(version, zxid, timeout_ms, session_id, password, read_only)


def read_header(frame: bytes) -> tuple[int, int]:
    """Return a request's id and the number of its operation, which may be unknown.

    Raises:
        JuteError: there are fewer than eight bytes.
    """
    if len(frame) < HEADER.size:
        raise JuteError(f"a request header has {HEADER.size} bytes, {len(frame)} are there")
    xid, op_code = HEADER.unpack_from(frame)
    return xid, op_code


def read_record(op_code: OpCode, frame: bytes) -> RequestRecord:
    """Read the record after the header. Bytes after the record are ignored, as in ZooKeeper.

    Raises:
        JuteError: the bytes are not the operation's record.
    """
    return _READERS[op_code](Reader(frame, HEADER.size))


def read_acl(reader: Reader) -> tuple[AclEntry, ...]:
    """Read an access list; `WORLD_ALL` is recognised by its bytes."""
    if reader.skip(_WORLD_ALL_BYTES):
        return WORLD_ALL
    count = reader.count(_ACL_BYTES_MIN)
    return tuple(AclEntry(reader.int32(), reader.text(), reader.text()) for _ in range(count))


def write_acl(out: bytearray, acl: Iterable[AclEntry]) -> None:
    """Append an access list."""
    entries = tuple(acl)
    write_int(out, len(entries))
    for entry in entries:
        write_int(out, entry.permissions)
        write_text(out, entry.scheme)
        write_text(out, entry.id)


def _world_all_bytes() -> bytes:
    out = bytearray()
    write_acl(out, WORLD_ALL)
    return bytes(out)


_WORLD_ALL_BYTES: Final = _world_all_bytes()


def _read_empty(reader: Reader) -> EmptyRequest:
    return EmptyRequest()


def _read_path(reader: Reader) -> PathRequest:
    return PathRequest(reader.text())


def _read_path_watch(reader: Reader) -> PathWatchRequest:
    return PathWatchRequest(reader.text(), reader.boolean())


def _read_path_version(reader: Reader) -> PathVersionRequest:
    return PathVersionRequest(reader.text(), reader.int32())


def _read_path_number(reader: Reader) -> PathNumberRequest:
    return PathNumberRequest(reader.text(), reader.int32())


def _read_create(reader: Reader) -> CreateRequest:
    return CreateRequest(reader.text(), reader.buffer(), read_acl(reader), reader.int32())


def _read_create_ttl(reader: Reader) -> CreateRequest:
    return CreateRequest(reader.text(), reader.buffer(), read_acl(reader), reader.int32(), reader.int64())


def _read_set_data(reader: Reader) -> SetDataRequest:
    return SetDataRequest(reader.text(), reader.buffer(), reader.int32())


def _read_set_acl(reader: Reader) -> SetAclRequest:
    return SetAclRequest(reader.text(), read_acl(reader), reader.int32())


def _read_auth(reader: Reader) -> AuthRequest:
    return AuthRequest(reader.int32(), reader.text(), reader.buffer() or b"")


def _read_sasl(reader: Reader) -> SaslRequest:
    return SaslRequest(reader.buffer() or b"")


def _read_texts(reader: Reader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(reader.count(_TEXT_BYTES_MIN)))


def _read_set_watches(reader: Reader) -> SetWatchesRequest:
    return SetWatchesRequest(reader.int64(), _read_texts(reader), _read_texts(reader), _read_texts(reader))


def _read_set_watches2(reader: Reader) -> SetWatchesRequest:
    zxid = reader.int64()
    data, exist, children, persistent, recursive = (_read_texts(reader) for _ in range(5))
    return SetWatchesRequest(zxid, data, exist, children, persistent, recursive)


def _read_reconfig(reader: Reader) -> ReconfigRequest:
    return ReconfigRequest(reader.text(), reader.text(), reader.text(), reader.int64())


def _read_multi_of(allowed: frozenset[OpCode]) -> Callable[[Reader], MultiRequest]:
    def read(reader: Reader) -> MultiRequest:
        operations: list[tuple[OpCode, RequestRecord]] = []
        while True:
            number, is_done, _ = reader.unpack(_MULTI_HEADER)
            if is_done:
                return MultiRequest(tuple(operations))
            if number not in allowed:
                raise JuteError(f"operation {number} cannot be part of this multi")
            op_code = OpCode(number)
            operations.append((op_code, _READERS[op_code](reader)))

    return read


_MULTI_WRITES: Final = frozenset(
    {
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.SET_DATA,
        OpCode.CHECK,
    }
)
_MULTI_READS: Final = frozenset({OpCode.GET_DATA, OpCode.GET_CHILDREN})

_READERS: Final[dict[OpCode, Callable[[Reader], RequestRecord]]] = {
    OpCode.CREATE: _read_create,
    OpCode.CREATE2: _read_create,
    OpCode.CREATE_CONTAINER: _read_create,
    OpCode.CREATE_TTL: _read_create_ttl,
    OpCode.DELETE: _read_path_version,
    OpCode.EXISTS: _read_path_watch,
    OpCode.GET_DATA: _read_path_watch,
    OpCode.SET_DATA: _read_set_data,
    OpCode.GET_ACL: _read_path,
    OpCode.SET_ACL: _read_set_acl,
    OpCode.GET_CHILDREN: _read_path_watch,
    OpCode.GET_CHILDREN2: _read_path_watch,
    OpCode.SYNC: _read_path,
    OpCode.PING: _read_empty,
    OpCode.CHECK: _read_path_version,
    OpCode.MULTI: _read_multi_of(_MULTI_WRITES),
    OpCode.MULTI_READ: _read_multi_of(_MULTI_READS),
    OpCode.RECONFIG: _read_reconfig,
    OpCode.CHECK_WATCHES: _read_path_number,
    OpCode.REMOVE_WATCHES: _read_path_number,
    OpCode.AUTH: _read_auth,
    OpCode.SASL: _read_sasl,
    OpCode.SET_WATCHES: _read_set_watches,
    OpCode.SET_WATCHES2: _read_set_watches2,
    OpCode.ADD_WATCH: _read_path_number,
    OpCode.GET_EPHEMERALS: _read_path,
    OpCode.GET_ALL_CHILDREN_NUMBER: _read_path,
    OpCode.WHO_AM_I: _read_empty,
    OpCode.CLOSE_SESSION: _read_empty,
}
assert _READERS.keys() == set(OpCode), "every operation has a reader"
