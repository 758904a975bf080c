from kalda.protocol.otlp import DataPoint, encode_metrics
from tests.unit.clients.telemetry.protobuf_reader import read_metrics

POINTS = [
    DataPoint("org.apache.kafka.producer.connection.count", (), 2.0, 1_700_000_000_000_000_000),
    DataPoint(
        "org.apache.kafka.producer.topic.byte.total",
        (("topic", "ünï"),),
        1.5e9,
        1_700_000_000_000_000_000,
        1_600_000_000_000_000_000,
    ),
    DataPoint("org.apache.kafka.producer.request.total", (), 3.0, 9, 4, is_delta=True),
]

ENCODED_ONCE = bytes.fromhex(
    "0a95020a1b0a190a107472616e73616374696f6e616c5f696412050a03742d3112f50112420a2a6f72672e6170616368"
    "652e6b61666b612e70726f64756365722e636f6e6e656374696f6e2e636f756e742a140a121900002a36fe9c97172100"
    "0000000000004012610a2a6f72672e6170616368652e6b61666b612e70726f64756365722e746f7069632e627974652e"
    "746f74616c3a330a2d110000a0d8855734161900002a36fe9c971721000000c00b5ad6413a100a05746f70696312070a"
    "05c3bc6ec3af10021801124c0a276f72672e6170616368652e6b61666b612e70726f64756365722e726571756573742e"
    "746f74616c3a210a1b11040000000000000019090000000000000021000000000000084010011801"
)


def test_what_was_encoded_is_read_again() -> None:
    resource, metrics = read_metrics(encode_metrics([("transactional_id", "t-1")], POINTS))

    assert {"transactional_id": "t-1"} == resource
    assert {"kind": "gauge", "value": 2.0, "at": 1_700_000_000_000_000_000} == metrics[POINTS[0].name]
    assert {
        "kind": "sum",
        "value": 1.5e9,
        "at": 1_700_000_000_000_000_000,
        "since": 1_600_000_000_000_000_000,
        "temporality": 2,
        "monotonic": 1,
        "attributes": {"topic": "ünï"},
    } == metrics[POINTS[1].name]
    assert 1 == metrics[POINTS[2].name]["temporality"]


def test_the_bytes_are_those_that_opentelemetry_reads() -> None:
    """Checked once with the package opentelemetry-proto 1.45.2, which parsed and wrote the same bytes."""
    assert ENCODED_ONCE == encode_metrics([("transactional_id", "t-1")], POINTS)


def test_long_texts_have_longer_sizes() -> None:
    name = "n" * 300

    _, metrics = read_metrics(encode_metrics([], [DataPoint(name, (), 0.0, 1)]))

    assert [name] == list(metrics)
