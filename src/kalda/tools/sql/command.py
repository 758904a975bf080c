"""The command `kalda sql`: a query over topics, run by DuckDB."""

from pathlib import Path

import click

from kalda.command.command import CONSUMER_ALIASES, Tool, command
from kalda.command.errors import ToolError
from kalda.command.option_types import EnumType
from kalda.command.output import Form
from kalda.command.values import parse_settings
from kalda.common.extras import install_hint
from kalda.tools.sql.request import BYTES, TEXT, QueryRequest, RowForm


@command("sql", aliases=CONSUMER_ALIASES)
@click.argument("statement", metavar="STATEMENT")
@click.option("--format", "form", type=EnumType(RowForm), default="table", help="How rows are written.")
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Write rows to a file.")
@click.option("--key-format", type=click.Choice([TEXT, BYTES]), default=TEXT, help="The type of keys.")
@click.option(
    "--value-format",
    metavar="FORMAT",
    default=TEXT,
    help="text (the default), bytes, or a format whose fields become a struct: json, avro, avro-sr, csv, "
    "protobuf, protobuf-sr.",
)
@click.option("--value-schema", metavar="SCHEMA", help="The schema of the format, e.g. 'id bigint' for json.")
@click.option(
    "--value-schema-file", type=click.Path(path_type=Path), metavar="FILE", help="A file with the schema."
)
@click.option(
    "--value-option",
    "value_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the format, e.g. the url of a schema registry; repeatable.",
)
@click.option("--skip-message-on-error", is_flag=True, help="Leave out records that are not of the format.")
@click.option(
    "--external-access",
    is_flag=True,
    help="Let the statement read and write files, use networks and load extensions.",
)
def sql(
    tool: Tool,
    /,
    statement: str,
    form: RowForm,
    output: Path | None,
    key_format: str,
    value_format: str,
    value_schema: str | None,
    value_schema_file: Path | None,
    value_options: tuple[str, ...],
    skip_message_on_error: bool,
    external_access: bool,
) -> None:
    """Query topics with SQL.

    Each topic is a table with the columns key, value, topic, partition, offset, timestamp and headers. The
    statement sees the records that are there, and committed, when it starts. Conditions on partition, offset
    and on the least timestamp limit what is read. Names with other characters than letters, digits and _
    need double quotes, as "my-topic" does, and so does the column "offset".
    """
    request = QueryRequest(
        statement=statement,
        form=RowForm.JSON if tool.output.form is Form.JSON else form,
        output_file=output,
        is_key_text=key_format == TEXT,
        value_format=value_format,
        value_schema=value_schema,
        value_schema_file=value_schema_file,
        value_options=parse_settings("--value-option", value_options),
        skips_errors=skip_message_on_error,
        has_external_access=external_access,
    )
    try:
        from kalda.tools.sql.query import run_query
    except ModuleNotFoundError as error:
        raise ToolError(f"kalda sql needs the package {error.name}; {install_hint('sql')}") from None
    run_query(tool, request)
