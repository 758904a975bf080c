"""Dead letters on a real broker: written by tasks, listed, replayed and dropped."""

import dataclasses
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kalda.cli import app
from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigResourceType
from kalda.clients.consumer.consumer import Consumer
from kalda.clients.errors import ProducerFencedError
from kalda.clients.producer.producer import Producer
from kalda.clients.values import ConsumerRecord
from kalda.common.types import TopicPartition
from kalda.formats import DecodeFailure
from kalda.pipelines.dlq.letters import DECODE, Letter, read_letter
from kalda.pipelines.dlq.replay import LetterFilter, drop, open_letters, replay
from kalda.pipelines.engine.dead_letters import DeadLetterOutput
from kalda.pipelines.spec.model import Cluster
from kalda.records.columnar import ColumnarBatch
from tests.integration.cluster.helpers import shared_cluster


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with small internal topics."""
    settings = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4"}
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


def output(servers: str, topic: str, storage: Path) -> DeadLetterOutput:
    cluster = Cluster(name="default", properties={"bootstrap.servers": servers})
    return DeadLetterOutput("orders", topic, f"group-{topic}", cluster, storage.as_uri())


def written(
    letters: DeadLetterOutput, batch: int, first: int, count: int, error_class: str = "MalformedValue"
) -> None:
    task = letters.open("query", batch, 0)
    task.add(records(first, count), TopicPartition("orders", 0), failures(count, error_class), DECODE)
    letters.publish("query", batch, [str(each) for each in task.finish().files])


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
def letters(servers: str, tmp_path: Path) -> DeadLetterOutput:
    """The output of a new topic of dead letters, which is there with its retry topic."""
    made = output(servers, f"orders-{uuid.uuid4().hex[:8]}.dlq", tmp_path)
    made.create_topics()
    made.create_topics()
    return made


@pytest.fixture
def topic(letters: DeadLetterOutput) -> str:
    """The topic of dead letters."""
    return letters.topic


def test_letters_do_not_expire(servers: str, letters: DeadLetterOutput) -> None:
    """An open letter is a record that is in no table yet."""
    with Admin(bootstrap_servers=servers) as admin:
        for name in (letters.topic, f"{letters.topic}.retry"):
            resource = ConfigResource(ConfigResourceType.TOPIC, name)
            configs = admin.describe_configs([resource])[resource]
            assert "-1" == configs["retention.ms"].value


def test_letters_show_once_when_the_batch_is_decided(servers: str, letters: DeadLetterOutput) -> None:
    """Before that, a task may run again; what failed attempts left is never published."""
    properties = {"bootstrap.servers": servers}
    lost, kept = letters.open("query", 1, 0), letters.open("query", 1, 0)
    for part in range(10):
        lost.add(records(part * 10, 10), TopicPartition("orders", 2), failures(10), DECODE)
    assert 100 == lost.finish().rows
    kept.add(records(0, 3), TopicPartition("orders", 2), failures(3), DECODE)
    files = [str(each) for each in kept.finish().files]
    assert [] == list(open_letters(properties, letters.topic))

    letters.publish("query", 1, files)
    letters.publish("query", 1, files)
    letters.clean()

    found = list(open_letters(properties, letters.topic))
    assert [0, 1, 2] == [each.letter.offset for each in found if each.letter]
    assert (b"k0", b"v0", 1_700_000_000_000) == read(servers, letters.topic, 3)[0][:3]


def test_a_record_too_large_for_the_topic_has_a_letter(
    servers: str, letters: DeadLetterOutput, topic: str
) -> None:
    """Its batch is decided: the pipeline would stop for good. Replayed without its value it would delete."""
    with Admin(bootstrap_servers=servers) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        changes = {resource: [AlterConfigOp.set("max.message.bytes", 4_000)]}
        assert not admin.incremental_alter_configs(changes, outcomes=True).errors
    found = records(0, 3)
    assert found.headers is not None
    values = pa.array([b"v0", b"v" * 5_000, b"v2"], pa.binary())
    headers = pa.array([[], [], [{"key": "own", "value": b"h" * 5_000}]], found.headers.type)
    task = letters.open("query", 1, 0)
    found = dataclasses.replace(found, values=values, headers=headers)
    task.add(found, TopicPartition("orders", 0), failures(3), DECODE)

    letters.publish("query", 1, [str(each) for each in task.finish().files])

    properties = {"bootstrap.servers": servers}
    shown = [each.letter for each in open_letters(properties, topic)]
    assert [None, True, True] == [each and each.omitted and each.omitted > 5_000 for each in shown]
    rows = [(key, value) for key, value, _, _ in read(servers, topic, 3)]
    assert [(b"k0", b"v0"), (b"k1", None), (None, None)] == rows
    assert (1, 2) == dataclasses.astuple(replay(properties, topic, LetterFilter()))
    assert [(b"k0", b"v0")] == [each[:2] for each in read(servers, f"{topic}.retry", 1)]
    assert (2, 0) == dataclasses.astuple(drop(properties, topic, LetterFilter()))


def test_a_timestamp_that_the_topic_refuses_is_a_header(
    servers: str, letters: DeadLetterOutput, topic: str
) -> None:
    """Its batch is decided: the pipeline would stop for good. Old formats have records without a time."""
    with Admin(bootstrap_servers=servers) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        changes = {resource: [AlterConfigOp.set("message.timestamp.after.max.ms", 3_600_000)]}
        assert not admin.incremental_alter_configs(changes, outcomes=True).errors
    task = letters.open("query", 1, 0)
    times = pa.array([-1, 1_700_000_000_000, 2**62], pa.int64())
    found = dataclasses.replace(records(0, 3), timestamps_ms=times)
    task.add(found, TopicPartition("orders", 0), failures(3), DECODE)

    letters.publish("query", 1, [str(each) for each in task.finish().files])

    rows = read(servers, topic, 3)
    assert [True, False, True] == ["dlq.timestamp" in names for _, _, _, names in rows]
    assert 1_700_000_000_000 == rows[1][2]


def test_a_task_that_fails_leaves_no_letter(letters: DeadLetterOutput) -> None:
    task = letters.open("query", 1, 0)
    task.add(records(0, 5), TopicPartition("orders", 0), failures(5), DECODE)
    task.abandon()
    letters.open("query", 1, 1).abandon()

    assert 0 == letters.open("query", 1, 2).finish().rows
    letters.publish("query", 1, [])
    assert [] == list(open_letters(letters.cluster.properties, letters.topic))


def test_each_letter_is_replayed_once(servers: str, letters: DeadLetterOutput, topic: str) -> None:
    """Letters that a command does not mean stay open, and a second command finds nothing to do."""
    properties = {"bootstrap.servers": servers}
    written(letters, 1, 0, 50)
    written(letters, 2, 50, 20, "TypeMismatch")

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
    servers: str, letters: DeadLetterOutput, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        f"name: shop\nstorage: {tmp_path}/s\ncluster: {{bootstrap.servers: '{servers}'}}\n"
        f"pipelines:\n  - {{name: {topic.removesuffix('.dlq')}, from: {{topic: o, value: {{format: json}}}}, "
        f"to: {{table: lake.o, format: delta}}}}\n"
    )
    name = topic.removesuffix(".dlq")
    written(letters, 1, 0, 3)
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, b"stray").result(60)

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
    shown = capsys.readouterr().out
    assert "4 open dead letters" in shown
    assert " stray " in shown
    assert 0 == run("drop", "--yes", "--since", "2100-01-01T00:00:00Z")["dropped"]
    assert 0 == run("retry", "--stage", "expect")["replayed"]
    assert 3 == run("retry", "--cause", "MalformedValue", "--since", "1h")["replayed"]
    assert 1 == run("drop", "--yes")["dropped"]
    assert 0 == run("list")["open"]
    assert 2 == command(["pipeline", "dlq", "drop", str(file), name])
    assert 2 == command(["pipeline", "dlq", "list", str(file), "other"])
    assert 2 == command(["pipeline", "dlq", "list", str(file), name, "--since", "soon"])
    assert "is no time" in capsys.readouterr().err
    missing = str(tmp_path / "missing.yaml")
    assert 2 == command(["pipeline", "dlq", "list", missing, name])
    assert f"{missing}: No such file or directory" in capsys.readouterr().err


def test_replayed_records_still_name_their_cause(servers: str, letters: DeadLetterOutput, topic: str) -> None:
    written(letters, 1, 0, 1)
    replay({"bootstrap.servers": servers}, topic, LetterFilter())

    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition(f"{topic}.retry", 0)])
        (record,) = consumer.poll(10.0)
    letter = read_letter(record.headers)
    assert letter is not None
    assert ("orders", 0, 0) == (letter.topic, letter.partition, letter.offset)


class TakenOver(LetterFilter):
    """Means every letter, and lets a second command begin while the first one is in its transaction."""

    servers = ""
    topic = ""

    def means(self, letter: Letter | None) -> bool:
        with Producer(bootstrap_servers=self.servers, transactional_id=f"kalda-{self.topic}") as second:
            second.init_transactions()
        return True


def test_a_command_that_another_one_takes_over_says_so(servers: str, tmp_path: Path) -> None:
    """The error of the fenced write names the broker and the epoch, which says nothing to an operator."""
    topic = f"orders-{uuid.uuid4().hex[:8]}.dlq"
    written(output(servers, topic, tmp_path), 0, 0, 1)
    TakenOver.servers, TakenOver.topic = servers, topic

    with pytest.raises(ProducerFencedError, match=f"another retry or drop of the dead letters of {topic}"):
        replay({"bootstrap.servers": servers}, topic, TakenOver())

    assert 1 == len(list(open_letters({"bootstrap.servers": servers}, topic)))
