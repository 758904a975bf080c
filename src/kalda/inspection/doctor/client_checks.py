"""Checks of groups and transactions. Pure functions."""

from collections.abc import Iterator
from typing import Final

from kalda.inspection.doctor.findings import Finding, Severity, counted, some
from kalda.inspection.doctor.snapshot import ClusterSnapshot

_OLD_TRANSACTION_MS: Final = 600_000
"""Ten minutes: a transaction of a stream or a batch takes seconds, and a default one is aborted after one."""

_EMPTY: Final = "Empty"


def check_groups(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find groups that lost records, leave partitions unread, have no members, or read deleted topics."""
    lost, alone, dead, gone = [], [], [], []
    for group in sorted(cluster.groups, key=lambda each: each.group_id):
        lag = 0
        for partition, committed in sorted(group.committed.items()):
            ends = cluster.ends.get(partition)
            if ends is None:
                if cluster.topics and partition.topic not in cluster.topics:
                    gone.append(f"{group.group_id} ({partition.topic})")
                continue
            start, end = ends
            if committed < start:
                lost.append(f"{group.group_id} at {partition} (committed {committed}, first record {start})")
            elif group.state != _EMPTY and partition not in group.assigned and end > committed:
                alone.append(f"{group.group_id} at {partition} (lag {end - committed})")
            lag += max(0, end - committed)
        if group.state == _EMPTY and lag:
            dead.append(f"{group.group_id} (lag {lag})")
    if lost:
        yield Finding(
            check="groups.behind-retention",
            severity=Severity.WARNING,
            what=f"{counted(lost, 'position of a group is', 'positions of groups are')} in front of the "
            "first record that is left.",
            evidence=some(lost),
            why="The records between were deleted before the group read them.",
            mend="kalda groups describe GROUP  # then raise retention.ms, or delete a group that is not used",
        )
    if alone:
        yield Finding(
            check="groups.unassigned",
            severity=Severity.WARNING,
            what=f"{counted(alone, 'partition has', 'partitions have')} lag in a group with members, and "
            "none of them reads it.",
            evidence=some(alone),
            why="Members that subscribe to other topics, or assign partitions themselves, leave it alone.",
            mend="kalda groups describe GROUP --members --verbose",
        )
    if dead:
        yield Finding(
            check="groups.dead-lag",
            severity=Severity.ADVICE,
            what=f"{counted(dead, 'group has', 'groups have')} lag and no members.",
            evidence=some(dead),
            why="If the application is meant to run, it does not; else alerts on lag ring for nobody.",
            mend="start its consumers, or: kalda groups delete GROUP",
        )
    if gone:
        found = list(dict.fromkeys(gone))
        yield Finding(
            check="groups.deleted-topic",
            severity=Severity.ADVICE,
            what=f"{counted(found, 'group has', 'groups have')} offsets of topics that do not exist.",
            evidence=some(found),
            why="They show as lag that never shrinks.",
            mend="kalda groups delete-offsets GROUP --topic TOPIC",
        )


def check_transactions(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find transactions that are open for long, and those that no coordinator will end."""
    old = [
        f"{each.transactional_id} (open for {age // 60_000} minutes, timeout {each.timeout_ms} ms)"
        for each in sorted(cluster.transactions, key=lambda each: each.start_ms)
        if (age := int(cluster.now_s * 1000) - each.start_ms) > _OLD_TRANSACTION_MS
    ]
    if old:
        yield Finding(
            check="transactions.old",
            severity=Severity.WARNING,
            what=f"{counted(old, 'transaction is', 'transactions are')} open for more than ten minutes.",
            evidence=some(old),
            why="Readers of committed records wait in front of it, on each of its partitions.",
            mend="kalda transactions describe ID; kalda transactions force-terminate ID",
        )
    if cluster.hanging:
        yield Finding(
            check="transactions.hanging",
            severity=Severity.CRITICAL,
            what=f"{counted(cluster.hanging, 'transaction hangs', 'transactions hang')}: no coordinator will "
            "end it.",
            evidence=some(
                f"{each.partition} at offset {each.start_offset} (producer {each.producer_id})"
                for each in cluster.hanging
            ),
            why="Readers of committed records wait there for ever, and compaction stops.",
            mend="kalda transactions abort --topic TOPIC --partition N --start-offset OFFSET",
        )
