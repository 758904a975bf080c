"""`kalda pipeline export-sdp`: writes a project for Spark Declarative Pipelines."""

from pathlib import Path

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError
from kalda.tools.pipeline.arguments import chosen, missing_package, pipeline_arguments, read_file
from kalda.tools.pipeline.noun import pipeline


@command("export-sdp", pipeline)
@pipeline_arguments
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Where the project goes: a directory that is empty or does not exist.",
)
def export_sdp(tool: Tool, file: Path, names: tuple[str, ...], output: Path) -> None:
    """Write a Spark Declarative Pipelines project that reads topics with the source of Kalda.

    Run it with `spark-pipelines run --spec DIR/spark-pipeline.yml`. Passwords are read from the environment.
    """
    read = read_file(tool, file)
    specs = chosen(read, names)
    try:
        from kalda.pipelines.export_sdp import NotExportableError, export_project
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    try:
        written = export_project(read, specs, output)
    except NotExportableError as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        raise ToolError(f"{output}: {error.strerror}") from error
    tool.output.result({"files": [str(path) for path in written]}, *map(str, written))
