"""The driver runs commands of an operator; what they start outlives them, and failures have their output."""

import asyncio
import os
import signal
from pathlib import Path

from kalda.tools.migrate.driver import run_command


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
