"""Each process of these tests starts as an operator's does: it imports what it runs."""

import subprocess

import pytest

from kalda.testing.process import CommandProcess


@pytest.fixture(autouse=True)
def _processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommandProcess, "_popen", subprocess.Popen)
