"""Defines the account of a micro-batch: counts of its records, for each range of offsets.

An account is written into the commit of the table and into the ledger, so it proves that no record was lost
on the way. It counts nothing itself. Every number comes from the task that did the work; a number that is
computed from the others would make the balance true by definition.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from kalda.common.types import TopicPartition
from kalda.pipelines.value_totals import Totals, added, from_json, to_json


class AccountError(ValueError):
    """The numbers of an account contradict each other: records were lost or counted twice."""


_TOTALS: Final = ("decoded", "written")
_COUNTS: Final = ("records", "rows_out", "dlq", "filtered", "gaps", "late")


@dataclass(frozen=True, slots=True)
class RangeAccount:
    """What became of the offsets from `start` up to, but not including, `end` of one partition.

    The invariants are ``end - start == records + gaps`` and ``records == rows_out + dlq + filtered``.

    Raises:
        AccountError: an invariant does not hold.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int
    """Records that were read: data of committed transactions or of none, tombstones included."""
    rows_out: int
    """Records that went on to the target. Late rows that go to another table count here."""
    dlq: int = 0
    """Records that went to the dead-letter queue, or were skipped where `on_error` is `skip`."""
    filtered: int = 0
    """Records that the transform or an expectation dropped on purpose."""
    gaps: int = 0
    """Offsets without a record: control records, aborted transactions, compacted records."""
    late: int = 0
    """Of `rows_out`: how many were later than the pipeline allows."""
    event_time_min: int | None = None
    """The least event time of the rows, in milliseconds since the epoch; None without event times."""
    event_time_max: int | None = None
    passed: int = 0
    """Of `dlq`: how many an operator let the pipeline pass over."""
    decoded: Totals | None = None
    """Totals of the columns before the transform, of the records in `rows_out`; None where unknown."""
    written: Totals | None = None
    """Totals of the columns that were handed to the target, of the same records; None where unknown."""
    topic_id: str | None = None
    """The topic that the offsets are of, as text; None where the cluster has no ids, or in older accounts."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 0:
                raise AccountError(f"{self.place}: {name}={getattr(self, name)} is negative")
        if self.end - self.start != self.records + self.gaps:
            raise AccountError(
                f"{self.place} has {self.end - self.start} offsets, but {self.records} records and "
                f"{self.gaps} gaps were counted"
            )
        if self.records != self.rows_out + self.dlq + self.filtered:
            raise AccountError(
                f"{self.place} has {self.records} records, but {self.rows_out} rows out, {self.dlq} in the "
                f"dead-letter queue and {self.filtered} filtered were counted"
            )
        if not 0 <= self.passed <= self.dlq:
            raise AccountError(
                f"{self.place}: {self.passed} passed records of {self.dlq} that became no rows"
            )
        if self.late > self.rows_out:
            raise AccountError(f"{self.place}: {self.late} late rows of {self.rows_out} rows out")

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def place(self) -> str:
        """The range for a message: ``orders-0 [10, 20)``."""
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"

    def followed_by(self, other: "RangeAccount") -> "RangeAccount":
        """Return the account of this range and the one that begins where it ends.

        Raises:
            AccountError: `other` is not the next range of the same partition.
        """
        is_same = (self.topic_partition, self.topic_id) == (other.topic_partition, other.topic_id)
        if not is_same or self.end != other.start:
            raise AccountError(f"{other.place} does not follow {self.place}")
        return RangeAccount(
            self.topic,
            self.partition,
            self.start,
            other.end,
            self.records + other.records,
            self.rows_out + other.rows_out,
            self.dlq + other.dlq,
            self.filtered + other.filtered,
            self.gaps + other.gaps,
            self.late + other.late,
            passed=self.passed + other.passed,
            event_time_min=_of_known(min, self.event_time_min, other.event_time_min),
            event_time_max=_of_known(max, self.event_time_max, other.event_time_max),
            decoded=added(self.decoded, self.rows_out, other.decoded, other.rows_out),
            written=added(self.written, self.rows_out, other.written, other.rows_out),
            topic_id=self.topic_id,
        )

    def without_totals(self) -> "RangeAccount":
        """Return the account without what it says of values: a commit has no room for each column."""
        return replace(self, decoded=None, written=None)

    def to_json(self) -> dict[str, object]:
        """Return the fields by name; unknown totals are left out."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in _TOTALS:
            totals = document.pop(name)
            if totals is not None:
                document[name] = to_json(totals)
        if self.topic_id is None:
            del document["topic_id"]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "RangeAccount":
        """Read what `to_json` returned; names of a later version are ignored.

        Raises:
            AccountError: a field is missing or has another type, or an invariant does not hold.
        """
        known = {field.name for field in fields(cls)}
        try:
            given = {name: value for name, value in document.items() if name in known}
            given |= {name: from_json(given[name]) for name in _TOTALS if name in given}
            return cls(**given)
        except AccountError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise AccountError(f"this is no account of a range: {dict(document)}") from error


@dataclass(frozen=True, slots=True)
class BatchAccount:
    """The accounts of one micro-batch, one for each partition that it read, in order of the partitions.

    Raises:
        AccountError: a partition occurs twice, or the order differs.
    """

    query_id: str
    """Stable over restarts: the id of the Structured Streaming query, from its checkpoint."""
    batch_id: int
    """Rises by one for each batch; repeated when a batch is replayed."""
    ranges: tuple[RangeAccount, ...]

    def __post_init__(self) -> None:
        partitions = [each.topic_partition for each in self.ranges]
        if partitions != sorted(set(partitions)):
            raise AccountError(f"batch {self.batch_id}: its partitions are not sorted and distinct")

    @classmethod
    def of_parts(cls, query_id: str, batch_id: int, parts: Iterable[RangeAccount]) -> "BatchAccount":
        """Return the account of a batch from those of its tasks, which may split a partition's range.

        Raises:
            AccountError: the parts of a partition overlap or leave a hole.
        """
        merged: list[RangeAccount] = []
        for part in sorted(parts, key=lambda each: (each.topic_partition, each.start, each.end)):
            if merged and merged[-1].topic_partition == part.topic_partition:
                merged[-1] = merged[-1].followed_by(part)
            else:
                merged.append(part)
        return cls(query_id, batch_id, tuple(merged))

    def without_totals(self) -> "BatchAccount":
        """Return the account without the totals of values."""
        return replace(self, ranges=tuple(each.without_totals() for each in self.ranges))

    def total(self, name: str) -> int:
        """Return the sum of a count, e.g. ``total("rows_out")``, over all ranges."""
        assert name in _COUNTS, name
        return sum(getattr(each, name) for each in self.ranges)

    def starts(self) -> dict[TopicPartition, int]:
        """Return the first offset of each range."""
        return {each.topic_partition: each.start for each in self.ranges}

    def ends(self) -> dict[TopicPartition, int]:
        """Return the offset behind the last of each range."""
        return {each.topic_partition: each.end for each in self.ranges}

    def to_json(self) -> str:
        """Return the account as one line of JSON."""
        document = {
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "ranges": [each.to_json() for each in self.ranges],
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "BatchAccount":
        """Read what `to_json` returned.

        Raises:
            AccountError: the text is something else.
        """
        try:
            document = json.loads(text)
            ranges = tuple(RangeAccount.from_json(each) for each in document["ranges"])
            return cls(str(document["query_id"]), int(document["batch_id"]), ranges)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, AccountError):
                raise
            raise AccountError(f"this is no account of a batch: {text[:200]}") from error


def _of_known(choose: Callable[[list[int]], int], one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return choose(known) if known else None
