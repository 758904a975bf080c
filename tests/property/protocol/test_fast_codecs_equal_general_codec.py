"""The fast Produce and Fetch codecs must agree with the general codec in every version."""

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.protocol import codec
from kalda.protocol.fast import fetch as fast_fetch
from kalda.protocol.fast.fetch import (
    FetchPartitionFields,
    FetchRequestFields,
    PartitionFetchResult,
    fetch_response,
    parse_fetch_request,
)
from kalda.protocol.fast.produce import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    PartitionProduceResult,
    _parse,
    parse_produce_request,
    produce_response,
    single_success_response,
)
from kalda.protocol.fast.wire import NodeEndpoint, write_unsigned_varint
from kalda.protocol.fetch_session import TOPIC_IDS_FROM as FETCH_TOPIC_IDS_FROM
from kalda.protocol.headers import response_header
from kalda.protocol.messages import fetch, produce
from kalda.protocol.protocol_errors import ProtocolError

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=140)
UUIDS = st.uuids() | st.just(uuid.UUID(int=0))
PRODUCE_VERSIONS = st.integers(0, 13)
FETCH_VERSIONS = st.integers(0, 17)


@dataclass
class Sized:
    """Records that are not bytes, as a file slice is."""

    payload: bytes

    @property
    def size(self) -> int:
        return len(self.payload)


def framed(correlation_id: int, header_version: int, body: bytes) -> bytes:
    payload = response_header(correlation_id, header_version) + body
    return len(payload).to_bytes(4, "big") + payload


@st.composite
def produce_requests(draw: st.DrawFn) -> tuple[produce.ProduceRequest, int]:
    version = draw(PRODUCE_VERSIONS)
    partition = st.builds(
        produce.PartitionProduceData, index=INT32, records=st.none() | st.binary(max_size=300)
    )
    topic = st.builds(
        produce.TopicProduceData,
        name=TEXT,
        topic_id=st.uuids(),
        partition_data=st.lists(partition, max_size=3),
    )
    request = produce.ProduceRequest(
        transactional_id=draw(st.none() | TEXT) if version >= 3 else None,
        acks=draw(INT16),
        timeout_ms=draw(INT32),
        topic_data=draw(st.lists(topic, max_size=3)),
    )
    return request, version


@given(produce_requests(), st.binary(max_size=20))
def test_produce_requests_are_read_as_the_general_codec_reads_them(
    case: tuple[produce.ProduceRequest, int], header: bytes
) -> None:
    request, version = case
    frame = memoryview(bytearray(header + codec.encode(request, version)))

    fields = parse_produce_request(frame, len(header), version)

    transactional_id = None if fields.transactional_id is None else fields.transactional_id.decode()
    assert transactional_id == request.transactional_id
    assert (request.acks, request.timeout_ms) == (fields.acks, fields.timeout_ms)
    expected = [
        (
            topic.topic_id.bytes if version >= TOPIC_IDS_FROM else topic.name.encode(),
            [(part.index, part.records) for part in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    assert expected == fields.topics


@given(produce_requests(), st.data())
def test_a_cut_produce_request_is_a_protocol_error_and_bytes_behind_it_are_passed_over(
    case: tuple[produce.ProduceRequest, int], data: st.DataObject
) -> None:
    request, version = case
    body = codec.encode(request, version)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ProtocolError):
        parse_produce_request(memoryview(body[:cut]), 0, version)
    parse_produce_request(memoryview(body + b"\0"), 0, version)


@given(produce_requests(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3))
def test_altered_produce_requests_are_read_as_the_parser_of_all_requests_reads_them(
    case: tuple[produce.ProduceRequest, int], altered: list[tuple[int, int]]
) -> None:
    """The parser of the usual request accepts and refuses nothing that the other one does not."""
    request, version = case
    frame = bytearray(codec.encode(request, version))
    for position, byte in altered:
        frame[position % len(frame)] = byte
    try:
        general = _parse(memoryview(frame), 0, version)
    except (ProtocolError, IndexError, struct.error):
        with pytest.raises(ProtocolError):
            parse_produce_request(memoryview(frame), 0, version)
        return

    fields = parse_produce_request(memoryview(frame), 0, version)

    expected = (general.transactional_id, general.acks, general.timeout_ms, general.topics)
    assert expected == (fields.transactional_id, fields.acks, fields.timeout_ms, fields.topics)


@given(st.binary(max_size=200), PRODUCE_VERSIONS, FETCH_VERSIONS)
def test_junk_is_read_or_refused_but_never_crashes(
    junk: bytes, produce_version: int, fetch_version: int
) -> None:
    for parse, version in ((parse_produce_request, produce_version), (parse_fetch_request, fetch_version)):
        try:
            parse(memoryview(junk), 0, version)
        except ProtocolError:
            continue


@st.composite
def produce_results(draw: st.DrawFn, version: int) -> PartitionProduceResult:
    errors = st.lists(st.tuples(INT32, st.none() | TEXT), max_size=2).map(tuple)
    return PartitionProduceResult(
        draw(INT32),
        draw(INT16),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(errors),
        draw(st.none() | TEXT),
        # The values that mean "unknown" are left out by the general codec.
        draw(st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))) if version >= 10 else None,
    )


def endpoints() -> st.SearchStrategy[tuple[NodeEndpoint, ...]]:
    return st.lists(st.builds(NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT), max_size=2).map(tuple)


def produce_message(
    topics: list[tuple[bytes, list[PartitionProduceResult]]],
    throttle: int,
    nodes: tuple[NodeEndpoint, ...],
    version: int,
) -> produce.ProduceResponse:
    def partition(result: PartitionProduceResult) -> produce.PartitionProduceResponse:
        leader = result.current_leader or (-1, -1)
        return produce.PartitionProduceResponse(
            index=result.partition,
            error_code=result.error_code,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
            record_errors=[
                produce.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
                for at, text in result.record_errors
            ],
            error_message=result.error_message,
            current_leader=produce.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
        )

    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name="" if version >= TOPIC_IDS_FROM else name.decode(),
                topic_id=uuid.UUID(bytes=name) if version >= TOPIC_IDS_FROM else uuid.UUID(int=0),
                partition_responses=[partition(result) for result in results],
            )
            for name, results in topics
        ],
        throttle_time_ms=throttle,
        node_endpoints=[
            produce.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in (nodes if version >= 10 else ())
        ],
    )


@given(st.data(), PRODUCE_VERSIONS, INT32, INT32, endpoints())
def test_produce_responses_have_the_bytes_of_the_general_codec(
    data: st.DataObject, version: int, correlation_id: int, throttle: int, nodes: tuple[NodeEndpoint, ...]
) -> None:
    key = st.binary(min_size=16, max_size=16) if version >= TOPIC_IDS_FROM else TEXT.map(str.encode)
    topic = st.tuples(key, st.lists(produce_results(version), max_size=3))
    topics = data.draw(st.lists(topic, max_size=3))
    body = codec.encode(produce_message(topics, throttle, nodes, version), version)

    actual = produce_response(
        correlation_id, version, topics, throttle_time_ms=throttle, node_endpoints=nodes
    )

    assert framed(correlation_id, 1 if version >= 9 else 0, body) == actual


@given(PRODUCE_VERSIONS, INT32, TEXT.map(str.encode), INT32, INT64, INT64, INT64)
def test_the_short_cut_for_one_partition_has_the_same_bytes(
    version: int, correlation_id: int, topic: bytes, partition: int, base: int, time: int, start: int
) -> None:
    result = PartitionProduceResult(partition, 0, base, time, start)
    assert produce_response(correlation_id, version, [(topic, [result])]) == single_success_response(
        correlation_id, version, topic, partition, base, time, start
    )


@st.composite
def fetch_requests(draw: st.DrawFn) -> tuple[fetch.FetchRequest, int]:
    version = draw(FETCH_VERSIONS)
    old = version < 13

    # Tagged fields and forgotten partitions are rare, and other code reads a request without them.
    is_usual = draw(st.booleans())

    def since(first: int, strategy: st.SearchStrategy[Any], default: Any) -> Any:
        return draw(strategy) if version >= first else default

    def rare(first: int, strategy: st.SearchStrategy[Any], default: Any) -> Any:
        return default if is_usual else since(first, strategy, default)

    def partition() -> fetch.FetchPartition:
        return fetch.FetchPartition(
            partition=draw(INT32),
            current_leader_epoch=since(9, INT32, -1),
            fetch_offset=draw(INT64),
            last_fetched_epoch=since(12, INT32, -1),
            log_start_offset=since(5, INT64, -1),
            partition_max_bytes=draw(INT32),
            replica_directory_id=rare(17, UUIDS, uuid.UUID(int=0)),
        )

    def topic_fields() -> dict[str, Any]:
        return {"topic": draw(TEXT)} if old else {"topic_id": draw(UUIDS)}

    counts = st.integers(0, 3)
    request = fetch.FetchRequest(
        cluster_id=rare(12, st.none() | TEXT, None),
        replica_id=draw(INT32) if version < 15 else -1,
        replica_state=fetch.ReplicaState(
            replica_id=since(15, st.integers(-1, 9), -1), replica_epoch=since(15, st.integers(-1, 9), -1)
        ),
        max_wait_ms=draw(INT32),
        min_bytes=draw(INT32),
        max_bytes=since(3, INT32, 0x7FFFFFFF),
        isolation_level=since(4, st.integers(-128, 127), 0),
        session_id=since(7, INT32, 0),
        session_epoch=since(7, INT32, -1),
        topics=[
            fetch.FetchTopic(**topic_fields(), partitions=[partition() for _ in range(draw(counts))])
            for _ in range(draw(counts))
        ],
        forgotten_topics_data=[
            fetch.ForgottenTopic(**topic_fields(), partitions=draw(st.lists(INT32, max_size=3)))
            for _ in range(rare(7, counts, 0))
        ],
        rack_id=since(11, TEXT, ""),
    )
    return request, version


@given(fetch_requests(), st.binary(max_size=20))
def test_fetch_requests_are_read_as_the_general_codec_reads_them(
    case: tuple[fetch.FetchRequest, int], header: bytes
) -> None:
    request, version = case
    frame = memoryview(header + codec.encode(request, version))

    fields = parse_fetch_request(frame, len(header), version)

    def key(topic: fetch.FetchTopic | fetch.ForgottenTopic) -> bytes:
        return topic.topic.encode() if version < 13 else topic.topic_id.bytes

    replica = request.replica_state.replica_id if version >= 15 else request.replica_id
    assert (replica, request.max_wait_ms, request.min_bytes) == (
        fields.replica_id,
        fields.max_wait_ms,
        fields.min_bytes,
    )
    assert (request.replica_state.replica_epoch, request.max_bytes) == (
        fields.replica_epoch,
        fields.max_bytes,
    )
    assert (request.isolation_level, request.session_id, request.session_epoch, request.rack_id) == (
        fields.isolation_level,
        fields.session_id,
        fields.session_epoch,
        fields.rack_id.decode(),
    )
    assert fields.forgotten == [(key(topic), topic.partitions) for topic in request.forgotten_topics_data]
    assert fields.topics == [
        (
            key(topic),
            [
                FetchPartitionFields(
                    part.partition,
                    part.current_leader_epoch,
                    part.fetch_offset,
                    part.last_fetched_epoch,
                    part.log_start_offset,
                    part.partition_max_bytes,
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]


@given(fetch_requests(), st.data())
def test_a_cut_fetch_request_is_a_protocol_error_and_bytes_behind_it_are_passed_over(
    case: tuple[fetch.FetchRequest, int], data: st.DataObject
) -> None:
    request, version = case
    body = codec.encode(request, version)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ProtocolError):
        parse_fetch_request(memoryview(body[:cut]), 0, version)
    parse_fetch_request(memoryview(body + b"\0"), 0, version)


@pytest.mark.parametrize("version", [3, 12, 13])
@pytest.mark.parametrize("topics", [1, 1_000_001])
def test_a_produce_request_of_tiny_elements_is_refused(version: int, topics: int) -> None:
    """As by the general codec: a frame of them would hold the event loop for many seconds."""
    head = b"\0" if version >= FLEXIBLE_FROM else b"\xff\xff"
    name = bytes(16) if version >= TOPIC_IDS_FROM else count_of(0, version, FLEXIBLE_FROM, size=2)
    body = head + struct.pack(">hi", 1, 0) + count_of(topics, version, FLEXIBLE_FROM)
    body += (name + count_of(1_000_000, version, FLEXIBLE_FROM)) * (topics == 1) + bytes(20_000_000)
    assert_refused(produce.ProduceRequest, parse_produce_request, body, version)


@pytest.mark.parametrize("version", [4, 12, 13, 17])
@pytest.mark.parametrize("topics", [1, 1_000_001])
def test_a_fetch_request_of_tiny_elements_is_refused(version: int, topics: int) -> None:
    head = bytes(17 if version < 7 else 25 if version < 15 else 21)
    if version >= FETCH_TOPIC_IDS_FROM:
        key = bytes(16)
    else:
        key = count_of(0, version, fast_fetch.FLEXIBLE_FROM, size=2)
    body = head + count_of(topics, version, fast_fetch.FLEXIBLE_FROM)
    body += (key + count_of(1_000_000, version, fast_fetch.FLEXIBLE_FROM)) * (topics == 1) + bytes(40_000_000)
    assert_refused(fetch.FetchRequest, parse_fetch_request, body, version)


@pytest.mark.parametrize(
    ("message", "parse", "version"),
    [
        (produce.ProduceRequest, parse_produce_request, 12),
        (fetch.FetchRequest, parse_fetch_request, 12),
        (fetch.FetchRequest, parse_fetch_request, 17),
    ],
)
def test_a_request_of_tagged_fields_is_refused(message: Any, parse: Any, version: int) -> None:
    head = codec.encode(message(), version)
    assert 0 == head[-1]
    assert_refused(message, parse, head[:-1] + write_unsigned_varint(1_000_001) + bytes(3_000_000), version)


@pytest.mark.parametrize(
    ("message", "parse", "version"),
    [
        (produce.ProduceRequest, parse_produce_request, 12),
        (fetch.FetchRequest, parse_fetch_request, 17),
    ],
)
def test_tags_that_do_not_rise_are_refused(message: Any, parse: Any, version: int) -> None:
    head = codec.encode(message(), version)[:-1]
    parse(memoryview(head + b"\2\x08\0\x09\0"), 0, version)
    with pytest.raises(ProtocolError, match="tag 8 follows tag 8"):
        parse(memoryview(head + b"\2\x08\0\x08\0"), 0, version)


def count_of(count: int, version: int, flexible_from: int, *, size: int = 4) -> bytes:
    return write_unsigned_varint(count + 1) if version >= flexible_from else count.to_bytes(size, "big")


def assert_refused(message: Any, parse: Any, body: bytes, version: int) -> None:
    with pytest.raises(ProtocolError, match="1000000 elements"):
        codec.decode(message, version, body)
    with pytest.raises(ProtocolError, match=r"(1000000|50000) elements"):
        parse(memoryview(body), 0, version)


@given(fetch_requests(), st.lists(st.tuples(st.integers(0, 150), st.integers(0, 255)), max_size=3))
def test_altered_fetch_requests_are_read_as_the_parser_of_all_requests_reads_them(
    case: tuple[fetch.FetchRequest, int], altered: list[tuple[int, int]]
) -> None:
    """The parser of the usual request accepts and refuses nothing that the other one does not."""
    request, version = case
    frame = bytearray(codec.encode(request, version))
    for position, byte in altered:
        frame[position % len(frame)] = byte

    def read(parse: Callable[[memoryview, int, int], FetchRequestFields]) -> list[object] | None:
        try:
            fields = parse(memoryview(frame), 0, version)
        except ProtocolError:
            return None
        return [getattr(fields, name) for name in FetchRequestFields.__slots__]

    assert read(fast_fetch._parse) == read(parse_fetch_request)


@st.composite
def fetch_results(draw: st.DrawFn, version: int) -> PartitionFetchResult:
    def since(first: int, strategy: st.SearchStrategy[Any], default: Any) -> Any:
        return draw(strategy) if version >= first else default

    pairs = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))
    return PartitionFetchResult(
        draw(INT32),
        draw(INT16),
        draw(INT64),
        since(4, INT64, -1),
        since(5, INT64, -1),
        since(4, st.none() | st.lists(st.tuples(INT64, INT64), max_size=3), None),
        since(11, INT32, -1),
        draw(st.none() | st.binary(max_size=300).map(Sized)),
        since(12, pairs, None),
        since(12, pairs, None),
    )


def fetch_partition_message(result: PartitionFetchResult) -> fetch.PartitionData:
    aborted = result.aborted_transactions
    diverging = result.diverging_epoch or (-1, -1)
    leader = result.current_leader or (-1, -1)
    records = result.records
    return fetch.PartitionData(
        partition_index=result.partition,
        error_code=result.error_code,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else [fetch.AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in aborted],
        preferred_read_replica=result.preferred_read_replica,
        records=records.payload if isinstance(records, Sized) else b"",
        diverging_epoch=fetch.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
    )


@given(st.data(), FETCH_VERSIONS, INT32, INT32, endpoints())
def test_fetch_responses_have_the_bytes_of_the_general_codec(
    data: st.DataObject, version: int, correlation_id: int, throttle: int, nodes: tuple[NodeEndpoint, ...]
) -> None:
    keys = TEXT.map(str.encode) if version < 13 else UUIDS.map(lambda value: value.bytes)
    topics = data.draw(st.lists(st.tuples(keys, st.lists(fetch_results(version), max_size=3)), max_size=3))
    error_code, session_id = (data.draw(INT16), data.draw(INT32)) if version >= 7 else (0, 0)
    message = fetch.FetchResponse(
        throttle_time_ms=throttle if version >= 1 else 0,
        error_code=error_code,
        session_id=session_id,
        responses=[
            fetch.FetchableTopicResponse(
                **({"topic": key.decode()} if version < 13 else {"topic_id": uuid.UUID(bytes=key)}),
                partitions=[fetch_partition_message(result) for result in results],
            )
            for key, results in topics
        ],
        node_endpoints=[
            fetch.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in (nodes if version >= 16 else ())
        ],
    )

    chunks = fetch_response(
        correlation_id,
        version,
        error_code,
        session_id,
        topics,
        throttle_time_ms=throttle,
        node_endpoints=nodes,
    )

    actual = b"".join(chunk if isinstance(chunk, bytes) else cast(Sized, chunk).payload for chunk in chunks)
    assert framed(correlation_id, 1 if version >= 12 else 0, codec.encode(message, version)) == actual
