"""What `kalda doctor` finds wrong with partitions."""

from kalda.inspection.doctor.findings import Severity
from tests.unit.inspection.doctor.snapshots import cluster, found, topic

SOUND = topic("sound", (0, (0, 1, 2), (0, 1, 2)), (1, (1, 2, 0), (1, 2, 0)), (2, (2, 0, 1), (2, 0, 1)))


def test_nothing_is_found_on_partitions_that_are_in_sync() -> None:
    assert {} == found(cluster(SOUND))


def test_partitions_without_a_leader_are_critical() -> None:
    findings = found(cluster(SOUND, topic("t", (-1, (0, 1, 2), (0,)))))

    assert {"partitions.offline"} == findings.keys()
    assert Severity.CRITICAL is findings["partitions.offline"].severity
    assert "t-0" == findings["partitions.offline"].evidence


def test_a_partition_below_min_insync_replicas_is_worse_than_one_that_lacks_replicas() -> None:
    topics = (topic("a", (0, (0, 1, 2), (0,))), topic("b", (0, (0, 1, 2), (0, 1))))
    findings = found(cluster(*topics, topic_settings={"a": {"min.insync.replicas": "2"}}))

    assert ["partitions.under-min-isr", "partitions.under-replicated"] == list(findings)
    assert "a-0 (ISR 1, minimum 2)" == findings["partitions.under-min-isr"].evidence
    assert "b-0; out of sync on broker 2" == findings["partitions.under-replicated"].evidence


def test_writes_need_no_more_in_sync_replicas_than_there_are() -> None:
    """As in Apache Kafka since 3.7: such a topic takes writes while all its replicas are in sync."""
    settings = {"a": {"min.insync.replicas": "3"}}
    findings = found(cluster(topic("a", (0, (0, 1), (0, 1))), topic_settings=settings))
    assert "partitions.under-min-isr" not in findings
    findings = found(cluster(topic("a", (0, (0, 1), (0,))), topic_settings=settings))
    assert "a-0 (ISR 1, minimum 2)" == findings["partitions.under-min-isr"].evidence


def test_leaders_that_are_not_preferred_are_advice_unless_they_are_many() -> None:
    moved = topic("t", (1, (0, 1, 2), (0, 1, 2)))
    many = found(cluster(moved, settings={"auto.leader.rebalance.enable": "false"}))
    few = found(cluster(moved, topic("u", *[(0, (0, 1, 2), (0, 1, 2))] * 20)))

    assert Severity.WARNING is many["partitions.not-preferred"].severity
    assert "t-0; auto.leader.rebalance.enable=false" == many["partitions.not-preferred"].evidence
    assert Severity.ADVICE is few["partitions.not-preferred"].severity
