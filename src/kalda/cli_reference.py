"""Writes the reference page of the command line from the commands themselves.

Run it as ``python -m kalda.cli_reference docs/reference``. The page is committed, and a test fails when it
differs from the commands.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from kalda.cli import app
from kalda.cli_tools import SECTIONS, TOOLS, load_tool
from kalda.command.examples import EXAMPLES

PAGE: Final = "cli.md"

_INTRODUCTION: Final = """\
# The command line

`kalda start`, `kalda broker` and `kalda zookeeper` run servers; [Run a broker](../how-to/run-a-broker.md)
shows how. The other commands are tools for a cluster: nouns with verbs, with the option names of Kafka's
scripts.

- **Output.** Results go to stdout: tables on a terminal, aligned columns in a pipe (`-` is a cell without a
  value), and JSON with `--json`, one document or one line for each item of a stream. Remarks and progress
  go to stderr.
- **Errors** are one line on stderr each. The exit code is 0, or 1 if something failed, or 2 if the command
  line or a file that it names is wrong. A command that was given several things does those that it can.
- **Connection.** `--bootstrap-server` takes the place of `bootstrap.servers` in the properties file that
  `--command-config` names; without either, the variable `KALDA_BOOTSTRAP_SERVER` counts, then
  `127.0.0.1:9092`. `--command-property` sets a single setting of the client. All commands that connect have
  these three options, which the tables leave out, as they leave out `--json` and `--help`.
  The names that single tools of Kafka have for them work too: `--producer.config`, `--producer-property`,
  `--producer-props`, `--consumer.config`, `--consumer-property`, `--admin.config`, and `--broker-list` of
  `kalda verify-replicas`.
- **Completion.** `source <(kalda completion bash)`, also for zsh and fish; names of topics and groups
  complete too.

The examples take the broker of `kalda start`, or that of `KALDA_BOOTSTRAP_SERVER`. `kalda help COMMAND`
shows them too.
"""

_SHARED: Final = frozenset(
    {"--bootstrap-server", "--command-config", "--command-property", "--json", "--help", "-h"}
)


def servers() -> dict[str, click.Command]:
    """Return the commands that run servers and are no tools, by name."""
    return {name: app.commands[name] for name in SECTIONS["Servers"] if name not in TOOLS}


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for name, command in servers().items():
        parts += _tool(name, command)
    for name in TOOLS:
        parts += _tool(name, load_tool(name))
    return "\n".join(parts)


def _tool(name: str, command: click.Command) -> Iterator[str]:
    path = f"kalda {name}"
    yield f"## `{path}`\n"
    yield f"{_text(command)}\n"
    if isinstance(command, click.Group):
        yield from _verbs(path, command)
    else:
        yield from _details(path, command)


def _verbs(path: str, group: click.Group) -> Iterator[str]:
    for verb, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _verbs(f"{path} {verb}", command)
            continue
        yield f"### `{path} {verb}`\n"
        yield f"{_text(command)}\n"
        yield from _details(f"{path} {verb}", command)


def _details(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    examples = EXAMPLES.get(path.removeprefix("kalda "), ())
    if examples:
        yield "```sh\n" + "\n".join(examples) + "\n```\n"
    rows = [
        record
        for parameter in command.get_params(context)
        if not _SHARED & {*parameter.opts} and (record := parameter.get_help_record(context)) and record[1]
    ]
    if rows:
        yield "| Option | |\n|---|---|"
        yield "".join(f"| `{_cell(option)}` | {_escaped(text)} |\n" for option, text in rows)


def _text(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escaped(text: str) -> str:
    return _cell(text).replace("<", "&lt;").replace("*", "\\*")


def write_page(directory: Path) -> None:
    """Write the page.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / PAGE).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write_page(Path(sys.argv[1]))
