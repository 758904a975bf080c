"""When the full checks of invariants run."""

import os
import subprocess
import sys

import pytest

from kalda.common import invariants


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "enabled", False)
    monkeypatch.delenv("KALDA_CHECK_INVARIANTS", raising=False)


def test_the_default_switches_the_checks_on_for_child_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # setenv first, so that the fixture restores what enable_by_default writes.
    monkeypatch.setenv("KALDA_CHECK_INVARIANTS", "1")
    monkeypatch.delenv("KALDA_CHECK_INVARIANTS")
    invariants.enable_by_default()
    assert invariants.enabled
    assert "1" == os.environ["KALDA_CHECK_INVARIANTS"]


def test_the_environment_overrides_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KALDA_CHECK_INVARIANTS", "0")
    invariants.enable_by_default()
    assert not invariants.enabled


@pytest.mark.parametrize(("value", "expected"), [(None, "False"), ("0", "False"), ("1", "True")])
def test_production_checks_only_where_the_environment_asks_for_it(value: str | None, expected: str) -> None:
    environment = {name: each for name, each in os.environ.items() if name != "KALDA_CHECK_INVARIANTS"}
    if value is not None:
        environment["KALDA_CHECK_INVARIANTS"] = value
    program = "from kalda.common import invariants; print(invariants.enabled)"
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert expected == found.stdout.strip()
