"""Checks whether an Avro reader can read what a writer wrote, by Avro's rules of schema resolution.

The types, places and messages are those of Avro's ``SchemaCompatibility`` in Java, which Confluent's registry
passes on. Each pair of types is compared once, on a stack of its own: schemas may refer to each other in long
chains and in circles.
"""

from collections.abc import Generator, Sequence
from typing import Final

from kalda.schemas.avro.parsing import AvroSchema
from kalda.schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    NamedType,
    RecordType,
    UnionType,
)
from kalda.schemas.model import Incompatibility, ParsedSchema

_Path = tuple[str, ...]
_Found = list[Incompatibility]
_Steps = Generator[tuple[AvroType, AvroType, _Path], _Found, _Found]

PAIRS_MAX: Final = 100_000
"""Pairs of types that one comparison looks at: about two seconds."""
FOUND_MAX: Final = 100
"""Reasons kept for a pair: a type that many others use would count for each of them."""
_PROMOTED: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
"""What each type reads besides itself."""


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema) -> list[Incompatibility]:
    """Return why `reader` cannot read what `writer` wrote, both parsed Avro schemas; empty if it can."""
    assert isinstance(reader, AvroSchema), reader
    assert isinstance(writer, AvroSchema), writer
    try:
        return _Comparison().of(reader.root, writer.root)
    except _NotComparableError as error:
        return [Incompatibility("", "", f"Unexpected exception during compatibility check: {error}")]


class _NotComparableError(Exception):
    """The comparison has no answer by Avro's rules, or takes too long."""


class _Branches:
    """The branches of a union by what they can read."""

    def __init__(self, union: UnionType) -> None:
        self.unnamed: Final = [each for each in union.branches if not isinstance(each, NamedType)]
        self.by_name: Final[dict[str, list[AvroType]]] = {}
        self.by_alias: Final[dict[str, list[AvroType]]] = {}
        for each in union.branches:
            if isinstance(each, NamedType):
                self.by_name.setdefault(each.name.name, []).append(each)
                for alias in each.alias_names:
                    self.by_alias.setdefault(alias, []).append(each)


class _Comparison:
    def __init__(self) -> None:
        self._known: Final[dict[tuple[int, int], _Found]] = {}
        self._branches: Final[dict[int, _Branches]] = {}

    def of(self, reader: AvroType, writer: AvroType) -> _Found:
        """Run `_steps` of a pair and of what it asks for, without recursion."""
        answer: _Found = []
        self._known[id(reader), id(writer)] = []
        running = [((id(reader), id(writer)), self._steps(reader, writer, ("",)))]
        value: _Found | None = None
        while running:
            pair, steps = running[-1]
            try:
                inner_reader, inner_writer, path = next(steps) if value is None else steps.send(value)
            except StopIteration as done:
                answer = self._known[pair] = done.value[:FOUND_MAX]
                running.pop()
                value = answer
                continue
            wanted = (id(inner_reader), id(inner_writer))
            value = self._known.get(wanted)
            if value is None:
                if len(self._known) >= PAIRS_MAX:
                    raise _NotComparableError(f"the schemas have more than {PAIRS_MAX} pairs of types")
                # Compatible unless shown otherwise, which ends circles.
                self._known[wanted] = []
                running.append((wanted, self._steps(inner_reader, inner_writer, path)))
        return answer

    def _steps(self, reader: AvroType, writer: AvroType, path: _Path) -> _Steps:
        """Yield the pairs whose answers are needed; return what was found."""
        if isinstance(writer, UnionType):
            return (yield from self._writer_union(reader, writer, path))
        if isinstance(reader, UnionType):
            for branch in self._candidates(reader, writer):
                if not (yield branch, writer, ("",)):
                    return []
            return [_union_lacks(writer, path)]
        if isinstance(reader, RecordType) and isinstance(writer, RecordType):
            return (yield from self._records(reader, writer, path))
        if reader.kind == writer.kind:
            return (yield from self._same_kind(reader, writer, path))
        return [] if writer.kind in _PROMOTED.get(reader.kind, ()) else [_type_mismatch(reader, writer, path)]

    def _candidates(self, reader: UnionType, writer: AvroType) -> Sequence[AvroType]:
        """Return the branches that may read a type: a named one is read only by one of its name."""
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = _Branches(reader)
        if isinstance(writer, NamedType):
            return [*branches.by_name.get(writer.name.name, ()), *branches.by_alias.get(writer.full_name, ())]
        return branches.unnamed

    def _writer_union(self, reader: AvroType, writer: UnionType, path: _Path) -> _Steps:
        found: _Found = []
        for index, branch in enumerate(writer.branches):
            inner = (*path, str(index))
            if not isinstance(reader, UnionType):
                found += yield reader, branch, inner
            elif (yield reader, branch, ("",)):
                found.append(_union_lacks(branch, inner))
        return found

    def _same_kind(self, reader: AvroType, writer: AvroType, path: _Path) -> _Steps:
        match reader, writer:
            case ArrayType(), ArrayType():
                return (yield reader.items, writer.items, (*path, "items"))
            case MapType(), MapType():
                return (yield reader.values, writer.values, (*path, "values"))
            case EnumType(), EnumType():
                return [*_names(reader, writer, path), *_symbols(reader, writer, path)]
            case FixedType(), FixedType():
                return [*_names(reader, writer, path), *_sizes(reader, writer, path)]
        return []

    def _records(self, reader: RecordType, writer: RecordType, path: _Path) -> _Steps:
        found = _names(reader, writer, path)
        for index, field in enumerate(reader.fields):
            inner = (*path, "fields", str(index))
            written = _writer_field(writer, field)
            if written is not None:
                found += yield field.type, written.type, (*inner, "type")
            elif not field.has_default:
                # Java compares an enum that has a default with the writer's record, which never fits.
                if isinstance(field.type, EnumType) and field.type.default is not None:
                    found += yield field.type, writer, (*inner, "type")
                else:
                    found.append(_missing_default(field, inner))
        return found


def _writer_field(writer: RecordType, field: Field) -> Field | None:
    names = (field.name, *(each for each in field.aliases if each != field.name))
    found = [writer.by_name[name] for name in names if name in writer.by_name]
    if len(found) > 1:
        raise _NotComparableError(
            f"Reader record field {field.name} matches multiple fields in writer record schema "
            f"{writer.full_name}"
        )
    return found[0] if found else None


def _names(reader: NamedType, writer: NamedType, path: _Path) -> _Found:
    if reader.name.name == writer.name.name or writer.full_name in reader.alias_names:
        return []
    place = _pointer((*path, "name"))
    return [
        Incompatibility(
            "NAME_MISMATCH",
            place,
            f"The name of the schema has changed (path '{place}')",
            f"expected: {writer.full_name}",
        )
    ]


def _symbols(reader: EnumType, writer: EnumType, path: _Path) -> _Found:
    missing = sorted(set(writer.symbols).difference(reader.symbols))
    if not missing or reader.default is not None:
        return []
    place, listed = _pointer((*path, "symbols")), f"[{', '.join(missing)}]"
    return [
        Incompatibility(
            "MISSING_ENUM_SYMBOLS",
            place,
            f"The %s schema is missing enum symbols '{listed}' at path '{place}' in the %s schema",
            listed,
        )
    ]


def _sizes(reader: FixedType, writer: FixedType, path: _Path) -> _Found:
    if reader.size == writer.size:
        return []
    place = _pointer((*path, "size"))
    return [
        Incompatibility(
            "FIXED_SIZE_MISMATCH",
            place,
            f"The size of FIXED type field at path '{place}' in the %s schema does not match with the %s "
            "schema",
            f"expected: {writer.size}, found: {reader.size}",
        )
    ]


def _missing_default(field: Field, path: _Path) -> Incompatibility:
    place = _pointer(path)
    return Incompatibility(
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        place,
        f"The field '{field.name}' at path '{place}' in the %s schema has no default value and is missing in "
        "the %s schema",
        field.name,
    )


def _union_lacks(writer: AvroType, path: _Path) -> Incompatibility:
    place = _pointer(path)
    return Incompatibility(
        "MISSING_UNION_BRANCH",
        place,
        f"The %s schema is missing a type inside a union field at path '{place}' in the %s schema",
        f"reader union lacking writer type: {_kind(writer)}",
    )


def _type_mismatch(reader: AvroType, writer: AvroType, path: _Path) -> Incompatibility:
    place = _pointer(path)
    return Incompatibility(
        "TYPE_MISMATCH",
        place,
        f"The type (path '{place}') of a field in the %s schema does not match with the %s schema",
        f"reader type: {_kind(reader)} not compatible with writer type: {_kind(writer)}",
    )


def _kind(node: AvroType) -> str:
    return "RECORD" if isinstance(node, RecordType) else node.kind.upper()


def _pointer(path: _Path) -> str:
    return "/" + "/".join(each.replace("~", "~0").replace("/", "~1") for each in path[1:])
