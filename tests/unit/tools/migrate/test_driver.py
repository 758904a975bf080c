"""The driver looks, lets the walk decide, keeps the journal, and runs the commands of an operator."""

import asyncio
import os
import signal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from kalda.clients.errors import ClientError
from kalda.tools.migrate import driver
from kalda.tools.migrate.driver import Roll, run_command
from kalda.tools.migrate.journal import Journal, progress_of, read_journal
from kalda.tools.migrate.observe import Depth
from kalda.tools.migrate.walk import Progress, Seen, Software, Wait
from tests.unit.tools.migrate.model_cluster import PLAN, ModelCluster

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin


def test_a_command_that_succeeds_has_no_problem() -> None:
    assert asyncio.run(run_command("true", 60)) is None


def test_a_command_does_not_wait_for_what_it_starts_in_the_background(tmp_path: Path) -> None:
    """What is started inherits stdout; a pipe would stay open until it ends."""
    pid = tmp_path / "pid"
    try:
        assert asyncio.run(run_command(f"sleep 600 & echo $! >{pid}", 60)) is None
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_command_that_fails_has_its_last_output() -> None:
    problem = asyncio.run(run_command("echo no such unit >&2; exit 5", 60))
    assert "ended with 5: no such unit" == problem


def test_a_command_that_hangs_is_ended() -> None:
    problem = asyncio.run(run_command("echo busy; sleep 600", 0.2))
    assert "did not end within 0.2 s: busy" == problem


class Recorded:
    """A roll of three brokers whose commands change a model; `observe` and the clock are replaced."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = ModelCluster()
        self.errors: list[ClientError] = []
        """What the next looks raise."""
        self.depths: list[Depth] = []
        self.reported: list[object] = []
        self.failing: set[str] = set()
        self._directory = directory
        seconds = count(step=10)
        monkeypatch.setattr(driver, "observe", self._observe)
        monkeypatch.setattr(driver, "run_command", self._run_command)
        monkeypatch.setattr(driver, "monotonic", lambda: float(next(seconds)))
        monkeypatch.setattr(driver, "_POLL_SECONDS", 0)

    def run(self, target: Software, *, measures_again: bool = False) -> Progress:
        """Run a roll over the journal of the directory."""
        path = self._directory / "journal"
        with Journal(path) as journal:
            roll = Roll(
                PLAN,
                journal,
                progress_of(read_journal(path)),
                measures_again=measures_again,
                report=self.reported.append,
            )
            asyncio.run(roll.run(cast("AsyncAdmin", object()), target))
        assert progress_of(read_journal(path)) == roll.progress
        return roll.progress

    async def _observe(self, admin: object, depth: Depth) -> Seen:
        self.depths.append(depth)
        if self.errors:
            raise self.errors.pop(0)
        return self.cluster.seen()

    async def _run_command(self, command: str, timeout_seconds: float) -> str | None:
        if command in self.failing:
            return "ended with 5: no such unit"
        self.cluster.run(command)
        return None


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(tmp_path, monkeypatch)


def test_a_roll_ends_with_the_software_of_its_target_and_goes_back(recorded: Recorded) -> None:
    assert recorded.run(Software.KALDA).has_ended
    assert dict.fromkeys((1, 2, 3), Software.KALDA) == recorded.cluster.brokers
    assert recorded.run(Software.KAFKA).has_ended
    assert dict.fromkeys((1, 2, 3), Software.KAFKA) == recorded.cluster.brokers


def test_a_failing_command_is_a_doubt_and_the_next_run_goes_on(recorded: Recorded) -> None:
    recorded.failing = {"start kalda 3"}
    doubt = recorded.run(Software.KALDA).doubt
    assert "broker 3: `start kalda 3` ended with 5: no such unit" == doubt
    assert {1: Software.KAFKA, 2: Software.KALDA} == recorded.cluster.brokers
    recorded.failing = set()
    assert recorded.run(Software.KALDA).has_ended


def test_a_cluster_that_cannot_be_read_for_a_while_is_waited_for(recorded: Recorded) -> None:
    recorded.errors = [ClientError("no answer")] * 3
    assert recorded.run(Software.KALDA).has_ended
    assert Wait(("the cluster cannot be read: no answer",)) in recorded.reported


def test_a_cluster_that_cannot_be_read_at_all_is_a_doubt(recorded: Recorded) -> None:
    recorded.errors = [ClientError("no answer")] * 1000
    assert "the cluster cannot be read: no answer" == recorded.run(Software.KALDA).doubt


def test_offsets_that_got_lower_on_purpose_are_measured_again(recorded: Recorded) -> None:
    recorded.failing = {"start kalda 2"}
    recorded.run(Software.KALDA)
    recorded.failing, recorded.cluster.end = set(), 0
    assert "ended at 10 and ends at" in (recorded.run(Software.KALDA).doubt or "")
    assert recorded.run(Software.KALDA, measures_again=True).has_ended


def test_only_what_a_phase_needs_is_read(recorded: Recorded) -> None:
    recorded.run(Software.KALDA)
    assert {*Depth} == set(recorded.depths)
    assert Depth.WITH_SETTINGS is recorded.depths[0]
