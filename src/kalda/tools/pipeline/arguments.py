"""The arguments that verbs of `kalda pipeline` share, and the reading of the file that they name."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kalda.command.command import Tool
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.output import Form, Json
from kalda.common.extras import install_hint
from kalda.pipelines.spec.errors import PipelineFileError
from kalda.pipelines.spec.model import PipelineFile, PipelineSpec
from kalda.pipelines.spec.values import MASTER, suggestion

if TYPE_CHECKING:
    from kalda.pipelines.spec.parser import Check

_Function = TypeVar("_Function", bound=Callable[..., object])

_MISSING: Final = (
    "pipelines need PySpark, Arrow and the libraries of table formats ({name} is missing); "
    + install_hint("pipelines")
)


def pipeline_arguments(function: _Function) -> _Function:
    """Add the file and the names of pipelines in it."""
    names = click.argument("names", nargs=-1, metavar="[PIPELINE]...")
    file = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
    return file(names(function))


def checked_master(_context: click.Context, _option: click.Parameter, master: str | None) -> str | None:
    """Return the option `--master`, which takes what the key `master` of a file takes."""
    if master is not None:
        try:
            MASTER.read(master)
        except ValueError:
            raise click.BadParameter(f"{master} is not allowed: it takes {MASTER.takes}") from None
    return master


def read_file(tool: Tool, path: Path, check: "Check | None" = None) -> PipelineFile:
    """Read a pipeline file; the options of a connection win over the settings of its main cluster.

    `check` adds more faults; see `read_pipeline_file`.

    Raises:
        ToolUsageError: the file cannot be read or is wrong; the message has a line for each fault.
    """
    try:
        from kalda.pipelines.spec.parser import read_pipeline_file

        given = dict(tool.properties)
        if tool.is_address_default:
            given.pop("bootstrap.servers", None)
        return read_pipeline_file(path, settings=given, check=check)
    except OSError as error:
        raise ToolUsageError(f"{path}: {error.strerror}") from error
    except PipelineFileError as error:
        raise file_error(tool, error) from None


def file_error(tool: Tool, error: PipelineFileError) -> ToolUsageError:
    """Return the error of a wrong file, after a line for each fault but the last.

    With ``--json``, the faults are also the result, for editors and other programs.
    """
    if tool.output.form is Form.JSON:
        faults: list[Json] = [
            {
                "file": each.place.file,
                "line": each.place.line,
                "column": each.place.column,
                "message": each.message,
            }
            for each in error.faults
        ]
        tool.output.result({"faults": faults})
    *others, last = map(str, error.faults)
    for line in others:
        tool.output.failure(line)
    return ToolUsageError(last)


def chosen(file: PipelineFile, names: Sequence[str]) -> list[PipelineSpec]:
    """Return the pipelines of these names, all of them without names.

    Raises:
        ToolUsageError: the file has no pipeline of a name.
    """
    known = {each.name: each for each in file.pipelines}
    for name in names:
        if name not in known:
            hint = suggestion(name, list(known))
            raise ToolUsageError(f"{file.path} has no pipeline {name}.{hint} It has {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else list(file.pipelines)


def missing_package(error: ModuleNotFoundError) -> ToolError:
    """Return the error for a package that is not installed."""
    return ToolError(_MISSING.format(name=error.name))
