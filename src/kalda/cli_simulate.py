"""Defines `kalda simulate`: whole clusters in virtual time, from seeds.

It is beside the tools and not one of them: tools know no broker.
"""

import dataclasses
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import FAILURE, PartialFailureError, ToolUsageError
from kalda.command.option_types import INT64_MAX, Integer
from kalda.command.output import Json
from kalda.common.logging import LogOptions

if TYPE_CHECKING:
    from kalda.simulation.schedule import Outcome, Schedule

_SCHEDULES: Final = 100
_SECONDS: Final = 60
_SECONDS_MAX: Final = 3600
_JOBS_MAX: Final = 1024
_SHRINK_SECONDS: Final = 600
_WARM_UP_FROM: Final = 50
"""How many schedules it takes to gain more than that costs."""
_FAILURES_MAX: Final = 20
_VIOLATIONS_SHOWN: Final = 5
_NOTES_INTERVAL_SECONDS: Final = 10.0


@command("simulate", connects=False)
@click.option(
    "--seed", type=Integer(0), metavar="N", help="Carry out the schedule of this seed, and print its trace."
)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Carry out the schedule in a YAML file, such as --shrink prints. What it leaves out is drawn from "
    "its seed or --seed.",
)
@click.option(
    "--schedules",
    type=Integer(1),
    metavar="COUNT",
    help=f"How many schedules to carry out; {_SCHEDULES} without --seed and --plan.",
)
@click.option(
    "--first", type=Integer(0), metavar="N", default=1, show_default=True, help="The first schedule's seed."
)
@click.option(
    "--seconds",
    type=Integer(1, _SECONDS_MAX),
    metavar="SECONDS",
    default=_SECONDS,
    show_default=True,
    help="The simulated time in which faults happen. Start, recovery and checks come on top.",
)
@click.option("--workloads", metavar="NAME,...", help="The workloads to choose from; all of them without it.")
@click.option(
    "--mixed",
    "is_mixed",
    is_flag=True,
    help="Let about every second broker be a model of Apache Kafka's, in ZooKeeper mode; each start "
    "of a broker decides again.",
)
@click.option(
    "--coordination",
    type=click.Choice(["zookeeper", "etcd"]),
    default="zookeeper",
    show_default=True,
    help="What keeps the cluster's metadata: Kalda's own coordination server, or a model of etcd that loses "
    "leaders, compacts and fills up.",
)
@click.option(
    "--jobs", type=Integer(1, _JOBS_MAX), metavar="COUNT", help="Schedules at a time; one for each processor."
)
@click.option(
    "--failures-max",
    type=Integer(1),
    metavar="COUNT",
    default=_FAILURES_MAX,
    show_default=True,
    help="Stop after so many schedules that failed.",
)
@click.option(
    "--shrink", "is_shrunk", is_flag=True, help="Print the smallest schedule found that fails as well."
)
@click.option(
    "--shrink-seconds",
    type=Integer(1),
    metavar="SECONDS",
    default=_SHRINK_SECONDS,
    show_default=True,
    help="Stop --shrink after so much time, and print what was found until then.",
)
def simulate(
    tool: Tool,
    seed: int | None,
    plan_file: Path | None,
    schedules: int | None,
    first: int,
    seconds: int,
    workloads: str | None,
    is_mixed: bool,
    coordination: str,
    jobs: int | None,
    failures_max: int,
    is_shrunk: bool,
    shrink_seconds: int,
) -> None:
    """Run a cluster in virtual time, from a seed, with faults.

    Brokers, coordination server and clients are the real ones, and what Kafka promises is checked. Faults,
    latencies and the order of everything come from a seed: the same seed of the same version gives the same
    trace. A single schedule runs in this process, as a debugger likes it. The exit code is 1 if a promise was
    broken; the seed is printed with the command that replays it.
    """
    # The modules of brokers and clients: no other command needs all of them.
    from kalda.simulation.run import WORKLOADS, run
    from kalda.simulation.runner import processors, run_apart
    from kalda.simulation.schedule import ScheduleError, draw, known_workloads, read_schedule

    _fix_hashes()
    _silence_logs()
    if (seed is not None or plan_file is not None) and schedules is not None:
        raise ToolUsageError("--schedules takes the place of --seed and --plan; leave one of them out")
    try:
        names = known_workloads(workloads.split(","), tuple(WORKLOADS)) if workloads else tuple(WORKLOADS)
    except ScheduleError as error:
        raise ToolUsageError(f"--workloads: {error}") from None
    # What is left of the defaults in the command that replays a seed.
    options = ("" if seconds == _SECONDS else f" --seconds {seconds}") + (
        "" if workloads is None else f" --workloads {workloads}"
    )
    if coordination != "zookeeper":
        options += f" --coordination {coordination}"
        if is_mixed:
            raise ToolUsageError(
                "--mixed needs --coordination zookeeper: Apache Kafka's brokers have no etcd"
            )
    command_line = _Replay(options + (" --mixed" if is_mixed else ""))
    workers = jobs or processors()
    if plan_file is not None:
        schedule = _read(
            plan_file,
            lambda text: read_schedule(text, names, seed=1 if seed is None else seed, seconds=seconds),
        )
    elif seed is not None:
        schedule = draw(seed, names, seconds, is_mixed=is_mixed, engine=coordination)
    else:
        count = schedules or _SCHEDULES
        if first > INT64_MAX - count:
            raise ToolUsageError(f"--first={first} leaves no room for {count} seeds up to {INT64_MAX}")
        seeds = range(first, first + count)
        drawn = (draw(each, names, seconds, is_mixed=is_mixed, engine=coordination) for each in seeds)
        failed = _many(tool, drawn, count, workers, failures_max, command_line)
        if not failed:
            return
        if is_shrunk:
            _shrink(tool, *failed[0], workers, shrink_seconds)
        raise PartialFailureError
    outcome = run_apart(schedule, run) if is_shrunk else run(schedule)
    _print(tool, outcome)
    if is_shrunk and outcome.violations:
        _shrink(tool, schedule, outcome, workers, shrink_seconds)
    if not is_shrunk and sys.gettrace() is None:
        # What the run made is never closed: the end of the interpreter would, and report each piece.
        tool.output.flush()
        os._exit(FAILURE if outcome.violations else 0)
    if outcome.violations:
        raise PartialFailureError


def _fix_hashes() -> None:
    """Start this program again with fixed hashes of texts, which decide the order of sets.

    A debugger would lose the program: there, the variable has to be set for the trace of another run.
    """
    if os.environ.get("PYTHONHASHSEED") != "0" and sys.gettrace() is None and "simulate" in sys.orig_argv:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})


def _silence_logs() -> None:
    """Show errors of brokers, which faults cause, only where the options before the command ask for logs."""
    given = click.get_current_context().find_root().obj
    if not isinstance(given, LogOptions) or given.level is None:
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.CRITICAL)


class _Replay:
    """Makes the command that replays a seed."""

    def __init__(self, options: str) -> None:
        self._options: Final = options

    def of(self, seed: int) -> str:
        return f"kalda simulate --seed {seed}{self._options}"


def _read(file: Path, read: "Callable[[str], Schedule]") -> "Schedule":
    from kalda.simulation.schedule import ScheduleError

    try:
        return read(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ToolUsageError(f"--plan={file}: {error.strerror}") from None
    except (ScheduleError, UnicodeDecodeError) as error:
        raise ToolUsageError(f"--plan={file}: {error}") from None


def _print(tool: Tool, outcome: "Outcome") -> None:
    """Print the trace and the outcome of a run."""
    summary = (
        f"seed {outcome.seed}: {len(outcome.violations)} violations in {outcome.simulated_seconds:.1f} "
        f"simulated seconds, digest {outcome.digest}"
    )
    tool.output.result(dataclasses.asdict(outcome), *outcome.trace, summary, *outcome.violations)


def _many(
    tool: Tool,
    drawn: "Iterator[Schedule]",
    count: int,
    jobs: int,
    failures_max: int,
    replay: _Replay,
) -> "list[tuple[Schedule, Outcome]]":
    """Carry out schedules, print the failures at once, and return them."""
    from kalda.simulation.run import run, warm_up
    from kalda.simulation.runner import run_many

    if count >= _WARM_UP_FROM:
        warm_up()
    begin = time.monotonic()
    failed: list[tuple[Schedule, Outcome]] = []
    done = 0
    simulated = 0.0
    noted = begin

    def counts() -> str:
        return f"{len(failed)} failed, {_hours_per_minute(simulated, begin):.2f} simulated hours a minute"

    runs = run_many(drawn, run, jobs=jobs)
    try:
        for finished in runs:
            if finished is not None:
                schedule, outcome = finished
                done += 1
                simulated += outcome.simulated_seconds
                if outcome.violations:
                    failed.append(finished)
                    _print_failure(tool, outcome, replay.of(schedule.seed))
                    if len(failed) >= failures_max:
                        break
            if time.monotonic() >= noted + _NOTES_INTERVAL_SECONDS:
                noted = time.monotonic()
                tool.output.note(f"{done} of {count} schedules, {counts()}")
    finally:
        runs.close()
    tool.output.item(
        {
            "schedules": done,
            "failed": len(failed),
            "simulated_hours": round(simulated / 3600, 3),
            "simulated_hours_per_minute": round(_hours_per_minute(simulated, begin), 3),
        },
        f"{done} schedules, {simulated / 3600:.2f} simulated hours, {counts()}",
    )
    return failed


def _print_failure(tool: Tool, outcome: "Outcome", replay: str) -> None:
    lines = [f"seed {outcome.seed} failed; replay it: {replay}"]
    lines += [f"  {each}" for each in outcome.violations[:_VIOLATIONS_SHOWN]]
    if len(outcome.violations) > _VIOLATIONS_SHOWN:
        lines.append(f"  and {len(outcome.violations) - _VIOLATIONS_SHOWN} more")
    document: dict[str, Json] = {"seed": outcome.seed, "violations": outcome.violations, "replay": replay}
    tool.output.item(document, "\n".join(lines))
    tool.output.flush()


def _hours_per_minute(simulated_seconds: float, begin: float) -> float:
    return simulated_seconds / 60 / max(time.monotonic() - begin, 0.001)


def _shrink(tool: Tool, schedule: "Schedule", outcome: "Outcome", jobs: int, seconds: int) -> None:
    """Print the smallest schedule that is found within some time to break the same rule."""
    from kalda.simulation.run import run
    from kalda.simulation.runner import run_many
    from kalda.simulation.shrink import Shrinker, broken_rule

    rule = broken_rule(outcome)
    assert rule is not None, "only failures are shrunk"
    end = time.monotonic() + seconds

    def find_first(candidates: "Sequence[Schedule]", is_wanted: "Callable[[Outcome], bool]") -> int | None:
        if time.monotonic() >= end:
            return None
        runs = run_many(candidates, run, jobs=jobs)
        try:
            for each in runs:
                if each is not None and is_wanted(each[1]):
                    return next(index for index, one in enumerate(candidates) if one is each[0])
                if time.monotonic() >= end:
                    tool.output.note(f"--shrink ends after {seconds} s; there may be smaller schedules")
                    return None
        finally:
            runs.close()
        return None

    def found(smaller: "Schedule") -> None:
        tool.output.note(
            f"fails with {len(smaller.plan.faults)} faults, {smaller.seconds:g} s and "
            f"{', '.join(smaller.workloads)}"
        )

    smallest = Shrinker(find_first, rule, found).shrink(schedule)
    text = smallest.to_yaml()
    tool.output.item(
        {"rule": rule, "schedule": text},
        f"# It breaks the rule `{rule}`. Replay it from a file: kalda simulate --plan FILE\n{text.rstrip()}",
    )
