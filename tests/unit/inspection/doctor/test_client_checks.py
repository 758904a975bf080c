"""What `kalda doctor` finds wrong with groups and transactions."""

from kalda.common.types import TopicPartition
from kalda.inspection.doctor.findings import Severity
from kalda.inspection.doctor.snapshot import GroupFacts, TransactionFacts
from kalda.inspection.hanging_transactions import OpenTransaction
from tests.unit.inspection.doctor.snapshots import cluster, found, topic

T = topic("t", (0, (0, 1, 2), (0, 1, 2)))
P = TopicPartition("t", 0)
MINUTE_MS = 60_000


def group(committed: int, *, state: str = "Empty", has_members: bool = False) -> GroupFacts:
    assigned = frozenset({P}) if has_members else frozenset()
    return GroupFacts(group_id="g", state=state, committed={P: committed}, assigned=assigned)


def test_a_group_that_lost_records_is_named() -> None:
    findings = found(cluster(T, groups=[group(3)], ends={P: (5, 5)}))

    assert "g at t-0 (committed 3, first record 5)" == findings["groups.behind-retention"].evidence


def test_lag_without_members_is_advice() -> None:
    findings = found(cluster(T, groups=[group(3)], ends={P: (0, 10)}))

    assert ["groups.dead-lag"] == list(findings)
    assert "g (lag 7)" == findings["groups.dead-lag"].evidence
    assert Severity.ADVICE is findings["groups.dead-lag"].severity


def test_a_partition_that_no_member_reads_is_named() -> None:
    assert ["groups.unassigned"] == list(
        found(cluster(T, groups=[group(3, state="Stable")], ends={P: (0, 10)}))
    )
    assert {} == found(cluster(T, groups=[group(3, state="Stable", has_members=True)], ends={P: (0, 10)}))


def test_offsets_of_a_deleted_topic_are_advice() -> None:
    findings = found(cluster(topic("u", (0, (0, 1, 2), (0, 1, 2))), groups=[group(3)]))

    assert "g (t)" == findings["groups.deleted-topic"].evidence


def test_old_and_hanging_transactions_are_named() -> None:
    young = TransactionFacts(transactional_id="young", start_ms=95 * MINUTE_MS, timeout_ms=MINUTE_MS)
    old = TransactionFacts(transactional_id="old", start_ms=60 * MINUTE_MS, timeout_ms=90 * MINUTE_MS)
    hanging = OpenTransaction(P, 7, 0, -1, 42, 0)
    findings = found(cluster(T, transactions=[young, old], hanging=[hanging], now_s=100 * MINUTE_MS / 1000))

    assert ["transactions.hanging", "transactions.old"] == list(findings)
    assert "t-0 at offset 42 (producer 7)" == findings["transactions.hanging"].evidence
    assert "old (open for 40 minutes, timeout 5400000 ms)" == findings["transactions.old"].evidence
