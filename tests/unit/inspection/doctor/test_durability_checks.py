"""What `kalda doctor` finds wrong with replication factors and the settings beside them."""

from kalda.clients.admin.partitions import PartitionReassignment
from kalda.common.types import TopicPartition
from kalda.inspection.doctor.findings import Severity
from tests.unit.inspection.doctor.snapshots import cluster, found, topic


def test_topics_with_one_replica_are_found_in_a_cluster_of_three() -> None:
    lonely = topic("t", (0, (0,), (0,)))
    offsets = topic("__consumer_offsets", (0, (0, 1), (0, 1)), is_internal=True)

    findings = found(cluster(lonely, offsets))
    assert ["topics.one-replica", "topics.internal-replicas"] == list(findings)
    assert "t; the cluster has 3 brokers" == findings["topics.one-replica"].evidence
    assert "__consumer_offsets (2)" == findings["topics.internal-replicas"].evidence
    assert {} == found(cluster(lonely, offsets, brokers=(0, 1)))


def test_a_replica_that_is_being_added_does_not_count() -> None:
    moving = topic("t", (0, (0, 1), (0,)))
    moves = {TopicPartition("t", 0): PartitionReassignment((0, 1), (1,), ())}

    assert "topics.one-replica" in found(cluster(moving, reassignments=moves))


def test_min_insync_replicas_is_compared_with_the_replicas() -> None:
    topics = [topic(name, (0, (0, 1), (0, 1))) for name in ("above", "equal")]
    findings = found(
        cluster(
            *topics,
            topic("low", (0, (0, 1, 2), (0, 1, 2))),
            topic_settings={
                "above": {"min.insync.replicas": "3"},
                "equal": {"min.insync.replicas": "2"},
                "low": {"min.insync.replicas": "1"},
            },
        )
    )

    assert "above (minimum 3, replicas 2)" == findings["topics.min-isr-above-replicas"].evidence
    assert Severity.WARNING is findings["topics.min-isr-above-replicas"].severity
    assert "equal (minimum 2, replicas 2)" == findings["topics.min-isr-equals-replicas"].evidence
    assert Severity.ADVICE is findings["topics.min-isr-one"].severity


def test_unclean_elections_are_found_on_brokers_and_topics() -> None:
    name = "unclean.leader.election.enable"
    findings = found(
        cluster(
            topic("t", (0, (0, 1, 2), (0, 1, 2))),
            settings={name: "true"},
            topic_settings={"t": {name: "true"}},
        )
    )

    assert f"{name}=true: brokers 0, 1, 2; topics t" == findings["settings.unclean-election"].evidence


def test_the_transaction_log_needs_a_minimum_below_its_factor_and_above_one() -> None:
    def severity(least: str, factor: str) -> Severity | None:
        settings: dict[str, str | None] = {
            "transaction.state.log.min.isr": least,
            "transaction.state.log.replication.factor": factor,
        }
        finding = found(cluster(settings=settings)).get("settings.transaction-log-min-isr")
        return None if finding is None else finding.severity

    assert Severity.CRITICAL is severity("4", "3")
    assert Severity.WARNING is severity("3", "3")
    assert Severity.WARNING is severity("1", "3")
    assert severity("2", "3") is None
    assert severity("1", "1") is None


def test_a_default_of_one_replica_is_advice_in_a_cluster_of_three() -> None:
    findings = found(cluster(settings={"default.replication.factor": "1"}))

    assert Severity.ADVICE is findings["settings.default-one-replica"].severity
    assert {} == found(cluster(brokers=(0,), settings={"default.replication.factor": "1"}))
