"""Plans the pipelines of a file without running them: what would run, how, and on what; reads no record."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from kalda.clients.errors import ClientError
from kalda.pipelines.engine.planner import (
    TopicPlan,
    each_or_all_faults,
    named_columns,
    other_case,
    plan_topic_pipeline,
)
from kalda.pipelines.engine.run_order import writes_for
from kalda.pipelines.engine.source_settings import quick_discovery
from kalda.pipelines.engine.table_target import source_table
from kalda.pipelines.spec.model import (
    MirrorSpec,
    PipelineFile,
    PipelineSpec,
    TableSource,
    TableSpec,
    TopicSource,
)
from kalda.pipelines.tables import SchemaRefusedError, TableError, open_table
from kalda.pipelines.tables.schemas import check_columns

_QUICK_REGISTRY: Final = {"registry.tries": "1", "registry.timeout_s": "5"}


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The result of `validate` for one pipeline."""

    pipeline: str
    kind: str
    execution: str
    reason: str
    source: str
    partitions: int | None
    """None where the cluster could not be asked."""
    records: int | None
    """Offsets between the beginning and the end of the partitions."""
    target: str
    columns: tuple[tuple[str, str], ...] | None
    """Name and type of the target's columns; None where only data or Spark knows them."""
    problems: tuple[str, ...] = ()
    """Why the pipeline would fail."""
    notes: tuple[str, ...] = ()
    """The checks that could not be made."""


def validate_pipelines(file: PipelineFile, specs: Sequence[PipelineSpec]) -> list[PlanReport]:
    """Return a report for each pipeline.

    Raises:
        PipelineFileError: the file is wrong.
    """
    unreachable: dict[str, str] = {}
    return each_or_all_faults(specs, lambda spec: _report(_quick_registry(spec), file, unreachable))


def _quick_registry(spec: PipelineSpec) -> PipelineSpec:
    """Return the pipeline with a schema registry that is asked once: a person waits for the result."""
    source = spec.source
    if not isinstance(source, TopicSource) or not source.value.name.endswith("-sr"):
        return spec
    value = replace(source.value, options={**_QUICK_REGISTRY, **source.value.options})
    return replace(spec, source=replace(source, value=value))


def _report(spec: PipelineSpec, file: PipelineFile, unreachable: dict[str, str]) -> PlanReport:
    if isinstance(spec.source, TopicSource):
        return _topic_report(plan_topic_pipeline(spec, file), spec.source, unreachable)
    if isinstance(spec.source, TableSource):
        return _table_report(spec, spec.source, file)
    mirror = spec.mirror
    assert isinstance(mirror, MirrorSpec), spec.kind
    reason = "records are copied as they are, exactly-once"
    source = f"{mirror.source}: /{mirror.topics}/"
    kind = spec.kind.value
    return PlanReport(spec.name, kind, "direct", reason, source, None, None, mirror.target, None)


def _topic_report(plan: TopicPlan, source: TopicSource, unreachable: dict[str, str]) -> PlanReport:
    """Report on a pipeline that reads topics; a cluster that did not answer is not asked again."""
    spec = plan.spec
    problems: list[str] = []
    notes: list[str] = []
    partitions = records = None
    discovery = quick_discovery(plan.options)
    try:
        if source.cluster in unreachable:
            raise ClientError(unreachable[source.cluster])
        selected = discovery.find_partitions()
        missing = [name for name in selected.missing_topics if name in source.topics]
        problems += [f"topic {name} does not exist" for name in missing]
        found = [each for each in selected.partitions if each.topic != spec.retry_topic]
        starts, ends = discovery.beginning_offsets(found), discovery.end_offsets(found)
        partitions, records = len(found), sum(ends[each] - starts[each] for each in found)
        if not found and not missing:
            notes.append(f"no topic matches {source.description} yet")
    except ClientError as error:
        notes.append(unreachable.setdefault(source.cluster, str(error)))
    finally:
        discovery.close()
    columns = None
    if plan.schema is None:
        notes.append(unknown_columns(plan))
    else:
        columns = tuple((field.name, str(field.type)) for field in plan.schema)
    problems += _target_problems(spec, plan.schema)
    return PlanReport(
        spec.name,
        spec.kind.value,
        plan.execution.value,
        plan.reason,
        source.description,
        partitions,
        records,
        spec.target_name,
        columns,
        tuple(problems),
        tuple(notes),
    )


def unknown_columns(plan: TopicPlan) -> str:
    """Say what only the data shows of a plan whose columns are unknown."""
    target = plan.spec.target
    named = named_columns(target) if isinstance(target, TableSpec) else {}
    listed = [f"{key} {', '.join(names)}" for key, names in named.items() if names]
    of_settings = f", and whether they have those of {'; '.join(listed)}" if listed else ""
    if plan.rows.input_schema() is not None:
        return f"the columns, which Spark finds when it runs{of_settings}"
    return f"the columns are unknown until data shows them, as the value has no schema{of_settings}"


def _target_problems(spec: PipelineSpec, schema: pa.Schema | None) -> list[str]:
    """Check the table as it is, and the columns that the target names where those of the rows are known."""
    target = spec.target
    if not isinstance(target, TableSpec):
        return []
    try:
        table = open_table(target)
        faults, existing = table.faults(), table.schema()
        required = table.fit().schema if existing is not None and not faults else ()
    except (TableError, OSError) as error:
        return [str(error)]
    problems = [f"the table {target.table} cannot be written: {fault}" for fault in faults]
    if schema is None:
        return problems
    problems += [
        problem
        for key, found in named_columns(target).items()
        for name in found
        if (problem := other_case(key, name, schema, existing)) is not None
    ]
    names = {name.lower() for name in schema.names}
    problems += [
        f"the column {column.name} of {target.table} is NOT NULL, and the rows have no such column"
        for column in required
        if not column.nullable and column.name.lower() not in names
    ]
    try:
        check_columns(target, existing, schema)
    except SchemaRefusedError as error:
        problems.append(str(error))
    return problems


def _table_report(spec: PipelineSpec, source: TableSource, file: PipelineFile) -> PlanReport:
    problems: list[str] = []
    notes: list[str] = []
    columns = None
    try:
        schema = open_table(source_table(source)).schema()
        if schema is None:
            writers = [each.name for each in file.pipelines if writes_for(each, spec)]
            if writers:
                notes.append(f"the table {source.table} does not exist yet; {writers[0]} creates it")
            else:
                problems.append(f"the table {source.table} does not exist at {source.path}")
        else:
            columns = tuple((field.name, str(field.type)) for field in schema)
    except (TableError, SchemaRefusedError, OSError) as error:
        problems.append(str(error))
    reason = "changes of the table" if source.changes else "the whole table, when it has changed"
    return PlanReport(
        spec.name,
        spec.kind.value,
        "direct",
        reason,
        source.table,
        None,
        None,
        spec.target_name,
        columns,
        tuple(problems),
        tuple(notes),
    )
