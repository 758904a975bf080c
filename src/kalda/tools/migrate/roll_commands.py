"""The commands `kalda migrate plan|run|back|status`, which replace brokers one at a time."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.option_types import INT32_MAX, Integer
from kalda.command.output import Json
from kalda.command.tables import Table
from kalda.tools.migrate.journal import Journal, encode, progress_of, read_journal
from kalda.tools.migrate.plan_file import PlanFile, Templates, read_plan, write_plan
from kalda.tools.migrate.steps_text import event_text, listed_steps
from kalda.tools.migrate.unit_file import unit_text
from kalda.tools.migrate.walk import Event, Progress, Run, Software, Wait, remaining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kalda.tools.migrate.walk import Plan

_plan_argument = click.argument("plan", type=click.Path(path_type=Path, dir_okay=False), metavar="PLAN")
_journal_option = click.option(
    "--journal",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the roll notes what was done. Default: the plan's name with .journal.",
)
_broker_option = click.option(
    "--broker",
    "only",
    type=Integer(0, INT32_MAX),
    multiple=True,
    metavar="ID",
    help="Only this broker in this run; repeatable.",
)
_dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print the steps and their way back; do nothing."
)
_measure_option = click.option(
    "--measure-again",
    is_flag=True,
    help="Take offsets that got lower (a topic deleted, a group reset on purpose) as they are.",
)

_KAFKA_UNIT: Final = "kafka.service"
_KALDA_UNIT: Final = "kalda.service"


@command("plan")
@click.option("--stop-kafka", metavar="COMMAND", help="Default: systemctl stop of the unit --kafka-unit.")
@click.option("--start-kafka", metavar="COMMAND", help="Default: systemctl start of this unit.")
@click.option("--stop-kalda", metavar="COMMAND", help="Default: systemctl stop of the unit --kalda-unit.")
@click.option("--start-kalda", metavar="COMMAND", help="Default: systemctl start of this unit.")
@click.option(
    "--kafka-unit",
    default=_KAFKA_UNIT,
    show_default=True,
    metavar="UNIT",
    help="The unit of systemd that runs Apache Kafka.",
)
@click.option(
    "--kalda-unit",
    default=_KALDA_UNIT,
    show_default=True,
    metavar="UNIT",
    help="The unit of systemd that runs Kalda.",
)
@click.option(
    "--via",
    metavar="TEMPLATE",
    help="How a command gets to a broker's host, as in 'ssh {host} {command}'; without it, it runs here.",
)
@click.option(
    "--unit-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write a unit file of systemd that starts Kalda with --config.",
)
@click.option(
    "--config",
    default="/etc/kafka/server.properties",
    show_default=True,
    metavar="FILE",
    help="The brokers' server.properties, for --unit-file.",
)
async def plan_(
    tool: Tool,
    stop_kafka: str | None,
    start_kafka: str | None,
    stop_kalda: str | None,
    start_kalda: str | None,
    kafka_unit: str,
    kalda_unit: str,
    via: str | None,
    unit_file: Path | None,
    config: str,
) -> None:
    """Print a plan for the brokers that run, to be edited and given to `kalda migrate run`.

    In commands, {id} stands for the broker's id and {host} for its host.
    """
    async with tool.admin() as admin:
        described = await admin.describe_cluster()
    if described.cluster_id is None:
        raise ToolError("the brokers do not say the id of their cluster")
    templates = Templates(
        {
            "stop_kafka": stop_kafka or f"systemctl stop {kafka_unit}",
            "start_kafka": start_kafka or f"systemctl start {kafka_unit}",
            "stop_kalda": stop_kalda or f"systemctl stop {kalda_unit}",
            "start_kalda": start_kalda or f"systemctl start {kalda_unit}",
        },
        via,
    )
    hosts = {node.id: node.host for node in sorted(described.nodes, key=lambda node: node.id)}
    text = write_plan(described.cluster_id, tool.properties["bootstrap.servers"], hosts, templates)
    if unit_file is not None:
        _write(unit_file, unit_text(config, kafka_unit))
        tool.output.note(f"Wrote {unit_file}: install it on every broker's host as {kalda_unit}.")
    tool.output.result({"plan": text}, *text.rstrip("\n").split("\n"))


@command("run")
@_plan_argument
@_journal_option
@_broker_option
@_dry_run_option
@_measure_option
async def run(
    tool: Tool, plan: Path, journal: Path | None, only: tuple[int, ...], dry_run: bool, measure_again: bool
) -> None:
    """Replace Kafka by Kalda, one broker at a time; go on where an earlier run stopped.

    The run stops at the first doubt, with exit code 1. Repeat it when the reason is gone, or walk back with
    `kalda migrate back`.
    """
    await _roll(tool, plan, journal, Software.KALDA, only, dry_run=dry_run, measure_again=measure_again)


@command("back")
@_plan_argument
@_journal_option
@_broker_option
@_dry_run_option
@_measure_option
async def back(
    tool: Tool, plan: Path, journal: Path | None, only: tuple[int, ...], dry_run: bool, measure_again: bool
) -> None:
    """Walk back to Kafka from any point, one broker at a time, in the reverse order."""
    await _roll(tool, plan, journal, Software.KAFKA, only, dry_run=dry_run, measure_again=measure_again)


@command("status")
@_plan_argument
@_journal_option
async def status(tool: Tool, plan: Path, journal: Path | None) -> None:
    """Show where a roll is: what each broker runs, what was done, and what comes next."""
    from kalda.tools.migrate.observe import Depth, observe

    file = read_plan(plan)
    progress = progress_of(read_journal(journal or _journal_of(plan)))
    async with tool.at(file.bootstrap_servers).admin() as admin:
        seen = await observe(admin, Depth.BROKERS)
    rows = []
    for each in file.plan.brokers:
        software = seen.brokers.get(each.broker_id)
        is_listed = each.broker_id in seen.brokers
        runs = software.full_name if software is not None else "does not answer" if is_listed else "is down"
        rows.append((each.broker_id, each.host or None, runs, _state(progress, each.broker_id)))
    names = ("broker", "host", "runs", "roll")
    lines = [_summary(file.plan, progress, seen.controller_id, plan)]
    if progress.doubt is not None:
        lines.insert(0, f"The last run stopped: {progress.doubt}")
    tool.output.result(
        {
            "target": progress.target,
            "has_ended": progress.has_ended,
            "doubt": progress.doubt,
            "controller": seen.controller_id,
            "brokers": [dict(zip(names, row, strict=True)) for row in rows],
        },
        Table(tuple(name.upper() for name in names), rows),
        "",
        *lines,
    )


async def _roll(
    tool: Tool,
    path: Path,
    journal: Path | None,
    target: Software,
    only: tuple[int, ...],
    *,
    dry_run: bool,
    measure_again: bool,
) -> None:
    from kalda.tools.migrate.driver import Roll
    from kalda.tools.migrate.observe import Depth, observe

    file = read_plan(path)
    _check_ids(file, only)
    plan = file.plan
    if target is Software.KAFKA:
        plan = replace(plan, brokers=tuple(reversed(plan.brokers)))
    journal_path = journal or _journal_of(path)
    tool = tool.at(file.bootstrap_servers)
    async with tool.admin() as admin:
        if dry_run:
            seen = await observe(admin, Depth.BROKERS)
            lines = listed_steps(plan, target, seen, frozenset(only), path)
            tool.output.result({"steps": lines}, *lines)
            return
        with Journal(journal_path) as opened:
            roll = Roll(
                plan,
                opened,
                progress_of(read_journal(journal_path)),
                only=frozenset(only),
                measures_again=measure_again,
                report=_reporter(tool, plan, target),
            )
            await roll.run(admin, target)
    if roll.progress.doubt is not None:
        raise ToolError(
            f"stopped: {roll.progress.doubt} (`kalda migrate status {path}` shows where; repeat the command "
            f"to go on, or `kalda migrate {'back' if target is Software.KALDA else 'run'} {path}` to turn "
            "back)"
        )


def _reporter(tool: Tool, plan: "Plan", target: Software) -> "Callable[[Event | Run | Wait], None]":
    def report(step: Event | Run | Wait) -> None:
        text = event_text(plan, target, step)
        if text is not None:
            tool.output.item(_document(step), text)
            tool.output.flush()

    return report


def _document(step: Event | Run | Wait) -> "Mapping[str, Json]":
    match step:
        case Run(broker_id, command):
            return {"event": "command", "broker": broker_id, "command": command}
        case Wait(reasons):
            return {"event": "waiting", "reasons": list(reasons)}
        case _:
            return encode(step)


def _check_ids(file: PlanFile, only: tuple[int, ...]) -> None:
    known = {each.broker_id for each in file.plan.brokers}
    unknown = [each for each in only if each not in known]
    if unknown:
        raise ToolUsageError(
            f"--broker={unknown[0]}: the plan has the brokers {', '.join(map(str, sorted(known)))}"
        )


def _state(progress: Progress, broker_id: int) -> str:
    if progress.current is not None and progress.current.broker_id == broker_id:
        return f"in phase {progress.current.phase}"
    return "swapped" if broker_id in progress.swapped else "untouched"


def _summary(plan: "Plan", progress: Progress, controller_id: int | None, path: Path) -> str:
    if progress.target is None:
        return f"No roll has begun. `kalda migrate run {path}` begins it."
    if progress.has_ended:
        return f"The roll to {progress.target.full_name} has ended."
    left = remaining(plan, progress, controller_id)
    text = ", ".join(map(str, left)) or "none"
    if progress.current is not None:
        verb = "run" if progress.target is Software.KALDA else "back"
        return (
            f"On the way to {progress.target.full_name}, in the middle of broker "
            f"{progress.current.broker_id}; brokers that are left after it: {text}. `kalda migrate {verb} "
            f"{path}` goes on."
        )
    return f"On the way to {progress.target.full_name}; brokers that are left: {text}."


def _journal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.journal")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error


COMMANDS: Final = (plan_, run, back, status)
