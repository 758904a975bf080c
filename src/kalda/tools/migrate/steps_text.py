"""Words for the steps of a roll, with the way back of each. Pure functions."""

from pathlib import Path

from kalda.common.log_text import counted
from kalda.tools.migrate.walk import (
    Began,
    Doubted,
    Ended,
    Entered,
    Event,
    Measured,
    Phase,
    Plan,
    Progress,
    Returned,
    Run,
    Seen,
    Software,
    Swapped,
    Wait,
    remaining,
)


def event_text(plan: Plan, target: Software, step: Event | Run | Wait) -> str | None:
    """Return the line for a step; None for one that says nothing more than others."""
    match step:
        case Began():
            return f"Roll to {target.full_name} of {counted(len(plan.brokers), 'broker')}."
        case Measured(offsets):
            return (
                f"  before: {counted(len(offsets.ends), 'partition')} whose ends add up to "
                f"{sum(offsets.ends.values())}, {counted(len(offsets.committed), 'group')}"
            )
        case Entered(broker_id, phase):
            return _entered_text(plan, target, broker_id, phase)
        case Swapped(broker_id):
            return (
                f"Broker {broker_id} runs {target.full_name}; all replicas are in sync, no offset is lower."
            )
        case Returned(broker_id):
            return f"Broker {broker_id} runs {target.other.full_name} again; the roll takes it once more."
        case Doubted():
            return None  # the command ends with it
        case Ended():
            return f"All brokers of the plan run {target.full_name}."
        case Run(_, command):
            return f"  $ {command}"
        case Wait(reasons):
            return f"  waiting: {'; '.join(reasons)}"


def listed_steps(plan: Plan, target: Software, seen: Seen, only: frozenset[int], path: Path) -> list[str]:
    """Return the steps of a roll from now on, as a dry run prints them."""
    lines = []
    left = [
        each
        for each in remaining(plan, Progress(target=target), seen.controller_id)
        if (not only or each in only) and seen.brokers.get(each) is not target
    ]
    verb = "back" if target is Software.KALDA else "run"
    for number, broker_id in enumerate(left, 1):
        broker = plan.broker(broker_id)
        note = " (the controller)" if broker_id == seen.controller_id else ""
        lines += [
            f"{number}. Broker {broker_id}{note} from {target.other.full_name} to {target.full_name}",
            "   wait until all replicas are in sync and groups are stable; note all offsets",
            f"   $ {broker.stop[target.other]}",
            "   wait until the cluster does not list the broker",
            f"   $ {broker.start[target]}",
            "   wait until it is back, all replicas are in sync, groups are stable, no offset is lower",
            f"   to go back: kalda migrate {verb} {path} --broker {broker_id}, or by hand:",
            f"   $ {broker.stop[target]}",
            f"   $ {broker.start[target.other]}",
        ]
    return lines or [f"All brokers of the plan run {target.full_name}."]


def _entered_text(plan: Plan, target: Software, broker_id: int, phase: Phase) -> str | None:
    broker = plan.broker(broker_id)
    back = f"{broker.stop[target]}; {broker.start[target.other]}"
    match phase:
        case Phase.STOP:
            change = f"from {target.other.full_name} to {target.full_name}"
            return f"Broker {broker_id}: {change} (to go back: {back})"
        case Phase.SETTLE:
            return f"  broker {broker_id} is back with {target.full_name}"
        case _:
            return None
