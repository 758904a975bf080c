"""The compiled code for usual messages does what plain Python does, or leaves it to that."""

import struct
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.common.api_keys import ApiKey
from kalda.common.types import ZERO_UUID
from kalda.protocol import codec
from kalda.protocol.fast import fetch, fetch_response, implementation, produce
from kalda.protocol.fast.produce import (
    ProduceRequestFields,
    parse_produce_request,
    parse_usual,
    single_success_response,
)
from kalda.protocol.fast.request_header import read_usual_header
from kalda.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from kalda.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kalda.protocol.protocol_errors import ProtocolError
from kalda.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder

if implementation.is_compiled:
    from kalda.protocol.fast import _requests

pytestmark = pytest.mark.skipif(
    not implementation.is_compiled,
    reason="kalda.protocol.fast._requests is not built; `make install` builds it where a C compiler exists",
)

TOPIC_ID = UUID(int=0x0102_0304_0506_0708_090A_0B0C_0D0E_0F10)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(PartitionProduceData, index=int32s, records=st.none() | st.binary(max_size=300))
requests = st.builds(
    ProduceRequest,
    transactional_id=st.sampled_from([None, None, None, "t"]),
    acks=st.integers(-2, 2),
    timeout_ms=int32s,
    topic_data=st.lists(
        st.builds(
            TopicProduceData,
            name=st.sampled_from(["", "orders", "n" * 125, "n" * 126, "n" * 127, "n" * 300, "ä"]),
            topic_id=st.sampled_from([ZERO_UUID, TOPIC_ID]),
            partition_data=st.lists(partitions, min_size=1, max_size=3),
        ),
        max_size=2,
    ),
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytearray, int, int]:
    """A body behind some other bytes, perhaps damaged: the frame, where the body begins, the version."""
    version = draw(st.integers(0, 13))
    before = draw(st.integers(0, 20))
    request = draw(requests)
    if version < 3:
        request.transactional_id = None
    frame = bytearray(before) + bytearray(codec.encode(request, version))
    for position in draw(st.lists(st.integers(before, len(frame) - 1), max_size=3)):
        frame[position] = draw(st.integers(0, 255))
    damage = draw(st.sampled_from(["none", "cut", "longer"]))
    if damage == "cut":
        del frame[draw(st.integers(before, len(frame))) :]
    elif damage == "longer":
        frame += draw(st.binary(max_size=5))
    return frame, before, version


def parsed(parse: Any, frame: memoryview, position: int, version: int) -> object:
    try:
        fields: ProduceRequestFields = parse(frame, position, version)
    except ProtocolError as error:
        return str(error)
    return fields.transactional_id, fields.acks, fields.timeout_ms, fields.topics, fields.partition_count


@given(bodies())
def test_requests_are_parsed_alike(body: tuple[bytearray, int, int]) -> None:
    frame, position, version = body
    view = memoryview(frame)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "is_compiled", False)
        expected = parsed(parse_produce_request, view, position, version)
        usual = parse_usual(view, position, version)
    assert expected == parsed(parse_produce_request, view, position, version)
    compiled = parse_usual(view, position, version)
    # The compiled code may leave a request with a long name to plain Python.
    assert compiled is None or (usual is not None and usual[:5] == compiled[:5])


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("size", [0, 1, 62, 63, 126, 127, 128, 16_383, 16_384, 70_000])
def test_the_usual_request_is_compiled(version: int, size: int) -> None:
    request = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="orders",
                topic_id=TOPIC_ID,
                partition_data=[PartitionProduceData(index=2, records=b"r" * size)],
            )
        ],
    )
    frame = memoryview(bytearray(codec.encode(request, version)))
    found = _requests.parse_produce(frame, 0, version)
    topic = TOPIC_ID.bytes if version >= 13 else b"orders"
    assert (1, 30_000, topic, 2, memoryview(b"r" * size), False) == found


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("transactional_id", [None, "", "t" * 200])
def test_requests_of_several_partitions_are_compiled(version: int, transactional_id: str | None) -> None:
    topics = [
        TopicProduceData(
            name=name,
            topic_id=TOPIC_ID,
            partition_data=[PartitionProduceData(index=each, records=b"r" * 100 * each) for each in range(4)],
        )
        for name in ("orders", "", "n" * 200)
    ]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    if version >= 3:
        request.transactional_id = transactional_id
    frame = memoryview(bytearray(codec.encode(request, version)))
    found = _requests.parse_produce_topics(frame, 0, version)
    assert found is not None
    expected = None if version < 3 or transactional_id is None else transactional_id.encode()
    assert (expected, -1, 30_000, 12) == (*found[:3], found[4])
    names = [TOPIC_ID.bytes if version >= 13 else each.name.encode() for each in topics]
    records = [(each, memoryview(b"r" * 100 * each)) for each in range(4)]
    assert [(name, records) for name in names] == found[3]


def test_partitions_beyond_the_bound_are_left_to_plain_python() -> None:
    for count in (produce.PARTITIONS_MAX, produce.PARTITIONS_MAX + 1):
        data = [PartitionProduceData(index=index, records=b"") for index in range(count)]
        request = ProduceRequest(topic_data=[TopicProduceData(name="orders", partition_data=data)])
        frame = memoryview(bytearray(codec.encode(request, 12)))
        found = _requests.parse_produce_topics(frame, 0, 12)
        assert (found is None) == (count > produce.PARTITIONS_MAX)


@pytest.mark.parametrize(
    ("position", "value", "is_plain"),
    [
        (0, 0, True),
        (11, 0, False),  # another length
        (16, 1, False),  # another format
        (22, Compression.LZ4, True),
        (22, Compression.ZSTD, False),
        (22, 7, True),
        (22, TRANSACTIONAL_FLAG, False),
        (22, CONTROL_FLAG, True),
    ],
)
@pytest.mark.parametrize("version", [3, 12, 13])
def test_batches_that_every_version_may_carry_are_found(
    version: int, position: int, value: int, is_plain: bool
) -> None:
    builder = RecordBatchBuilder()
    builder.append(timestamp=1, key=None, value=b"v")
    records = bytearray(builder.build())
    records[position] = value
    for size, expected in ((len(records), is_plain), (60, False), (0, False)):
        data = PartitionProduceData(index=2, records=bytes(records[:size]))
        request = ProduceRequest(topic_data=[TopicProduceData(name="orders", partition_data=[data])])
        frame = memoryview(bytearray(codec.encode(request, version)))
        found = parse_usual(frame, 0, version)
        assert found is not None
        assert expected is found[5] is produce.is_plain(found[4])


@pytest.mark.parametrize("position", [-1, 1 << 40])
def test_a_position_outside_the_frame_is_refused(position: int) -> None:
    assert None is _requests.parse_produce(memoryview(bytearray(50)), position, 12)
    assert None is _requests.parse_produce(memoryview(bytearray(50)), position, 3)
    assert None is _requests.parse_produce_topics(memoryview(bytearray(50)), position, 12)
    assert None is _requests.parse_produce_topics(memoryview(bytearray(50)), position, 3)
    assert None is _requests.parse_fetch(memoryview(bytearray(50)), position, 17, tuple)
    assert None is _requests.parse_fetched(memoryview(bytearray(50)), position, tuple)


@pytest.mark.parametrize("version", range(13, 18))
@pytest.mark.parametrize("replica", [-1, 2])
@pytest.mark.parametrize("topics", [0, 1, 200])
def test_the_fetch_of_a_session_is_compiled(version: int, replica: int, topics: int) -> None:
    request = FetchRequest(
        replica_id=replica if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica if version >= 15 else -1, replica_epoch=-1),
        session_id=7,
        session_epoch=9,
        topics=[
            FetchTopic(topic_id=uuid4(), partitions=[FetchPartition(partition=index, fetch_offset=1 << 40)])
            for index in range(topics)
        ],
        rack_id="r" * 200,
    )
    frame = memoryview(codec.encode(request, version))
    found = _requests.parse_fetch(frame, 0, version, fetch.FetchPartitionFields._make)
    assert found is not None
    assert (replica, 7, 9) == (found[0], *found[6:8])
    assert [1 << 40] * topics == [part.fetch_offset for _, parts in found[8] for part in parts]
    assert b"r" * 200 == found[9]


@pytest.mark.parametrize("version", range(13, 18))
@pytest.mark.parametrize("size", [0, 1, 126, 127, 16_383, 70_000])
def test_what_a_follower_fetches_is_compiled(version: int, size: int) -> None:
    parts = [PartitionData(partition_index=index, records=b"r" * size) for index in range(3)]
    response = FetchResponse(
        session_id=7, responses=[FetchableTopicResponse(topic_id=uuid4(), partitions=parts)]
    )
    frame = memoryview(codec.encode(response, version))
    found = _requests.parse_fetched(frame, 0, fetch_response.FetchedPartition._make)
    assert found is not None
    assert [memoryview(b"r" * size) if size else None] * 3 == [each.records for each in found[3]]


client_ids = st.none() | st.binary(max_size=20) | st.just(b"c" * 32_767)


@given(
    st.integers(-(2**15), 2**15 - 1),
    st.integers(0, 12),
    int32s,
    client_ids,
    client_ids,
    st.binary(max_size=9),
)
def test_a_header_with_a_known_client_id_is_read(
    key: int, version: int, correlation_id: int, client_id: bytes | None, known: bytes | None, rest: bytes
) -> None:
    length = -1 if client_id is None else len(client_id)
    frame = bytearray(struct.pack(">hhih", key, version, correlation_id, length) + (client_id or b"") + rest)
    expected = None
    if client_id is not None and (key, version) != (ApiKey.CONTROLLED_SHUTDOWN, 0):
        expected = key, version, correlation_id, 10 + length
    assert expected == read_usual_header(memoryview(frame), client_id)
    assert (expected if known == client_id else None) == read_usual_header(memoryview(frame), known)
    assert None is read_usual_header(memoryview(frame)[: 9 + max(length, 0)], client_id)


@given(
    int32s,
    st.integers(0, 13),
    st.sampled_from(
        [b"", b"t", TOPIC_ID.bytes, b"n" * 125, b"n" * 126, b"n" * 127, b"n" * 249, b"n" * 32_767]
    ),
    int32s,
    st.tuples(int64s, int64s, int64s),
)
def test_responses_are_the_same_bytes(
    correlation_id: int, version: int, name: bytes, index: int, numbers: tuple[int, int, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "is_compiled", False)
        expected = single_success_response(correlation_id, version, name, index, *numbers)
    assert expected == single_success_response(correlation_id, version, name, index, *numbers)
    if 5 <= version < 9 or (version >= 9 and len(name) < 127):
        assert expected == _requests.single_success(correlation_id, version, name, index, *numbers)
        assert struct.unpack_from(">i", expected)[0] == len(expected) - 4
