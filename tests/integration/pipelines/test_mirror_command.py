"""`kalda mirror` between two brokers, as its user runs it."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.mirror_maker_records import read_checkpoint
from kalda.testing import KaldaProcess
from tests import forked_commands

OLD = {"kalda.as.version": "2.4"}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The target cluster."""
    with KaldaProcess(tmp_path_factory.mktemp("other") / "data") as process:
        yield process.bootstrap


def flow_file(directory: Path, source: str, target: str, topic: str, *more: str) -> Path:
    file = directory / f"{topic}.properties"
    lines = [
        f"clusters = {topic}-a, {topic}-b",
        f"{topic}-a.bootstrap.servers = {source}",
        f"{topic}-b.bootstrap.servers = {target}",
        f"{topic}-a->{topic}-b.enabled = true",
        f"topics = {topic}",
        "replication.factor = 1",
        "offset-syncs.topic.replication.factor = 1",
        *more,
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def kalda(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kalda", "mirror", *map(str, arguments)]
    done = forked_commands.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert code == done.returncode, done.stderr
    return done


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions)])


def fill(bootstrap: str, topic: str, numbers: Sequence[int]) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            value = None if number % 5 == 0 else b"%d" % number
            producer.send(topic, value, key=b"k%d" % number, headers=[("n", b"1")], partition=0)


def keys(bootstrap: str, topic: str) -> list[bytes | None]:
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes | None] = []
        while consumer.position(partition) < end:
            found += [record.key for record in consumer.poll(1.0)]
        return found


def expected(numbers: Sequence[int]) -> list[bytes]:
    return [b"k%d" % number for number in numbers]


def test_a_flow_runs_shows_its_lag_and_ends_by_sigterm(
    bootstrap: str, other: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("flow")
    create(bootstrap, topic)
    fill(bootstrap, topic, range(100))
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_consumer_group_offsets({topic: {TopicPartition(topic, 0): 40}})
    more = ("sync.group.offsets.enabled=true", "emit.checkpoints.interval.seconds=1", f"groups={topic}")
    file = flow_file(tmp_path, bootstrap, other, topic, *more, "tasks.max=3")
    copy = f"{topic}-a.{topic}"
    process = forked_commands.Popen(
        [sys.executable, "-m", "kalda", "mirror", "run", str(file), "--metrics-port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with Admin(bootstrap_servers=other) as admin:
            committed = None
            while committed is None:
                committed = admin.list_consumer_group_offsets([topic])[topic].get(TopicPartition(copy, 0))
        assert 40 == committed.offset
        fill(bootstrap, topic, range(100, 120))
        while (found := partition_status(file, topic))["copied"] != 120:
            time.sleep(0.1)
        assert (120, 0, copy) == (found["end"], found["lag"], found["copy"])
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert 0 == process.returncode, err
    assert "stopped" in out
    assert "without effect here: tasks.max" in err
    assert "metrics: http://127.0.0.1:" in err
    assert expected(range(120)) == keys(other, copy)
    with Consumer(bootstrap_servers=other) as consumer:
        partition = TopicPartition(f"{topic}-a.checkpoints.internal", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        first = next(iter(consumer.poll(10.0)))
        checkpoint = read_checkpoint(first.key or b"", first.value or b"")
        assert (topic, TopicPartition(copy, 0), 40, 40) == (
            checkpoint.group,
            checkpoint.partition,
            checkpoint.upstream,
            checkpoint.downstream,
        )
    with Admin(bootstrap_servers=other) as admin:
        assert {"heartbeats", f"{topic}-a.heartbeats"} <= set(admin.list_topics())


def partition_status(file: Path, topic: str) -> dict[str, object]:
    document = json.loads(kalda("status", file, "--json").stdout)
    return next(each for each in document["partitions"] if each["topic"] == topic)


def test_progress_survives_that_the_offsets_of_the_group_expire(
    bootstrap: str, other: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A coordinator deletes them after a week without a commit; the records would come twice."""
    topic = topic_name("expired")
    create(bootstrap, topic)
    fill(bootstrap, topic, range(10))
    file = flow_file(tmp_path, bootstrap, other, topic)
    kalda("once", file)
    with Admin(bootstrap_servers=other) as admin:
        admin.delete_consumer_groups([f"kalda-mirror-{topic}-a->{topic}-b"])
    fill(bootstrap, topic, range(10, 20))
    status = partition_status(file, topic)
    assert (10, 20, 10) == (status["copied"], status["end"], status["lag"])
    (flow,) = json.loads(kalda("once", file, "--json").stdout)["flows"]

    assert ("stopped", 10, 0) == (flow["state"], flow["records"], flow["lag"])
    assert expected(range(20)) == keys(other, f"{topic}-a.{topic}")


def test_status_of_other_flows_is_shown_while_a_cluster_is_away(
    bootstrap: str, other: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("away")
    create(bootstrap, topic)
    fill(bootstrap, topic, range(10))
    away = (
        f"{topic}-c.bootstrap.servers = 127.0.0.1:1",
        f"{topic}-c.default.api.timeout.ms = 1000",
        f"{topic}-a->{topic}-c.enabled = true",
    )
    file = flow_file(tmp_path, bootstrap, other, topic, *away)
    file.write_text(file.read_text().replace(f"{topic}-b\n", f"{topic}-b, {topic}-c\n", 1))
    done = kalda("status", file, "--json", code=1)

    assert topic in {each["topic"] for each in json.loads(done.stdout)["partitions"]}
    assert f"{topic}-a->{topic}-c: " in done.stderr


def test_a_copy_that_the_target_refuses_does_not_keep_others_away(
    bootstrap: str, other: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The name of a copy is longer than that of its original."""
    topic = topic_name("refused")
    long = f"{topic}-".ljust(249, "x")
    for name in (topic, long):
        create(bootstrap, name)
        fill(bootstrap, name, range(10))
    file = flow_file(tmp_path, bootstrap, other, topic)
    file.write_text(file.read_text().replace(f"topics = {topic}\n", f"topics = {topic}.*\n"))
    done = kalda("once", file, "--json", code=1)

    (flow,) = json.loads(done.stdout)["flows"]
    assert ("failed", 0) == (flow["state"], flow["restarts"])
    assert flow["records"] >= 10
    assert f"does not copy topic {long}: " in done.stderr
    assert expected(range(10)) == keys(other, f"{topic}-a.{topic}")


def test_a_topic_that_is_created_again_is_copied_from_its_beginning(
    bootstrap: str, other: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Its offsets begin again; those of the former topic would skip records."""
    topic = topic_name("again")
    create(bootstrap, topic)
    fill(bootstrap, topic, range(10))
    file = flow_file(tmp_path, bootstrap, other, topic)
    kalda("once", file)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_topics([topic])
        while topic in admin.list_topics():
            time.sleep(0.05)
    create(bootstrap, topic)
    fill(bootstrap, topic, range(10, 30))
    status = partition_status(file, topic)
    assert (None, 20, 20) == (status["copied"], status["end"], status["lag"])
    assert "deleted and created again" in kalda("once", file).stderr

    assert expected(range(30)) == keys(other, f"{topic}-a.{topic}")


def test_a_target_before_2_5_is_copied_to_at_least_once(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("old")
    create(bootstrap, topic)
    fill(bootstrap, topic, range(10))
    with KaldaProcess(tmp_path / "data", settings=OLD) as target:
        file = flow_file(tmp_path, bootstrap, target.bootstrap, topic)
        done = kalda("once", file)
        assert re.search(
            "copies at least once, not exactly once: brokers of .* are older than 2.5", done.stderr
        )
        fill(bootstrap, topic, range(10, 15))
        kalda("once", file)
        assert expected(range(15)) == keys(target.bootstrap, f"{topic}-a.{topic}")
        required = flow_file(
            tmp_path, bootstrap, target.bootstrap, topic, "exactly.once.source.support=enabled"
        )
        assert "has to copy exactly once, and brokers of" in kalda("once", required, code=1).stderr


def test_a_second_process_takes_over_and_the_first_one_ends(
    bootstrap: str, other: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("fenced")
    create(bootstrap, topic)
    fill(bootstrap, topic, range(10))
    file = flow_file(tmp_path, bootstrap, other, topic)
    command = [sys.executable, "-m", "kalda", "mirror", "run", str(file)]
    first = forked_commands.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while partition_status(file, topic)["copied"] != 10:
            time.sleep(0.1)
        kalda("once", file)
        fill(bootstrap, topic, range(10, 20))
        _, err = first.communicate(timeout=60)
    finally:
        first.kill()
    assert 1 == first.returncode
    assert f"another process runs mirror {topic}-a->{topic}-b" in err
    kalda("once", file)
    assert expected(range(20)) == keys(other, f"{topic}-a.{topic}")


def test_wrong_files_and_options_are_one_line(tmp_path: Path) -> None:
    file = flow_file(tmp_path, "127.0.0.1:1", "127.0.0.1:1", "orders", "orders-a->orders-b.topcs=x")
    assert re.fullmatch(
        r"kalda: .*orders.properties: `orders-a->orders-b.topcs` is not a setting .*\n",
        kalda("validate", file, code=2).stderr,
    )
    assert "No such file" in kalda("run", tmp_path / "none", code=2).stderr
    right = flow_file(tmp_path, "127.0.0.1:1", "127.0.0.1:1", "orders")
    assert "has no flow to X" in kalda("run", right, "--clusters", "X", code=2).stderr
    assert "orders-a.TOPIC" in kalda("validate", right).stdout
