"""Resolves the names of types in a .proto file: its own, its references', and those of known files."""

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.protobuf.elements import (
    EnumElement,
    ExtendElement,
    FieldElement,
    MessageElement,
    ProtoFile,
)
from kalda.schemas.protobuf.known_files import known_files

NAME_CHARACTERS_MAX: Final = 1_000
"""With the package and the messages around it, which are part of the name of each type in them."""
PACKAGE_PARTS_MAX: Final = 100
"""A name is looked for in each of them."""
Origin = tuple[str, int] | None
"""Subject and version of the reference that has a type; ``("", -1)`` is the schema itself."""
LOCAL: Final[Origin] = ("", -1)


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A message or an enum, and where it is from."""

    full_name: str
    package: str
    file: str
    """The path that imports it; empty for the schema itself."""
    origin: Origin
    element: MessageElement | EnumElement

    @property
    def local_name(self) -> str:
        """The name without the package."""
        return self.full_name.removeprefix(f"{self.package}.") if self.package else self.full_name


class Types:
    """The types that a schema can name.

    Args:
        main: The file of the schema.
        files: The files of its references by path, in the order of their dependence.
        origins: Subject and version of those that it refers to itself.
    """

    def __init__(
        self, main: ProtoFile, files: Mapping[str, ProtoFile], origins: Mapping[str, Origin]
    ) -> None:
        self.package: Final = main.package or ""
        own: dict[str, TypeInfo] = {}
        own_extensions: dict[str, FieldElement] = {}
        for path, file in files.items():
            own.update(_types_of(file, path, origins.get(path)))
            own_extensions.update(_extensions_of(file))
        own.update(_types_of(main, "", LOCAL))
        own_extensions.update(_extensions_of(main))
        self.by_name: Final = ChainMap(own, _known_types())
        self.extensions: Final = ChainMap(own_extensions, _known_extensions())

    def find(self, name: str, scope: Sequence[str], package: str | None = None) -> TypeInfo | None:
        """Return the type that a name means.

        Args:
            name: As written; one with a leading dot is complete.
            scope: The names of the messages around it, the outermost first.
            package: Of the file; None for that of the schema.
        """
        return _found(self.by_name, name, scope, self.package if package is None else package)

    def find_extension(self, name: str, scope: Sequence[str]) -> tuple[str, FieldElement] | None:
        """Return the full name and the field of an extension."""
        for each in _candidates(name, scope, self.package):
            if each in self.extensions:
                return each, self.extensions[each]
        return None


def _found(types: Mapping[str, TypeInfo], name: str, scope: Sequence[str], package: str) -> TypeInfo | None:
    for each in _candidates(name, scope, package):
        if each in types:
            return types[each]
    return None


def _candidates(name: str, scope: Sequence[str], package: str) -> Iterator[str]:
    if name.startswith("."):
        yield name[1:]
        return
    prefix = [*(package.split(".") if package else ()), *scope]
    while prefix:
        yield f"{'.'.join(prefix)}.{name}"
        prefix.pop()
    yield name


def _types_of(file: ProtoFile, path: str, origin: Origin) -> dict[str, TypeInfo]:
    package = file.package or ""
    if package.count(".") >= PACKAGE_PARTS_MAX:
        raise InvalidSchemaError(
            f"the package {package:.50}... has more than {PACKAGE_PARTS_MAX} parts between dots"
        )
    made: dict[str, TypeInfo] = {}
    waiting = [(f"{package}." if package else "", each) for each in file.types]
    while waiting:
        prefix, element = waiting.pop()
        name = _joined(prefix, element.name)
        made[name] = TypeInfo(name, package, path, origin, element)
        if isinstance(element, MessageElement):
            waiting += [(f"{name}.", each) for each in element.nested]
    return made


def _extensions_of(file: ProtoFile) -> dict[str, FieldElement]:
    made: dict[str, FieldElement] = {}
    waiting: list[tuple[str, list[ExtendElement], list[MessageElement | EnumElement]]] = [
        (f"{file.package}." if file.package else "", file.extends, file.types)
    ]
    while waiting:
        prefix, extends, types = waiting.pop()
        for each in extends:
            made.update((_joined(prefix, field.name), field) for field in each.fields)
        waiting += [
            (f"{prefix}{each.name}.", each.extends, each.nested)
            for each in types
            if isinstance(each, MessageElement)
        ]
    return made


def _joined(prefix: str, name: str) -> str:
    if len(prefix) + len(name) > NAME_CHARACTERS_MAX:
        raise InvalidSchemaError(
            f"the name {name:.50}... has more than {NAME_CHARACTERS_MAX} characters with what is around it"
        )
    return f"{prefix}{name}"


@cache
def _known_types() -> dict[str, TypeInfo]:
    made: dict[str, TypeInfo] = {}
    for path, file in known_files().items():
        made.update(_types_of(file, path, None))
    return made


@cache
def _known_extensions() -> dict[str, FieldElement]:
    made: dict[str, FieldElement] = {}
    for file in known_files().values():
        made.update(_extensions_of(file))
    return made
