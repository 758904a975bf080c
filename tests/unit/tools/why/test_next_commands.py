"""Whether the commands that an answer ends with are ones of the command line."""

import shlex

import pytest
from click.testing import CliRunner

from kalda.cli import app
from kalda.events.event import CausalEvent, EventId, EventKind
from kalda.events.words import commands

KINDS = [value for name, value in vars(EventKind).items() if name.isupper()]


@pytest.mark.parametrize("kind", KINDS)
def test_commands_to_run_next_exist(kind: str) -> None:
    """They are the ones of an incident, where nobody looks up how a command is called."""
    subjects: list[dict[str, str | int]] = [
        {"topic": "t", "partition": 0, "group": "g", "broker": 1, "transactional_id": "x", "producer": 7},
        {"broker": 1, "producer": 7},
    ]
    for subject in subjects:
        event = CausalEvent(id=EventId(1, 1), time_ms=0, kind=kind, subject=subject)
        for line in commands(event):
            program, *words = shlex.split(line)
            assert "kalda" == program
            run = CliRunner().invoke(app, [*words, "--help"])
            assert 0 == run.exit_code, f"{line}: {run.output}"
            assert not run.output.startswith("Usage: kalda [OPTIONS]"), line
            options = [word for word in words if word.startswith("--") and word != "--"]
            assert all(option in run.output for option in options), f"{line}: {run.output}"
