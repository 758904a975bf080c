"""Checks a pipeline's ledger against itself, the log that it read and the table that it wrote.

It decides and reads nothing: the caller brings the records of the ledger, the bounds of the log and the
table's count of rows, each from its own source. Nothing here repairs; `kalda pipeline replay` does.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kalda.common.types import TopicPartition
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.pipelines.ledger.completeness import Completeness, estimate
from kalda.pipelines.ledger.continuity import find_breaks, of_newest_topics
from kalda.pipelines.value_totals import Totals, added

COUNTS: Final = ("records", "rows_out", "dlq", "filtered", "gaps", "late")


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Which offsets a partition's log holds now."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """What the ledger says of one partition, beside what its log holds."""

    topic_partition: TopicPartition
    start: int
    end: int
    totals: Mapping[str, int]
    """The sums of the accounts' counts, by their names."""
    batch_count: int
    lag: int | None
    """Offsets of the log that no batch has reached; None where the partition does not exist any more."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit."""

    pipeline: str
    target: str
    partitions: tuple[PartitionAudit, ...]
    findings: tuple[str, ...]
    """What is wrong, one sentence each; empty if all agrees."""
    table_rows: int | None
    completeness: Completeness | None
    not_compared: str | None = None
    """Why the rows of the target are not compared with the ledger; None where they are."""

    @property
    def is_good(self) -> bool:
        """Whether everything agrees."""
        return not self.findings

    def total(self, name: str) -> int:
        """Return the sum of a count over all partitions."""
        return sum(each.totals[name] for each in self.partitions)


def audit(
    pipeline: str,
    target: str,
    records: Sequence[LedgerRecord],
    *,
    bounds: Mapping[TopicPartition, LogBounds],
    table_rows: int | None,
    table_values: Totals | None = None,
    uncompared: Collection[str] = (),
    is_plain: bool = False,
    shared: Sequence[LedgerRecord] = (),
    may_repeat: bool = False,
    not_compared: str | None = None,
    faults: Sequence[str] = (),
) -> AuditReport:
    """Check everything that can be checked without reading records.

    Args:
        records: the ledger of this pipeline.
        bounds: of the partitions that it reads.
        table_rows: how many rows the table has; None where rows replace each other or are aggregated, or for
            a topic.
        table_values: the totals of the table's columns; None where they are not compared.
        uncompared: columns whose values a table keeps in another form.
        is_plain: whether the pipeline has no transform, so that its rows have the values that were decoded.
        shared: the records of other pipelines that write the same table.
        may_repeat: whether an offset may be in several batches, because rows replace each other.
        not_compared: why there is neither `table_rows` nor `table_values`.
        faults: values of the ledger's topic that are no records.
    """
    findings = list(faults)
    findings += [str(each) for each in find_breaks(records, may_repeat=may_repeat)]
    by_partition: dict[TopicPartition, list[LedgerRecord]] = {}
    for each in records:
        by_partition.setdefault(each.topic_partition, []).append(each)
    partitions = []
    for topic_partition, own in sorted(by_partition.items()):
        found = _partition(topic_partition, own, bounds.get(topic_partition))
        partitions.append(found)
        if found.lag is not None and found.lag < 0:
            findings.append(
                f"{topic_partition}: the ledger accounts for offsets up to {found.end - 1}, but the log ends "
                f"at {bounds[topic_partition].end}; was the topic re-created?"
            )
    # Not a finding: a query that starts at the latest offset reads a partition only when it has new records.
    for topic_partition in sorted(bounds.keys() - by_partition.keys()):
        limits = bounds[topic_partition]
        none = dict.fromkeys(COUNTS, 0)
        lag = limits.end - limits.start
        partitions.append(PartitionAudit(topic_partition, limits.start, limits.start, none, 0, lag))
    report = AuditReport(pipeline, target, tuple(partitions), (), table_rows, estimate(records))
    accounted = report.total("rows_out") + sum(each.account.rows_out for each in shared)
    written = _values(records, "written")
    if is_plain:
        decoded = _values(records, "decoded")
        findings += _differences("decoded", decoded, f"handed to {target}", written)
    if table_values is not None:
        expected = _values([*records, *shared], "written")
        findings += _differences(
            "accounted for by the ledger",
            expected and tuple(each for each in expected if each.name not in uncompared),
            f"in {target}",
            table_values,
        )
    if table_rows is not None and table_rows != accounted:
        findings.append(f"{target} has {table_rows} rows, but the ledger accounts for {accounted}")
    return replace(report, findings=tuple(findings), not_compared=not_compared)


def _values(records: Sequence[LedgerRecord], name: str) -> Totals | None:
    """Return the totals of all records; None where those of a batch are unknown."""
    totals: Totals | None = ()
    rows = 0
    for each in records:
        totals = added(totals, rows, getattr(each.account, name), each.account.rows_out)
        rows += each.account.rows_out
    return totals


def _differences(what: str, expected: Totals | None, where: str, found: Totals | None) -> list[str]:
    """Return the columns whose values are not the same; one that is all null may be missing."""
    if expected is None or found is None:
        return []
    others = {each.name.lower(): each for each in found}
    differences = []
    for each in expected:
        other = others.get(each.name.lower())
        if other is None:
            if each.checksum:
                differences.append(f"the column {each.name} has values that were {what}, and is not {where}")
        elif other.nulls != each.nulls:
            differences.append(
                f"the column {each.name} has {each.nulls} nulls {what}, and {other.nulls} {where}"
            )
        elif other.checksum != each.checksum:
            differences.append(f"the values of the column {each.name} {what} are not those {where}")
    return differences


def _partition(
    topic_partition: TopicPartition, records: Sequence[LedgerRecord], bounds: LogBounds | None
) -> PartitionAudit:
    end = max(each.account.end for each in of_newest_topics(records))
    return PartitionAudit(
        topic_partition=topic_partition,
        start=min(each.account.start for each in records),
        end=end,
        totals={name: sum(getattr(each.account, name) for each in records) for name in COUNTS},
        batch_count=len({(each.query_id, each.batch_id) for each in records}),
        lag=bounds.end - end if bounds is not None else None,
    )
