"""Whole clusters in virtual time: 200 schedules hold, and a seed gives one trace.

The nightly workflow runs 20,000 schedules of a minute, and all planted bugs (`tests.simulation.planted`).
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kalda.records.implementation import is_compiled
from kalda.simulation.run import WORKLOADS, run, warm_up
from kalda.simulation.runner import run_apart
from kalda.simulation.schedule import Outcome, Schedule, draw

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")

SCHEDULES = 200
MIXED_SCHEDULES = 30
ETCD_SCHEDULES = 20
SCHEDULES_PER_TEST = 10
SECONDS = 20
"""Of faults; start, recovery and checks come on top."""


def _simulate(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run `kalda simulate`; return its exit code and what it prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "kalda", "simulate", *arguments],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return ended.returncode, ended.stdout.decode()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, SCHEDULES, SCHEDULES_PER_TEST))
def test_schedules_hold(first: int) -> None:
    """A failure names its seed and the command that replays it."""
    code, printed = _simulate(
        *("--first", str(first), "--schedules", str(SCHEDULES_PER_TEST)),
        *("--seconds", str(SECONDS), "--jobs", "1"),
    )

    assert (0, "") == (code, "" if code == 0 else printed), printed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, ETCD_SCHEDULES, SCHEDULES_PER_TEST))
def test_schedules_on_etcd_hold(first: int) -> None:
    """Clients of etcd and brokers over a model that loses leaders, compacts, and takes no writes at times."""
    code, printed = _simulate(
        *("--coordination", "etcd", "--first", str(first), "--schedules", str(SCHEDULES_PER_TEST)),
        *("--seconds", str(SECONDS), "--jobs", "1"),
    )

    assert (0, "") == (code, "" if code == 0 else printed), printed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, MIXED_SCHEDULES, SCHEDULES_PER_TEST))
def test_schedules_with_brokers_of_apache_kafka_hold(first: int) -> None:
    code, printed = _simulate(
        *("--mixed", "--first", str(first), "--schedules", str(SCHEDULES_PER_TEST)),
        *("--seconds", str(SECONDS), "--jobs", "1"),
    )

    assert (0, "") == (code, "" if code == 0 else printed), printed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 14])
def test_a_seed_gives_the_same_trace_in_every_process(seed: int) -> None:
    """Whatever the hash seed is, and in plain Python as with compiled code."""
    environments: Sequence[dict[str, str]] = [
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "4294967295", "KALDA_PURE_PYTHON": "1"},
    ]

    code, trace = _simulate("--seed", str(seed), "--seconds", str(SECONDS))

    assert 0 == code
    assert "every fault ends" in trace
    for environment in environments:
        if is_compiled() or "KALDA_PURE_PYTHON" not in environment:
            assert (code, trace) == _simulate(
                "--seed", str(seed), "--seconds", str(SECONDS), environment=environment
            )


_DIGEST = """
import os, sys
from kalda.simulation.run import WORKLOADS, run
from kalda.simulation.schedule import draw
outcome = run(draw(int(sys.argv[1]), [sys.argv[2]], float(sys.argv[3])))
print(outcome.digest, outcome.violations, flush=True)
os._exit(0)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "workload"), [(5, "administration"), (4, "groups"), (7, "share-groups")])
def test_hashes_decide_no_order(seed: int, workload: str) -> None:
    """`kalda simulate` runs with one hash seed, but other programs that run a schedule may have any."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST, str(seed), workload, "8"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert 1 == len(digests), digests
    assert b" []" in digests.pop()


@pytest.mark.timeout(600)
def test_a_schedule_has_the_same_trace_behind_others() -> None:
    """Nothing that a schedule leaves in its process changes the next one."""
    schedule = draw(14, tuple(WORKLOADS), SECONDS)
    alone = run_apart(schedule, run)

    behind = run_apart(schedule, _run_behind_others)

    assert not alone.violations
    assert (alone.digest, alone.trace) == (behind.digest, behind.trace)


def _run_behind_others(schedule: Schedule) -> Outcome:
    warm_up()
    return run(schedule)


def test_a_plan_is_replayed_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.yml"
    file.write_text('workloads: [produce]\nseconds: 4\nfaults: ["broker:kill@1,after=1s,for=1s"]\n')

    code, trace = _simulate("--plan", str(file), "--seed", "3")

    assert 0 == code, trace
    assert "seed 3, workloads produce" in trace
    assert "begins: broker:kill@1,after=1s,for=1s" in trace


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seed", "1", "--schedules", "5"),
        ("--workloads", "prodcue"),
        ("--plan", "missing.yml"),
        ("--seed", "-1"),
        ("--seconds", "0"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: tuple[str, ...]) -> None:
    assert (2, "") == _simulate(*arguments)
