"""Writes a project for Spark Declarative Pipelines that does what a pipeline file says, with our data source.

The project is plain Python and SQL; `spark-pipelines run` executes it. What such a project cannot express is
refused with the reason: dead letters, upserts, mirrors, and formats that Spark has no function for. This
module writes files and starts no Spark.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kalda.pipelines.engine.source_settings import source_options
from kalda.pipelines.spec.model import (
    Delivery,
    OnError,
    PipelineFile,
    PipelineSpec,
    SqlStep,
    TableSpec,
    TopicSource,
    TopicTarget,
    WriteMode,
)
from kalda.pipelines.sql.steps import BatchSql, parse_step

SPEC_NAME: Final = "spark-pipeline.yml"
_SECRET: Final = re.compile(r"password|jaas|secret|token", re.IGNORECASE)
_WORD: Final = re.compile(r"\W+")


class NotExportableError(ValueError):
    """A pipeline does something that a declarative project cannot express; the message says what."""


def export_project(file: PipelineFile, specs: list[PipelineSpec], directory: Path) -> list[Path]:
    """Write the project and return its files.

    Args:
        file: the pipeline file.
        specs: the pipelines to export.
        directory: a directory that does not exist yet, or is empty.

    Raises:
        NotExportableError: a pipeline cannot be expressed.
        OSError: a file cannot be written; or the directory is not empty.
    """
    modules = {f"transformations/{_identifier(spec.name)}.py": module_text(spec, file) for spec in specs}
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(17, "the directory is not empty", str(directory))
    written = []
    for name, text in {SPEC_NAME: project_text(file), **modules}.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def project_text(file: PipelineFile) -> str:
    """Return the text of the project's specification."""
    return (
        f"name: {json.dumps(file.name)}\n"
        f"storage: {json.dumps(file.storage + '/declarative')}\n"
        "libraries:\n"
        "  - glob:\n"
        "      include: transformations/**\n"
    )


def module_text(spec: PipelineSpec, file: PipelineFile) -> str:
    """Return the Python module of one pipeline.

    Raises:
        NotExportableError: the pipeline cannot be expressed.
    """
    source, target = spec.source, spec.target
    if not isinstance(source, TopicSource) or target is None:
        raise NotExportableError(f"{spec.name}: a {spec.kind.value} pipeline has no declarative form")
    if isinstance(target, TableSpec) and target.mode is WriteMode.UPSERT:
        raise NotExportableError(f"{spec.name}: mode: upsert needs a table format whose jar Spark has not")
    if any(each.on_fail.value != "drop" for each in spec.expect):
        raise NotExportableError(f"{spec.name}: only expectations with on_fail: drop have a declarative form")
    if spec.on_error is not OnError.SKIP and source.value.name not in ("raw", "string", "text"):
        raise NotExportableError(
            f"{spec.name}: on_error: {spec.on_error.value} has no declarative form; such a project drops "
            "records that cannot be decoded, as on_error: skip does"
        )
    name = _identifier(spec.name)
    options = source_options(spec, file.cluster(source.cluster))
    lines = [
        f'"""Made by `kalda pipeline export-sdp` from the pipeline {spec.name}."""',
        "",
        "import os",
        "",
        "from pyspark import pipelines as dp",
        "from pyspark.sql import SparkSession",
        "",
        f"OPTIONS = {_literal(options)}",
        "",
        "",
        "def rows():",
        "    frame = SparkSession.active().readStream.format('kalda').options(**OPTIONS).load()",
        *(f"    {line}" for line in _steps(spec, source)),
        "    return frame",
        "",
        "",
    ]
    if isinstance(target, TableSpec):
        arguments = f"name={_identifier(target.table)!r}, format='parquet'"
        if target.partition_by:
            arguments += f", partition_cols={list(target.partition_by)!r}"
        lines += [f"@dp.table({arguments})", f"def {name}():", "    return rows()", ""]
        return "\n".join(lines)
    assert isinstance(target, TopicTarget), spec.kind
    properties = file.cluster(target.cluster).properties
    sink = {f"kafka.{key}": value for key, value in {**properties, **target.options}.items()}
    sink |= {"topic": target.topic, "delivery": Delivery.AT_LEAST_ONCE.value}
    if target.value is not None or target.key:
        raise NotExportableError(f"{spec.name}: select the columns key and value in the transform instead")
    lines += [
        f"dp.create_sink({name + '_sink'!r}, format='kalda', options={_literal(sink)})",
        "",
        "",
        f"@dp.append_flow(target={name + '_sink'!r}, name={name!r})",
        f"def {name}():",
        "    return rows()",
        "",
    ]
    return "\n".join(lines)


def _steps(spec: PipelineSpec, source: TopicSource) -> list[str]:
    lines = []
    kept = [each.value for each in source.keep]
    match source.value.name:
        case "raw":
            pass
        case "json":
            if source.value.schema is None:
                raise NotExportableError(f"{spec.name}: the format json needs a schema here")
            schema = " ".join(source.value.schema.split())
            decoded = f"from_json(CAST(value AS STRING), {_sql_text(schema)}) AS row"
            lines.append(f"frame = frame.selectExpr({', '.join(map(repr, [decoded, *kept]))})")
            lines.append("frame = frame.where('row IS NOT NULL')")
            lines.append(f"frame = frame.selectExpr({', '.join(map(repr, ['row.*', *kept]))})")
        case other:
            raise NotExportableError(f"{spec.name}: Spark has no function for the format {other}")
    for step in spec.transform:
        if not isinstance(step, SqlStep):
            raise NotExportableError(f"{spec.name}: a Python step on Arrow batches has no declarative form")
        parsed = parse_step(step.text)
        if isinstance(parsed, BatchSql):
            raise NotExportableError(f"{spec.name}: {step.text!r} needs a batch; a stream has none")
        if parsed.condition is not None:
            lines.append(f"frame = frame.where({parsed.condition!r})")
        if parsed.projections:
            listed = ", ".join(repr(each.text) for each in parsed.projections)
            lines.append(f"frame = frame.selectExpr({listed})")
    lines += [f"frame = frame.where({each.check!r})" for each in spec.expect]
    return lines


def _literal(options: Mapping[str, str]) -> str:
    entries = [
        f"    {name!r}: os.environ[{_variable(name)!r}],"
        if _SECRET.search(name)
        else f"    {name!r}: {value!r},"
        for name, value in options.items()
    ]
    return "\n".join(("{", *entries, "}"))


def _variable(name: str) -> str:
    return "KALDA_" + _WORD.sub("_", name.removeprefix("kafka.")).upper()


def _sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _identifier(name: str) -> str:
    word = _WORD.sub("_", name)
    return word if word[:1].isalpha() else f"p_{word}"
