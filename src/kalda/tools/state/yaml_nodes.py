"""Reads and writes the small part of YAML that state files use: mappings of scalars, where scalars are text.

Settings are text, so nothing is guessed: ``on``, ``1_000`` and ``12:30`` keep the form in which they are
written. Positions are kept, so that a message can name the line; a key that occurs twice is refused.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import yaml

from kalda.command.option_types import INT32_MAX, INT64_MAX

Tree: TypeAlias = "Mapping[str, Tree | str | int]"
"""What can be written: mappings whose values are text, numbers or mappings."""


_PLAIN: Final = re.compile(r"-?[A-Za-z0-9_./]([A-Za-z0-9_./,+ -]*[A-Za-z0-9_./+-])?", re.ASCII)
"""Text that YAML reads back unchanged without quotes."""


class StateFileError(ValueError):
    """A file of the folder is wrong; the message has the file, the line, and what is allowed."""

    def __init__(self, path: str, line: int | None, message: str) -> None:
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {message}")


class Node:
    """A value of a file with its place."""

    def __init__(self, path: str, node: yaml.Node) -> None:
        self.path: Final = path
        self.node: Final = node

    @property
    def line(self) -> int:
        """The line, from 1."""
        line: int = self.node.start_mark.line
        return line + 1

    def error(self, message: str) -> StateFileError:
        """Return an error at this place."""
        return StateFileError(self.path, self.line, message)

    def mapping(self, what: str) -> "dict[str, Node]":
        """Return the entries in their order; an empty value is an empty mapping.

        Raises:
            StateFileError: it is no mapping, or a key occurs twice.
        """
        if isinstance(self.node, yaml.ScalarNode) and self.node.value in ("", "{}"):
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"{what} is not allowed here: it takes NAME: VALUE lines")
        found: dict[str, Node] = {}
        for key, value in self.node.value:
            name = Node(self.path, key).text(f"a name in {what}")
            if name in found:
                raise Node(self.path, key).error(f"{name} occurs twice in {what}; keep one")
            found[name] = Node(self.path, value)
        return found

    def text(self, what: str) -> str:
        """Return the scalar as it is written.

        Raises:
            StateFileError: it is no scalar.
        """
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.error(f"{what} is not allowed here: it takes one value")
        value: str = self.node.value
        return value

    def number(self, what: str, least: int, most: int = INT32_MAX) -> int:
        """Return the scalar as an int from `least` to `most`.

        Raises:
            StateFileError: it is no such number.
        """
        text = self.text(what)
        is_short = len(text) <= len(str(INT64_MAX))  # Python refuses to convert thousands of digits
        if not (is_short and text.isascii() and text.isdecimal() and int(text) >= least):
            raise self.error(f"{what}={text} is not allowed: it takes an int, at least {least}")
        if int(text) > most:
            raise self.error(f"{what}={text} is not allowed: it takes an int, at most {most}")
        return int(text)


def read(path: str, text: str) -> Node:
    """Read the text of one file.

    Raises:
        StateFileError: it is not YAML, or empty.
    """
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = None if mark is None else mark.line + 1
        raise StateFileError(path, line, f"this is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise StateFileError(path, None, f"this is not YAML: {error}") from None
    if node is None:
        raise StateFileError(path, None, "the file is empty; delete it, or write what it is about")
    return Node(path, node)


def write(tree: Tree) -> str:
    """Return the text of a file, in the form that every pull writes: two blanks of indent, keys as given."""
    return "".join(f"{line}\n" for line in _lines(tree, ""))


def _lines(tree: Tree, indent: str) -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            if value:
                yield f"{indent}{_scalar(name)}:"
                yield from _lines(value, f"{indent}  ")
            else:
                yield f"{indent}{_scalar(name)}: {{}}"
        else:
            yield f"{indent}{_scalar(name)}: {_scalar(str(value))}"


def _scalar(text: str) -> str:
    """Return a scalar: plain where nothing in it can mean anything else, else in double quotes."""
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in escaped) + '"'
