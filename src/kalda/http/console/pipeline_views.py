"""Computes what pages show of Spark queries and pipelines from groups, dead letters and the ledger. No I/O.

A pipeline commits its progress to the group ``kalda-pipeline-NAME``, a query of the data source to its own
group with metadata that names the source. The ledger has what became of each batch. Nothing here comes from
the driver: where it runs and whether it is alive is in the storage of the pipeline's file, which only
`kalda pipeline status FILE` reads.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.clients.values import OffsetAndMetadata
from kalda.common.received_json import loads_received
from kalda.common.types import TopicPartition
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.pipelines.spec.model import retry_topic

GROUP_PREFIX: Final = "kalda-pipeline-"
_DLQ_SUFFIX: Final = ".dlq"
_RETRY_SUFFIX: Final = retry_topic("")
_RATE_BATCHES: Final = 20
_BY_SPARK: Final = ("kalda-spark", "kalda")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a pipeline, over all partitions that it read."""

    number: int
    committed_ms: int
    records: int
    rows: int
    dead: int
    filtered: int
    late: int


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A Spark query, or a pipeline."""

    name: str
    group: str | None
    is_pipeline: bool
    """Whether `kalda pipeline` runs it; else it is a query of the data source."""
    topics: Sequence[str]
    target: str
    lag: int | None
    dead: int | None
    """Open dead letters; None without a topic of dead letters."""
    batches: Sequence[Batch]
    """The newest first."""

    @property
    def rate(self) -> float | None:
        """Records a second over the last batches; None without two."""
        recent = self.batches[:_RATE_BATCHES]
        if len(recent) < 2:
            return None
        seconds = (recent[0].committed_ms - recent[-1].committed_ms) / 1000
        return sum(each.records for each in recent[:-1]) / seconds if seconds > 0 else None

    @property
    def last_ms(self) -> int | None:
        """When the last batch was committed."""
        return self.batches[0].committed_ms if self.batches else None


def is_of_spark(offsets: Iterable[OffsetAndMetadata]) -> bool:
    """Return whether a query of the data source has committed offsets."""
    return any(_by(each.metadata) == "kalda-spark" for each in offsets)


def _by(metadata: str) -> str | None:
    if not metadata.startswith("{"):
        return None
    try:
        document = loads_received(metadata)
    except ValueError:
        return None
    by = document.get("by") if isinstance(document, dict) else None
    return by if isinstance(by, str) else None


def batches_by_pipeline(records: Iterable[LedgerRecord]) -> dict[str, tuple[str, list[Batch]]]:
    """Return the target and the batches of each pipeline, the newest first."""
    targets: dict[str, str] = {}
    found: dict[str, dict[tuple[str, int], Batch]] = {}
    for each in records:
        account = each.account
        targets[each.pipeline] = each.target
        of_pipeline = found.setdefault(each.pipeline, {})
        key = (each.query_id, each.batch_id)
        before = of_pipeline.get(key, Batch(each.batch_id, 0, 0, 0, 0, 0, 0))
        of_pipeline[key] = Batch(
            each.batch_id,
            max(before.committed_ms, each.committed_ms),
            before.records + account.records,
            before.rows + account.rows_out,
            before.dead + account.dlq,
            before.filtered + account.filtered,
            before.late + account.late,
        )
    return {
        name: (targets[name], sorted(batches.values(), key=lambda batch: -batch.committed_ms))
        for name, batches in found.items()
    }


def dead_letter_topic(pipeline: str, committed: Iterable[TopicPartition]) -> str:
    """Return the topic of a pipeline's dead letters, from the partitions that its group has committed.

    Its file may name any topic. The console does not have the file, but the pipeline reads the topic of
    replayed letters, whose name is made from that one. Where it reads several such topics, or none so far,
    the usual name counts.
    """
    usual = f"{pipeline}{_DLQ_SUFFIX}"
    read = {
        each.topic.removesuffix(_RETRY_SUFFIX) for each in committed if each.topic.endswith(_RETRY_SUFFIX)
    }
    return usual if usual in read or len(read) != 1 else read.pop()


def dead_letter_topics(
    names: Iterable[str], committed: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]
) -> set[str]:
    """Return which of the topics have dead letters of pipelines, by their names and by who reads them."""
    chosen = {
        dead_letter_topic(group.removeprefix(GROUP_PREFIX), offsets)
        for group, offsets in committed.items()
        if group.startswith(GROUP_PREFIX)
    }
    return {each for each in names if each in chosen or (each.endswith(_DLQ_SUFFIX) and each != _DLQ_SUFFIX)}


def pipeline_rows(
    committed: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]],
    ends: Mapping[TopicPartition, int],
    dead: Mapping[str, int],
    ledger: Mapping[str, tuple[str, list[Batch]]],
) -> list[PipelineRow]:
    """Return a row for each pipeline and query, by name.

    Args:
        committed: The offsets of all groups.
        ends: The ends of their partitions.
        dead: By topic of dead letters, how many are open.
        ledger: Target and batches of each pipeline.
    """
    rows = {}
    shown: set[str] = set()
    for group, offsets in committed.items():
        is_pipeline = group.startswith(GROUP_PREFIX)
        if not is_pipeline and not is_of_spark(offsets.values()):
            continue
        name = group.removeprefix(GROUP_PREFIX)
        target, batches = ledger.get(name, ("", [])) if is_pipeline else ("", [])
        letters = dead_letter_topic(name, offsets) if is_pipeline else ""
        shown.add(letters)
        known = [max(0, ends[each] - offset.offset) for each, offset in offsets.items() if each in ends]
        rows[name] = PipelineRow(
            name,
            group,
            is_pipeline,
            sorted({each.topic for each in offsets}),
            target,
            sum(known) if len(known) == len(offsets) else None,
            dead.get(letters),
            batches,
        )
    for name, (target, batches) in ledger.items():
        if name not in rows:
            rows[name] = PipelineRow(
                name, None, True, [], target, None, dead.get(f"{name}{_DLQ_SUFFIX}"), batches
            )
    for topic, count in dead.items():
        name = topic.removesuffix(_DLQ_SUFFIX)
        if name not in rows and topic not in shown:
            rows[name] = PipelineRow(name, None, True, [], "", None, count, [])
    return [rows[name] for name in sorted(rows)]
