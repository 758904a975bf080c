"""Decides how a pipeline is executed: directly, in Python and Arrow, or by Spark's SQL engine.

Direct execution needs a transform whose every step is a Python function or SQL that Kalda evaluates itself.
The plan is made before a record is read; it needs no Spark. Both ways make the same rows, so what is
uncertain goes to Spark.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa

from kalda.formats import FormatError, RegistryError, open_decoder
from kalda.pipelines.direct.joined_names import NamesJoined
from kalda.pipelines.direct.row_plan import SOURCE_TYPES, RowPlan, RowPlanError, ValueDecoder
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, FunctionStep, RowStep, StepError, load_function
from kalda.pipelines.engine.source_settings import source_options
from kalda.pipelines.engine.target_settings import check_topic_target, format_spec
from kalda.pipelines.engine.user_modules import add_directory
from kalda.pipelines.expectations import Expectations
from kalda.pipelines.spec.errors import Fault, FaultList, PipelineFileError
from kalda.pipelines.spec.model import (
    Execution,
    PipelineFile,
    PipelineSpec,
    Place,
    PythonStep,
    SqlStep,
    TableFormat,
    TableSpec,
    TopicSource,
    TopicTarget,
    WriteMode,
)
from kalda.pipelines.sql.nodes import InvalidSqlError, MalformedSqlError, SqlError, UnsupportedSqlError
from kalda.pipelines.sql.row_query import RowQuery
from kalda.pipelines.sql.steps import BatchSql, check_condition, parse_step
from kalda.pipelines.tables.errors import TableSpecError
from kalda.pipelines.tables.object_store import check_options
from kalda.pipelines.tables.partitions import check_fields, parse_fields
from kalda.pipelines.tables.upsert import check_upsert
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import parse_stream_options

_MadeT = TypeVar("_MadeT")

_TIME_ZONE: Final = "spark.sql.session.timeZone"
_UTC: Final = ("UTC", "Etc/UTC", "GMT", "Z")
_VALUES: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings that decide what SQL means, with what direct execution follows."""
_LEGACY: Final = "spark.sql.legacy."
"""Begins the settings that bring back what SQL meant in earlier versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The execution plan of a pipeline that reads topics."""

    spec: PipelineSpec
    execution: Execution
    """`DIRECT` or `SPARK`."""
    reason: str
    """Why, for `validate`."""
    options: dict[str, str]
    """The options of the source."""
    rows: RowPlan
    """The conversion of records to rows; with `DIRECT` it has the transform's steps, with `SPARK` none."""
    schema: pa.Schema | None
    """The columns of the target; None where only the data or Spark knows them."""

    @property
    def cluster(self) -> str:
        """The name of the cluster that is read."""
        assert isinstance(self.spec.source, TopicSource), self.spec.kind
        return self.spec.source.cluster

    @property
    def is_direct(self) -> bool:
        """Whether rows stay in Python."""
        return self.execution is Execution.DIRECT


class _NeedsSparkError(Exception):
    """The transform cannot be executed directly."""


def plan_topic_pipeline(spec: PipelineSpec, file: PipelineFile) -> TopicPlan:
    """Plan a pipeline that reads topics.

    Raises:
        PipelineFileError: an option, the format, a step or an expectation is wrong, or `direct` is
            impossible.
    """
    faults = FaultList()
    add_directory(file)
    source = spec.source
    assert isinstance(source, TopicSource), spec.kind
    records = _records(source, spec, faults)
    _check_steps(spec, faults)
    options = source_options(spec, file.cluster(source.cluster))
    if "headers" in records.keep:
        options["includeHeaders"] = "true"
    try:
        parse_stream_options(options)
    except OptionError as error:
        faults.add(source.place or spec.place, f"from: {error}")
    faults.check()
    try:
        rows, schema = _direct_rows(spec, file, records)
        _check_target(spec, file, schema, faults)
    except _NeedsSparkError as error:
        _check_target(spec, file, None, faults)
        if spec.execution is Execution.DIRECT:
            faults.add(spec.place, f"execution: direct is not possible for {spec.name}: {error}")
            faults.check()
        return TopicPlan(
            spec=spec,
            execution=Execution.SPARK,
            reason=str(error),
            options=options,
            rows=records,
            schema=None,
        )
    except (StepError, RowPlanError, InvalidSqlError) as error:
        place = _wrong_step(spec, records) or spec.place
        faults.add(place, f"the transform of {spec.name} cannot be applied: {error}")
        faults.check()
        raise
    except RegistryError as error:
        faults.add(source.value.place or spec.place, str(error))
        faults.check()
        raise
    if spec.execution is Execution.SPARK:
        reason = "the file says so"
        return TopicPlan(
            spec=spec, execution=Execution.SPARK, reason=reason, options=options, rows=records, schema=schema
        )
    reason = "every step runs on Arrow batches" if spec.transform else "there is no transform"
    return TopicPlan(
        spec=spec, execution=Execution.DIRECT, reason=reason, options=options, rows=rows, schema=schema
    )


def _check_target(
    spec: PipelineSpec, file: PipelineFile, schema: pa.Schema | None, faults: FaultList
) -> None:
    if isinstance(spec.target, TopicTarget):
        check_topic_target(spec.target, file.cluster(spec.target.cluster), schema, spec.place, faults)
    elif isinstance(spec.target, TableSpec):
        for problem in _table_problems(spec.target, schema):
            faults.add(spec.target.place or spec.place, problem)
    faults.check()


def _table_problems(target: TableSpec, schema: pa.Schema | None) -> list[str]:
    """Return the faults of the columns that a table's settings name."""
    try:
        check_options(target.path, target.options)
        fields = parse_fields(target.partition_by)
        if schema is None:
            return []
        named = [(key, name) for key, names in named_columns(target).items() for name in names]
        problems = [problem for key, name in named if (problem := _column_problem(key, name, schema))]
        if not problems:
            has_directories = target.format is not TableFormat.ICEBERG
            known = [each for each in fields if each.source in schema.names]
            check_fields(known, schema, has_directories=has_directories)
            if target.mode is WriteMode.UPSERT and schema.names and all(n in schema.names for _, n in named):
                check_upsert(target, schema)
    except TableSpecError as error:
        return [str(error)]
    return problems


def named_columns(target: TableSpec) -> dict[str, tuple[str, ...]]:
    """Return the columns that a table's settings name, by the key."""
    return {
        "partition_by": tuple(each.source for each in parse_fields(target.partition_by)),
        "keys": target.keys,
        "order_by": (target.order_by,) if target.order_by else (),
        "event_time": (target.event_time,) if target.event_time else (),
    }


def other_case(key: str, name: str, rows: pa.Schema, table: pa.Schema | None) -> str | None:
    """Return what is wrong with a name that neither the rows nor the table have but with other letters."""
    known = [*rows.names, *(() if table is None else table.names)]
    meant = next((each for each in known if each.lower() == name.lower()), None)
    if name in known or meant is None:
        return None
    return f"{key}: there is no column {name}, but {meant}, which differs by case; write {key}: {meant}"


def _column_problem(key: str, name: str, schema: pa.Schema) -> str | None:
    names = {each.lower() for each in schema.names}
    if name.lower() in names:
        kind = schema.field(name).type if name in schema.names else None
        if key == "event_time" and kind is not None and not pa.types.is_timestamp(kind):
            return f"event_time={name} is {kind}; a timestamp is expected: cast it in the transform"
        return None
    holder, dot, _ = name.partition(".")
    if dot and holder.lower() in names:
        column = name.replace(".", "_")
        return (
            f"{key}={name} is a field of {holder} and no column: add `select *, {name} as {column}` to the "
            f"transform, and write {key}: {column}"
        )
    return f"{key}: there is no column {name}; the rows have {', '.join(schema.names)}"


def _records(source: TopicSource, spec: PipelineSpec, faults: FaultList) -> RowPlan:
    keep = tuple(each.value for each in source.keep)
    if source.value.name == "raw":
        return RowPlan(keep=tuple(name for name in SOURCE_TYPES if name == "value" or name in keep))
    try:
        decoder: ValueDecoder = open_decoder(format_spec(source.value))
        return RowPlan(keep=keep, decoder=NamesJoined(decoder) if _joins_names(spec) else decoder)
    except FormatError as error:
        faults.add(source.value.place or spec.place, str(error))
        return RowPlan(keep=keep)


def _joins_names(spec: PipelineSpec) -> bool:
    """Return whether what sees the values first has one column for names that differ by case alone."""
    if spec.transform:
        return isinstance(spec.transform[0], SqlStep)
    return bool(spec.expect) or isinstance(spec.target, TableSpec)


def check_steps(file: PipelineFile, faults: FaultList) -> None:
    """Add what is wrong with the formats, the SQL and the functions of a file that may have other faults."""
    add_directory(file)
    for spec in file.pipelines:
        if isinstance(spec.source, TopicSource) and spec.source.value.name:
            _records(spec.source, spec, faults)
        _check_steps(spec, faults)


def _check_steps(spec: PipelineSpec, faults: FaultList) -> None:
    for step in spec.transform:
        place = step.place or spec.place
        try:
            if isinstance(step, SqlStep):
                if step.text:
                    parse_step(step.text)
            elif step.function:
                load_function(step.function)
        except (MalformedSqlError, StepError) as error:
            faults.add(place, str(error))
    for each in spec.expect:
        try:
            if each.check:
                check_condition(each.check)
        except MalformedSqlError as error:
            faults.add(each.place or spec.place, str(error))
    if isinstance(spec.target, TableSpec) and spec.target.deletes:
        try:
            check_condition(spec.target.deletes)
        except MalformedSqlError as error:
            faults.add(spec.target.place or spec.place, f"deletes: {error}")


def _direct_rows(
    spec: PipelineSpec, file: PipelineFile, records: RowPlan
) -> tuple[RowPlan, pa.Schema | None]:
    zone = file.spark.settings.get(_TIME_ZONE, "UTC")
    if zone not in _UTC:
        raise _NeedsSparkError(f"{_TIME_ZONE}={zone}: functions of time differ outside UTC")
    _check_settings(spec, file)
    steps = tuple(_step(each) for each in spec.transform)
    rows = RowPlan(keep=records.keep, decoder=records.decoder, steps=steps)
    try:
        schema = rows.output_schema()
        expectations = Expectations(spec.expect)
        if schema is not None:
            expectations.check_schema(schema)
        elif spec.execution is not Execution.DIRECT and rows.input_schema() is None:
            _check_untyped(steps, expectations)
        _check_deletes(spec, schema)
    except InvalidSqlError:
        raise
    except (UnsupportedSqlError, SqlError) as error:
        raise _NeedsSparkError(str(error)) from error
    return rows, schema


def _wrong_step(spec: PipelineSpec, records: RowPlan) -> Place | None:
    """Return the place of the first step that does not fit the columns; None if all do."""
    for count, step in enumerate(spec.transform, 1):
        steps = tuple(_step(each) for each in spec.transform[:count])
        try:
            RowPlan(keep=records.keep, decoder=records.decoder, steps=steps).output_schema()
        except RowPlanError:
            return None
        except (StepError, InvalidSqlError):
            return step.place
    return None


def _check_settings(spec: PipelineSpec, file: PipelineFile) -> None:
    """Check that Spark's settings give SQL the meaning that direct execution has."""
    target = spec.target
    has_deletes = isinstance(target, TableSpec) and target.deletes is not None
    if not (spec.expect or has_deletes or any(isinstance(each, SqlStep) for each in spec.transform)):
        return
    for name, value in file.spark.settings.items():
        followed = _VALUES.get(name)
        if (followed is not None and value.strip().lower() != followed.lower()) or name.startswith(_LEGACY):
            raise _NeedsSparkError(f"{name}={value} changes what SQL means")


def _check_untyped(steps: Sequence[RowStep], expectations: Expectations) -> None:
    """Check that the SQL can be evaluated without the columns' types, which only the data shows."""
    queries = (each.text for each in steps if isinstance(each, RowQuery) and each.depends_on_types)
    text = next(queries, None) or expectations.untyped_text
    if text is not None:
        raise _NeedsSparkError(
            f"only the data shows the columns, and so whether Kalda evaluates {text!r}; declare a schema for "
            "direct execution"
        )


def _check_deletes(spec: PipelineSpec, schema: pa.Schema | None) -> None:
    """Check that Kalda evaluates the condition of an upsert's deletes, which every execution does."""
    target = spec.target
    if not isinstance(target, TableSpec) or target.mode is not WriteMode.UPSERT or target.deletes is None:
        return
    from kalda.pipelines.sql.row_query import RowCondition

    condition = RowCondition(target.deletes)
    if schema is not None:
        try:
            condition.check(schema)
        except InvalidSqlError as error:
            raise InvalidSqlError(f"deletes: {error}") from None


def _step(step: SqlStep | PythonStep) -> RowStep:
    if isinstance(step, PythonStep):
        return FunctionStep(step.function)
    parsed = parse_step(step.text)
    if isinstance(parsed, BatchSql):
        raise _NeedsSparkError(f"{step.text!r} needs all rows of a batch ({parsed.reason})")
    try:
        return RowQuery(step.text, carried=(OFFSET_COLUMN,))
    except UnsupportedSqlError as error:
        raise _NeedsSparkError(str(error)) from error


def plans_of(file: PipelineFile, names: Sequence[str] = ()) -> list[TopicPlan]:
    """Return the plans of the pipelines that read topics; all of them without names."""
    specs = [each for each in file.pipelines if not names or each.name in names]
    return each_or_all_faults(
        [each for each in specs if isinstance(each.source, TopicSource)],
        lambda spec: plan_topic_pipeline(spec, file),
    )


def each_or_all_faults(specs: Sequence[PipelineSpec], make: Callable[[PipelineSpec], _MadeT]) -> list[_MadeT]:
    """Return a function's result for each pipeline.

    Raises:
        PipelineFileError: pipelines are wrong; the error has the faults of all of them.
    """
    made: list[_MadeT] = []
    faults: list[Fault] = []
    for spec in specs:
        try:
            made.append(make(spec))
        except PipelineFileError as error:
            faults += error.faults
    if faults:
        raise PipelineFileError(faults)
    return made
