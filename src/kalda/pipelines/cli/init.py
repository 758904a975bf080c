"""`kalda pipeline init` and `schema`: a first pipeline file, and the JSON schema for editors."""

import json
from pathlib import Path
from typing import Final

import click

from kalda.pipelines.cli.noun import pipeline
from kalda.tools.framework.command import Tool, command
from kalda.tools.framework.errors import ToolError

_FILE: Final = """\
# yaml-language-server: $schema={schema}
#
# A pipeline file of Kalda.
#
#   kalda pipeline validate {file}   check it and show what would run
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

    The JSON schema for editors is written beside it. Files that exist stay as they are.
    """
    from kalda.pipelines.spec.json_schema import FILE_NAME

    _write_new(file, text_of(file.name, target))
    schema = file.parent / FILE_NAME
    if not schema.exists():
        _write_new(schema, _schema_text())
    tool.output.result(
        {"file": str(file), "schema": str(schema)},
        f"{file} is written; change it, then run: kalda pipeline validate {file}",
    )


@command("schema", pipeline)
def schema(tool: Tool) -> None:
    """Print the JSON schema of the pipeline file, for editors and other programs."""
    tool.output.write_bytes(_schema_text().encode())


def text_of(name: str, target: str) -> str:
    """Return a pipeline file of this name that writes a table of a format, or a topic."""
    from kalda.pipelines.spec.json_schema import FILE_NAME

    is_table = target in _TABLES
    return _FILE.format(
        schema=FILE_NAME,
        file=name,
        target=target,
        transform=_TABLE_TRANSFORM if is_table else _TOPIC_TRANSFORM,
        to=_TABLE.format(format=target) if is_table else _TOPIC,
    )


def _schema_text() -> str:
    from kalda.pipelines.spec.json_schema import json_schema

    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ToolError(f"{path} exists and stays as it is; choose another name") from None
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}") from error
