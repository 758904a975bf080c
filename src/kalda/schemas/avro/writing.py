"""Writes Avro types as text, in the order of Avro's ``Schema.toString``."""

from collections.abc import Collection

from kalda.schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    NamedType,
    Properties,
    RecordType,
    UnionType,
)
from kalda.schemas.java_json import java_json


def written(schema: AvroType, known: Collection[str] = (), *, has_documents: bool = True) -> str:
    """Return the text of a type.

    Args:
        schema: The type.
        known: Full names that are written as names, because another schema defines them.
        has_documents: Whether docs and aliases are written; two types are the same without them.
    """
    return java_json(_Writer(set(known), has_documents).node(schema, None))


class _Writer:
    def __init__(self, known: set[str], has_documents: bool) -> None:
        self._known = known
        self._has_documents = has_documents

    def node(self, node: AvroType, namespace: str | None) -> object:
        match node:
            case UnionType():
                return [self.node(each, namespace) for each in node.branches]
            case ArrayType():
                return {"type": "array", "items": self.node(node.items, namespace), **node.properties}
            case MapType():
                return {"type": "map", "values": self.node(node.values, namespace), **node.properties}
            case NamedType():
                return self._named(node, namespace)
        return {"type": node.kind, **node.properties} if node.properties else node.kind

    def _named(self, node: NamedType, namespace: str | None) -> object:
        if node.full_name in self._known:
            return node.name.seen_from(namespace)
        self._known.add(node.full_name)
        made: Properties = {"type": node.kind, "name": node.name.name}
        if node.name.namespace != namespace:
            made["namespace"] = node.name.namespace or ""
        if node.doc is not None and self._has_documents:
            made["doc"] = node.doc
        match node:
            case RecordType():
                made["fields"] = [self._field(each, node.name.namespace) for each in node.fields]
            case EnumType():
                made["symbols"] = list(node.symbols)
                if node.default is not None:
                    made["default"] = node.default
            case FixedType():
                made["size"] = node.size
        made.update(node.properties)
        if node.aliases and self._has_documents:
            made["aliases"] = [each.seen_from(node.name.namespace) for each in node.aliases]
        return made

    def _field(self, field: Field, namespace: str | None) -> Properties:
        made: Properties = {"name": field.name, "type": self.node(field.type, namespace)}
        if field.doc is not None and self._has_documents:
            made["doc"] = field.doc
        if field.has_default:
            made["default"] = field.default
        if field.order != "ascending":
            made["order"] = field.order
        if field.aliases and self._has_documents:
            made["aliases"] = list(field.aliases)
        made.update(field.properties)
        return made
