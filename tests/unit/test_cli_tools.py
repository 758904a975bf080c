"""The list of tools agrees with the tools."""

import click
import pytest
from click.testing import CliRunner

from kalda.cli import app
from kalda.cli_tools import NAMED_ONLY, SECTIONS, TOOLS, load_tool


@pytest.mark.parametrize("name", TOOLS)
def test_the_list_of_commands_says_what_the_tool_says(name: str) -> None:
    """The list is written by hand, so that it costs no import."""
    tool = load_tool(name)

    assert TOOLS[name].help == (tool.help or "").partition("\n")[0]


def test_the_list_of_commands_fits_two_screens() -> None:
    """A person who looks for a command sees all of them, each on one line, on a terminal of 80x25."""
    shown = CliRunner().invoke(app, ["--help"], terminal_width=80).output.splitlines()

    assert len(shown) <= 50
    assert max(map(len, shown)) <= 80
    context = click.Context(app)
    for heading, names in SECTIONS.items():
        if heading == NAMED_ONLY:
            assert f"{heading}: {', '.join(names)}" in shown
            continue
        assert f"{heading}:" in shown
        for name in names:
            command = app.get_command(context, name)
            assert command is not None
            text = (command.help or "").partition("\n")[0]
            assert f"  {name} {text}".split() in [line.split() for line in shown]


def commands(path: str, command: click.Command) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    for name, below in getattr(command, "commands", {}).items():
        found += commands(f"{path} {name}", below)
    return found


@pytest.mark.parametrize("name", [*app.commands, *TOOLS])
def test_every_command_and_option_has_a_help_text(name: str) -> None:
    root = app.commands.get(name) or load_tool(name)
    for path, command in commands(name, root):
        assert (command.help or "").strip(), path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, f"{path} {parameter.opts[0]}"
                assert parameter.help.rstrip().endswith((".", ")")), f"{path} {parameter.opts[0]}"
