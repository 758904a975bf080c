"""`kalda faults`: shows and replaces the faults that the brokers of a test cluster have on purpose.

The brokers need ``kalda.faults.api.enable=true``.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.output import Json
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.faults import FaultError, FaultPlan

if TYPE_CHECKING:
    from kalda.clients.admin.faults import BrokerFaults
    from kalda.clients.admin.outcomes import Outcomes

faults = noun("Show, set and clear the faults of a test cluster.")


@command("set", faults)
@click.argument("plan", required=False)
@click.option(
    "--file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A plan in YAML instead."
)
async def set_(tool: Tool, plan: str | None, file: Path | None) -> None:
    """Replace the faults of all brokers.

    PLAN is the short form, such as "produce:NOT_LEADER*2". Each broker counts the requests that it gets.
    """
    if (plan is None) == (file is None):
        raise ToolUsageError("give either a plan or --file")
    await _alter(tool, str(_read(plan, file)))


@command("show", faults)
async def show(tool: Tool) -> None:
    """Show the faults of all brokers, and to how many requests each has applied."""
    async with tool.admin() as admin:
        _print(tool, await admin.describe_faults(outcomes=True))


@command("clear", faults)
async def clear(tool: Tool) -> None:
    """End all faults of all brokers."""
    await _alter(tool, "")


def _read(plan: str | None, file: Path | None) -> FaultPlan:
    try:
        return FaultPlan.parse(plan or "") if file is None else FaultPlan.from_yaml(file.read_text("utf-8"))
    except (FaultError, OSError, UnicodeDecodeError) as error:
        raise ToolUsageError(str(error)) from None


async def _alter(tool: Tool, plan: str) -> None:
    async with tool.admin() as admin:
        _print(tool, await admin.alter_faults(plan, outcomes=True))


def _print(tool: Tool, found: "Outcomes[int, BrokerFaults]") -> None:
    rows = []
    results: list[Json] = []
    for broker_id, each in sorted(found.results.items()):
        plan = FaultPlan.parse(each.plan)
        counts = iter(each.applied)
        for fault in plan.faults:
            applied = next(counts, None) if fault in plan.request_faults else None
            rows.append((broker_id, str(FaultPlan((fault,))), applied))
        results.append({"broker": broker_id, "plan": each.plan, "applied": list(each.applied), "error": None})
    for broker_id, error in sorted(found.errors.items()):
        results.append({"broker": broker_id, "plan": None, "applied": [], "error": error_json(error)})
    tool.output.result({"brokers": results}, Table(("BROKER", "FAULT", "APPLIED"), rows))
    raise_for(tool.output, found.errors.values())
