"""Defines the values of a YAML file with their places, and the readers that check them key by key.

Scalars are text here, never what YAML guesses: ``on``, ``1_000`` and ``12:30`` keep the form in which they
are written. A reader never raises for a fault of the file: it adds the fault to the list and returns a
placeholder, so that one run reports everything. The parser calls `FaultList.check` before a value is used.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import yaml

from kalda.pipelines.spec.errors import FaultList
from kalda.pipelines.spec.model import Place
from kalda.pipelines.spec.values import NotAllowedError, ValueType, suggestion

ValueT = TypeVar("ValueT")

_SHOWN_CHARACTERS_MAX: Final = 60
_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_BYTES_MAX: Final = 64 * 1024
"""A secret is a password or a key; a larger file is a wrong path."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a mapping, for messages and for the reference page."""

    name: str
    takes: str
    """What the value is."""
    help: str
    """One or two sentences."""
    default: str | None = None
    """What holds without the key; None where the help says it, or where there is none."""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """The keys that a mapping may have."""

    title: str
    """What the mapping is called in messages: "unknown key x in <title>"."""
    help: str
    keys: tuple[Key, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(key.name for key in self.keys)


class Source:
    """One file that is read: its name, the variables it may use, and its faults."""

    def __init__(self, file: str, variables: Mapping[str, str], faults: FaultList) -> None:
        self.file: Final = file
        self.variables: Final = variables
        self.faults: Final = faults

    def place(self, node: yaml.Node) -> Place:
        """Return where a node begins, from line and column 1."""
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def text(self, node: yaml.ScalarNode) -> str:
        """Return a scalar with ``${NAME}``, ``${NAME:-default}`` and ``${file:PATH}`` replaced.

        ``$${`` stands for ``${``.
        """

        def replaced(match: re.Match[str]) -> str:
            if match[1] is None:
                return "${"
            return self._variable(node, match[1])

        value: str = node.value
        return _VARIABLE.sub(replaced, value) if "${" in value else value

    def _variable(self, node: yaml.ScalarNode, inside: str) -> str:
        if inside.startswith("file:"):
            return self._secret(node, inside.removeprefix("file:"))
        name, separator, default = inside.partition(":-")
        if _VARIABLE_NAME.fullmatch(name) is None:
            self.faults.add(
                self.place(node),
                f"${{{inside}}} is not allowed: it takes ${{NAME}}, ${{NAME:-default}} or ${{file:PATH}}; "
                "write $${ for the characters themselves",
            )
            return ""
        if name in self.variables:
            return self.variables[name]
        if not separator:
            self.faults.add(
                self.place(node),
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}",
            )
        return default

    def _secret(self, node: yaml.ScalarNode, path: str) -> str:
        try:
            with Path(path).open("rb") as file:
                content = file.read(_SECRET_BYTES_MAX + 1)
        except OSError as error:
            self.faults.add(self.place(node), f"${{file:{path}}} cannot be read: {error.strerror}")
            return ""
        except ValueError as error:  # a null character in the path
            self.faults.add(self.place(node), f"${{file:{path}}} cannot be read: {error}")
            return ""
        if len(content) > _SECRET_BYTES_MAX:
            self.faults.add(self.place(node), f"${{file:{path}}} has more than {_SECRET_BYTES_MAX} bytes")
            return ""
        try:
            return content.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            self.faults.add(self.place(node), f"${{file:{path}}} is not text in UTF-8")
            return ""


class Value:
    """A value of the file and the key that it belongs to."""

    def __init__(self, source: Source, node: yaml.Node, name: str) -> None:
        self.source: Final = source
        self.node: Final = node
        self.name: Final = name
        """The key, or the key and a position, for messages."""

    @property
    def place(self) -> Place:
        """Where the value begins."""
        return self.source.place(self.node)

    @property
    def is_scalar(self) -> bool:
        """Whether this is a single value."""
        return isinstance(self.node, yaml.ScalarNode)

    @property
    def is_list(self) -> bool:
        """Whether this is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_mapping(self) -> bool:
        """Whether this is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    def fault(self, message: str) -> None:
        """Add a fault at this place."""
        self.source.faults.add(self.place, message)

    def one(self, kind: ValueType[ValueT]) -> ValueT:
        """Return the single value."""
        if not isinstance(self.node, yaml.ScalarNode):
            self.refuse(kind.takes)
            return kind.placeholder
        faults = len(self.source.faults)
        text = self.source.text(self.node)
        if len(self.source.faults) > faults:
            return kind.placeholder
        try:
            return kind.parse(text)
        except NotAllowedError as error:
            self.refuse(str(error))
            return kind.placeholder

    def many(self, kind: ValueType[ValueT]) -> tuple[ValueT, ...]:
        """Return the values of a list; a single value is a list of one."""
        return tuple(item.one(kind) for item in self.items(kind.takes))

    def items(self, takes: str) -> "list[Value]":
        """Return the entries of a list; another value is a list of one."""
        if isinstance(self.node, yaml.SequenceNode):
            if not self.node.value:
                self.fault(f"{self.name} is empty: it takes {takes}")
            return [
                Value(self.source, node, f"{self.name}[{index}]")
                for index, node in enumerate(self.node.value)
            ]
        return [self]

    def texts(self) -> dict[str, str]:
        """Return a mapping of names to text."""
        return {name: _any_text(value) for name, value in self.entries().items()}

    def entries(self) -> "dict[str, Value]":
        """Return the entries of a mapping in their order; an empty value is an empty mapping."""
        if isinstance(self.node, yaml.ScalarNode) and self.node.value in ("", "~", "null"):
            return {}
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse("a mapping of names to values")
            return {}
        found: dict[str, Value] = {}
        for key, node in self.node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.source.faults.add(self.source.place(key), f"a name in {self.name} takes one value")
            elif key.value in found:
                self.source.faults.add(
                    self.source.place(key), f"{key.value} occurs twice in {self.name}; keep one"
                )
            else:
                found[key.value] = Value(self.source, node, key.value)
        return found

    def section(self, section: Section) -> "SectionReader":
        """Return a reader for the keys of a mapping."""
        return SectionReader(self, section)

    def refuse(self, takes: str) -> None:
        """Add the fault that the value is not allowed."""
        if isinstance(self.node, yaml.ScalarNode):
            shown = self.node.value
            if len(shown) > _SHOWN_CHARACTERS_MAX:
                shown = f"{shown[:_SHOWN_CHARACTERS_MAX]}..."
            found = f"{shown} is not allowed" if shown.strip() else "it is empty"
            self.fault(f"{self.name}: {found}: it takes {takes}")
        else:
            what = "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"
            self.fault(f"{self.name}: {what} is not allowed here: it takes {takes}")


class SectionReader:
    """Reads a mapping whose keys a section declares; unknown keys and missing ones are faults."""

    def __init__(self, value: Value, section: Section) -> None:
        self.value: Final = value
        self.section: Final = section
        self._entries: Final = self._known_entries()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def get(self, name: str) -> Value | None:
        """Return the value of a key, or None without it."""
        assert name in self.section.names, f"{name} is no key of {self.section.title}"
        return self._entries.get(name)

    def one(self, name: str, kind: ValueType[ValueT], default: ValueT) -> ValueT:
        """Return the single value of a key."""
        value = self.get(name)
        return default if value is None else value.one(kind)

    def optional(self, name: str, kind: ValueType[ValueT]) -> ValueT | None:
        """Return the single value of a key, or None without the key."""
        value = self.get(name)
        return None if value is None else value.one(kind)

    def required(self, name: str, kind: ValueType[ValueT]) -> ValueT:
        """Return the single value of a key, which must be there."""
        value = self.get(name)
        return kind.placeholder if value is None else value.one(kind)

    def many(self, name: str, kind: ValueType[ValueT]) -> tuple[ValueT, ...]:
        """Return the values of a list."""
        value = self.get(name)
        return () if value is None else value.many(kind)

    def texts(self, name: str) -> dict[str, str]:
        """Return a mapping of names to text."""
        value = self.get(name)
        return {} if value is None else value.texts()

    def forbid(self, names: Sequence[str], reason: str) -> None:
        """Add a fault for each of the keys that is there."""
        for name in names:
            value = self.get(name)
            if value is not None:
                value.fault(f"{name} is not allowed here: {reason}")

    def build(self, name: str, make: Callable[[Value], ValueT]) -> ValueT | None:
        """Return a function's result for the value of a key, or None without the key."""
        value = self.get(name)
        return None if value is None else make(value)

    def _known_entries(self) -> dict[str, Value]:
        if not self.value.is_mapping:
            self.value.refuse(f"a mapping with the keys {', '.join(self.section.names)}")
            return {}
        entries = self.value.entries()
        known = self.section.names
        for name, value in entries.items():
            if name not in known:
                hint = suggestion(name, known)
                if name == "<<":
                    hint = " Merging of mappings is not supported: use defaults, or write the keys out."
                value.fault(f"unknown key {name} in {self.section.title}.{hint} It takes {', '.join(known)}")
        for key in self.section.keys:
            if key.is_required and key.name not in entries:
                self.value.fault(f"{self.section.title} has no {key.name}: it takes {key.takes}")
        return entries


def _any_text(value: Value) -> str:
    if isinstance(value.node, yaml.ScalarNode):
        return value.source.text(value.node)
    value.refuse("one value")
    return ""


def _problem(error: yaml.MarkedYAMLError) -> str:
    """Return a YAML error's text with the element that was being read and its beginning."""
    if error.context is None:
        return str(error.problem)
    where = f" in line {error.context_mark.line + 1}" if error.context_mark is not None else ""
    return f"{error.context}{where}: {error.problem}"


def compose(source: Source, text: str) -> Value | None:
    """Return the root of a YAML text, or None after a fault."""
    start = Place(source.file, 1, 1)
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = start if mark is None else Place(source.file, mark.line + 1, mark.column + 1)
        source.faults.add(place, f"this is not YAML: {_problem(error)}")
        return None
    except yaml.reader.ReaderError as error:
        line, column = text.count("\n", 0, error.position), text.rfind("\n", 0, error.position)
        place = Place(source.file, line + 1, error.position - column)
        source.faults.add(
            place, f"this is not YAML: the character U+{ord(text[error.position]):04X} is not allowed in text"
        )
        return None
    except RecursionError:
        source.faults.add(start, "this is nested too deeply for a pipeline file")
        return None
    if node is None:
        source.faults.add(start, "the file is empty")
        return None
    return Value(source, node, "the file")
