"""franz-go, Sarama at three protocol ages, and kafka-go against one broker."""

import base64
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from kalda.common.errors import ErrorCode
from kalda.testing import KaldaProcess
from tests.compat.programs import ProgramClient, ProgramError, produce_over_a_crash, read_by_columns
from tests.integration.clients.clients import ConfluentClient, Message

T0 = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROGRAMS = {
    "franz-go": ("franzgo", {}),
    "sarama-0.11.0": ("sarama", {"version": "0.11.0.0"}),
    "sarama-2.8.0": ("sarama", {"version": "2.8.0"}),
    "sarama-max": ("sarama", {"version": "max"}),
    "kafka-go": ("kafkago", {}),
}
TopicName = Callable[[str], str]
GoClient = Callable[[str], ProgramClient]


@pytest.fixture
def go_client(go_programs: Path, bootstrap: str) -> GoClient:
    def client(name: str) -> ProgramClient:
        program, settings = PROGRAMS[name]
        return ProgramClient(name, [go_programs / program], bootstrap, settings)

    return client


def texts(count: int) -> list[Message]:
    now_ms = int(time.time() * 1000)
    return [
        Message(b"key-%d" % number, b"value-%d " % number * 20, (("trace", b"t-1"),), now_ms + number)
        for number in range(count)
    ]


@pytest.mark.timeout(900)
def test_the_programs_build(go_programs: Path) -> None:
    """The first build takes minutes on a small machine; it has its own time-out here."""
    for program, _ in PROGRAMS.values():
        assert (go_programs / program).is_file()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer_name", PROGRAMS)
def test_every_client_reads_what_a_go_client_wrote(
    writer_name: str, codec: str, go_client: GoClient, bootstrap: str, topic_name: TopicName
) -> None:
    """A batch is stored as it came, so each reader must find in it what the writer meant."""
    if (writer_name, codec) == ("sarama-0.11.0", "zstd"):
        pytest.skip("Sarama itself refuses to write zstd as Kafka 0.11, which had none (KIP-110)")
    topic = topic_name(f"go-{codec}")
    written = texts(100)

    offsets = go_client(writer_name).produce(topic, written, codec=codec)

    assert offsets in (list(range(100)), None)
    assert written == ConfluentClient(bootstrap).consume(topic, 100)
    assert written == read_by_columns(bootstrap, topic, 100)
    for reader_name in PROGRAMS:
        read = go_client(reader_name).consume(topic, 100)
        assert written == read, reader_name
        assert list(range(100)) == [message.offset for message in read], reader_name


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_go_client_reads_what_librdkafka_wrote(
    name: str, codec: str, go_client: GoClient, bootstrap: str, topic_name: TopicName
) -> None:
    """Offsets in the middle of a batch too: the client gets the whole batch and skips in it."""
    topic = topic_name(f"c-{codec}")
    written = texts(1000)
    ConfluentClient(bootstrap).produce(topic, written, codec=codec)

    assert written == go_client(name).consume(topic, 1000)
    read = go_client(name).consume(topic, 13, offset=777)
    assert list(range(777, 790)) == [message.offset for message in read]


@pytest.mark.parametrize("name", PROGRAMS)
def test_null_and_empty_are_told_apart(name: str, go_client: GoClient, topic_name: TopicName) -> None:
    topic = topic_name("go-nulls")
    now_ms = int(time.time() * 1000)
    headers: tuple[tuple[str, bytes | None], ...] = (("twice", b"1"), ("twice", b"2"))
    if name != "kafka-go":  # Its reader gives the value of an empty header as nil.
        headers += (("empty", b""),)
    written = [
        Message(None, b"no key", (), now_ms),
        Message(b"no value", None, (), now_ms),
        Message(b"k", b"v", headers, now_ms),
        Message(b"\x00\xff", bytes(range(256)), (("bytes", b"\x00\xff"),), now_ms),
    ]
    go_client(name).produce(topic, written)

    assert written == go_client(name).consume(topic, len(written))


@pytest.mark.parametrize("name", PROGRAMS)
def test_producing_without_idempotence(name: str, go_client: GoClient, topic_name: TopicName) -> None:
    topic = topic_name("go-plain")
    written = texts(100)

    go_client(name).produce(topic, written, codec="lz4", idempotent=False)

    assert written == go_client(name).consume(topic, 100)


@pytest.mark.parametrize("name", PROGRAMS)
def test_offsets_by_time(name: str, go_client: GoClient, bootstrap: str, topic_name: TopicName) -> None:
    """The first record at or after a time is found exactly, inside batches too."""
    topic = topic_name("go-time")
    begin_ms = int(time.time() * 1000) - 1_000_000
    for block in range(3):
        ConfluentClient(bootstrap).produce(
            topic, [Message(b"k", b"v" * 100, (), begin_ms + (block * 100 + n) * 10) for n in range(100)]
        )
    client = go_client(name)

    assert 0 == client.offset_for_time(topic, begin_ms - 5)
    assert 150 == client.offset_for_time(topic, begin_ms + 1500)
    assert 151 == client.offset_for_time(topic, begin_ms + 1501)
    assert -1 == client.offset_for_time(topic, begin_ms + 2991)


def test_franz_go_consumes_from_a_time(go_client: GoClient, bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("go-from-time")
    written = texts(100)
    ConfluentClient(bootstrap).produce(topic, written)

    read = go_client("franz-go").consume(topic, 10, timestamp_ms=written[42].timestamp_ms)

    assert read == written[42:52]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_topic_through_its_life(name: str, go_client: GoClient, topic_name: TopicName) -> None:
    """Created, described, configured, grown, shortened and deleted by the client's own admin calls."""
    expected = {
        "brokers": 1,
        "duplicate_error": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad_config_error": ErrorCode.INVALID_CONFIG,
        "partitions": 3,
        "retention": "5000000 from 1",
        "altered_retention": "7000000 from 1",
        "replaced_retention": "8000000 from 1",
        "grown_partitions": 5,
        "start_offset": 4,
        "end_offset": 10,
        "broker_configs": True,
        "is_listed_after_deletion": False,
    }
    if name == "franz-go":
        expected["max_timestamp_offset"] = 9
    if name == "sarama-0.11.0":  # Its release knew neither sources nor growth nor single changes.
        expected |= {"retention": "5000000 default=false", "replaced_retention": "8000000 default=false"}
        del expected["altered_retention"], expected["grown_partitions"]
    if name == "kafka-go":  # It has no call that deletes records.
        expected["start_offset"] = 0
        del expected["broker_configs"]

    result = go_client(name).run("admin", topic=topic_name("go-admin"))

    assert result.pop("cluster_id", "none told")
    assert expected == result


def create(bootstrap: str, topic: str, config: dict[str, str], partitions: int = 1) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    new = confluent_kafka.admin.NewTopic(topic, partitions, 1, config=config)
    admin.create_topics([new])[topic].result(20)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer_name", ["franz-go", "sarama-0.11.0", "kafka-go"])
def test_log_append_time_is_read_as_the_broker_set_it(
    writer_name: str, codec: str, go_client: GoClient, bootstrap: str, topic_name: TopicName
) -> None:
    """The time in the batch's header counts for all its records, compressed or not."""
    if (writer_name, codec) == ("sarama-0.11.0", "zstd"):
        pytest.skip("Sarama itself refuses to write zstd as Kafka 0.11, which had none (KIP-110)")
    topic = topic_name("go-append-time")
    create(bootstrap, topic, {"message.timestamp.type": "LogAppendTime"})
    begin_ms = int(time.time() * 1000)
    messages = [Message(b"%d" % number, b"v" * 100, (), T0 + number) for number in range(100)]
    go_client(writer_name).produce(topic, messages, codec=codec)

    read = ConfluentClient(bootstrap).consume(topic, 100)

    assert all(begin_ms <= message.timestamp_ms <= time.time() * 1000 for message in read)
    assert read == read_by_columns(bootstrap, topic, 100)
    for name in PROGRAMS:
        if name != "kafka-go":  # Its reader does not look at the timestamp type.
            assert read == go_client(name).consume(topic, 100), name


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS[1:]])
def test_what_the_broker_compressed_anew_is_read(
    codec: str, go_client: GoClient, bootstrap: str, topic_name: TopicName
) -> None:
    """With a codec of the topic's own the broker writes the batches itself."""
    topic = topic_name(f"go-anew-{codec}")
    create(bootstrap, topic, {"compression.type": codec})
    written = texts(100)
    go_client("franz-go").produce(topic, written, codec="lz4" if codec != "lz4" else "gzip")

    for name in PROGRAMS:
        if (name, codec) == ("sarama-0.11.0", "zstd"):
            with pytest.raises(ProgramError, match="does not support the compression type"):
                go_client(name).consume(topic, 100)
        else:
            assert written == go_client(name).consume(topic, 100), name


@pytest.mark.parametrize(
    ("config", "message", "pattern"),
    [
        (
            {"max.message.bytes": "1000"},
            Message(b"k", b"v" * 2000, (), T0),
            "message.* large",
        ),
        (
            {"message.timestamp.before.max.ms": "1000"},
            Message(b"k", b"v", (), T0),
            "timestamp of the message",
        ),
        ({"cleanup.policy": "compact"}, Message(None, b"v", (), T0), "failed the validation"),
    ],
    ids=["large", "old", "keyless"],
)
@pytest.mark.parametrize("name", ["franz-go", "sarama-0.11.0", "sarama-max", "kafka-go"])
def test_refused_records_have_their_reason(
    name: str,
    config: dict[str, str],
    message: Message,
    pattern: str,
    go_client: GoClient,
    bootstrap: str,
    topic_name: TopicName,
) -> None:
    """Each client knows the code by name and does not try again."""
    topic = topic_name("go-refused")
    create(bootstrap, topic, config)

    with pytest.raises(ProgramError, match=f"(?i){pattern}"):
        go_client(name).produce(topic, [message])


def test_franz_go_finds_a_topic_by_its_id(go_client: GoClient, topic_name: TopicName) -> None:
    """Metadata by id answers with the name; an id that no topic has meets its own error."""
    topic = topic_name("go-id")
    go_client("franz-go").produce(topic, texts(1))

    result = go_client("franz-go").run("topic_id", topic=topic)

    assert {"name": topic, "partitions": 1, "unknown_error": ErrorCode.UNKNOWN_TOPIC_ID} == result


@pytest.mark.parametrize("name", ["franz-go", "sarama-0.11.0", "sarama-max"])
def test_idempotent_producers_go_on_after_a_crash(name: str, go_programs: Path, kalda: KaldaProcess) -> None:
    """The broker knows the producer and its sequence again, so that a retry is neither lost nor doubled."""
    program, settings = PROGRAMS[name]
    client = ProgramClient(name, [go_programs / program], kalda.bootstrap, settings)

    produce_over_a_crash(client, kalda)


def test_franz_go_reads_on_after_a_crash(go_programs: Path, kalda: KaldaProcess) -> None:
    """Twelve partitions in one fetch session; the session ends with the broker and is begun again."""
    create(kalda.bootstrap, "read-on", {}, partitions=12)
    client = ProgramClient("franz-go", [go_programs / "franzgo"], kalda.bootstrap, {})
    values = [b"%d" % number for number in range(6000)]
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(client.run, "consume_topic", topic="read-on", count=len(values))
        for wave in range(3):
            producer = confluent_kafka.Producer({"bootstrap.servers": kalda.bootstrap})
            for number, value in enumerate(values[wave * 2000 : (wave + 1) * 2000]):
                producer.produce("read-on", value, partition=number % 12)
            assert 0 == producer.flush(20)
            if wave < 2:
                time.sleep(0.5)
                kalda.kill()
                kalda.start()
        found = [base64.b64decode(value) for value in read.result()["values"]]

    assert sorted(values) == sorted(found)


@pytest.mark.parametrize("codec", CODECS[:-1])
@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.2.0"])
def test_clients_before_0_11_and_new_ones_read_what_the_others_wrote(
    version: str, codec: str, go_programs: Path, bootstrap: str, topic_name: TopicName
) -> None:
    """They know messages without headers; format 0 has no timestamps either."""
    if (version, codec) == ("0.8.2.2", "lz4"):
        pytest.skip("Sarama itself refuses to write lz4 before Kafka 0.10")
    old = ProgramClient(f"sarama-{version}", [go_programs / "sarama"], bootstrap, {"version": version})
    topic = topic_name("legacy")
    written = [replace(message, headers=()) for message in texts(50)]
    old.produce(topic, written, codec=codec, idempotent=False)
    ConfluentClient(bootstrap).produce(topic, written, codec=codec)

    expected = [(message.key, message.value) for message in 2 * written]
    for reader in (old, ConfluentClient(bootstrap)):
        read = reader.consume(topic, 100)
        assert expected == [(message.key, message.value) for message in read]
    assert list(range(70, 80)) == [message.offset for message in old.consume(topic, 10, offset=70)]
    if version == "0.10.2.0":
        assert 2 * written == old.consume(topic, 100)
