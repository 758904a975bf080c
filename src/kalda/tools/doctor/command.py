"""`kalda doctor`: the command."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError
from kalda.command.output import Json
from kalda.command.values import read_settings
from kalda.command.zookeeper_security import zookeeper_security_option
from kalda.inspection.doctor.diagnosis import examine_cluster
from kalda.inspection.doctor.findings import Finding, Severity, ranked
from kalda.inspection.doctor.machine import examine_machine
from kalda.inspection.doctor.snapshot import ClusterSnapshot

SOUND: Final = 0
FINDINGS: Final = 1
NOT_LOOKED: Final = 2


class NotLookedError(ToolError):
    """Nothing could be looked at."""

    exit_code = NOT_LOOKED


@command("doctor")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A broker's server.properties: check this machine too, with the log directories that it names.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="A log directory of a broker on this machine: check it, and the machine; repeatable.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,...[/CHROOT]",
    help="The coordination server or ensemble of the cluster: look for znodes that everybody may change.",
)
@zookeeper_security_option
@click.option("--advice", is_flag=True, help="Show advice too, which the default output only counts.")
async def doctor(
    tool: Tool, config: Path | None, data_dir: tuple[Path, ...], zookeeper: str | None, advice: bool
) -> None:
    """Check a cluster and a machine; rank what is wrong.

    On a machine with a broker, --config or --data-dir checks limits, disks, clock and permissions too; it
    writes a small file in each log directory, and deletes it.

    The exit code is 0 if the cluster is sound, 1 if something was found, and 2 if the command could not look.
    Advice does not count.
    """
    is_local = config is not None or bool(data_dir)
    properties = read_settings("--config", config)
    findings = _examine_machine(config, properties, data_dir) if is_local else []
    try:
        cluster = await _read(tool, zookeeper)
    except NotLookedError as error:
        # A machine can be checked before its broker is started.
        if not is_local:
            raise
        report(tool, findings, [f"the cluster: {error}"], shows_advice=advice)
        return
    report(tool, ranked([*examine_cluster(cluster), *findings]), cluster.unread, shows_advice=advice)


async def _read(tool: Tool, zookeeper: str | None) -> ClusterSnapshot:
    from kalda.clients.errors import ClientError
    from kalda.tools.doctor.read_cluster import read_cluster
    from kalda.tools.doctor.read_znodes import read_open_znodes

    try:
        async with tool.admin() as admin:
            cluster = await read_cluster(admin)
    except ClientError as error:
        raise NotLookedError(str(error)) from error
    if zookeeper is None:
        return cluster
    try:
        return replace(cluster, open_znodes=await read_open_znodes(zookeeper))
    except ToolError as error:
        return replace(cluster, unread=[*cluster.unread, f"znodes: {error}"])


def _examine_machine(
    config: Path | None, properties: Mapping[str, str], data_dirs: Sequence[Path]
) -> list[Finding]:
    from kalda.tools.doctor.read_machine import read_machine

    named = (properties.get("log.dirs") or properties.get("log.dir") or "").split(",")
    directories = [*data_dirs, *(Path(each.strip()) for each in named if each.strip())]
    return examine_machine(read_machine(list(dict.fromkeys(directories)), config, properties))


def report(tool: Tool, findings: Sequence[Finding], unread: Sequence[str], *, shows_advice: bool) -> None:
    """Write the findings and end the process with the exit code for them."""
    code = exit_code(findings, unread)
    document: dict[str, Json] = {
        "is_sound": code == SOUND,
        "findings": [
            {
                "check": each.check,
                "severity": each.severity.word,
                "what": each.what,
                "evidence": each.evidence,
                "why": each.why,
                "mend": each.mend,
            }
            for each in findings
        ],
        "unread": list(unread),
    }
    tool.output.result(document, *text_of(findings, unread, shows_advice=shows_advice))
    tool.output.flush()
    if code:
        sys.exit(code)


def exit_code(findings: Sequence[Finding], unread: Sequence[str]) -> int:
    """Return 1 if something is wrong, 2 if nothing was found but not all could be read, else 0."""
    if any(each.severity > Severity.ADVICE for each in findings):
        return FINDINGS
    return NOT_LOOKED if unread else SOUND


def text_of(findings: Sequence[Finding], unread: Sequence[str], *, shows_advice: bool) -> list[str]:
    """Return the lines of the output that people read."""
    lines = []
    for each in findings:
        if each.severity > Severity.ADVICE or shows_advice:
            lines += [
                f"{each.severity.word.upper()} {each.check}: {each.what}",
                f"  found: {each.evidence}",
                f"  why:   {each.why}",
                f"  mend:  {each.mend}",
                "",
            ]
    lines += [f"not read: {each}" for each in unread]
    counts = {
        severity: sum(each.severity is severity for each in findings) for severity in reversed(Severity)
    }
    wrong = [f"{counts[each]} {each.word}" for each in (Severity.CRITICAL, Severity.WARNING) if counts[each]]
    if wrong:
        lines.append(f"Found: {', '.join(wrong)}.")
    elif unread:
        lines.append("Nothing is wrong with what could be read.")
    else:
        lines.append("Everything is sound.")
    if counts[Severity.ADVICE] and not shows_advice:
        lines.append(f"{counts[Severity.ADVICE]} more are advice; --advice shows them.")
    return lines
