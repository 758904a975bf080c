"""Parses Fetch requests (key 1, versions 0-17) and builds the responses, without message objects.

A topic is known by a key: its name's bytes up to version 12, the 16 bytes of its id from version 13. A
response is a list of chunks: header bytes and, between them, the records of each partition as the log gave
them.

What the versions changed. Requests: 3 max bytes, 4 isolation level, 5 log start offset, 7 sessions
(KIP-227), 9 current leader epoch, 11 rack id, 12 flexible with last fetched epoch and the cluster id tag, 13
topic ids (KIP-516), 15 replica state tag instead of the replica id (KIP-903), 17 directory id tag, 18 high
watermark tag.
Responses: 1 throttle time, 4 last stable offset and aborted transactions, 5 log start offset, 7 error and
session id, 11 preferred replica, 12 flexible with diverging epoch and leader tags, 13 topic ids, 16 node
endpoints tag (KIP-951).
"""

import struct
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kalda.protocol.fast.implementation import is_compiled
from kalda.protocol.fast.wire import (
    ELEMENTS_MAX,
    INT16,
    INT32,
    INT64,
    NodeEndpoint,
    append_node_endpoints,
    read_array_count,
    read_string,
    read_tag,
    read_text,
    read_unsigned_varint,
    skip_tagged_fields,
    write_unsigned_varint,
)
from kalda.protocol.fetch_session import FINAL_EPOCH, INVALID_SESSION_ID, TOPIC_IDS_FROM
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.wire_format import take_elements

if TYPE_CHECKING or is_compiled:
    from kalda.protocol.fast import _requests

FLEXIBLE_FROM: Final = 12
"""The first version with compact strings and tagged fields, and so with a version 1 response header."""

MAX_BYTES_UNLIMITED: Final = 0x7FFFFFFF


class SizedRecords(Protocol):
    """Records that know their size: bytes in a file, or in memory."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...


class FetchPartitionFields(NamedTuple):
    """One partition of a request."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequestFields:
    """One Fetch request.

    `topics` holds ``(key, [partition, ...])`` and `forgotten` holds ``(key, [index, ...])``, in the request's
    order; a key is the topic's name, from version 13 its id.
    """

    __slots__ = (
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(self) -> None:
        self.replica_id = -1
        self.replica_epoch = -1
        self.max_wait_ms = 0
        self.min_bytes = 0
        self.max_bytes = MAX_BYTES_UNLIMITED
        self.isolation_level = 0
        self.session_id = INVALID_SESSION_ID
        self.session_epoch = FINAL_EPOCH
        self.topics: list[tuple[bytes, list[FetchPartitionFields]]] = []
        self.forgotten: list[tuple[bytes, list[int]]] = []
        self.rack_id = b""


class PartitionFetchResult(NamedTuple):
    """The answer for one partition; the defaults are those of an error."""

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """Producer id and first offset of each transaction that a read_committed reader must skip."""
    preferred_read_replica: int = -1
    records: SizedRecords | None = None
    """None is sent as no bytes, which every client takes for "nothing new"."""
    diverging_epoch: tuple[int, int] | None = None
    """Epoch and end offset, for a follower that must truncate (KIP-595)."""
    current_leader: tuple[int, int] | None = None
    """Leader id and epoch, sent with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951)."""


def parse_fetch_request(frame: memoryview, position: int, version: int) -> FetchRequestFields:
    """Read the body of a Fetch request that begins at `position`; bytes behind it are passed over.

    Raises:
        ProtocolError: the bytes are not a request of this version.
    """
    if is_compiled and version >= TOPIC_IDS_FROM:
        found = _requests.parse_fetch(frame, position, version, FetchPartitionFields._make)
        if found is not None:
            fields = FetchRequestFields()
            (
                fields.replica_id,
                fields.replica_epoch,
                fields.max_wait_ms,
                fields.min_bytes,
                fields.max_bytes,
                fields.isolation_level,
                fields.session_id,
                fields.session_epoch,
                fields.topics,
                fields.rack_id,
            ) = found
            return fields
    return _parse(frame, position, version)


def _parse(frame: memoryview, position: int, version: int) -> FetchRequestFields:
    """Read any request."""
    fields = FetchRequestFields()
    try:
        position = _read_head(frame, position, version, fields)
        position, room = _read_topics(frame, position, version, fields)
        limit = len(frame)
        flexible = version >= FLEXIBLE_FROM
        if version >= 7:
            position, room = _read_forgotten(frame, position, version, fields, room)
        if version >= 11:
            fields.rack_id, position = read_text(frame, position, limit, flexible)
        if flexible and frame[position] != 0:
            _read_tags(frame, position, version, fields, room)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"fetch request v{version} ends too early: {error}") from None
    return fields


_HEAD_V0: Final = Struct(">iii")
_HEAD_V7: Final = Struct(">iiiibii")
_HEAD_V15: Final = Struct(">iiibii")


def _read_head(frame: memoryview, position: int, version: int, fields: FetchRequestFields) -> int:
    if version >= 15:
        (
            fields.max_wait_ms,
            fields.min_bytes,
            fields.max_bytes,
            fields.isolation_level,
            fields.session_id,
            fields.session_epoch,
        ) = _HEAD_V15.unpack_from(frame, position)
        return position + 21
    if version >= 7:
        (
            fields.replica_id,
            fields.max_wait_ms,
            fields.min_bytes,
            fields.max_bytes,
            fields.isolation_level,
            fields.session_id,
            fields.session_epoch,
        ) = _HEAD_V7.unpack_from(frame, position)
        return position + 25
    fields.replica_id, fields.max_wait_ms, fields.min_bytes = _HEAD_V0.unpack_from(frame, position)
    position += 12
    if version >= 3:
        (fields.max_bytes,) = INT32.unpack_from(frame, position)
        position += 4
    if version >= 4:
        fields.isolation_level = frame[position] - 256 if frame[position] > 127 else frame[position]
        position += 1
    return position


def _read_topics(
    frame: memoryview, position: int, version: int, fields: FetchRequestFields
) -> tuple[int, int]:
    """Return the position after the topics, and how many more elements the request may have."""
    limit = len(frame)
    flexible = version >= FLEXIBLE_FROM
    topic_count, position = read_array_count(frame, position, limit, flexible)
    room = take_elements(ELEMENTS_MAX, topic_count, ELEMENTS_MAX)
    for _ in range(topic_count):
        key, position = _read_topic_key(frame, position, limit, version)
        partition_count, position = read_array_count(frame, position, limit, flexible)
        room = take_elements(room, partition_count, ELEMENTS_MAX)
        partitions: list[FetchPartitionFields] = []
        for _ in range(partition_count):
            partition, position = _read_partition(frame, position, version)
            partitions.append(partition)
            if flexible:
                position, room = skip_tagged_fields(frame, position, limit, room)
        if flexible:
            position, room = skip_tagged_fields(frame, position, limit, room)
        fields.topics.append((key, partitions))
    return position, room


def _read_topic_key(frame: memoryview, position: int, limit: int, version: int) -> tuple[bytes, int]:
    if version < TOPIC_IDS_FROM:
        return read_text(frame, position, limit, version >= FLEXIBLE_FROM)
    end = position + 16
    if end > limit:
        raise ProtocolError("a topic id passes the end of the request")
    return bytes(frame[position:end]), end


_PARTITION_V0: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqi")


def _read_partition(frame: memoryview, position: int, version: int) -> tuple[FetchPartitionFields, int]:
    if version >= 12:
        return FetchPartitionFields._make(_PARTITION_V12.unpack_from(frame, position)), position + 32
    if version >= 9:
        index, epoch, offset, start, size = _PARTITION_V9.unpack_from(frame, position)
        return FetchPartitionFields(index, epoch, offset, -1, start, size), position + 28
    if version >= 5:
        index, offset, start, size = _PARTITION_V5.unpack_from(frame, position)
        return FetchPartitionFields(index, -1, offset, -1, start, size), position + 24
    index, offset, size = _PARTITION_V0.unpack_from(frame, position)
    return FetchPartitionFields(index, -1, offset, -1, -1, size), position + 16


def _read_forgotten(
    frame: memoryview, position: int, version: int, fields: FetchRequestFields, room: int
) -> tuple[int, int]:
    limit = len(frame)
    flexible = version >= FLEXIBLE_FROM
    topic_count, position = read_array_count(frame, position, limit, flexible)
    room = take_elements(room, topic_count, ELEMENTS_MAX)
    for _ in range(topic_count):
        key, position = _read_topic_key(frame, position, limit, version)
        count, position = read_array_count(frame, position, limit, flexible)
        if count * 4 > limit - position:
            raise ProtocolError(f"{count} forgotten partitions in {limit - position} bytes")
        room = take_elements(room, count, ELEMENTS_MAX)
        indexes = [INT32.unpack_from(frame, position + 4 * at)[0] for at in range(count)]
        position += 4 * count
        if flexible:
            position, room = skip_tagged_fields(frame, position, limit, room)
        fields.forgotten.append((key, indexes))
    return position, room


def _read_tags(frame: memoryview, position: int, version: int, fields: FetchRequestFields, room: int) -> None:
    """Read the top level's tagged fields: 1 is the replica state; the cluster id (0) is not used."""
    limit = len(frame)
    count, position = read_unsigned_varint(frame, position)
    take_elements(room, count, ELEMENTS_MAX)
    previous = -1
    for _ in range(count):
        previous, length, position = read_tag(frame, position, limit, previous)
        end = position + length
        if previous == 0:
            read_string(frame, position, end, True)
        elif previous == 1 and version >= 15:
            (fields.replica_id,) = INT32.unpack_from(frame, position)
            (fields.replica_epoch,) = INT64.unpack_from(frame, position + 4)
        position = end


FetchEntry = tuple[bytes, FetchPartitionFields]
"""A topic key (the name, or the id from version 13) and the request's fields of one partition."""
FetchAnswer = tuple[bytes, PartitionFetchResult]
"""A topic key and the result for one partition."""
PartitionName = tuple[bytes, int]
"""A topic key and the index of a partition."""
TopicAnswers = list[tuple[bytes, list[PartitionFetchResult]]]
"""The results of a response by topic key."""

Chunk = bytes | SizedRecords


def fetch_response(
    correlation_id: int,
    version: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[bytes, Sequence[PartitionFetchResult]]],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: tuple[NodeEndpoint, ...] = (),
) -> list[Chunk]:
    """Build the whole response, size included: bytes, and records as they were given, in wire order."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(4)
    out += INT32.pack(correlation_id)
    if flexible:
        out.append(0)
    if version >= 7:
        out += _TOP_V7.pack(throttle_time_ms, error_code, session_id)
    elif version >= 1:
        out += INT32.pack(throttle_time_ms)
    out += write_unsigned_varint(len(topics) + 1) if flexible else INT32.pack(len(topics))
    chunks: list[Chunk] = []
    size = 0
    for key, partitions in topics:
        if version >= TOPIC_IDS_FROM:
            out += key
        else:
            out += write_unsigned_varint(len(key) + 1) if flexible else INT16.pack(len(key))
            out += key
        out += write_unsigned_varint(len(partitions) + 1) if flexible else INT32.pack(len(partitions))
        for result in partitions:
            records = result.records
            records_size = 0 if records is None else records.size
            _append_partition(out, version, result, records_size)
            if records is not None and records_size:
                size += len(out) + records_size
                chunks.append(bytes(out))
                chunks.append(records)
                out = bytearray()
            if flexible:
                _append_partition_tags(out, result)
        if flexible:
            out.append(0)
    if flexible:
        append_node_endpoints(out, node_endpoints if version >= 16 else ())
    size += len(out)
    if out:
        chunks.append(bytes(out))
    first = chunks[0]
    assert isinstance(first, bytes), "a response begins with its header"
    chunks[0] = INT32.pack(size - 4) + first[4:]
    return chunks


_TOP_V7: Final = Struct(">ihi")
_RESULT_V0: Final = Struct(">ihqi")
_RESULT_V4: Final = Struct(">ihqq")
_RESULT_V5: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")


def _append_partition(out: bytearray, version: int, result: PartitionFetchResult, records_size: int) -> None:
    if version < 4:
        out += _RESULT_V0.pack(result.partition, result.error_code, result.high_watermark, records_size)
        return
    if version >= 5:
        out += _RESULT_V5.pack(*result[:5])
    else:
        out += _RESULT_V4.pack(*result[:4])
    aborted = result.aborted_transactions
    if version >= FLEXIBLE_FROM:
        if aborted is None:
            out.append(0)
        else:
            out += write_unsigned_varint(len(aborted) + 1)
            for producer_id, first_offset in aborted:
                out += _ABORTED.pack(producer_id, first_offset)
                out.append(0)
        out += INT32.pack(result.preferred_read_replica)
        out += write_unsigned_varint(records_size + 1)
        return
    if aborted is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += INT32.pack(len(aborted))
        for producer_id, first_offset in aborted:
            out += _ABORTED.pack(producer_id, first_offset)
    if version >= 11:
        out += INT32.pack(result.preferred_read_replica)
    out += INT32.pack(records_size)


def _append_partition_tags(out: bytearray, result: PartitionFetchResult) -> None:
    diverging, leader = result.diverging_epoch, result.current_leader
    if diverging is None and leader is None:
        out.append(0)
        return
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += b"\x00\x0d"
        out += INT32.pack(diverging[0])
        out += INT64.pack(diverging[1])
        out.append(0)
    if leader is not None:
        out += b"\x01\x09"
        out += INT32.pack(leader[0])
        out += INT32.pack(leader[1])
        out.append(0)
