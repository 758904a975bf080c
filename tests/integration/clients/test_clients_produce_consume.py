"""Unmodified clients produce and consume by assignment: each codec, each pair of clients."""

import shutil
import time
from collections.abc import Callable

import pytest

from tests.integration.clients.clients import CLIENTS, Client, Message

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PYTHON_CLIENTS = [name for name in CLIENTS if name != "kcat"]
TopicName = Callable[[str], str]


def client_of(name: str, bootstrap: str) -> Client:
    if name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed: apt-get install kcat")
    return CLIENTS[name](bootstrap)


def texts(count: int) -> list[Message]:
    now_ms = int(time.time() * 1000)
    return [
        Message(b"key-%d" % number, b"value-%d " % number * 20, (("trace", b"t-1"),), now_ms + number)
        for number in range(count)
    ]


def without_times(messages: list[Message]) -> list[tuple[object, ...]]:
    return [(message.key, message.value, message.headers) for message in messages]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer_name", CLIENTS)
def test_every_client_reads_what_any_client_wrote(
    producer_name: str, codec: str, bootstrap: str, topic_name: TopicName
) -> None:
    """A batch is stored as it came, so each reader must find in it what the writer meant."""
    topic = topic_name(f"cross-{codec}")
    written = texts(100)
    client_of(producer_name, bootstrap).produce(topic, written, codec=codec)

    for reader_name in CLIENTS:
        read = client_of(reader_name, bootstrap).consume(topic, 100)
        assert without_times(written) == without_times(read), reader_name
        assert list(range(100)) == [message.offset for message in read], reader_name
        if producer_name != "kcat":
            assert [message.timestamp_ms for message in written] == [message.timestamp_ms for message in read]


@pytest.mark.parametrize("name", PYTHON_CLIENTS)
def test_null_and_empty_are_told_apart(name: str, bootstrap: str, topic_name: TopicName) -> None:
    """A null value is a tombstone, an empty one is data; the same goes for keys and header values."""
    topic = topic_name("nulls")
    client = client_of(name, bootstrap)
    now_ms = int(time.time() * 1000)
    written = [
        Message(None, b"no key", (), now_ms),
        Message(b"no value", None, (), now_ms),
        Message(b"", b"", (), now_ms),
        Message(b"k", b"v", (("empty", b""), ("twice", b"1"), ("twice", b"2")), now_ms),
        Message(b"\x00\xff", bytes(range(256)), (("bytes", b"\x00\xff"),), now_ms),
    ]
    if name == "confluent-kafka":  # The others refuse to send a record without key and value.
        written.append(Message(None, None, (), now_ms))
    if name != "kafka-python":  # It refuses to send a header without a value.
        written.append(Message(b"k", b"v", (("null", None),), now_ms))
    client.produce(topic, written)

    assert written == client.consume(topic, len(written))


@pytest.mark.parametrize("name", CLIENTS)
def test_kcat_null_messages_reach_every_client(name: str, bootstrap: str, topic_name: TopicName) -> None:
    """kcat -Z sends empty keys and values as null."""
    topic = topic_name("kcat-null")
    client_of("kcat", bootstrap).produce(topic, [Message(b"", b"v"), Message(b"k", b""), Message(b"k", b"v")])

    read = client_of(name, bootstrap).consume(topic, 3)

    assert [(None, b"v"), (b"k", None), (b"k", b"v")] == [(message.key, message.value) for message in read]


@pytest.mark.parametrize("name", CLIENTS)
def test_reading_starts_at_the_asked_offset(name: str, bootstrap: str, topic_name: TopicName) -> None:
    """An offset in the middle of a batch is the client's to find inside the whole batch it gets."""
    topic = topic_name("middle")
    client = client_of(name, bootstrap)
    client_of("confluent-kafka", bootstrap).produce(topic, texts(1000), codec="lz4")

    read = client.consume(topic, 13, offset=777)

    assert list(range(777, 790)) == [message.offset for message in read]
    assert b"key-777" == read[0].key


@pytest.mark.parametrize("name", CLIENTS)
def test_seek_by_time(name: str, bootstrap: str, topic_name: TopicName) -> None:
    """The first record at or after a time is found exactly, inside batches too."""
    topic = topic_name("by-time")
    begin_ms = int(time.time() * 1000) - 1_000_000
    writer = client_of("confluent-kafka", bootstrap)
    for block in range(5):
        writer.produce(
            topic,
            [Message(b"k", b"v" * 100, (), begin_ms + (block * 100 + n) * 10) for n in range(100)],
        )
    client = client_of(name, bootstrap)

    assert 0 == client.offset_for_time(topic, begin_ms - 5)
    assert 0 == client.offset_for_time(topic, begin_ms)
    assert 250 == client.offset_for_time(topic, begin_ms + 2500)
    assert 251 == client.offset_for_time(topic, begin_ms + 2501)
    assert 499 == client.offset_for_time(topic, begin_ms + 4990)
    assert -1 == client.offset_for_time(topic, begin_ms + 4991)


@pytest.mark.parametrize("name", PYTHON_CLIENTS)
def test_ten_megabyte_messages(name: str, bootstrap: str, topic_name: TopicName) -> None:
    """Large messages work where message.max.bytes allows them, at the default segment and fetch sizes."""
    topic = topic_name("large")
    client = client_of(name, bootstrap)
    value = bytes(range(256)) * 40_960
    written = [Message(b"%d" % number, value) for number in range(3)]
    client.produce(topic, written)

    read = client.consume(topic, 3)

    assert [(message.key, message.value) for message in written] == [(m.key, m.value) for m in read]
