"""The commands `kalda state pull|diff|push|lint DIR`."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError
from kalda.common.log_text import counted

if TYPE_CHECKING:
    from kalda.tools.bytes_text import JsonValue
    from kalda.tools.schemas.registry import Registry
    from kalda.tools.state.folder import Folder
    from kalda.tools.state.model import Parts, SubjectState
    from kalda.tools.state.steps import Plan, PlannedStep, Risk

state = noun("Keep topics, settings and offsets of groups as files.\n\nEach environment has a folder.")

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_directory = click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
_PARTS = ("topics", "groups", "brokers", "subjects")


def _only(function: Decorated) -> Decorated:
    return click.option(
        "--only",
        type=click.Choice(_PARTS),
        multiple=True,
        help="Only this part of the state; repeatable. Without it, all parts.",
    )(function)


def _registry(function: Decorated) -> Decorated:
    return click.option(
        "--registry",
        metavar="URL,...",
        help="Addresses of the schema registry that has the subjects. Default: schema.registry.url of "
        "environment.yml or of the client's settings; without it, subjects are no part of the state.",
    )(function)


def _allow_options(function: Decorated) -> Decorated:
    """Add one flag for each risk; their values arrive as ``allow_...`` parameters."""
    # A test compares them with `steps.Risk`; importing it here would slow down the help.
    for name, consequence in reversed(ALLOW_OPTIONS.items()):
        function = click.option(name, is_flag=True, help=consequence)(function)
    return function


ALLOW_OPTIONS = {
    "--allow-delete-topics": "Delete topics that have no file, with their records.",
    "--allow-shorter-retention": "Change settings so that records are deleted that are kept now.",
    "--allow-less-durability": "Change settings so that acknowledged records can be lost.",
    "--allow-offset-skip": "Move committed offsets forwards: the records in between are not read.",
    "--allow-offset-rewind": "Move committed offsets backwards: records are read again.",
    "--allow-delete-offsets": "Delete committed offsets, and groups, that have no file.",
    "--allow-delete-subjects": "Delete subjects of the schema registry that have no file.",
}
"""The options of `push` that allow a loss, with their help."""


@command("pull", state)
@_directory
@_only
@_registry
async def pull(tool: Tool, directory: Path, only: tuple[str, ...], registry: str | None) -> None:
    """Write the state of a cluster into the files of a folder.

    Files whose content already says the same are not touched. The first pull creates the folder and its
    environment.yml, which names the cluster for the other commands.
    """
    from kalda.tools.state.cluster import read_state
    from kalda.tools.state.folder import pulled_files

    folder = _load(directory, may_be_missing=True)
    opened = _opened(tool, folder, registry)
    parts = replace(_parts(only), subjects=opened is not None and _parts(only).subjects)
    tool = tool.at(folder.environment.bootstrap_servers)
    async with tool.admin() as admin:
        found = await read_state(admin, parts, folder.environment)
    if opened is not None and parts.subjects:
        found.state = replace(found.state, subjects=await _subjects(opened, folder))
    changes = pulled_files(folder.limited(parts), found.state)
    _write(directory, changes, tool.properties["bootstrap.servers"], registry)
    written = sorted(name for name, text in changes.items() if text is not None)
    deleted = sorted(name for name, text in changes.items() if text is None)
    for remark in found.remarks:
        tool.output.note(remark)
    tool.output.result(
        {"written": [*written], "deleted": [*deleted]},
        *(f"wrote {name}" for name in written),
        *(f"deleted {name}" for name in deleted),
        f"{directory} is up to date: {counted(len(found.state.topics or ()), 'topic')}, "
        f"{counted(len(found.state.groups or ()), 'group')}",
    )


@command("diff", state)
@_directory
@_only
@_registry
@click.option("--allow-delete-offsets", is_flag=True, help="Plan the deletion of offsets without a file too.")
async def diff(
    tool: Tool, directory: Path, only: tuple[str, ...], registry: str | None, allow_delete_offsets: bool
) -> None:
    """Print what a push would change; the exit code is 1 if that is anything."""
    folder = _checked(directory)
    tool = tool.at(folder.environment.bootstrap_servers)
    opened = _opened(tool, folder, registry)
    plan = await _plan(tool, folder, _parts(only), opened, deletes_offsets=allow_delete_offsets)
    _show(tool, plan, frozenset(), {})
    if not plan.is_empty:
        raise click.exceptions.Exit(1)


@command("push", state)
@_directory
@_only
@_registry
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@_allow_options
async def push(
    tool: Tool, /, directory: Path, only: tuple[str, ...], registry: str | None, yes: bool, **allow: bool
) -> None:
    """Change a cluster so that it has what the files of a folder say.

    The plan is shown before anything happens. A plan with a step that loses data is refused as a whole,
    unless the option for that loss is given. The deletion of a topic without a file is such a step; offsets
    of groups without a file stay as they are.
    """
    from kalda.tools.state.performing import perform
    from kalda.tools.state.steps import Risk, step_text

    allowed = frozenset(risk for risk in Risk if allow[risk.value.removeprefix("--").replace("-", "_")])
    folder = _checked(directory)
    tool = tool.at(folder.environment.bootstrap_servers)
    opened = _opened(tool, folder, registry)
    deletes_offsets = Risk.DELETE_OFFSETS in allowed
    plan = await _plan(tool, folder, _parts(only), opened, deletes_offsets=deletes_offsets)
    refused = plan.refused(allowed)
    if refused or plan.impossible:
        _show(tool, plan, allowed, {})
        raise ToolError(_refusal(refused, plan.impossible))
    if not plan.steps:
        _show(tool, plan, allowed, {})
        return
    if not yes:
        _ask(tool, plan, allowed)
    failures: dict[str, str | None] = {}
    with tool.output.progress("push", len(plan.steps), "steps") as progress:
        async with tool.admin() as admin:
            async for step, reason in perform(admin, [each.step for each in plan.steps], opened):
                failures[step_text(step)] = reason
                progress.update(len(failures))
    _show(tool, plan, allowed, failures)
    failed = {text: reason for text, reason in failures.items() if reason is not None}
    for text, reason in failed.items():
        tool.output.failure(f"{text}: {reason}")
    if failed:
        raise ToolError(
            f"{len(failed)} of {counted(len(plan.steps), 'step')} failed; push again when the cause is gone"
        )


@command("lint", state, connects=False)
@_directory
def lint(tool: Tool, directory: Path) -> None:
    """Check the files of a folder without a cluster: form, names and values of settings."""
    from kalda.tools.state.lint import faults

    folder = _load(directory)
    found = faults(folder)
    files = len(folder.paths) + (folder.broker_configs is not None)
    tool.output.result(
        {"faults": [*found], "files": files},
        *found,
        *([] if found else [f"{counted(files, 'file')}, no faults"]),
    )
    if found:
        raise click.exceptions.Exit(1)


def _load(directory: Path, *, may_be_missing: bool = False) -> "Folder":
    from kalda.tools.state.folder import Folder, load

    if may_be_missing and not directory.exists():
        return Folder()
    try:
        return load(directory)
    except OSError as error:
        raise ToolUsageError(f"{error.filename}: {error.strerror}") from error


def _opened(tool: Tool, folder: "Folder", registry: str | None) -> "Registry | None":
    """Return the registry that has the subjects; None if nothing names one and no file is of a subject."""
    text = registry or folder.environment.registry or tool.properties.get("schema.registry.url")
    if text is None:
        if folder.subjects:
            raise ToolUsageError(
                "the folder has subjects; name their registry by --registry or by schema.registry.url in "
                "environment.yml"
            )
        return None
    from kalda.tools.schemas.registry import registry_of

    return registry_of(text, tool.properties)


async def _subjects(registry: "Registry", folder: "Folder") -> "dict[str, SubjectState]":
    from kalda.tools.state.subjects import read_subjects

    return await asyncio.to_thread(read_subjects, registry, folder.subjects)


def _write(
    directory: Path, changes: "dict[str, str | None]", bootstrap_servers: str, registry: str | None
) -> None:
    """Write what a pull changes; the first one adds the file about the environment."""
    from kalda.tools.state import documents
    from kalda.tools.state.folder import write_files

    if not (directory / documents.ENVIRONMENT_FILE).exists():
        changes[documents.ENVIRONMENT_FILE] = documents.environment_text(bootstrap_servers, registry)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_files(directory, changes)
    except OSError as error:
        raise ToolError(f"{error.filename}: {error.strerror}") from error


def _checked(directory: Path) -> "Folder":
    """Return a folder without faults in its form; values of settings are checked by the brokers."""
    folder = _load(directory)
    if folder.faults:
        raise ToolUsageError(_listed(folder.faults))
    return folder


def _listed(faults: list[str]) -> str:
    shown = "; ".join(faults[:3])
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return f"{shown}{more}"


def _parts(only: tuple[str, ...]) -> "Parts":
    from kalda.tools.state.model import Parts

    named = only or _PARTS
    return Parts("topics" in named, "groups" in named, "brokers" in named, "subjects" in named)


async def _plan(
    tool: Tool, folder: "Folder", parts: "Parts", registry: "Registry | None", *, deletes_offsets: bool
) -> "Plan":
    from kalda.tools.state.cluster import read_state
    from kalda.tools.state.planner import plan

    wanted = folder.limited(parts)
    async with tool.admin() as admin:
        found = await read_state(admin, wanted.parts, folder.environment)
    current = found.state
    if registry is not None and wanted.subjects is not None:
        current = replace(current, subjects=await _subjects(registry, folder))
    return plan(
        current,
        wanted.state,
        found.defaults,
        deletes_offsets=deletes_offsets,
        brokers=found.broker_ids,
    )


def _ask(tool: Tool, plan: "Plan", allowed: "frozenset[Risk]") -> None:
    if not sys.stdin.isatty():
        raise ToolUsageError("push asks before it changes anything: run it on a terminal, or add --yes")
    for line in _lines(plan, allowed):
        click.echo(line, err=True)
    click.confirm(
        f"Push {counted(len(plan.steps), 'step')} to {tool.properties['bootstrap.servers']}?",
        abort=True,
        err=True,
    )


def _show(tool: Tool, plan: "Plan", allowed: "frozenset[Risk]", failures: "dict[str, str | None]") -> None:
    """Print a plan, and after a push the outcomes of its steps."""
    steps: list[JsonValue] = [_step_json(planned, failures) for planned in plan.steps]
    summary = "nothing to change" if plan.is_empty else counted(len(plan.steps), "step")
    if failures:
        done = sum(reason is None for reason in failures.values())
        summary = f"{done} of {counted(len(plan.steps), 'step')} done"
    tool.output.result({"steps": steps, "impossible": [*plan.impossible]}, *_lines(plan, allowed), summary)


def _lines(plan: "Plan", allowed: "frozenset[Risk]") -> list[str]:
    from kalda.tools.state.steps import step_text

    lines = []
    for planned in plan.steps:
        risk = planned.risk
        needs = "" if risk is None or risk in allowed else f"   needs {risk.value}: {risk.consequence}"
        lines.append(f"{step_text(planned.step)}{needs}")
    return [*lines, *(f"! {reason}" for reason in plan.impossible)]


def _step_json(planned: "PlannedStep", failures: "dict[str, str | None]") -> "dict[str, JsonValue]":
    from kalda.tools.state.steps import step_text

    text = step_text(planned.step)
    fields: dict[str, JsonValue] = {
        "step": type(planned.step).__name__,
        "text": text,
        "needs": None if planned.risk is None else planned.risk.value,
    }
    if text in failures:
        fields |= {"done": failures[text] is None, "error": failures[text]}
    return fields


def _refusal(refused: "list[PlannedStep]", impossible: Sequence[str]) -> str:
    reasons = []
    if refused:
        options = dict.fromkeys(planned.risk.value for planned in refused if planned.risk is not None)
        reasons.append(f"{counted(len(refused), 'step')} would lose data; allowed by {' '.join(options)}")
    if impossible:
        reasons.append(
            f"{counted(len(impossible), 'difference')} that no push can remove: see the lines with !"
        )
    return f"nothing was changed: {'; '.join(reasons)}"
