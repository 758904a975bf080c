"""What clients of old message formats cost a broker beside clients of the present one.

One connection sends prepared produce requests, or fetch requests, one after the other; the broker's processor
time is that of its process, which is what counts beside other clients.
"""

import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import psutil

from benchmarks.end_to_end import Figure, create_topic
from kalda.protocol import codec, registry
from kalda.protocol.headers import RequestHeader, request_header
from kalda.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.protocol.schema import Message
from kalda.records.batch import iter_headers
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder
from kalda.testing import KaldaProcess

M = TypeVar("M", bound=Message)

_REQUEST_BYTES: Final = 512 * 1024
_BYTES: Final = 200_000_000
_FETCH_BYTES: Final = 1024 * 1024
_FORMATS: Final = {1: (2, 3), 2: (7, 4)}
"""The versions of produce and fetch requests that have the format."""


def run() -> list[Figure]:
    """Measure a broker of its own."""
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        KaldaProcess(Path(directory) / "data") as kalda,
    ):
        host, _, port = kalda.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            broker = psutil.Process(kalda.pid)
            for size in (100, 1000):
                for magic, (version, _) in reversed(_FORMATS.items()):
                    topic = f"format-{magic}-{size}"
                    create_topic(kalda.bootstrap, topic)
                    request = _produce_request(topic, magic, size)
                    label = f"produce {size} B, format {magic}"
                    figures += _measured(broker, label, _producing(connection, request, version))
                for magic, (_, version) in reversed(_FORMATS.items()):
                    label = f"fetch {size} B of format 2 as {magic}"
                    figures += _measured(broker, label, _fetching(connection, f"format-2-{size}", version))
    return figures


def _producing(connection: socket.socket, request: ProduceRequest, version: int) -> Callable[[], int]:
    frame = _frame(request, version)

    def produce() -> int:
        sent = 0
        while sent < _BYTES:
            answer = _ask(connection, frame, ProduceResponse, version)
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                raise RuntimeError(f"the broker answered with error {code}")
            sent += _REQUEST_BYTES
        return sent

    return produce


def _fetching(connection: socket.socket, topic: str, version: int) -> Callable[[], int]:
    def fetch() -> int:
        offset = received = end = 0
        while received < _BYTES:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                topics=[FetchTopic(topic=topic, partitions=[partition])],
            )
            answer = _ask(connection, _frame(request, version), FetchResponse, version)
            records = answer.responses[0].partitions[0].records
            assert isinstance(records, bytes | memoryview)
            # A partial batch and what fills a converted response up are not counted.
            for position, header in iter_headers(records):
                offset = header.last_offset + 1
                end = position + header.size
            received += end
        return received

    return fetch


def _measured(broker: psutil.Process, label: str, work: Callable[[], int]) -> list[Figure]:
    begin, used = time.perf_counter(), sum(broker.cpu_times()[:2])
    megabytes = work() / 1e6
    seconds, used = time.perf_counter() - begin, sum(broker.cpu_times()[:2]) - used
    return [
        (label, megabytes / seconds, "MB/s"),
        (f"{label}: broker", used / megabytes * 1000, "ms/MB"),
    ]


def _produce_request(topic: str, magic: int, size: int) -> ProduceRequest:
    builder = RecordBatchBuilder() if magic == 2 else MessageSetBuilder(magic)
    for number in range(_REQUEST_BYTES // size):
        builder.append(None, (b"%09d" % number * 200)[:size], 1_700_000_000_000 + number // 10)
    partition = PartitionProduceData(index=0, records=bytes(builder.build()))
    topic_data = [TopicProduceData(name=topic, partition_data=[partition])]
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topic_data)


def _frame(request: Message, version: int) -> bytes:
    key = request.SCHEMA.api_key
    assert key is not None
    header = RequestHeader(key, version, 1, "bench")
    payload = request_header(header, registry.request_header_version(key, version))
    payload += codec.encode(request, version)
    return len(payload).to_bytes(4, "big") + payload


def _ask(connection: socket.socket, frame: bytes, response: type[M], version: int) -> M:
    connection.sendall(frame)
    size = int.from_bytes(_read(connection, 4), "big")
    return codec.decode(response, version, _read(connection, size), 4)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        received = connection.recv_into(view)
        if not received:
            raise RuntimeError("the broker closed the connection")
        view = view[received:]
    return bytes(data)
