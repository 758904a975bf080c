"""Keys and headers of records in the headers of messages."""

import pytest

from kalda.nats.headers import decode_headers
from kalda.nats.record_headers import RecordHeadersError, message_headers, record_headers


@pytest.mark.parametrize("key", [None, b"", b"eu", b"\xff\x00", b" a", b"a\r\nb"])
def test_key_and_headers_come_back(key: bytes | None) -> None:
    headers = [
        ("Trace", b"a1"),
        ("trace", b"again"),
        ("", b"no name"),
        ("a:b", b"colon"),
        ("ünicode", "wört".encode()),
        ("binary", b"\xff\xfe"),
        ("lines", b"a\r\nPUB b 0"),
        ("spaces", b" a "),
        ("null", None),
        ("empty", b""),
        ("Kafka-Offset", b"a header of the record"),
    ]
    written = message_headers(
        key, headers, is_tombstone=False, partition=3, offset=17, timestamp_ms=1_700_000_000_000
    )
    assert (key, False, headers) == record_headers(written)


def test_clients_see_text() -> None:
    written = message_headers(
        b"eu", [("Trace", b"a1")], is_tombstone=True, partition=3, offset=17, timestamp_ms=5
    )
    assert [
        ("Kafka-Key", "eu"),
        ("Kafka-Tombstone", "true"),
        ("Kafka-Partition", "3"),
        ("Kafka-Offset", "17"),
        ("Kafka-Timestamp", "5"),
        ("Trace", "a1"),
    ] == decode_headers(written)
    assert (b"eu", True, [("Trace", b"a1")]) == record_headers(written)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"NATS/1.0\r\nno colon\r\n\r\n",
        b"NATS/1.0\r\nA: b\r\n",
        b"NATS/1.0\r\n\xff: b\r\n\r\n",
        b"NATS/1.0\r\nKafka-Key-Base64: %\r\n\r\n",
        b"NATS/1.0\r\nKafka-Header-Base64: YQ==:%\r\n\r\n",
    ],
)
def test_malformed_headers(data: bytes) -> None:
    with pytest.raises(RecordHeadersError):
        record_headers(data)
