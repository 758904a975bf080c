"""`kalda verify-replicas` on three brokers: equal copies, a copy that differs, a broker that is gone."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda import Admin, NewTopic, Producer
from kalda.records.batch import read_header, set_max_timestamp
from kalda.testing import ProcessCluster
from tests.integration.tools.commands import Commands


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), brokers=3) as running:
        yield running


def fill(cluster: ProcessCluster, topic: str, **config: str) -> None:
    """Write records to two partitions with three replicas, in small batches."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        new = NewTopic(topic, partitions=2, replication_factor=3, config={**config})
        admin.create_topics([new])
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0, batch_size=200) as producer:
        futures = [producer.send(topic, b"x" * 100, partition=number % 2) for number in range(50)]
        producer.flush(30)
        assert [None] * 50 == [future.exception() for future in futures]


def leader_and_followers(cluster: ProcessCluster, topic: str) -> tuple[int, tuple[int, ...]]:
    """The leader of partition 0, and its other replicas."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        partition = admin.describe_topics([topic])[topic].partitions[0]
    return partition.leader_id, tuple(each for each in partition.replicas if each != partition.leader_id)


def test_equal_replicas_are_compared_to_the_end(cluster: ProcessCluster) -> None:
    kalda = Commands(cluster.bootstrap)
    fill(cluster, "equal")
    done = kalda("verify-replicas", "equal")

    batches, line = done.stdout.split(" ", 1)
    assert int(batches) >= 10
    assert "batches of 2 partitions compared: 0 differ, 0 partitions not verified\n" == line
    summary = kalda.json("verify-replicas", "--topics-include", "equ.*")
    assert {
        "kind": "summary",
        "topics": 1,
        "partitions": 2,
        "batches": int(batches),
        "mismatches": 0,
        "unverified": 0,
    } == summary
    assert 0 == kalda.json("verify-replicas", "equal", "--time", -1)["batches"]


def test_compacted_topics_are_left_out_unless_asked_for(cluster: ProcessCluster) -> None:
    """Each broker compacts its own copy when it wants to."""
    kalda = Commands(cluster.bootstrap)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        new = NewTopic("compacted", partitions=1, replication_factor=3, config={"cleanup.policy": "compact"})
        admin.create_topics([new])
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("compacted", b"v", key=b"k").result(30)

    done = kalda.refused("verify-replicas", "compacted")
    assert (2, "kalda: there is no topic to verify\n") == (done.code, done.stderr.splitlines(True)[-1])
    assert 1 == kalda.json("verify-replicas", "compacted", "--include-compacted")["batches"]


def test_a_copy_that_differs_is_named(cluster: ProcessCluster) -> None:
    """The bytes are valid in themselves: only the comparison can find this."""
    kalda = Commands(cluster.bootstrap)
    fill(cluster, "differs")
    _, (follower, _) = leader_and_followers(cluster, "differs")
    cluster.stop(follower)
    change_first_batch(cluster.log_directories[follower] / "differs-0" / f"{0:020d}.log")
    cluster.start(follower)
    wait_in_sync(kalda, "differs")

    done = kalda.run("verify-replicas", "differs", "--json")
    *found, summary = map(json.loads, done.stdout.splitlines())
    assert {"mismatch"} == {each["kind"] for each in found}
    assert {("differs", 0)} == {(each["topic"], each["partition"]) for each in found}
    assert all("has unmatched checksum at offset " in each["message"] for each in found)
    assert len(found) == summary["mismatches"] > 0
    assert (1, "kalda: replicas differ, or could not be read: see the lines above\n") == (
        done.code,
        done.stderr,
    )


def test_a_broker_that_is_gone_is_named(cluster: ProcessCluster) -> None:
    kalda = Commands(cluster.bootstrap)
    fill(cluster, "gone")
    _, (follower, _) = leader_and_followers(cluster, "gone")
    cluster.stop(follower)
    try:
        done = kalda.run("verify-replicas", "gone")
    finally:
        cluster.start(follower)

    assert 1 == done.code
    assert f"cannot be verified from offset 0 on: replica {follower}: " in done.stdout
    assert "0 batches of 2 partitions compared: 0 differ, 2 partitions not verified" in done.stdout


def change_first_batch(log: Path) -> None:
    """Give the first batch another timestamp and a CRC that fits."""
    data = bytearray(log.read_bytes())
    header = read_header(data)
    batch = data[: header.size]
    set_max_timestamp(batch, 0, header.max_timestamp + 1)
    log.write_bytes(bytes(batch) + bytes(data[header.size :]))


def wait_in_sync(kalda: Commands, topic: str) -> None:
    deadline = time.monotonic() + 30
    with Admin(bootstrap_servers=kalda.bootstrap) as admin:
        while time.monotonic() < deadline:
            partitions = admin.describe_topics([topic])[topic].partitions
            if all(len(each.isr) == 3 for each in partitions):
                return
            time.sleep(0.1)
    raise AssertionError(f"{topic} is not in sync after 30 seconds")
