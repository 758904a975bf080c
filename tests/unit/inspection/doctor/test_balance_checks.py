"""What `kalda doctor` finds wrong with how leaders and replicas are spread, and with moves."""

from kalda.clients.admin.log_dirs import LogDirDescription, ReplicaInfo
from kalda.clients.admin.partitions import PartitionReassignment
from kalda.common.types import TopicPartition
from tests.unit.inspection.doctor.snapshots import cluster, found, topic

P = TopicPartition("t", 0)
GIB = 2**30


def test_a_broker_with_most_replicas_is_named() -> None:
    heavy = topic("t", *[(0, (0,), (0,))] * 30, *[(1, (1,), (1,))] * 5)
    findings = found(cluster(heavy, brokers=(0, 1)))

    assert ["balance.replicas"] == list(findings)
    assert (
        "brokers 0 are above the mean of 17.5; by broker: 0=30, 1=5" == findings["balance.replicas"].evidence
    )


def test_a_broker_with_most_leaders_is_named_where_replicas_are_even() -> None:
    even = topic("t", *[(0, (0, 1), (0, 1))] * 30)

    assert "balance.leaders" in found(cluster(even, brokers=(0, 1)))


def test_a_few_partitions_are_never_skewed() -> None:
    assert {} == found(cluster(topic("t", *[(0, (0,), (0,))] * 8), brokers=(0, 1)))


def test_replicas_in_one_rack_and_brokers_without_one_are_named() -> None:
    racks = {0: "a", 1: "a", 2: "b"}
    together = topic("t", (0, (0, 1), (0, 1)), (0, (0, 2), (0, 2)))

    assert "t-0 (a)" == found(cluster(together, racks=racks))["balance.one-rack"].evidence
    assert {"balance.no-rack"} == found(cluster(racks={0: "a"})).keys()
    assert {} == found(cluster(together, racks={0: "a", 1: "a", 2: "a"}))


def test_a_directory_that_is_much_fuller_is_named() -> None:
    dirs = {
        f"/d{number}": LogDirDescription({P: ReplicaInfo(size, 0, False)})
        for number, size in enumerate((10 * GIB, GIB, GIB))
    }

    assert "/d0 of broker 0 has 10.0 GiB, the others 1.0 GiB" == (
        found(cluster(log_dirs={0: dirs}))["balance.directories"].evidence
    )


def test_moves_that_do_not_go_on_are_named() -> None:
    partitions = topic("t", (0, (0, 1, 2), (0, 1, 2)))
    to_absent = {P: PartitionReassignment((0, 1, 7), (7,), (0,))}
    to_running = {P: PartitionReassignment((0, 1, 2), (2,), (0,))}

    assert "t-0 (to broker 7)" == (
        found(cluster(partitions, reassignments=to_absent))["reassignment.stuck"].evidence
    )
    stalled = cluster(partitions, reassignments=to_running, stalled_moves=frozenset({P}))
    assert "t-0 (no progress)" == found(stalled)["reassignment.stuck"].evidence
    assert {"reassignment.in-progress"} == found(cluster(partitions, reassignments=to_running)).keys()


def test_a_throttle_without_moves_is_named() -> None:
    settings: dict[str, str | None] = {"leader.replication.throttled.rate": "1000"}

    assert "leader.replication.throttled.rate=1000 on broker 0" == (
        found(cluster(brokers=(0,), settings=settings))["reassignment.throttle-left"].evidence
    )
