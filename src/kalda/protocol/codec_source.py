"""Provides what both halves of the compiler share: writing source, choosing names, compiling a function.

Generated code is registered with `linecache`, so that a traceback shows its lines like those of any file.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Packing
from typing import Any, Final

from kalda.protocol.protocol_errors import MessageError
from kalda.protocol.schema import RECORDS, STRING, ArrayKind, Field, FixedKind, Kind, Message, Struct

SMALL_ARRAY_COUNT: Final = 16
"""Arrays of fixed-width elements below this count go through one prepared `struct` format per count.

Replica lists are what the protocol has most of, and replication factors beyond 15 are not seen.
"""


class SourceWriter:
    """Collects the lines of one function and the objects that they refer to by name."""

    def __init__(self, message_class: type[Message], version: int) -> None:
        schema = message_class.SCHEMA
        if not schema.versions.includes(version):
            raise MessageError(f"{schema.name} has versions {schema.versions}, not {version}")
        self.message_class: Final = message_class
        self.version: Final = version
        self.flexible: Final = schema.is_flexible(version)
        self._namespace: dict[str, object] = {}
        self._names: dict[tuple[str, object], str] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._locals = 0

    @property
    def source(self) -> str:
        """The function as text."""
        return "\n".join(self._lines) + "\n"

    def line(self, text: str) -> None:
        """Add a line at the current depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, text: str) -> Iterator[None]:
        """Add a line that opens a block, and indent what is added inside."""
        self.line(text)
        self._depth += 1
        yield
        self._depth -= 1

    def local(self, prefix: str) -> str:
        """A name that no other value of the function has."""
        self._locals += 1
        return f"{prefix}{self._locals}"

    def bind(self, name: str, value: object) -> str:
        """Make an object visible to the function under a name that is free or already means it."""
        assert self._namespace.setdefault(name, value) is value, f"{name} has two meanings"
        return name

    def constant(self, prefix: str, key: object, make: Callable[[], object]) -> str:
        """Make an object visible under a new name, once for each key."""
        name = self._names.get((prefix, key))
        if name is None:
            name = self._names[prefix, key] = f"{prefix}_{len(self._names)}"
            self._namespace[name] = make()
        return name

    def packer(self, codes: str) -> str:
        """The name of the `pack` of a format."""
        return self.constant("pack", codes, lambda: Packing(">" + codes).pack)

    def unpacker(self, codes: str) -> str:
        """The name of the `unpack_from` of a format."""
        return self.constant("unpack", codes, lambda: Packing(">" + codes).unpack_from)

    def function(self, name: str) -> Callable[..., Any]:
        """Compile what was written."""
        schema = self.message_class.SCHEMA
        filename = f"<kalda {schema.name} v{self.version} {name}>"
        source = self.source
        # An entry without a modification time is never thrown away by linecache.checkcache.
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), self._namespace)
        function = self._namespace[name]
        assert callable(function)
        return function


def size_min(kind: "Kind[Any] | type[Struct]", version: int, flexible: bool) -> int:
    """The fewest bytes that a value can occupy; an array with more elements than fit is junk."""
    if isinstance(kind, FixedKind):
        return kind.size
    if isinstance(kind, Kind):
        if flexible:
            return 1
        return 2 if kind is STRING else 4
    size = 1 if flexible else 0
    for field in kind.FIELDS:
        if is_in_place(field, version):
            nullable_struct = not isinstance(field.kind, Kind) and field.nullable.includes(version)
            size += 1 if nullable_struct else size_min(field.kind, version, flexible)
    return size


def is_in_place(field: Field, version: int) -> bool:
    """Whether the version carries the field outside the tagged section."""
    return field.versions.includes(version) and not field.tagged.includes(version)


def tagged_fields(struct_class: type[Struct], version: int) -> list[Field]:
    """The fields that the version carries in the tagged section, in order of tag."""
    fields = [field for field in struct_class.FIELDS if field.tagged.includes(version)]
    return sorted(fields, key=lambda field: field.tag or 0)


def has_records(struct_class: type[Struct]) -> bool:
    """Whether records lie anywhere in the struct."""
    for field in struct_class.FIELDS:
        kind = field.kind.element if isinstance(field.kind, ArrayKind) else field.kind
        if kind is RECORDS or (not isinstance(kind, Kind) and has_records(kind)):
            return True
    return False
