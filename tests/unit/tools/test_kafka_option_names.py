"""Options have the names of Kafka's tools: those since 4.2 (KIP-1147), and those before.

Kafka's tools take both until 5.0, and scripts have either.
"""

from pathlib import Path

import click
import pytest

from kalda.cli_tools import load_tool
from kalda.command.errors import ToolUsageError
from kalda.command.values import read_settings
from kalda.tools.console.consume import consume
from kalda.tools.console.produce import produce


@pytest.mark.parametrize(
    ("command", "new", "old"),
    [
        ("produce", "--command-config", "--producer.config"),
        ("produce", "--command-property", "--producer-property"),
        ("produce", "--reader-property", "--property"),
        ("consume", "--command-config", "--consumer.config"),
        ("consume", "--command-property", "--consumer-property"),
        ("consume", "--formatter-property", "--property"),
        ("perf produce", "--command-config", "--producer.config"),
        ("perf produce", "--command-property", "--producer-props"),
        ("perf consume", "--command-config", "--consumer.config"),
        ("perf consume", "--num-records", "--messages"),
        ("perf end-to-end", "--producer-acks", "--acks"),
        ("elect-leaders", "--command-config", "--admin.config"),
        ("cluster id", "--command-config", "--config"),
        ("cluster describe", "--command-config", "--config"),
    ],
)
def test_an_option_has_its_old_and_its_new_name(command: str, new: str, old: str) -> None:
    name, *verbs = command.split()
    found = load_tool(name)
    for verb in verbs:
        assert isinstance(found, click.Group)
        found = found.commands[verb]

    options = [parameter for parameter in found.params if new in parameter.opts]
    assert 1 == len(options)
    assert old in options[0].opts


@pytest.mark.parametrize("command", [produce, consume], ids=["produce", "consume"])
def test_properties_may_come_from_a_file(command: click.Command, tmp_path: Path) -> None:
    kind = "reader" if command is produce else "formatter"
    file = tmp_path / "file"
    file.write_text("print.kye=true\n")
    with command.make_context(command.name, ["topic", f"--{kind}-config", str(file)]) as context:
        assert file == context.params[f"{kind}_config"]

    assert {"print.kye": "true"} == read_settings("--reader-config", file)
    assert {} == read_settings("--reader-config", None)
    with pytest.raises(ToolUsageError, match=r"--reader-config=.*nowhere: No such file"):
        read_settings("--reader-config", tmp_path / "nowhere")
