"""The command `kalda pipeline repair`: a checkpoint from the consumer group, or a group from a checkpoint.

Nothing is written without ``--execute``. The decisions are in `kalda.pipelines.repair`.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import GroupName
from kalda.command.tables import Cell, Table
from kalda.pipelines.query_ids import REFILL_PREFIX
from kalda.tools.pipeline.arguments import chosen, file_error, missing_package, read_file
from kalda.tools.pipeline.noun import pipeline

if TYPE_CHECKING:
    from uuid import UUID

    from kalda.common.types import TopicPartition
    from kalda.pipelines.accounts import BatchAccount
    from kalda.pipelines.spec.model import PipelineFile, PipelineSpec


@dataclass(frozen=True, slots=True)
class _Query:
    """A query to repair: one of a pipeline file, or any query on the source `kalda`."""

    name: str
    checkpoint: str
    group_id: str
    properties: Mapping[str, str]
    accounted: "Mapping[TopicPartition, int]"
    """Up to where the target accounts for the partitions."""


@command("repair", pipeline)
@click.argument("file", type=click.Path(path_type=Path), metavar="[FILE]", required=False)
@click.argument("names", nargs=-1, metavar="[PIPELINE]...")
@click.option("--checkpoint", metavar="URI", help="The checkpoint of a query that is in no pipeline file.")
@click.option("--group", type=GroupName(), metavar="GROUP", help="The consumer group of that query.")
@click.option(
    "--what",
    type=click.Choice(["checkpoint", "group"]),
    default="checkpoint",
    show_default=True,
    help="What is lost and rebuilt from the other.",
)
@click.option(
    "--execute", is_flag=True, help="Write it; without this, only show where the query would go on."
)
def repair(
    tool: Tool,
    /,
    file: Path | None,
    names: tuple[str, ...],
    checkpoint: str | None,
    group: str | None,
    what: str,
    execute: bool,
) -> None:
    """Rebuild a lost checkpoint from the consumer group, or the group from the checkpoint.

    Stop the query first. A pipeline goes on where its group is, or where the ledger says that its target is,
    if that is further; what its last batch left undone is completed. A query with aggregations or joins loses
    their state with its checkpoint.
    """
    rows: list[list[Cell]] = []
    for query in _queries(tool, file, names, checkpoint, group, execute):
        rows += _repair_group(query, execute) if what == "group" else _repair_checkpoint(query, execute)
    columns = ("QUERY", "PARTITION", "OFFSET", "FROM")
    keys = ("query", "partition", "offset", "from")
    tool.output.result([dict(zip(keys, row, strict=True)) for row in rows], Table(columns, rows))
    if not execute:
        tool.output.note("Nothing was written; add --execute to write it.")


def _queries(
    tool: Tool,
    file: Path | None,
    names: tuple[str, ...],
    checkpoint: str | None,
    group: str | None,
    execute: bool,
) -> list[_Query]:
    if file is None:
        if checkpoint is None or group is None:
            raise ToolUsageError("name a pipeline file, or a query by --checkpoint and --group")
        return [_Query(group, checkpoint, group, tool.properties, {})]
    if checkpoint is not None or group is not None:
        raise ToolUsageError("--checkpoint and --group are for queries that are in no pipeline file")
    pipelines = read_file(tool, file)
    return [_of_pipeline(tool, pipelines, spec, execute) for spec in chosen(pipelines, names)]


def _of_pipeline(tool: Tool, file: "PipelineFile", spec: "PipelineSpec", execute: bool) -> _Query:
    try:
        from kalda.pipelines.engine.run_lock import RunLock, RunLockError
        from kalda.pipelines.ledger.topic import read_ledger
        from kalda.pipelines.repair import ends_of, last_batch
        from kalda.pipelines.spec.model import TableSpec, TopicSource
        from kalda.pipelines.tables.opening import open_table
    except ModuleNotFoundError as error:
        raise missing_package(error) from error

    if not isinstance(spec.source, TopicSource):
        raise ToolError(f"pipeline {spec.name} reads no topic with a Spark query, so it has no checkpoint")
    if execute:
        try:
            click.get_current_context().with_resource(RunLock(file.storage, spec.name))
        except RunLockError as error:
            raise ToolError(str(error)) from None
    decided = _last_decided(tool, file, spec, execute)
    properties = file.cluster(spec.source.cluster).properties
    records = [
        each
        for each in read_ledger(properties, frozenset([spec.name])).records
        # A replay of a pipeline that never ran says nothing about what lies before it.
        if not each.query_id.startswith(REFILL_PREFIX)
    ]
    last = last_batch(records)
    if last is not None and isinstance(spec.target, TableSpec):
        held = open_table(spec.target).committed_batch(last.query_id)
        known = max(last.batch_id, -1 if decided is None else decided.batch_id)
        if held is not None and held > known:
            raise ToolError(
                f"table {spec.target.table} holds batch {held} of query {last.query_id}, of which neither "
                "the ledger nor the storage has a record. The table's commit of that batch has its offset "
                f"ranges (kalda.account). Commit their ends to group {spec.group_id} with "
                "`kalda groups reset-offsets --from-file`, then name the checkpoint and the group instead of "
                "the file"
            )
    accounts = [each.account for each in records] + ([] if decided is None else list(decided.ranges))
    return _Query(spec.name, file.checkpoint(spec.name), spec.group_id, properties, ends_of(accounts))


def _last_decided(
    tool: Tool, file: "PipelineFile", spec: "PipelineSpec", execute: bool
) -> "BatchAccount | None":
    """Return the account of the last batch that counts, completed if the repair is executed.

    Its query is not started again, so nothing else would publish its dead letters, or end its transactions.
    """
    from kalda.pipelines.engine.batch_log import BatchLogError
    from kalda.pipelines.engine.batch_runner import BatchRunner
    from kalda.pipelines.engine.planner import plan_topic_pipeline
    from kalda.pipelines.spec.errors import PipelineFileError

    try:
        with closing(BatchRunner(plan_topic_pipeline(spec, file), file)) as runner:
            decided = runner.complete_decided() if execute else runner.decided()
            begun = runner.unfinished()
            if begun is not None:
                tool.output.note(
                    f"Batch {begun.batch_id} of {spec.name} had begun: with exactly-once, rows that its "
                    f"tasks have committed to {spec.target_name} come again; what they prepared is aborted."
                )
                if execute:
                    runner.abandon(begun)
            return decided
    except PipelineFileError as error:
        raise file_error(tool, error) from None
    except BatchLogError as error:
        raise ToolError(str(error)) from None


def _repair_checkpoint(query: _Query, execute: bool) -> list[list[Cell]]:
    from kalda.pipelines.checkpoint import Checkpoint, CheckpointError
    from kalda.pipelines.repair import check_topics, rebuild_checkpoint, restart_points
    from kalda.spark.source.group_offsets import GroupOffsets

    group = GroupOffsets(query.properties, query.group_id)
    try:
        committed = group.read()
        points = restart_points(committed, query.accounted)
        topic_ids = _topic_ids(query, {each.topic for each in points})
        check_topics(committed, topic_ids, group_id=query.group_id)
        checkpoint = Checkpoint(query.checkpoint)
        if execute:
            now_ms = int(time.time() * 1000)
            rebuild_checkpoint(checkpoint, points, topic_ids, group_id=query.group_id, now_ms=now_ms)
    except CheckpointError as error:
        raise ToolError(str(error)) from None
    finally:
        group.close()
    return [[query.name, str(each), point.offset, point.known_from] for each, point in points.items()]


def _repair_group(query: _Query, execute: bool) -> list[list[Cell]]:
    from kalda.pipelines.checkpoint import Checkpoint, CheckpointError
    from kalda.pipelines.repair import rebuild_group
    from kalda.spark.source.group_offsets import GroupOffsets

    checkpoint = Checkpoint(query.checkpoint)
    group = GroupOffsets(query.properties, query.group_id)
    try:
        offsets = checkpoint.committed_offsets()
        if execute:
            rebuild_group(checkpoint, group)
    except CheckpointError as error:
        raise ToolError(str(error)) from None
    finally:
        group.close()
    return [[query.name, str(each), offset, "checkpoint"] for each, offset in sorted(offsets.items())]


def _topic_ids(query: _Query, topics: set[str]) -> "dict[str, UUID]":
    from kalda.clients.config.common_config import CommonClientConfig
    from kalda.clients.range_reader.log_reader import LogReader
    from kalda.clients.range_reader.log_reader_config import LogReaderConfig

    shared = {key.name for key in CommonClientConfig.definitions().values()}
    properties = {name: value for name, value in query.properties.items() if name in shared}
    with LogReader(LogReaderConfig.from_properties(properties)) as reader:
        described = reader.metadata(topics).topics
    return {name: topic.topic_id for name, topic in described.items()}
