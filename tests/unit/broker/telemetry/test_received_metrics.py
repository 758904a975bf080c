"""What clients push is decoded, bounded, and published by name; bytes come from anybody."""

import random
import struct
from collections.abc import Sequence
from uuid import UUID

import pytest

from kalda.broker.telemetry import received_metrics
from kalda.broker.telemetry.client_instance import attributes_of
from kalda.broker.telemetry.received_metrics import ReceivedMetrics, series_name
from kalda.common.metrics import Metrics
from kalda.common.types import uuid_to_text
from kalda.net.metrics_text import render
from kalda.protocol.otlp import (
    FIELDS_MAX,
    DataPoint,
    InvalidMetricsError,
    Point,
    decode_metrics,
    encode_metrics,
)
from kalda.records.compression import Compression, compress

ME, OTHER = UUID(int=77), UUID(int=78)
PREFIX = "org.apache.kafka.producer."
OWN = f'client_id="app",client_instance_id="{uuid_to_text(ME)}"'


def gauge(name: str, value: float, **attributes: str) -> DataPoint:
    return DataPoint(PREFIX + name, tuple(attributes.items()), value, 2)


def total(name: str, value: float, *, is_delta: bool = True) -> DataPoint:
    return DataPoint(PREFIX + name, (), value, 2, start_ns=1, is_delta=is_delta)


class Endpoint:
    def __init__(self, *, bytes_max: int = 100_000, series_max: int = 100) -> None:
        self.received = ReceivedMetrics(bytes_max, series_max)
        self.metrics = Metrics()
        self.metrics.source(self.received.families)

    def push(
        self,
        *points: DataPoint,
        me: UUID = ME,
        client_id: str = "app",
        resource: Sequence[tuple[str, str]] = (),
        compression: Compression = Compression.NONE,
    ) -> None:
        data = encode_metrics(resource, points)
        client = attributes_of(me, client_id, ("java", "3.9.0"), "10.0.0.1", "9")
        self.received.receive(me, client, compression, compress(compression, data) if compression else data)

    @property
    def lines(self) -> list[str]:
        return [line for line in render(self.metrics).decode().splitlines() if not line.startswith("#")]


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.mark.parametrize("compression", list(Compression))
def test_a_gauge_appears_with_the_client_and_its_attributes(
    endpoint: Endpoint, compression: Compression
) -> None:
    endpoint.push(
        gauge("queue.time", 2.5, topic="t"), resource=[("client_rack", "r1")], compression=compression
    )
    software = 'client_software_name="java",client_software_version="3.9.0"'
    expected = f'kafka_client_producer_queue_time{{{OWN},client_rack="r1",{software},topic="t"}} 2.5'
    assert [expected] == endpoint.lines


def test_differences_are_added_up_and_totals_replace(endpoint: Endpoint) -> None:
    endpoint.push(total("sent.total", 5), total("seen.total", 5, is_delta=False))
    endpoint.push(total("sent.total", 3), total("seen.total", 8, is_delta=False))
    assert ["kafka_client_producer_seen_total 8.0", "kafka_client_producer_sent_total 8.0"] == [
        f"{line.partition('{')[0]} {line.rpartition(' ')[2]}" for line in endpoint.lines
    ]


def test_a_client_that_is_gone_takes_its_series_along(endpoint: Endpoint) -> None:
    endpoint.push(gauge("a", 1))
    endpoint.push(gauge("a", 2), gauge("b", 3), me=OTHER)
    endpoint.received.forget(OTHER)
    endpoint.received.forget(OTHER)
    assert (1, 1) == (len(endpoint.lines), endpoint.received.series_count)
    endpoint.received.forget(ME)
    assert [] == endpoint.lines


def test_series_of_all_clients_are_bounded() -> None:
    endpoint = Endpoint(series_max=3)
    endpoint.push(*(gauge(f"m{number}", 1) for number in range(5)))
    endpoint.push(gauge("m0", 1), me=OTHER)
    assert (3, 3) == (len(endpoint.lines), endpoint.received.dropped)
    endpoint.push(gauge("m1", 7))
    assert any(line.endswith(" 7.0") for line in endpoint.lines), "series that are kept go on"


def test_series_of_one_client_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_metrics, "SERIES_OF_CLIENT_MAX", 2)
    endpoint = Endpoint()
    endpoint.push(*(gauge(f"m{number}", 1) for number in range(5)))
    endpoint.push(gauge("m9", 1), me=OTHER)
    assert 3 == len(endpoint.lines)


def test_points_of_one_push_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_metrics, "POINTS_MAX", 2)
    endpoint = Endpoint()
    endpoint.push(*(gauge(f"m{number}", 1) for number in range(5)))
    assert (2, 1) == (len(endpoint.lines), endpoint.received.dropped)


def test_clients_cannot_replace_the_labels_of_the_broker(endpoint: Endpoint) -> None:
    endpoint.push(gauge("a", 1, client_id="other", client_instance_id="x"), resource=[("Client.Id", "y")])
    assert [True] == [OWN in line for line in endpoint.lines]
    assert ["other"] == [each for each in ["other"] if not any(each in line for line in endpoint.lines)]


def test_lengths_and_labels_are_bounded(endpoint: Endpoint) -> None:
    attributes = {f"l{number:02}": "v" * 1000 for number in range(30)}
    endpoint.push(gauge("n" * 1000, 1, **attributes), client_id="c" * 5000)
    (line,) = endpoint.lines
    assert received_metrics.LABELS_MAX == line.count("=")
    assert len(line) < 2500


def test_text_is_escaped(endpoint: Endpoint) -> None:
    endpoint.push(gauge("a", 1, topic='x"} 1\nfake_metric{y="'), client_id="\\")
    (line,) = endpoint.lines
    assert r'topic="x\"} 1\nfake_metric{y=\""' in line
    assert r'client_id="\\"' in line


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org.apache.kafka.consumer.fetch.latency.avg", "kafka_client_consumer_fetch_latency_avg"),
        ("librdkafka.Some-thing", "kafka_client_librdkafka_some_thing"),
        ("org.apache.kafka.producer.record.send.total", "kafka_client_producer_record_send"),
        ("a.total.total", "kafka_client_a"),
        ("...", ""),
        ("", ""),
    ],
)
def test_names_become_prometheus_names(name: str, expected: str) -> None:
    assert expected == series_name(name)


def test_a_name_keeps_its_kind_and_numbers_that_are_none_are_left_out(endpoint: Endpoint) -> None:
    endpoint.push(gauge("a", 1), total("a", 1), gauge("b", float("nan")), gauge("c", float("inf")))
    assert (1, 3) == (len(endpoint.lines), endpoint.received.dropped)


def test_a_gauge_cannot_have_the_name_of_a_counter(endpoint: Endpoint) -> None:
    """Two metrics of one name make Prometheus drop samples, of other clients too."""
    endpoint.push(total("a", 1))
    endpoint.push(gauge("a.total", 7))
    (line,) = endpoint.lines
    assert line.startswith("kafka_client_producer_a_total{")
    assert line.endswith(" 1.0")


def test_a_registered_name_of_the_broker_wins(endpoint: Endpoint) -> None:
    endpoint.metrics.gauge("kafka_client_producer_a", "Ours.", lambda: 5)
    endpoint.push(gauge("a", 1))
    assert ["kafka_client_producer_a 5"] == endpoint.lines


@pytest.mark.parametrize("compression", [each for each in Compression if each])
def test_a_decompression_bomb_is_refused(compression: Compression) -> None:
    endpoint = Endpoint(bytes_max=1000)
    bomb = compress(compression, bytes(10_000_000))
    with pytest.raises(InvalidMetricsError, match="more than 16000"):
        endpoint.received.receive(ME, {}, compression, bomb)


EMPTY_STREAM = compress(Compression.SNAPPY, b"")


@pytest.mark.parametrize(
    ("compression", "pieces"),
    [
        (Compression.GZIP, compress(Compression.GZIP, b"") * 3_000),
        (Compression.SNAPPY, EMPTY_STREAM * 3_000),
        (Compression.SNAPPY, EMPTY_STREAM + b"\0\0\0\1\0" * 3_000),
    ],
)
def test_a_push_of_many_empty_pieces_is_refused(compression: Compression, pieces: bytes) -> None:
    """1 MB of them would hold the event loop for 0.2 to 0.7 s."""
    with pytest.raises(InvalidMetricsError, match="more than 2000 pieces"):
        Endpoint().received.receive(ME, {}, compression, pieces)


@pytest.mark.parametrize("compression", [each for each in Compression if each])
def test_bytes_that_the_codec_does_not_accept_are_refused(compression: Compression) -> None:
    endpoint = Endpoint()
    with pytest.raises(InvalidMetricsError):
        endpoint.received.receive(ME, {}, compression, b"\xff nonsense \x00" * 5)
    assert (0, []) == (endpoint.received.series_count, endpoint.lines)


def test_every_truncation_is_refused_or_read() -> None:
    data = encode_metrics([("group_id", "g")], [gauge("a", 1, topic="t"), total("b", 2)])
    assert 2 == len(list(decode_metrics(data)))
    for size in range(1, len(data)):
        with pytest.raises(InvalidMetricsError):
            list(decode_metrics(data[:size]))


@pytest.mark.parametrize("seed", range(200))
def test_junk_never_raises_anything_else(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(encode_metrics([("a", "b")], [gauge("a", 1, topic="t"), total("b", 2)]))
    for _ in range(chance.randint(1, 8)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    try:
        list(decode_metrics(bytes(data)))
        list(decode_metrics(chance.randbytes(chance.randrange(60))))
    except InvalidMetricsError:
        pass


def test_what_other_encoders_write_is_read() -> None:
    """Integers, other kinds of attributes, unknown fields and points without a value."""

    def field(number: int, content: bytes) -> bytes:
        return bytes((number << 3 | 2, len(content))) + content

    def attribute(name: bytes, value: bytes) -> bytes:
        return field(7, field(1, name) + field(2, value))

    integer = b"\x31" + struct.pack("<q", -3)
    attributes = (
        attribute(b"flag", b"\x10\x01")
        + attribute(b"low", b"\x18" + b"\xff" * 9 + b"\x01")
        + attribute(b"half", b"\x21" + struct.pack("<d", 0.5))
        + attribute(b"list", field(5, b""))
    )
    unknown = b"\xf8\x01\x05" + b"\xfd\x01abcd"
    point = field(1, integer + attributes + unknown)
    metric = field(1, b"n") + field(5, point + field(1, b"\x40\x01")) + field(9, b"")
    data = field(1, field(2, field(2, metric)))
    assert [((), Point("n", (("flag", "true"), ("low", "-1"), ("half", "0.5")), -3.0, False, False))] == list(
        decode_metrics(data)
    )


def test_fields_of_one_push_are_bounded() -> None:
    """Sixteen megabytes of empty fields would keep the broker for many seconds."""
    with pytest.raises(InvalidMetricsError, match="more than"):
        list(decode_metrics(b"\x10\x00" * (FIELDS_MAX + 1)))
