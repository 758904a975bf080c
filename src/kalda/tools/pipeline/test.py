"""`kalda pipeline test`: runs the tests beside a pipeline file, without Spark and without a cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

import click

from kalda.command.command import Tool, command
from kalda.command.errors import PartialFailureError, ToolError, ToolUsageError
from kalda.command.output import Json
from kalda.common.log_text import counted
from kalda.tools.pipeline.arguments import chosen, file_error, missing_package, pipeline_arguments, read_file
from kalda.tools.pipeline.noun import pipeline

if TYPE_CHECKING:
    from kalda.pipelines.engine.case_run import CaseResult

_CONTROL: Final = {code: "\N{REPLACEMENT CHARACTER}" for code in range(32) if code not in (9, 10, 13)}
"""Characters that XML has no form for."""


@command("test", pipeline)
@pipeline_arguments
@click.option(
    "--tests",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file with the tests. Default: orders.test.yml for orders.yml.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the results to this file too, as JUnit XML.",
)
def test(tool: Tool, file: Path, names: tuple[str, ...], tests: Path | None, junit: Path | None) -> None:
    """Run the tests of pipelines: records in, rows and dead letters out.

    Needs neither Spark nor a cluster. Records pass through decoding, the steps and the expectations; nothing
    is written. The exit code is 1 if a test fails.
    """
    read = read_file(tool, file)
    wanted = {each.name for each in chosen(read, names)}
    from kalda.pipelines.spec.cases import cases_path, read_cases
    from kalda.pipelines.spec.errors import PipelineFileError

    path = tests if tests is not None else cases_path(file)
    try:
        from kalda.pipelines.engine.case_run import run_case
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    try:
        cases = [each for each in read_cases(path, read) if each.spec.name in wanted]
        results = [run_case(each, read) for each in cases]
    except PipelineFileError as error:
        raise file_error(tool, error) from None
    except FileNotFoundError:
        raise ToolUsageError(
            f"{path} does not exist; write tests there, or name their file with --tests"
        ) from None
    except OSError as error:
        raise ToolUsageError(f"{path}: {error.strerror}") from error
    if not results:
        raise ToolUsageError(f"{path} has no test of {', '.join(sorted(wanted))}")
    if junit is not None:
        _write(junit, junit_xml(results))
    tool.output.result(
        {"tests": [_json(each) for each in results]}, *(line for each in results for line in _lines(each))
    )
    failed = sum(not each.is_passed for each in results)
    if failed:
        tool.output.flush()
        tool.output.failure(f"tests failed: {failed} of {len(results)}")
        raise PartialFailureError
    tool.output.note(f"{counted(len(results), 'test')} passed")


def junit_xml(results: "Sequence[CaseResult]") -> bytes:
    """Return the results as JUnit XML: a suite for each pipeline."""
    root = ElementTree.Element("testsuites")
    for name in dict.fromkeys(each.case.spec.name for each in results):
        own = [each for each in results if each.case.spec.name == name]
        errors = sum(each.error is not None for each in own)
        failures = sum(not each.is_passed for each in own) - errors
        counts = {"tests": len(own), "failures": failures, "errors": errors, "skipped": 0}
        suite = ElementTree.SubElement(root, "testsuite", name=name)
        suite.attrib.update({kind: str(count) for kind, count in counts.items()})
        for each in own:
            place = each.case.place
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=name,
                name=_xml(each.case.name),
                file=place.file,
                line=str(place.line),
            )
            if not each.is_passed:
                lines = [_xml(line) for line in _problems(each)]
                kind = "failure" if each.error is None else "error"
                ElementTree.SubElement(case, kind, message=lines[0]).text = "\n".join(lines)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _xml(text: str) -> str:
    return text.translate(_CONTROL)


def _problems(result: "CaseResult") -> list[str]:
    return list(result.differences) if result.error is None else [result.error]


def _lines(result: "CaseResult") -> list[str]:
    word = "passed" if result.is_passed else "FAILED"
    head = f"{word}  {result.case.spec.name}: {result.case.name}"
    if result.is_passed:
        return [head]
    return [f"{head} ({result.case.place})", *(f"    {each}" for each in _problems(result))]


def _json(result: "CaseResult") -> Json:
    place = result.case.place
    return {
        "pipeline": result.case.spec.name,
        "name": result.case.name,
        "file": place.file,
        "line": place.line,
        "passed": result.is_passed,
        "error": result.error,
        "differences": list(result.differences),
    }


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ToolError(f"{path} cannot be written: {error.strerror}") from error
