"""The examples of the help screens work."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kalda.cli import app
from kalda.cli_tools import SECTIONS, TOOLS, load_tool
from kalda.command.examples import EXAMPLES, UNTRIED
from kalda.testing import KaldaProcess
from tests.integration.tools.commands import KALDA

OF_ANOTHER_TIME = {
    "groups remove-members",
    "transactions describe",
    "transactions abort",
    "transactions force-terminate",
    "delegation-tokens create",
    "delegation-tokens describe",
    "delegation-tokens renew",
    "delegation-tokens expire",
    "acls add",
    "acls list",
    "acls remove",
    "elect-leaders",
    "zk security-migration",
    "cluster decommission",
}
"""What needs members, transactions or security that one plain broker does not have; the broker says so."""


def leaves(path: str, command: click.Command) -> Iterator[str]:
    """Return the commands that do something."""
    if not isinstance(command, click.Group):
        yield path
        return
    for name, below in command.commands.items():
        if not below.hidden:
            yield from leaves(f"{path} {name}".strip(), below)


def test_every_command_has_an_example() -> None:
    servers = {name for name, command in app.commands.items() if name not in TOOLS and not command.hidden}
    known = servers | {leaf for name in TOOLS for leaf in leaves(name, load_tool(name))}
    assert known == EXAMPLES.keys()


def test_every_command_is_in_one_section_of_the_list() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted({*TOOLS, *app.commands}) == sorted(listed)


def words_of(line: str) -> tuple[list[str], str | None, str | None]:
    """Return the words of an example behind ``kalda``, its input and the file of its output."""
    before, _, command = line.rpartition(" | ")
    command, _, output = command.partition(" > ")
    words = shlex.split(command)
    assert "kalda" == words[0], line
    return words[1:], f"{shlex.split(before)[1]}\n" if before else None, output or None


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.startswith(UNTRIED)])
def test_an_example_that_is_not_run_is_a_command_line(path: str) -> None:
    for line in EXAMPLES[path]:
        rest, _, _ = words_of(line)
        command: click.Command = app
        context: click.Context | None = None
        while isinstance(command, click.Group):
            parent = click.Context(command, parent=context, info_name=command.name)
            _, found, rest = command.resolve_command(parent, rest)
            assert found is not None, line
            command, context = found, parent
        command.make_context(command.name, list(rest), parent=context)


def test_the_examples_run(tmp_path: Path) -> None:
    """In their order, which is the life of a topic."""
    with KaldaProcess(tmp_path / "kalda-data") as broker:
        failed = []
        environment = {**os.environ, "KALDA_BOOTSTRAP_SERVER": broker.bootstrap}
        for path, lines in EXAMPLES.items():
            if path.startswith(UNTRIED):
                continue
            allowed = (0, 1) if path in OF_ANOTHER_TIME else (0,)
            for line in lines:
                words, given, output = words_of(line)
                if words[0] == "zk":
                    option = "--zookeeper.connect" if "security-migration" in words else "--zookeeper"
                    words += [option, broker.zookeeper]
                done = subprocess.run(
                    [*KALDA, *words],
                    cwd=tmp_path,
                    env=environment,
                    input=given or "",
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
                if done.returncode not in allowed:
                    failed.append((line, done.returncode, done.stderr))
                if output is not None:
                    (tmp_path / output).write_text(done.stdout)
    assert not failed, "\n".join(map(str, failed))


def test_help_and_version_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    app(["help", "topics", "create"], prog_name="kalda", standalone_mode=False)
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: kalda topics create [OPTIONS]")
    assert shown.endswith(
        "\nExample:\n  kalda topics create flights --partitions 4 --config retention.ms=86400000\n"
    )
    app(["version"], prog_name="kalda", standalone_mode=False)
    assert capsys.readouterr().out.startswith("kalda ")
    with pytest.raises(click.UsageError, match="Did you mean 'create'"):
        app(["help", "topics", "creat"], prog_name="kalda", standalone_mode=False)


def test_the_help_of_a_group_shows_examples_of_its_first_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Most people read this screen, and not that of each command."""
    app(["help", "groups"], prog_name="kalda", standalone_mode=False)
    _, _, examples = capsys.readouterr().out.partition("\nExamples:\n")
    assert [
        "kalda groups reset-offsets readers --topic flights --to-earliest --execute",
        "kalda groups list",
        "kalda groups describe readers",
    ] == [line.strip() for line in examples.splitlines()]


def test_the_list_of_commands_is_whole_and_coloured_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    app(["help"], prog_name="kalda", standalone_mode=False)
    plain = capsys.readouterr().out
    assert "..." not in plain.partition("Servers:")[2]
    assert "\x1b" not in plain
    assert "\x1b" in app.get_help(app.context_class(app, info_name="kalda"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in app.get_help(app.context_class(app, info_name="kalda"))
