"""The commands that findings of `kalda doctor` name exist, with their options."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from kalda.cli import app
from kalda.cli_tools import TOOLS, load_tool
from kalda.inspection import doctor

COMMAND = re.compile(r"kalda ([a-z][a-z-]+(?: [^;#]+)?)")


def mends() -> Iterator[str]:
    """Return the literal parts of what mends the findings."""
    for path in Path(doctor.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "mend":
                parts = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
                yield "".join(each for each in parts if isinstance(each, str))


def test_the_commands_that_mend_exist() -> None:
    found = [match[1].split() for text in mends() for match in COMMAND.finditer(text)]
    assert len(found) > 20
    for name, *words in found:
        command = load_tool(name) if name in TOOLS else app.commands[name]
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        options = {option for each in command.params for option in each.opts}
        assert set() == {each for each in words if each.startswith("--")} - options, (name, words)
