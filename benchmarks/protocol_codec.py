"""Messages alone, written and read: no broker, no sockets; one core, best of several runs."""

import time
import uuid
from collections.abc import Callable
from typing import Final

from kalda.protocol import codec
from kalda.protocol.codec_decoder import compile_decoder
from kalda.protocol.codec_encoder import compile_encoder
from kalda.protocol.codec_reference import encode_reference
from kalda.protocol.headers import RequestHeader, read_request_header, request_header
from kalda.protocol.messages import fetch, list_offsets, metadata, produce
from kalda.protocol.schema import Message

_RUNS: Final = 7
_SECONDS_PER_RUN: Final = 0.05
_RECORDS: Final = b"x" * 170

Figure = tuple[str, float, str]


def run() -> list[Figure]:
    """Measure what brokers and clients do most, the largest answer, and the cost of a first use."""
    answer = _metadata(topic_count=1_000)
    messages: tuple[tuple[str, Message, int], ...] = (
        ("Metadata v12 answer, 1,000 topics x 4", answer, 12),
        ("ListOffsets v7 request, 100 topics x 4", _list_offsets(topic_count=100), 7),
        ("Produce v9 request, 1 batch", _produce(), 9),
        ("Fetch v16 answer, 1 batch", _fetch(), 16),
    )
    figures = []
    for label, message, version in messages:
        figures.append((f"write {label}", _microseconds(_writing(message, version)), "us"))
        figures.append((f"read {label}", _microseconds(_reading(message, version)), "us"))
    slow = _microseconds(lambda: encode_reference(answer, 12))
    figures.append(("write Metadata, reference / compiled", slow / figures[0][1], "x"))
    header = request_header(RequestHeader(1, 16, 7, "client"), 2)
    figures.append(("read a request header", _microseconds(lambda: read_request_header(header)), "us"))
    compiling = _microseconds(
        lambda: (compile_encoder(fetch.FetchResponse, 16), compile_decoder(fetch.FetchResponse, 16))
    )
    figures.append(("compile both codecs of Fetch v16 answer", compiling, "us"))
    return figures


def _writing(message: Message, version: int) -> Callable[[], object]:
    return lambda: codec.encode(message, version)


def _reading(message: Message, version: int) -> Callable[[], object]:
    data = codec.encode(message, version)
    return lambda: codec.decode(type(message), version, data)


def _microseconds(call: Callable[[], object]) -> float:
    """The best mean of a run; runs are long enough for the clock."""
    started = time.perf_counter()
    call()
    calls = max(1, int(_SECONDS_PER_RUN / max(time.perf_counter() - started, 1e-7)))
    best = float("inf")
    for _ in range(_RUNS):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - started) / calls)
    return best * 1e6


def _metadata(topic_count: int) -> metadata.MetadataResponse:
    return metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(node_id=0, host="localhost", port=9092)],
        cluster_id="cluster",
        controller_id=0,
        topics=[
            metadata.MetadataResponseTopic(
                name=f"topic-{number:04}",
                topic_id=uuid.UUID(int=number + 1),
                partitions=[
                    metadata.MetadataResponsePartition(
                        partition_index=index, leader_epoch=1, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
                    )
                    for index in range(4)
                ],
            )
            for number in range(topic_count)
        ],
    )


def _list_offsets(topic_count: int) -> list_offsets.ListOffsetsRequest:
    partitions = [
        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(4)
    ]
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets.ListOffsetsTopic(name=f"topic-{number:04}", partitions=partitions)
            for number in range(topic_count)
        ],
    )


def _produce() -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(index=0, records=_RECORDS)
    topic = produce.TopicProduceData(name="topic-0001", partition_data=[partition])
    return produce.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])


def _fetch() -> fetch.FetchResponse:
    partition = fetch.PartitionData(partition_index=0, high_watermark=5, records=_RECORDS)
    topic = fetch.FetchableTopicResponse(topic_id=uuid.UUID(int=1), partitions=[partition])
    return fetch.FetchResponse(responses=[topic])
