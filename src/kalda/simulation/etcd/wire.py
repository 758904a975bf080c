"""Decodes etcd's requests and encodes its responses, the inverse of `kalda.etcd.messages`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kalda.etcd.messages import SORT_BY_VALUE, Event, KeyValue
from kalda.etcd.protobuf import Value, bytes_field, fields, integer_field, message_field


@dataclass(slots=True)
class Range:
    """Reads a key, or those in [key, end)."""

    key: bytes = b""
    end: bytes = b""
    revision: int = 0
    keys_only: bool = False
    count_only: bool = False
    is_by_value: bool = False
    """Whether the keys are sorted by their values."""


@dataclass(slots=True)
class Put:
    """Writes a key."""

    key: bytes = b""
    value: bytes = b""
    lease: int = 0
    previous: bool = False
    keeps_lease: bool = False


@dataclass(slots=True)
class DeleteRange:
    """Deletes a key."""

    key: bytes = b""


@dataclass(slots=True)
class Compare:
    """A condition on a key, or on each in [key, end)."""

    result: int = 0
    target: int = 0
    key: bytes = b""
    value: int = 0
    end: bytes = b""


@dataclass(slots=True)
class Txn:
    """Conditions, and what is done if all hold, or else."""

    compares: list[Compare] = field(default_factory=list)
    success: "list[Operation]" = field(default_factory=list)
    failure: "list[Operation]" = field(default_factory=list)


Operation: TypeAlias = Range | Put | DeleteRange | Txn


# Requests.


def read_txn(data: bytes) -> Txn:
    """Parse a transaction."""
    txn = Txn()
    for number, value in fields(data):
        if number == 1:
            txn.compares.append(_read_compare(_bytes(value)))
        else:
            (txn.success if number == 2 else txn.failure).append(_read_operation(_bytes(value)))
    return txn


def read_number(data: bytes) -> int:
    """Parse a message with one number: a lease, or the seconds of a new one."""
    return next((_integer(value) for number, value in fields(data) if number == 1), 0)


def read_watch(data: bytes) -> tuple[bytes, bytes, int]:
    """Parse the creation of a watch: key, end and the first revision."""
    create = next(_bytes(value) for number, value in fields(data) if number == 1)
    found = dict(fields(create))
    return _bytes(found.get(1, b"")), _bytes(found.get(2, b"")), _integer(found.get(3, 0))


def _read_operation(data: bytes) -> Operation:
    ((number, value),) = fields(data)
    body = _bytes(value)
    if number == 4:
        return read_txn(body)
    found = dict(fields(body))
    key = _bytes(found.get(1, b""))
    if number == 1:
        return Range(
            key,
            _bytes(found.get(2, b"")),
            _integer(found.get(4, 0)),
            bool(found.get(8)),
            bool(found.get(9)),
            found.get(6) == SORT_BY_VALUE,
        )
    if number == 2:
        return Put(
            key, _bytes(found.get(2, b"")), _integer(found.get(3, 0)), bool(found.get(4)), bool(found.get(6))
        )
    return DeleteRange(key)


def _read_compare(data: bytes) -> Compare:
    found = dict(fields(data))
    target = _integer(found.get(2, 0))
    # The field of the union has the number of the target.
    value = _integer(found.get({0: 4, 1: 5, 2: 6}.get(target, 8), 0))
    return Compare(
        _integer(found.get(1, 0)), target, _bytes(found.get(3, b"")), value, _bytes(found.get(64, b""))
    )


def _bytes(value: Value) -> bytes:
    assert isinstance(value, bytes), f"{value!r} is no message"
    return value


def _integer(value: Value) -> int:
    assert isinstance(value, int), f"{value!r} is no number"
    return value


# Responses.


def header(revision: int) -> bytes:
    """Encode the header of every response, as its first field."""
    return message_field(1, integer_field(3, revision))


def range_response(kvs: Sequence[KeyValue], count: int) -> bytes:
    """Encode the response of a read, as an operation's."""
    body = b"".join(message_field(2, key_value(kv)) for kv in kvs) + integer_field(4, count)
    return message_field(1, body)


def put_response(previous: KeyValue | None) -> bytes:
    """Encode the response of a put, as an operation's."""
    return message_field(2, b"" if previous is None else message_field(2, key_value(previous)))


def delete_response(deleted: int) -> bytes:
    """Encode the response of a deletion, as an operation's."""
    return message_field(3, integer_field(2, deleted))


def txn_response(succeeded: bool, responses: Sequence[bytes]) -> bytes:
    """Encode the response of a transaction, without a header."""
    return integer_field(2, succeeded) + b"".join(message_field(3, each) for each in responses)


def lease_response(lease: int, ttl: int) -> bytes:
    """Encode the response of a grant or a keep-alive."""
    return integer_field(2, lease) + integer_field(3, ttl)


def watch_created() -> bytes:
    """Encode the message that says that a watch is set."""
    return integer_field(3, 1)


def watch_compacted(revision: int) -> bytes:
    """Encode the message that ends a watch whose revisions are gone."""
    return integer_field(4, 1) + integer_field(5, revision)


def watch_events(events: Sequence[Event]) -> bytes:
    """Encode events of a watch."""
    return b"".join(
        message_field(11, integer_field(1, event.is_deletion) + message_field(2, key_value(event.kv)))
        for event in events
    )


def key_value(kv: KeyValue) -> bytes:
    """Encode a key."""
    return (
        bytes_field(1, kv.key)
        + integer_field(2, kv.create_revision)
        + integer_field(3, kv.mod_revision)
        + integer_field(4, kv.version)
        + bytes_field(5, kv.value)
        + integer_field(6, kv.lease)
    )
