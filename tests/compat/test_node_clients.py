"""kafkajs against a broker; what needs a consumer group (its public consumer) waits for groups."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.end_to_end import create_topic
from kalda.common.errors import ErrorCode
from kalda.testing import KaldaProcess
from tests.compat.programs import ProgramClient, kafkajs_client, produce_over_a_crash, read_by_columns
from tests.integration.clients.clients import ConfluentClient, Message

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

TopicName = Callable[[str], str]


@pytest.fixture
def kafkajs(node_modules: Path, bootstrap: str) -> ProgramClient:
    return kafkajs_client(node_modules, bootstrap)


def texts(count: int) -> list[Message]:
    now_ms = int(time.time() * 1000)
    return [
        Message(b"key-%d" % number, b"value-%d " % number * 20, (("trace", b"t-1"),), now_ms + number)
        for number in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_clients_read_what_kafkajs_wrote(
    idempotent: bool, codec: str, kafkajs: ProgramClient, bootstrap: str, topic_name: TopicName
) -> None:
    """kafkajs compresses with libraries in JavaScript: snappy without frames, and lz4 its own way."""
    topic = topic_name(f"js-{codec}")
    written = texts(100)

    offsets = kafkajs.produce(topic, written, codec=codec, idempotent=idempotent)

    assert list(range(100)) == offsets
    assert written == ConfluentClient(bootstrap).consume(topic, 100)
    assert written == read_by_columns(bootstrap, topic, 100)
    assert written == kafkajs.consume(topic, 100)


@pytest.mark.parametrize("codec", CODECS)
def test_kafkajs_reads_what_librdkafka_wrote(
    codec: str, kafkajs: ProgramClient, bootstrap: str, topic_name: TopicName
) -> None:
    """By its Fetch request and decoders below its public consumer, from the middle of a batch too."""
    topic = topic_name(f"js-c-{codec}")
    written = texts(1000)
    ConfluentClient(bootstrap).produce(topic, written, codec=codec)

    assert written == kafkajs.consume(topic, 1000)
    read = kafkajs.consume(topic, 13, offset=777)
    assert list(range(777, 790)) == [message.offset for message in read]


def test_null_and_empty_are_told_apart(kafkajs: ProgramClient, topic_name: TopicName) -> None:
    topic = topic_name("js-nulls")
    now_ms = int(time.time() * 1000)
    written = [
        Message(None, b"no key", (), now_ms),
        Message(b"no value", None, (), now_ms),
        Message(b"", b"", (), now_ms),
        Message(b"k", b"v", (("empty", b""), ("twice", b"1"), ("twice", b"2")), now_ms),
        Message(b"\x00\xff", bytes(range(256)), (("bytes", b"\x00\xff"),), now_ms),
    ]
    kafkajs.produce(topic, written)

    assert written == kafkajs.consume(topic, len(written))


def test_offsets_by_time(kafkajs: ProgramClient, bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("js-time")
    begin_ms = int(time.time() * 1000) - 1_000_000
    for block in range(3):
        ConfluentClient(bootstrap).produce(
            topic, [Message(b"k", b"v" * 100, (), begin_ms + (block * 100 + n) * 10) for n in range(100)]
        )

    assert 0 == kafkajs.offset_for_time(topic, begin_ms - 5)
    assert 150 == kafkajs.offset_for_time(topic, begin_ms + 1500)
    assert 151 == kafkajs.offset_for_time(topic, begin_ms + 1501)
    assert -1 == kafkajs.offset_for_time(topic, begin_ms + 2991)


def test_a_topic_through_its_life(kafkajs: ProgramClient, topic_name: TopicName) -> None:
    """Created, described, configured, grown, shortened and deleted by the client's own admin calls."""
    expected = {
        "brokers": 1,
        "is_created": True,
        "is_created_again": False,
        "bad_config_error": ErrorCode.INVALID_CONFIG,
        "partitions": 3,
        "retention": "5000000 from 1",
        "replaced_retention": "8000000 from 1",
        "grown_partitions": 5,
        "start_offset": 4,
        "end_offset": 10,
        "broker_configs": True,
        "is_listed_after_deletion": False,
    }

    result = kafkajs.run("admin", topic=topic_name("js-admin"))

    assert result.pop("cluster_id")
    assert expected == result


def test_an_idempotent_producer_goes_on_after_a_crash(node_modules: Path, kalda: KaldaProcess) -> None:
    """The broker knows the producer and its sequence again, so that a retry is neither lost nor doubled."""
    produce_over_a_crash(kafkajs_client(node_modules, kalda.bootstrap), kalda)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_kafkajs_writes_and_reads_messages_of_an_old_release(
    codec: str, old_listener: str, node_modules: Path
) -> None:
    """It has no setting for old versions, but takes them from a listener that answers as 0.10.2."""
    client = kafkajs_client(node_modules, old_listener)
    topic = f"js-old-{codec}"
    written = [dataclasses.replace(each, headers=()) for each in texts(100)]

    create_topic(old_listener, topic)
    client.produce(topic, written, codec=codec, idempotent=False)

    assert written == ConfluentClient(old_listener).consume(topic, 100)
    assert written == client.consume(topic, 100)


@pytest.fixture(scope="module")
def old_listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"kalda.as.version": "0.10.2"}
    with KaldaProcess(tmp_path_factory.mktemp("old"), settings=settings) as kalda:
        yield kalda.bootstrap
