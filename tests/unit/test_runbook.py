"""The runbook has a section for each alert, and commands that exist."""

import re
from pathlib import Path

import click
import yaml

from kalda.cli_tools import TOOLS, load_tool

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs/how-to/runbook.md").read_text()


def test_each_alert_has_a_section_and_each_section_an_alert() -> None:
    """An alert at night leads here by its name."""
    (group,) = yaml.safe_load((ROOT / "contrib/grafana/kalda-alerts.yml").read_text())["groups"]

    alerts = [rule["alert"] for rule in group["rules"]]
    assert sorted(alerts) == sorted(re.findall(r"^### (Kalda\w+)$", RUNBOOK, re.MULTILINE))


def test_what_needs_a_person_at_once_is_what_the_rules_call_critical() -> None:
    (group,) = yaml.safe_load((ROOT / "contrib/grafana/kalda-alerts.yml").read_text())["groups"]

    critical = [rule["alert"] for rule in group["rules"] if rule["labels"]["severity"] == "critical"]
    assert sorted(critical) == sorted(re.findall(r"^### (Kalda\w+)\n\n\*Page\.\*", RUNBOOK, re.MULTILINE))


def test_commands_and_their_options_exist() -> None:
    commands = re.findall(r"^ *(kalda [^#\n]+)", RUNBOOK, re.MULTILINE) + re.findall(
        r"`(kalda [^`]+)`", RUNBOOK
    )
    checked = 0
    for text in commands:
        name, *words = text.split()[1:]
        if name not in TOOLS:
            assert name in {"start", "zookeeper"}, text
            continue
        command = load_tool(name)
        if isinstance(command, click.Group) and words:
            command = command.commands[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert [] == [word for word in words if word.startswith("--") and word not in known], text
        checked += 1
    assert checked > 15
