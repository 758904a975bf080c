"""Encodes requests of ZooKeeper's client protocol, for tests that act as a client."""

import struct
from collections.abc import Callable
from typing import Final

from kalda.zookeeper.protocol.jute import INT, write_buffer, write_int, write_long, write_text
from kalda.zookeeper.protocol.op_codes import ERROR, OpCode
from kalda.zookeeper.protocol.requests import (
    HEADER,
    ConnectRequest,
    CreateRequest,
    MultiRequest,
    ReconfigRequest,
    RequestRecord,
    SetAclRequest,
    SetWatchesRequest,
    write_acl,
)

_CONNECT: Final = struct.Struct(">iqiq")
_MULTI_HEADER: Final = struct.Struct(">i?i")


def frame(payload: bytes) -> bytes:
    """Return a payload with its length before it."""
    return INT.pack(len(payload)) + payload


def write_connect_request(request: ConnectRequest) -> bytes:
    """Return the frame that `read_connect_request` reads."""
    out = bytearray(_CONNECT.pack(*request[:4]))
    write_buffer(out, request.password)
    if request.read_only is not None:
        out.append(request.read_only)
    return bytes(out)


def write_request(xid: int, op_code: OpCode, record: RequestRecord) -> bytes:
    """Return the frame that `read_header` and `read_record` read."""
    out = bytearray(HEADER.pack(xid, op_code))
    _WRITERS.get(op_code, _write_fields)(out, record)
    return bytes(out)


def _write_fields(out: bytearray, record: RequestRecord) -> None:
    """Write a record of texts, buffers, flags and ints."""
    for value in record:
        if isinstance(value, bool):
            out.append(value)
        elif isinstance(value, int):
            write_int(out, value)
        elif isinstance(value, str):
            write_text(out, value)
        else:
            assert isinstance(value, bytes) or value is None, f"{record} needs a writer of its own"
            write_buffer(out, value)


def _write_create(out: bytearray, record: RequestRecord) -> None:
    assert isinstance(record, CreateRequest), f"{record} creates nothing"
    write_text(out, record.path)
    write_buffer(out, record.data)
    write_acl(out, record.acl)
    write_int(out, record.flags)


def _write_create_ttl(out: bytearray, record: RequestRecord) -> None:
    _write_create(out, record)
    assert isinstance(record, CreateRequest), f"{record} creates nothing"
    write_long(out, record.ttl_ms)


def _write_set_acl(out: bytearray, record: RequestRecord) -> None:
    assert isinstance(record, SetAclRequest), f"{record} sets no access list"
    write_text(out, record.path)
    write_acl(out, record.acl)
    write_int(out, record.version)


def _write_set_watches(out: bytearray, record: RequestRecord) -> None:
    assert isinstance(record, SetWatchesRequest), f"{record} sets no watches"
    write_long(out, record.relative_zxid)
    for paths in record[1:4]:
        _write_texts(out, paths)


def _write_set_watches2(out: bytearray, record: RequestRecord) -> None:
    _write_set_watches(out, record)
    assert isinstance(record, SetWatchesRequest), f"{record} sets no watches"
    _write_texts(out, record.persistent)
    _write_texts(out, record.persistent_recursive)


def _write_texts(out: bytearray, texts: tuple[str, ...]) -> None:
    write_int(out, len(texts))
    for text in texts:
        write_text(out, text)


def _write_reconfig(out: bytearray, record: RequestRecord) -> None:
    assert isinstance(record, ReconfigRequest), f"{record} is no reconfig"
    for text in record[:3]:
        write_text(out, text)
    write_long(out, record.config_id)


def _write_multi(out: bytearray, record: RequestRecord) -> None:
    assert isinstance(record, MultiRequest), f"{record} is no multi"
    for op_code, operation in record.operations:
        out += _MULTI_HEADER.pack(op_code, False, -1)
        _WRITERS.get(op_code, _write_fields)(out, operation)
    out += _MULTI_HEADER.pack(ERROR, True, -1)


_WRITERS: Final[dict[OpCode, Callable[[bytearray, RequestRecord], None]]] = {
    OpCode.CREATE: _write_create,
    OpCode.CREATE2: _write_create,
    OpCode.CREATE_CONTAINER: _write_create,
    OpCode.CREATE_TTL: _write_create_ttl,
    OpCode.SET_ACL: _write_set_acl,
    OpCode.MULTI: _write_multi,
    OpCode.MULTI_READ: _write_multi,
    OpCode.RECONFIG: _write_reconfig,
    OpCode.SET_WATCHES: _write_set_watches,
    OpCode.SET_WATCHES2: _write_set_watches2,
}
"""Operations whose records have a writer of their own; `_write_fields` writes the others."""
