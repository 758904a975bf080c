"""Dead letters on a real broker: written by tasks, listed, replayed and dropped."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kalda.cli import app
from kalda.clients.consumer.consumer import Consumer
from kalda.clients.consumer.consumer_record import ConsumerRecord
from kalda.clients.producer.producer import Producer
from kalda.common.types import TopicPartition
from kalda.formats import DecodeFailure
from kalda.pipelines.dlq.letters import read_letter
from kalda.pipelines.dlq.replay import LetterFilter, create_topics, open_letters, replay
from kalda.pipelines.dlq.target import DlqTarget, TaskLetters, dead_letter_output
from kalda.records.columnar import ColumnarBatch
from kalda.spark.sink.prepared import PreparedHandle
from tests.integration.cluster.helpers import shared_cluster


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that allows two-phase commit."""
    settings = {
        "transaction.two.phase.commit.enable": "true",
        "transaction.state.log.num.partitions": "4",
        "offsets.topic.num.partitions": "4",
    }
    with shared_cluster(tmp_path_factory.mktemp("dlq"), brokers=1, settings=settings) as address:
        yield address


def command(words: list[str]) -> int:
    """Run a command and return its exit code."""
    code: int = app(words, prog_name="kalda", standalone_mode=False)
    return code


def records(first: int, count: int) -> ColumnarBatch:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return ColumnarBatch(
        offsets=pa.array(range(first, first + count), pa.int64()),
        timestamps_ms=pa.array([1_700_000_000_000 + i for i in range(count)], pa.int64()),
        timestamp_types=pa.array([0] * count, pa.int32()),
        keys=pa.array([b"k%d" % (first + i) for i in range(count)], pa.binary()),
        values=pa.array([b"v%d" % (first + i) for i in range(count)], pa.binary()),
        headers=pa.array([[{"key": "own", "value": b"h"}]] * count, kind),
        next_offset=first + count,
        consumed_bytes=0,
    )


def failures(count: int, error_class: str = "MalformedValue") -> list[DecodeFailure]:
    return [DecodeFailure(row, error_class, f"bad {row}") for row in range(count)]


def opened(servers: str, topic: str, batch: int = 1, part: int = 0) -> TaskLetters:
    return DlqTarget("orders", topic, {"bootstrap.servers": servers}).open(f"q-{topic}", batch, part)


def written(
    servers: str, topic: str, batch: int, first: int, count: int, error_class: str = "MalformedValue"
) -> None:
    task = opened(servers, topic, batch)
    task.add(records(first, count), TopicPartition("orders", 0), failures(count, error_class))
    handle = task.finish().prepared
    assert isinstance(handle, PreparedHandle)
    dead_letter_output({"bootstrap.servers": servers}, topic, f"q-{topic}").complete([handle], commit=True)


def read(servers: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None, int, list[str]]]:
    with Consumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[ConsumerRecord[bytes | None, bytes | None]] = []
        while len(found) < count:
            got = consumer.poll(5.0)
            assert got, f"{len(found)} of {count} records of {topic} came"
            found += got
        assert not consumer.poll(0.3)
    return [(each.key, each.value, each.timestamp_ms, [name for name, _ in each.headers]) for each in found]


@pytest.fixture
def topic(servers: str) -> str:
    """A new topic of dead letters, with its retry topic."""
    name = f"orders-{uuid.uuid4().hex[:8]}.dlq"
    create_topics({"bootstrap.servers": servers}, name)
    create_topics({"bootstrap.servers": servers}, name)
    return name


def test_letters_show_when_the_batch_is_decided(servers: str, topic: str) -> None:
    """Before that, a task may run again; what failed attempts left is aborted."""
    properties = {"bootstrap.servers": servers}
    output = dead_letter_output(properties, topic, f"q-{topic}")
    first, second = opened(servers, topic), opened(servers, topic, part=1)
    for part in range(10):
        first.add(records(part * 10, 10), TopicPartition("orders", 2), failures(10))
    lost, kept = first.finish(), second
    kept.add(records(0, 3), TopicPartition("orders", 2), failures(3))
    result = kept.finish()
    assert 100 == lost.rows
    assert [] == list(open_letters(properties, topic))

    assert isinstance(result.prepared, PreparedHandle)
    output.complete([result.prepared], commit=True)
    output.complete([result.prepared], commit=True)
    assert 1 == output.abort_others([result.prepared])

    letters = list(open_letters(properties, topic))
    assert [0, 1, 2] == [each.letter.offset for each in letters if each.letter]
    assert (b"k0", b"v0", 1_700_000_000_000) == read(servers, topic, 3)[0][:3]


def test_a_task_that_fails_leaves_no_letter(servers: str, topic: str) -> None:
    task = opened(servers, topic)
    task.add(records(0, 5), TopicPartition("orders", 0), failures(5))
    task.abandon()
    untouched = opened(servers, topic)
    untouched.abandon()

    assert [] == list(open_letters({"bootstrap.servers": servers}, topic))
    assert 0 == opened(servers, topic).finish().rows


def test_each_letter_is_replayed_once(servers: str, topic: str) -> None:
    """Letters that a command does not mean stay open, and a second command finds nothing to do."""
    properties = {"bootstrap.servers": servers}
    written(servers, topic, 1, 0, 50)
    written(servers, topic, 2, 50, 20, "TypeMismatch")

    chosen = LetterFilter(causes=frozenset(["TypeMismatch"]))
    assert (20, 50) == (lambda done: (done.taken, done.kept))(replay(properties, topic, chosen))
    assert (0, 50) == (lambda done: (done.taken, done.kept))(replay(properties, topic, chosen))
    assert (50, 0) == (lambda done: (done.taken, done.kept))(replay(properties, topic, LetterFilter()))
    assert (0, 0) == (lambda done: (done.taken, done.kept))(replay(properties, topic, LetterFilter()))

    replayed = read(servers, f"{topic}.retry", 70)
    assert {b"v%d" % i for i in range(70)} == {value for _, value, _, _ in replayed}
    assert "own" == replayed[0][3][0]
    assert [] == list(open_letters(properties, topic))


def test_commands_list_retry_and_drop(
    servers: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        f"name: shop\nstorage: {tmp_path}/s\ncluster: {{bootstrap.servers: '{servers}'}}\n"
        f"pipelines:\n  - {{name: {topic.removesuffix('.dlq')}, from: {{topic: o, value: {{format: json}}}}, "
        f"to: {{table: lake.o, format: delta}}}}\n"
    )
    name = topic.removesuffix(".dlq")
    written(servers, topic, 1, 0, 3)
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, b"stray").result(10)

    def run(*words: str) -> dict[str, object]:
        assert 0 == command(["pipeline", "dlq", *words, str(file), name, "--json"])
        document: dict[str, object] = json.loads(capsys.readouterr().out)
        return document

    listed = run("list", "--limit", "2")
    assert 4 == listed["open"]
    assert [
        {"stage": "decode", "errorClass": "MalformedValue", "count": 3},
        {"stage": "-", "errorClass": "-", "count": 1},
    ] == listed["causes"]
    assert 0 == command(["pipeline", "dlq", "list", str(file), name])
    assert "4 open dead letters" in capsys.readouterr().out
    assert 0 == run("drop", "--yes", "--since", "2100-01-01T00:00:00Z")["dropped"]
    assert 0 == run("retry", "--stage", "expect")["replayed"]
    assert 3 == run("retry", "--cause", "MalformedValue", "--since", "1h")["replayed"]
    assert 1 == run("drop", "--yes")["dropped"]
    assert 0 == run("list")["open"]
    assert 2 == command(["pipeline", "dlq", "drop", str(file), name])
    assert 2 == command(["pipeline", "dlq", "list", str(file), "other"])
    assert 2 == command(["pipeline", "dlq", "list", str(file), name, "--since", "soon"])
    assert "is no time" in capsys.readouterr().err


def test_replayed_records_still_name_their_cause(servers: str, topic: str) -> None:
    written(servers, topic, 1, 0, 1)
    replay({"bootstrap.servers": servers}, topic, LetterFilter())

    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition(f"{topic}.retry", 0)])
        (record,) = consumer.poll(10.0)
    letter = read_letter(record.headers)
    assert letter is not None
    assert ("orders", 0, 0) == (letter.topic, letter.partition, letter.offset)
