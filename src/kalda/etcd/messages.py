"""Encodes and decodes the messages of etcd's API (``etcdserverpb``, ``mvccpb``) that this engine needs.

Names and field numbers are those of etcd's ``rpc.proto`` and ``kv.proto``. Requests are functions that return
bytes, since nothing reads them again here; responses are parsed into tuples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kalda.etcd.protobuf import ProtobufError, Value, bytes_field, fields, integer_field, message_field

EQUAL: Final = 0
GREATER: Final = 1

VERSION: Final = 0
CREATE: Final = 1
MOD: Final = 2
LEASE: Final = 4
SORT_BY_VALUE: Final = 4
_FIELD_OF_TARGET: Final = {VERSION: 4, CREATE: 5, MOD: 6, LEASE: 8}


@dataclass(slots=True)
class KeyValue:
    """A key of etcd; `version` counts its changes from 1, and the creation is the first."""

    key: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    value: bytes = b""
    lease: int = 0


@dataclass(slots=True)
class RangeResponse:
    """Keys of a range, and how many there are in it."""

    kvs: list[KeyValue] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class PutResponse:
    """`previous` is what a put with `previous` replaced."""

    previous: KeyValue | None = None


@dataclass(slots=True)
class DeleteResponse:
    """How many keys a deletion found."""

    deleted: int = 0


@dataclass(slots=True)
class TxnResponse:
    """Which branch of a transaction ran, and the responses of its operations."""

    succeeded: bool = False
    responses: "list[OpResponse]" = field(default_factory=list)
    revision: int = 0
    """Of the store after it; an inner transaction has none."""


OpResponse: TypeAlias = RangeResponse | PutResponse | DeleteResponse | TxnResponse


@dataclass(slots=True)
class Event:
    """One change of a key; a deletion's `kv` has only the key and the revision of the deletion."""

    is_deletion: bool
    kv: KeyValue


@dataclass(slots=True)
class WatchResponse:
    """A message of a watch stream."""

    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[Event] = field(default_factory=list)


# Requests.


def range_op(
    key: bytes, end: bytes = b"", *, keys_only: bool = False, count_only: bool = False, revision: int = 0
) -> bytes:
    """Return the operation that reads a key, or those in [key, end).

    With `keys_only` a key comes without its value, and those of a range without their leases, too: etcd 3.7
    reads them from its index (etcd issue 22209), unless they are to be sorted by value.
    """
    request = (
        bytes_field(1, key)
        + bytes_field(2, end)
        + integer_field(4, revision)
        + integer_field(6, SORT_BY_VALUE if keys_only and not end else 0)
        + integer_field(8, keys_only)
        + integer_field(9, count_only)
    )
    return message_field(1, request)


def put_op(
    key: bytes, value: bytes, *, lease: int = 0, previous: bool = False, keeps_lease: bool = False
) -> bytes:
    """Return the operation that writes a key; with `keeps_lease` it must exist."""
    request = (
        bytes_field(1, key)
        + bytes_field(2, value)
        + integer_field(3, lease)
        + integer_field(4, previous)
        + integer_field(6, keeps_lease)
    )
    return message_field(2, request)


def delete_op(key: bytes) -> bytes:
    """Return the operation that deletes a key."""
    return message_field(3, bytes_field(1, key))


def txn_op(request: bytes) -> bytes:
    """Return a transaction as an operation of another one."""
    return message_field(4, request)


def compare(result: int, target: int, key: bytes, value: int, end: bytes = b"") -> bytes:
    """Return a condition on a key, or on each key in [key, end): it holds where there is none."""
    return (
        integer_field(1, result)
        + integer_field(2, target)
        + bytes_field(3, key)
        + integer_field(_FIELD_OF_TARGET[target], value)
        + bytes_field(64, end)
    )


def txn(compares: Sequence[bytes], success: Sequence[bytes], failure: Sequence[bytes] = ()) -> bytes:
    """Return a transaction: `success` if all conditions hold, else `failure`."""
    return b"".join(
        message_field(number, each)
        for number, many in ((1, compares), (2, success), (3, failure))
        for each in many
    )


def lease_grant(ttl_seconds: int) -> bytes:
    """Return the request for a lease, whose id etcd chooses."""
    return integer_field(1, ttl_seconds)


def lease_id(lease: int) -> bytes:
    """Return the request to revoke a lease, or to keep it alive."""
    return integer_field(1, lease)


def authenticate(user: str, password: str) -> bytes:
    """Return the request for a token."""
    return bytes_field(1, user.encode()) + bytes_field(2, password.encode())


def watch_create(key: bytes, end: bytes, start_revision: int) -> bytes:
    """Return the request to watch the keys in [key, end) from a revision on."""
    request = bytes_field(1, key) + bytes_field(2, end) + integer_field(3, start_revision)
    return message_field(1, request)


# Responses; all of them raise ProtobufError for bytes that are none.


def read_txn(data: bytes) -> TxnResponse:
    """Parse the response of a transaction."""
    response = TxnResponse()
    for number, value in fields(data):
        if number == 1:
            response.revision = _read_revision(_bytes(value))
        elif number == 2:
            response.succeeded = bool(value)
        elif number == 3:
            response.responses.append(_read_op(_bytes(value)))
    return response


def read_lease_grant(data: bytes) -> tuple[int, int]:
    """Parse the response of a grant, or of a keep-alive: id and seconds to live; 0 seconds: it is gone."""
    lease = ttl = 0
    for number, value in fields(data):
        if number == 2:
            lease = _integer(value)
        elif number == 3:
            ttl = _integer(value)
    return lease, ttl


def read_token(data: bytes) -> str:
    """Parse the response of a login."""
    return next((_bytes(value).decode() for number, value in fields(data) if number == 2), "")


def read_watch(data: bytes) -> WatchResponse:
    """Parse a message of a stream of watches."""
    response = WatchResponse()
    for number, value in fields(data):
        if number == 3:
            response.created = bool(value)
        elif number == 4:
            response.canceled = bool(value)
        elif number == 5:
            response.compact_revision = _integer(value)
        elif number == 6:
            response.cancel_reason = _bytes(value).decode(errors="replace")
        elif number == 11:
            response.events.append(_read_event(_bytes(value)))
    return response


def _read_event(data: bytes) -> Event:
    event = Event(is_deletion=False, kv=KeyValue())
    for number, value in fields(data):
        if number == 1:
            event.is_deletion = value == 1
        elif number == 2:
            event.kv = _read_key_value(_bytes(value))
    return event


def _read_op(data: bytes) -> OpResponse:
    for number, value in fields(data):
        if number in _READERS:
            return _READERS[number](_bytes(value))
    raise ProtobufError("the response of an operation is none of range, put, delete, transaction")


def _read_range(data: bytes) -> RangeResponse:
    response = RangeResponse()
    for number, value in fields(data):
        if number == 2:
            response.kvs.append(_read_key_value(_bytes(value)))
        elif number == 4:
            response.count = _integer(value)
    return response


def _read_put(data: bytes) -> PutResponse:
    return PutResponse(
        next((_read_key_value(_bytes(value)) for number, value in fields(data) if number == 2), None)
    )


def _read_delete(data: bytes) -> DeleteResponse:
    return DeleteResponse(next((_integer(value) for number, value in fields(data) if number == 2), 0))


_READERS: Final[dict[int, Callable[[bytes], OpResponse]]] = {
    1: _read_range,
    2: _read_put,
    3: _read_delete,
    4: read_txn,
}


def _read_key_value(data: bytes) -> KeyValue:
    kv = KeyValue()
    for number, value in fields(data):
        if number == 1:
            kv.key = _bytes(value)
        elif number == 2:
            kv.create_revision = _integer(value)
        elif number == 3:
            kv.mod_revision = _integer(value)
        elif number == 4:
            kv.version = _integer(value)
        elif number == 5:
            kv.value = _bytes(value)
        elif number == 6:
            kv.lease = _integer(value)
    return kv


def _read_revision(header: bytes) -> int:
    return next((_integer(value) for number, value in fields(header) if number == 3), 0)


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ProtobufError(f"a number ({value}) stands where a message or text belongs")
    return value


def _integer(value: Value) -> int:
    if isinstance(value, bytes):
        raise ProtobufError(f"{len(value)} bytes stand where a number belongs")
    return value
