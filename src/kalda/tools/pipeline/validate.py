"""`kalda pipeline validate`: checks a file and shows what would run."""

from dataclasses import asdict
from pathlib import Path

from kalda.command.command import Tool, command
from kalda.command.errors import PartialFailureError
from kalda.command.tables import Table
from kalda.tools.pipeline.arguments import chosen, file_error, missing_package, pipeline_arguments, read_file
from kalda.tools.pipeline.noun import pipeline


@command("validate", pipeline)
@pipeline_arguments
def validate(tool: Tool, file: Path, names: tuple[str, ...]) -> None:
    """Check a pipeline file and show what would run.

    Shows for each pipeline whether it is executed directly or by Spark and why, the topics with their
    partitions, and the columns of the target. Reads no record, writes nothing and starts no Spark.
    """
    try:
        from kalda.pipelines.engine.planner import check_steps
        from kalda.pipelines.engine.validation import validate_pipelines
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    from kalda.pipelines.spec.errors import PipelineFileError

    read = read_file(tool, file, check_steps)
    specs = chosen(read, names)
    try:
        reports = validate_pipelines(read, specs)
    except PipelineFileError as error:
        raise file_error(tool, error) from None
    parts: list[Table | str] = [
        Table(
            ("PIPELINE", "KIND", "EXECUTION", "FROM", "PARTITIONS", "RECORDS", "TO"),
            [(e.pipeline, e.kind, e.execution, e.source, e.partitions, e.records, e.target) for e in reports],
        )
    ]
    for each in reports:
        parts.append(f"{each.pipeline}: {each.execution} execution, because {each.reason}")
        if each.columns is not None:
            parts.append(f"{each.pipeline}: columns {', '.join(f'{n} {t}' for n, t in each.columns)}")
        parts += [f"{each.pipeline}: not checked: {note}" for note in each.notes]
    tool.output.result({"pipelines": [asdict(each) for each in reports]}, *parts)
    failed = [f"{each.pipeline}: {problem}" for each in reports for problem in each.problems]
    if failed:
        tool.output.flush()
        for line in failed:
            tool.output.failure(line)
        raise PartialFailureError
