"""What a namespace costs: to open and to close one, and the translation of a request and its response."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kalda.common.types import UUID
from kalda.protocol import codec, registry
from kalda.protocol.framing import frame
from kalda.protocol.headers import RequestHeader, read_request_header, request_header, response_header
from kalda.protocol.messages import fetch, heartbeat, metadata, produce
from kalda.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl
from kalda.protocol.namespaces.namespace import Namespace
from kalda.protocol.namespaces.translator import Translator
from kalda.protocol.schema import Message
from kalda.testing import Cluster

_RUNS: Final = 9
_REQUESTS: Final = 2_000
_OPENED: Final = 60
_ID: Final = uuid.UUID(int=1, version=4)

Figure = tuple[str, float, str]


def run() -> list[Figure]:
    """Measure the processor time of translations, and for how long a test waits; the best of several."""
    figures: list[Figure] = []
    for version in (12, 13):
        figures.append(_translation(f"Produce v{version}, 100 kB", *_produce(version), version))
        figures += [
            _translation(f"Fetch v{version}, partitions: {count}", *_fetch(version, count), version)
            for count in (1, 20)
        ]
    figures.append(
        _translation(
            "Heartbeat v4", heartbeat.HeartbeatRequest(group_id="g"), heartbeat.HeartbeatResponse(), 4
        )
    )
    figures.append(_translation("Metadata v12, 1 topic", *_metadata(), 12))
    for brokers in (1, 3):
        figures += _opening(brokers)
    return figures


class _Names:
    """A broker that knows one topic, which is of the namespace."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic."""
        return "ns-7-orders"

    def partition_counts(self, prefix: str) -> Mapping[str, int]:
        """Return nothing: no request asks for it."""
        return {}

    def matching_acls(self, wanted: DeleteAclsFilter) -> Iterable[DeleteAclsMatchingAcl] | None:
        """Return nothing: no request asks for it."""
        return None


def _translation(label: str, request: Message, response: Message, version: int) -> Figure:
    key = request.SCHEMA.api_key
    assert key is not None, "a request has a key"
    translator = Translator(Namespace("7"), _Names())
    head = request_header(
        RequestHeader(key, version, 5, "app"), registry.request_header_version(key, version)
    )
    sent = head + codec.encode(request, version)
    answer_head = response_header(5, registry.response_header_version(key, version))
    answer = [frame([answer_head, codec.encode(response, version)])]

    def translate() -> None:
        received = memoryview(bytearray(sent))
        header, body = read_request_header(received)
        translated = translator.request(header, body, received)
        assert translated is not None, f"{key} has names"
        translator.response(translated[1], answer, has_masked=False)

    def receive() -> None:
        read_request_header(memoryview(bytearray(sent)))

    return f"translate {label}", 1e6 * (_seconds(translate) - _seconds(receive)), "us"


def _seconds(call: Callable[[], None]) -> float:
    """Return the processor time of one call."""
    best = float("inf")
    for _ in range(_RUNS):
        begin = time.process_time()
        for _ in range(_REQUESTS):
            call()
        best = min(best, (time.process_time() - begin) / _REQUESTS)
    return best


def _opening(brokers: int) -> list[Figure]:
    opening = closing = float("inf")
    with Cluster(brokers) as cluster:
        for _ in range(_OPENED):
            begin = time.perf_counter()
            space = cluster.namespace()
            opened = time.perf_counter()
            space.close()
            opening = min(opening, opened - begin)
            closing = min(closing, time.perf_counter() - opened)
    return [
        (f"open a namespace, brokers: {brokers}", 1e3 * opening, "ms"),
        (f"close a namespace, brokers: {brokers}", 1e3 * closing, "ms"),
    ]


def _produce(version: int) -> tuple[Message, Message]:
    partition = produce.PartitionProduceData(records=bytes(100_000))
    topic = produce.TopicProduceData(partition_data=[partition])
    result = produce.TopicProduceResponse(partition_responses=[produce.PartitionProduceResponse()])
    if version < 13:
        topic.name, result.name = "orders", "ns-7-orders"
    else:
        topic.topic_id = result.topic_id = _ID
    return produce.ProduceRequest(acks=1, topic_data=[topic]), produce.ProduceResponse(responses=[result])


def _fetch(version: int, count: int) -> tuple[Message, Message]:
    topic = fetch.FetchTopic(partitions=[fetch.FetchPartition(partition=each) for each in range(count)])
    result = fetch.FetchableTopicResponse(
        partitions=[fetch.PartitionData(partition_index=each) for each in range(count)]
    )
    if version < 13:
        topic.topic, result.topic = "orders", "ns-7-orders"
    else:
        topic.topic_id = result.topic_id = _ID
    return fetch.FetchRequest(topics=[topic]), fetch.FetchResponse(responses=[result])


def _metadata() -> tuple[Message, Message]:
    partitions = [
        metadata.MetadataResponsePartition(partition_index=each, replica_nodes=[0], isr_nodes=[0])
        for each in range(3)
    ]
    topic = metadata.MetadataResponseTopic(name="ns-7-orders", partitions=partitions)
    return (
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="orders")]),
        metadata.MetadataResponse(topics=[topic]),
    )
