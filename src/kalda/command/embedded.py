"""Runs a command inside another program, and returns what it would print with ``--json``."""

import inspect
import io
import json
from collections.abc import Sequence
from typing import Any

import click

from kalda.command.command import Tool
from kalda.command.groups import HelpCommand
from kalda.command.output import Form, Output


async def json_of(command: click.Command, words: Sequence[str], tool: Tool) -> Any:
    """Run a command in the running event loop and return its one JSON document.

    Args:
        command: one that `kalda.command.command` made.
        words: its arguments, as on a command line.
        tool: whose settings of the connection it uses.

    Raises:
        ToolError: the command failed.
        click.UsageError: the words are wrong.
        ClientError: the cluster refused something, or could not be reached.
    """
    assert isinstance(command, HelpCommand), command
    assert command.tool_function is not None, command.name
    context = command.make_context(command.name, list(words))
    wanted = inspect.signature(command.tool_function).parameters
    options = {name: value for name, value in context.params.items() if name in wanted}
    written = io.StringIO()
    run = command.tool_function(Tool(Output(Form.JSON, written, io.StringIO()), tool.properties), **options)
    if run is not None:
        await run
    return json.loads(written.getvalue())
