"""`kalda pipeline init` and `schema`: a first pipeline file, and the JSON schema for editors."""

import json
from pathlib import Path
from typing import Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError
from kalda.tools.pipeline.noun import pipeline

_FILE: Final = """\
# yaml-language-server: $schema={schema}
#
# A pipeline file of Kalda.
#
#   kalda pipeline validate {file}   check it and show what would run
#   kalda pipeline test {file}       run the tests in {tests}, without Spark and without a cluster
#   kalda pipeline once {file}       process what is there now, then end
#   kalda pipeline run {file}        run until Ctrl-C
#
# Any value may use ${{NAME}} from the environment, with a default as ${{NAME:-default}}, or ${{file:PATH}}.

name: orders                     # of the Spark application
storage: state                   # checkpoints and status, and tables unless `warehouse` is set; a directory
                                 # relative to this file, or a URI such as s3://bucket/orders
cluster:                         # settings of the clients, by Kafka's names
  bootstrap.servers: localhost:9092

pipelines:
  - name: orders_{target}
    from:
      topic: orders              # or a list, or `pattern` with a regular expression
      start: earliest            # where the first run begins; later runs go on behind their last batch
      # Without `value`, the columns are the record's key, value, topic, partition, offset and timestamp.
      value: {{format: json, schema: "id bigint, amount double, ts timestamp"}}
      keep: [offset]             # columns of the record beside the fields of its value
    transform:                   # SQL, or `python: module:function` on Arrow batches
      - where amount is not null
{transform}
    expect:                      # what does not meet a condition goes to the topic `orders_{target}.dlq`
      positive: {{check: amount > 0, on_fail: dlq}}
    to:
{to}
    trigger: 5s                  # a batch every five seconds; `every 10m`, or availableNow
"""
_TESTS: Final = """\
# yaml-language-server: $schema={schema}
#
# The tests of {file}: records, and the rows and dead letters that the pipeline makes of them.
#
#   kalda pipeline test {file}

tests:
  - name: an order becomes a row
    records:
      - key: order-1             # text; `key_base64` and `value_base64` take bytes
        value: {{id: 1, amount: 2.5, ts: 2026-01-02T03:04:05Z}}
    rows:                        # columns that are not named here are not compared
      - {row}

  - name: an order without an amount is dropped, a wrong one is a dead letter
    records:
      - value: {{id: 1}}
      - value: {{id: 2, amount: -5, ts: 2026-01-02T03:04:05Z}}
      - value: not JSON
    filtered: 1
    dead_letters:
      - {{record: 2, stage: expect, message: amount > 0}}
      - {{record: 3, stage: decode}}
"""
_TABLE_TRANSFORM: Final = "      - select *, to_date(ts) as day"
_TABLE: Final = """\
      table: lake.orders         # the directory lake/orders of the warehouse; the first batch creates it
      format: {format}
      partition_by: [day]
      event_time: ts             # for the freshness that `kalda pipeline status` shows"""
_TOPIC_TRANSFORM: Final = "      - select cast(id as string) as id, amount, ts"
_TOPIC: Final = """\
      topic: orders.clean
      key: [id]                  # columns of the key; without it, a column `key`
      value: json                # the format of the other columns
      delivery: exactly-once     # or exactly-once-batch, at-least-once"""
_TABLES: Final = ("delta", "iceberg", "parquet")


@command("init", pipeline)
@click.argument("file", type=click.Path(path_type=Path), metavar="[FILE]", default=Path("pipeline.yml"))
@click.option(
    "--target",
    type=click.Choice((*_TABLES, "topic")),
    default="delta",
    help="What the pipeline writes. Default: delta.",
)
def init(tool: Tool, file: Path, target: str) -> None:
    """Write a commented pipeline file to start from; FILE is pipeline.yml by default.

    Its tests and the JSON schemas for editors are written beside it. Files that exist stay as they are.
    """
    from kalda.pipelines.spec.cases import cases_path
    from kalda.pipelines.spec.json_schema import FILE_NAME, TESTS_FILE_NAME

    tests = cases_path(file)
    _write_new(file, text_of(file.name, target))
    schemas = {
        file.parent / FILE_NAME: _schema_text(),
        file.parent / TESTS_FILE_NAME: _schema_text(tests=True),
    }
    for path, text in {tests: cases_text(file.name, target), **schemas}.items():
        if not path.exists():
            _write_new(path, text)
    tool.output.result(
        {"file": str(file), "schema": str(file.parent / FILE_NAME), "tests": str(tests)},
        f"{file} and its tests are written; change them, then run: kalda pipeline test {file}, and "
        f"kalda pipeline validate {file}",
    )


@command("schema", pipeline)
@click.option("--tests", is_flag=True, help="Print the schema of the file with tests instead.")
def schema(tool: Tool, tests: bool) -> None:
    """Print the JSON schema of the pipeline file, for editors and other programs."""
    tool.output.write_bytes(_schema_text(tests=tests).encode())


def text_of(name: str, target: str) -> str:
    """Return a pipeline file of this name that writes a table of a format, or a topic."""
    from kalda.pipelines.spec.cases import cases_path
    from kalda.pipelines.spec.json_schema import FILE_NAME

    is_table = target in _TABLES
    return _FILE.format(
        schema=FILE_NAME,
        file=name,
        tests=cases_path(Path(name)).name,
        target=target,
        transform=_TABLE_TRANSFORM if is_table else _TOPIC_TRANSFORM,
        to=_TABLE.format(format=target) if is_table else _TOPIC,
    )


def cases_text(name: str, target: str) -> str:
    """Return tests that the file of `text_of` passes."""
    from kalda.pipelines.spec.json_schema import TESTS_FILE_NAME

    row = "{id: 1, day: 2026-01-02}" if target in _TABLES else '{id: "1", amount: 2.5}'
    return _TESTS.format(schema=TESTS_FILE_NAME, file=name, row=row)


def _schema_text(*, tests: bool = False) -> str:
    from kalda.pipelines.spec.json_schema import cases_json_schema, json_schema

    document = cases_json_schema() if tests else json_schema()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ToolError(f"{path} exists and stays as it is; choose another name") from None
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}") from error
