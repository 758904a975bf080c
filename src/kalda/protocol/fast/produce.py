"""Parses Produce requests (key 0, versions 0-13) and builds the responses, without message objects.

A request becomes a `ProduceRequestFields` whose records are views into the frame, which the log patches and
writes in place. Topic names stay bytes, and so do the ids that replace them: the broker looks partitions up
by them.

What the versions changed: 3 adds the transactional id; 9 is flexible; 13 has topic ids (KIP-516). Responses:
1 throttle time, 2 log append time, 5 log start offset, 8 record errors and message (KIP-467), 9 flexible, 10
current leader and node endpoints as tagged fields (KIP-951).
"""

import struct
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeGuard

from kalda.protocol.fast.implementation import is_compiled
from kalda.protocol.fast.wire import (
    ELEMENTS_MAX,
    INT16,
    INT32,
    NodeEndpoint,
    append_node_endpoints,
    append_nullable_string,
    read_array_count,
    read_string,
    read_text,
    read_unsigned_varint,
    skip_tagged_fields,
    write_unsigned_varint,
)
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.wire_format import take_elements

if TYPE_CHECKING or is_compiled:
    from kalda.protocol.fast import _requests

TRANSACTIONAL_ID_FROM: Final = 3
FLEXIBLE_FROM: Final = 9
"""The first version with compact strings and tagged fields, and so with a version 1 response header."""
TOPIC_IDS_FROM: Final = 13
"""The first version that names topics by id."""
TOPIC_ID_SIZE: Final = 16

PARTITIONS_MAX: Final = 25_000
"""Partitions of one request. A producer with the default `max.request.size` of 1 MB has room for 14,000."""

_ACKS_TIMEOUT: Final = Struct(">hi")
_INDEX_SIZE: Final = Struct(">ii")


_NONE_TWICE: Final[set[tuple[bytes, int]]] = set()


class ProduceRequestFields:
    """One Produce request.

    `topics` holds ``(name or id, [(partition index, records or None), ...])`` in the request's order.
    """

    __slots__ = ("acks", "partition_count", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self,
        transactional_id: bytes | None,
        acks: int,
        timeout_ms: int,
        topics: list[tuple[bytes, list[tuple[int, memoryview | None]]]],
        partition_count: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics
        self.partition_count: Final = partition_count
        """How many partitions the request names, those that it names twice included."""

    def named_twice(self) -> set[tuple[bytes, int]]:
        """Return the partitions that the request names more than once."""
        topics = self.topics
        if len(topics) == 1 or len(dict(topics)) == len(topics):
            for _, partitions in topics:
                if len(partitions) > 1 and len(dict(partitions)) != len(partitions):
                    break
            else:
                return _NONE_TWICE
        seen: set[tuple[bytes, int]] = set()
        twice: set[tuple[bytes, int]] = set()
        for name, partitions in topics:
            for index, _ in partitions:
                (twice if (name, index) in seen else seen).add((name, index))
        return twice


class PartitionProduceResult(NamedTuple):
    """The answer for one partition; the defaults are those of an error."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    """Batch index and message of each record that made the batch fail (KIP-467)."""
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """Leader id and epoch, sent with NOT_LEADER_OR_FOLLOWER (KIP-951)."""


Usual: TypeAlias = tuple[int, int, bytes, int, memoryview, bool]
"""A request with one partition and without a transactional id: acks, timeout in milliseconds, topic, index of
the partition, records, and whether these are known to be one batch of format 2, neither transactional nor
compressed by zstd (plain Python does not look). From version 13 on, the topic is the 16 bytes of its id."""


def parse_produce_request(frame: memoryview, position: int, version: int) -> ProduceRequestFields:
    """Read the body of a Produce request that begins at `position`; bytes behind it are passed over.

    Raises:
        ProtocolError: the bytes are not a request of this version.
    """
    usual = parse_usual(frame, position, version)
    return parse_general(frame, position, version) if usual is None else as_fields(usual)


def parse_general(frame: memoryview, position: int, version: int) -> ProduceRequestFields:
    """Read any request as `parse_produce_request` does; for callers that tried `parse_usual` before."""
    if is_compiled:
        found = _requests.parse_produce_topics(frame, position, version)
        if found is not None:
            return ProduceRequestFields(*found)
    try:
        return _parse(frame, position, version)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"produce request v{version} ends too early: {error}") from None


def parse_usual(frame: memoryview, position: int, version: int) -> Usual | None:
    """Read the body of the usual request, which most producers send; None for any other.

    The records are a view into the frame. A request with a transactional id, several partitions or null
    instead of records is not a usual one, nor is one that cannot be parsed.
    """
    if is_compiled:
        return _requests.parse_produce(frame, position, version)
    if version < TRANSACTIONAL_ID_FROM:
        return None
    try:
        if version >= FLEXIBLE_FROM:
            return _parse_usual_flexible(frame, position, version)
        return _parse_usual(frame, position)
    except (struct.error, IndexError):
        # What is missing is found again by the parser of all requests.
        return None


def as_fields(usual: Usual) -> ProduceRequestFields:
    """Return a usual request in the form of all requests."""
    acks, timeout_ms, name, index, records, _ = usual
    return ProduceRequestFields(None, acks, timeout_ms, [(name, [(index, records)])], 1)


# No transactional id, acks, timeout, one topic, length of its name; then one partition, its index and size.
_USUAL_HEAD: Final = Struct(">hhiih")
_USUAL_TOPIC: Final = Struct(">iii")
_USUAL_FLEXIBLE_HEAD: Final = Struct(">BhiB")
_USUAL_FLEXIBLE_TOPIC: Final = Struct(">Bi")


def _parse_usual(frame: memoryview, position: int) -> Usual | None:
    """Parse a request of versions 3-8 with one partition and without a transactional id; None for any other.

    Raises:
        struct.error: the frame ends too early.
    """
    absent, acks, timeout_ms, topics, length = _USUAL_HEAD.unpack_from(frame, position)
    if absent != -1 or topics != 1 or length < 0:
        return None
    begin = position + 14
    end = begin + length
    partitions, index, size = _USUAL_TOPIC.unpack_from(frame, end)
    start = end + 12
    stop = start + size
    if partitions != 1 or size < 0 or stop > len(frame):
        return None
    return acks, timeout_ms, bytes(frame[begin:end]), index, frame[start:stop], False


def _parse_usual_flexible(frame: memoryview, position: int, version: int) -> Usual | None:
    """Parse a flexible request with one partition and without a transactional id; None for any other.

    Raises:
        struct.error, IndexError: the frame ends too early.
    """
    absent, acks, timeout_ms, topics = _USUAL_FLEXIBLE_HEAD.unpack_from(frame, position)
    # Counts and lengths are one more than they mean, and varints of one byte here.
    if absent or topics != 2:
        return None
    if version >= TOPIC_IDS_FROM:
        begin = position + 8
        end = begin + TOPIC_ID_SIZE
    else:
        length = frame[position + 8]
        if not 0 < length < 0x80:
            return None
        begin = position + 9
        end = begin + length - 1
    partitions, index = _USUAL_FLEXIBLE_TOPIC.unpack_from(frame, end)
    size, start = read_unsigned_varint(frame, end + 5)
    stop = start + size - 1
    # Three sections of tagged fields end the partition, the topic and the request.
    if partitions != 2 or not size or frame[stop] or frame[stop + 1] or frame[stop + 2]:
        return None
    return acks, timeout_ms, bytes(frame[begin:end]), index, frame[start:stop], False


def _parse(frame: memoryview, position: int, version: int) -> ProduceRequestFields:
    limit = len(frame)
    flexible = version >= FLEXIBLE_FROM
    transactional_id = None
    if version >= TRANSACTIONAL_ID_FROM:
        transactional_id, position = read_string(frame, position, limit, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_array_count(frame, position + 6, limit, flexible)
    room = take_elements(ELEMENTS_MAX, topic_count, ELEMENTS_MAX)
    named = 0
    topics: list[tuple[bytes, list[tuple[int, memoryview | None]]]] = []
    read_partition = _flexible_partition if flexible else _partition
    for _ in range(topic_count):
        if version >= TOPIC_IDS_FROM:
            name, position = _topic_id(frame, position, limit)
        else:
            name, position = read_text(frame, position, limit, flexible)
        partition_count, position = read_array_count(frame, position, limit, flexible)
        room = take_elements(room, partition_count, ELEMENTS_MAX)
        named += partition_count
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            partition, position = read_partition(frame, position, limit)
            partitions.append(partition)
            if flexible:
                position, room = skip_tagged_fields(frame, position, limit, room)
        if flexible:
            position, room = skip_tagged_fields(frame, position, limit, room)
        topics.append((name, partitions))
    if flexible:
        skip_tagged_fields(frame, position, limit, room)
    if named > PARTITIONS_MAX:
        raise ProtocolError(f"it names {named} partitions, more than {PARTITIONS_MAX}")
    return ProduceRequestFields(transactional_id, acks, timeout_ms, topics, named)


def is_plain(records: memoryview | None) -> TypeGuard[memoryview]:
    """Return whether records are known to be one batch that every version may carry; see `Usual`."""
    return is_compiled and _requests.is_plain_records(records)


def _topic_id(frame: memoryview, position: int, limit: int) -> tuple[bytes, int]:
    end = position + TOPIC_ID_SIZE
    if end > limit:
        raise ProtocolError("a topic id passes the end of the request")
    return bytes(frame[position:end]), end


def _partition(frame: memoryview, position: int, limit: int) -> tuple[tuple[int, memoryview | None], int]:
    index, size = _INDEX_SIZE.unpack_from(frame, position)
    position += 8
    if size < 0:
        if size < -1:
            raise ProtocolError(f"records size {size} is negative")
        return (index, None), position
    end = position + size
    if end > limit:
        raise ProtocolError(f"records of {size} bytes pass the end of the request")
    return (index, frame[position:end]), end


def _flexible_partition(
    frame: memoryview, position: int, limit: int
) -> tuple[tuple[int, memoryview | None], int]:
    (index,) = INT32.unpack_from(frame, position)
    size, position = read_unsigned_varint(frame, position + 4)
    records = None
    if size:
        end = position + size - 1
        if end > limit:
            raise ProtocolError(f"records of {size - 1} bytes pass the end of the request")
        records = frame[position:end]
        position = end
    return (index, records), position


# The response of the most frequent request: one partition, no error. Size, correlation id, (tags,) then the
# counts and the name follow in the middle.
_SINGLE_TAIL: Final = {
    0: Struct(">iihq"),
    1: Struct(">iihqi"),
    2: Struct(">iihqqi"),
    5: Struct(">iihqqqi"),
    8: Struct(">iihqqqihi"),
}
_SINGLE_HEAD: Final = Struct(">iiih")
_SINGLE_FLEXIBLE_HEAD: Final = Struct(">iiBB")
_NO_LENGTH: Final = b""
"""What stands before a topic id, where a name has its length."""
_SINGLE_FLEXIBLE_TAIL: Final = Struct(">BihqqqBBBBiB")


def single_success_response(
    correlation_id: int,
    version: int,
    topic: bytes,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """Build the whole response frame, size included, of a request with one partition that succeeded.

    `topic` is what the request named: a name, or the bytes of an id from version 13 on.
    """
    if is_compiled:
        reply = _requests.single_success(
            correlation_id, version, topic, index, base_offset, log_append_time_ms, log_start_offset
        )
        if reply is not None:
            return reply
    length = len(topic)
    if version >= 9:
        name_length = write_unsigned_varint(length + 1) if version < TOPIC_IDS_FROM else _NO_LENGTH
        head = _SINGLE_FLEXIBLE_HEAD.pack(46 + len(name_length) + length, correlation_id, 0, 2)
        tail = _SINGLE_FLEXIBLE_TAIL.pack(
            2, index, 0, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0
        )
        return b"".join((head, name_length, topic, tail))
    if version >= 8:
        tail = _SINGLE_TAIL[8].pack(1, index, 0, base_offset, log_append_time_ms, log_start_offset, 0, -1, 0)
    elif version >= 5:
        tail = _SINGLE_TAIL[5].pack(1, index, 0, base_offset, log_append_time_ms, log_start_offset, 0)
    elif version >= 2:
        tail = _SINGLE_TAIL[2].pack(1, index, 0, base_offset, log_append_time_ms, 0)
    elif version == 1:
        tail = _SINGLE_TAIL[1].pack(1, index, 0, base_offset, 0)
    else:
        tail = _SINGLE_TAIL[0].pack(1, index, 0, base_offset)
    return b"".join((_SINGLE_HEAD.pack(10 + length + len(tail), correlation_id, 1, length), topic, tail))


def produce_response(
    correlation_id: int,
    version: int,
    topics: list[tuple[bytes, list[PartitionProduceResult]]],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: tuple[NodeEndpoint, ...] = (),
) -> bytes:
    """Build the whole response frame, size included."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(4)
    out += INT32.pack(correlation_id)
    if flexible:
        out.append(0)
        out += write_unsigned_varint(len(topics) + 1)
    else:
        out += INT32.pack(len(topics))
    for name, partitions in topics:
        if flexible:
            if version < TOPIC_IDS_FROM:
                out += write_unsigned_varint(len(name) + 1)
            out += name
            out += write_unsigned_varint(len(partitions) + 1)
        else:
            out += INT16.pack(len(name))
            out += name
            out += INT32.pack(len(partitions))
        for partition in partitions:
            if flexible and partition[5:] == _PLAIN_REST:
                out += _FLEXIBLE.pack(*partition[:5], 1, 0, 0)
            else:
                _append_partition(out, version, partition)
        if flexible:
            out.append(0)
    if version >= 1:
        out += INT32.pack(throttle_time_ms)
    if flexible:
        append_node_endpoints(out, node_endpoints if version >= 10 else ())
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


_FLEXIBLE: Final = Struct(">ihqqqBBB")
"""An answer of the flexible versions without record errors, message and leader."""
_PLAIN_REST: Final = ((), None, None)
_PARTITION_HEAD: Final = Struct(">ihq")
_LEADER_AND_EPOCH: Final = Struct(">iiB")


def _append_partition(out: bytearray, version: int, result: PartitionProduceResult) -> None:
    out += _PARTITION_HEAD.pack(result.partition, result.error_code, result.base_offset)
    if version >= 2:
        out += result.log_append_time_ms.to_bytes(8, "big", signed=True)
    if version >= 5:
        out += result.log_start_offset.to_bytes(8, "big", signed=True)
    flexible = version >= FLEXIBLE_FROM
    if version >= 8:
        errors = result.record_errors
        out += write_unsigned_varint(len(errors) + 1) if flexible else INT32.pack(len(errors))
        for batch_index, message in errors:
            out += INT32.pack(batch_index)
            append_nullable_string(out, message, flexible)
            if flexible:
                out.append(0)
        append_nullable_string(out, result.error_message, flexible)
    if flexible:
        if version >= 10 and result.current_leader is not None:
            out += b"\x01\x00\x09"
            out += _LEADER_AND_EPOCH.pack(*result.current_leader, 0)
        else:
            out.append(0)
