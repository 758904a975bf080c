"""Finds the changes of a Protobuf schema that break a reader, by the rules of Confluent's registry.

Fields are compared by their numbers. A change that the encoding bears is no reason: a field that is added or
removed, a number of another size, text that becomes bytes, a field that moves alone into a new oneof.
"""

from collections.abc import Sequence
from typing import Final

from kalda.schemas.model import Incompatibility, ParsedSchema
from kalda.schemas.protobuf.elements import SCALARS, EnumElement, FieldElement, MessageElement, OneofElement
from kalda.schemas.protobuf.parsing import ProtobufSchema
from kalda.schemas.protobuf.resolution import TypeInfo

FOUND_MAX: Final = 100
"""Reasons that one comparison gives."""
DEPTH_MAX: Final = 50
"""How far references from one type to another are followed at once; the rest waits, as Python recurses."""
_DESCRIPTIONS: Final = {
    "PACKAGE_CHANGED": (
        "The package at '{path}' in the %s schema does not match the package in the %s schema"
    ),
    "MESSAGE_REMOVED": "The %s schema is missing a MESSAGE type at path '{path}' in the %s schema",
    "FIELD_KIND_CHANGED": (
        "The type of a field at path '{path}' in the %s schema does not match the %s schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the %s schema does not match its kind in the "
        "%s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the %s schema does not match its type in the "
        "%s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the %s schema does not match its label in the "
        "%s schema"
    ),
    # Two spaces in the one and a colon in the other: as Confluent's registry writes them.
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the %s schema is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": (
        "The %s schema is missing a required field at path: '{path}' in the %s schema"
    ),
    "ONEOF_FIELD_REMOVED": "The %s schema is missing a oneof field at path '{path}' in the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the %s schema are outside a oneof in the %s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the %s schema is outside an existing oneof in the %s schema"
    ),
}
_SCALAR_KINDS: Final = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "text"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}

_Path = tuple[str, ...]


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema) -> list[Incompatibility]:
    """Return why `reader` cannot read what `writer` wrote, both parsed Protobuf schemas; empty if it can."""
    assert isinstance(reader, ProtobufSchema), reader
    assert isinstance(writer, ProtobufSchema), writer
    return _Comparison(reader, writer).run()


class _Comparison:
    """`old` is what wrote, `new` is what reads."""

    def __init__(self, new: ProtobufSchema, old: ProtobufSchema) -> None:
        self._new: Final = new
        self._old: Final = old
        self._new_package = new.file.package or ""
        self._old_package = old.file.package or ""
        self._found: Final[list[Incompatibility]] = []
        self._compared: Final[dict[tuple[int, int], bool]] = {}
        self._depth = 0
        self._waiting: Final[list[tuple[TypeInfo, TypeInfo]]] = []

    def run(self) -> list[Incompatibility]:
        if self._new.file.package != self._old.file.package:
            self._add("PACKAGE_CHANGED", ())
        self._types((), self._old.file.types, self._new.file.types)
        while self._waiting:
            self._are_compatible(*self._waiting.pop())
        return self._found

    def _add(self, kind: str, path: _Path) -> None:
        if len(self._found) < FOUND_MAX:
            place = f"#/{'/'.join(path)}"
            self._found.append(Incompatibility(kind, place, _DESCRIPTIONS[kind].format(path=place)))

    def _types(
        self,
        scope: _Path,
        old: Sequence[MessageElement | EnumElement],
        new: Sequence[MessageElement | EnumElement],
    ) -> None:
        old_messages = {each.name: each for each in old if isinstance(each, MessageElement)}
        new_messages = {each.name: each for each in new if isinstance(each, MessageElement)}
        for name, message in old_messages.items():
            if name in new_messages:
                self._message((*scope, name), message, new_messages[name])
            elif message.map_types is None:
                self._add("MESSAGE_REMOVED", (*scope, name))

    def _message(self, scope: _Path, old: MessageElement, new: MessageElement) -> None:
        key = (id(old), id(new))
        if key in self._compared:
            return
        before = len(self._found)
        self._compared[key] = True
        self._fields(scope, old, new)
        self._types(scope, old.nested, new.nested)
        self._compared[key] = len(self._found) == before

    def _fields(self, scope: _Path, old: MessageElement, new: MessageElement) -> None:
        old_fields, old_oneofs = _by_tag(old)
        new_fields, new_oneofs = _by_tag(new)
        for oneof in new.oneofs:
            self._exclusions((*scope, oneof.name), oneof, old_fields, old_oneofs)
        names = {each.name for each in new.oneofs}
        deleted = {
            each.name
            for each in old.oneofs
            if each.name not in names and not any(field.tag in new_fields for field in each.fields)
        }
        for tag in sorted(old_fields.keys() | new_fields.keys()):
            old_oneof = old_oneofs.get(tag)
            if tag not in new_fields:
                if old_oneof is not None:
                    if old_oneof not in deleted:
                        self._add("ONEOF_FIELD_REMOVED", (*scope, old_oneof, str(tag)))
                elif old_fields[tag].label == "required":
                    self._add("REQUIRED_FIELD_REMOVED", (*scope, str(tag)))
            elif tag not in old_fields:
                if new_fields[tag].label == "required" and tag not in new_oneofs:
                    self._add("REQUIRED_FIELD_ADDED", (*scope, str(tag)))
            else:
                path = (*scope, new_oneofs[tag], str(tag)) if tag in new_oneofs else (*scope, str(tag))
                self._field(path, scope, old_fields[tag], new_fields[tag])

    def _exclusions(
        self,
        path: _Path,
        oneof: OneofElement,
        old_fields: dict[int, FieldElement],
        old_oneofs: dict[int, str],
    ) -> None:
        """Check that fields which were independent do not exclude each other now."""
        origins = set()
        moved = 0
        for each in oneof.fields:
            if each.tag in old_oneofs:
                origins.add(f"oneof {old_oneofs[each.tag]}")
            elif each.tag in old_fields:
                origins.add(f"field {each.tag}")
                moved += 1
        if len(origins) > 1:
            self._add(
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF", path
            )

    def _field(self, path: _Path, scope: _Path, old: FieldElement, new: FieldElement) -> None:
        self._values(path, scope, (old.type, old.label), (new.type, new.label))

    def _values(
        self,
        path: _Path,
        scope: _Path,
        old: tuple[str, str | None],
        new: tuple[str, str | None],
    ) -> None:
        old_info, new_info = self._old_type(old[0], scope), self._new_type(new[0], scope)
        old_map, new_map = _map_types(old[0], old_info), _map_types(new[0], new_info)
        old_kind = _kind(old[0], old_info, old_map)
        if old_kind != _kind(new[0], new_info, new_map):
            self._add("FIELD_KIND_CHANGED", path)
        elif old_map is not None and new_map is not None:
            for each, other in zip(old_map, new_map, strict=True):
                self._values(path, scope, (each, None), (other, None))
        elif old_kind == "scalar":
            self._scalars(
                path, (_scalar_kind(old[0], old_info), old[1]), (_scalar_kind(new[0], new_info), new[1])
            )
        else:
            self._messages(path, old_info, new_info, old[0] == new[0])

    def _scalars(self, path: _Path, old: tuple[str, str | None], new: tuple[str, str | None]) -> None:
        if old[0] != new[0]:
            self._add("FIELD_SCALAR_KIND_CHANGED", path)
        elif None not in (old[1], new[1]) and old[1] != new[1] and old[0] != "text":
            self._add("FIELD_NUMERIC_LABEL_CHANGED", path)

    def _messages(self, path: _Path, old: TypeInfo | None, new: TypeInfo | None, is_same_text: bool) -> None:
        if old is None or new is None:
            if not is_same_text:
                self._add("FIELD_NAMED_TYPE_CHANGED", path)
        elif old.local_name != new.local_name:
            self._add("FIELD_NAMED_TYPE_CHANGED", path)
        elif old.origin is not None and old.origin == new.origin:
            pass  # one version of a reference, or the schema itself, whose types are compared on their own
        elif not self._are_compatible(old, new):
            self._add("FIELD_NAMED_TYPE_CHANGED", path)

    def _are_compatible(self, old: TypeInfo, new: TypeInfo) -> bool:
        if not (isinstance(old.element, MessageElement) and isinstance(new.element, MessageElement)):
            return False
        if old.element is new.element:
            return True
        if self._depth >= DEPTH_MAX:
            self._waiting.append((old, new))
            return True
        packages = self._old_package, self._new_package
        self._old_package, self._new_package = old.package, new.package
        self._depth += 1
        self._message(tuple(old.local_name.split(".")), old.element, new.element)
        self._depth -= 1
        self._old_package, self._new_package = packages
        return self._compared[id(old.element), id(new.element)]

    def _old_type(self, name: str, scope: _Path) -> TypeInfo | None:
        return None if name in SCALARS else self._old.types.find(name, scope, self._old_package)

    def _new_type(self, name: str, scope: _Path) -> TypeInfo | None:
        return None if name in SCALARS else self._new.types.find(name, scope, self._new_package)


def _by_tag(message: MessageElement) -> tuple[dict[int, FieldElement], dict[int, str]]:
    """Return the fields by number, those of oneofs included, and the oneof of each number that is in one."""
    fields = {each.tag: each for each in message.fields}
    oneofs = {}
    for oneof in message.oneofs:
        for each in oneof.fields:
            fields[each.tag] = each
            oneofs[each.tag] = oneof.name
    return fields, oneofs


def _map_types(name: str, info: TypeInfo | None) -> tuple[str, str] | None:
    if info is not None:
        return info.element.map_types if isinstance(info.element, MessageElement) else None
    return FieldElement(None, name, "", 0).map_types


def _kind(name: str, info: TypeInfo | None, map_types: tuple[str, str] | None) -> str:
    if name in SCALARS or (info is not None and isinstance(info.element, EnumElement)):
        return "scalar"
    return "message" if map_types is None else "map"


def _scalar_kind(name: str, info: TypeInfo | None) -> str:
    return "number" if info is not None else _SCALAR_KINDS[name]
