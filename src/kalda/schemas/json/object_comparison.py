"""Compares schemas of objects.

Whether a property may come or go depends on what a schema allows besides the properties that it names. An
open content model allows anything, a closed one nothing, and a partially open one what a schema says
(``patternProperties``, a schema as ``additionalProperties`` or ``unevaluatedProperties``).
"""

from kalda.schemas.json.differences import Difference, Kind
from kalda.schemas.json.nodes import Anything, Node, Nothing, Object
from kalda.schemas.json.patterns import is_match
from kalda.schemas.json.steps import Comparer, Kinds, are_compatible, limit, under


def compare_objects(writer: Object, reader: Object, compatible: Kinds) -> Comparer:
    """Return the differences of two schemas of objects."""
    found = _required(writer, reader)
    for name in [*writer.properties, *(name for name in reader.properties if name not in writer.properties)]:
        found += under((yield from _property(name, writer, reader, compatible)), "properties", name)
    found += yield from _dependencies(writer, reader)
    found += under((yield from _additional(writer, reader)), "additionalProperties")
    found += under(
        (yield from compare_unevaluated(writer.unevaluated, reader.unevaluated, "UNEVALUATED_PROPERTIES")),
        "unevaluatedProperties",
    )
    found += limit("maxProperties", "MAX_PROPERTIES", writer.max_properties, reader.max_properties)
    found += limit("minProperties", "MIN_PROPERTIES", writer.min_properties, reader.min_properties)
    return found


def _required(writer: Object, reader: Object) -> list[Difference]:
    found = []
    for name in writer.properties:
        schema = reader.properties.get(name)
        was, is_now = name in writer.required, name in reader.required
        if schema is None or was == is_now:
            continue
        if was:
            kind = Kind.REQUIRED_ATTRIBUTE_REMOVED
        elif schema.default is not None:
            kind = Kind.REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED
        else:
            kind = Kind.REQUIRED_ATTRIBUTE_ADDED
        found.append(Difference.at(kind, "required", name))
    return found


def _property(name: str, writer: Object, reader: Object, compatible: Kinds) -> Comparer:
    old, new = writer.properties.get(name), reader.properties.get(name)
    if old is not None and new is not None:
        return (yield old, new)
    if old is not None:
        return (yield from _removed(name, old, reader, compatible))
    assert new is not None
    return (yield from _added(name, new, writer, reader, compatible))


def _removed(name: str, old: Node, reader: Object, compatible: Kinds) -> Comparer:
    """Return the differences of a property that only the writer names: the reader's content model decides."""
    if _is_open(reader):
        return [Difference(Kind.PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL)]
    other = _schema_of_others(reader, name)
    if other is None:
        if isinstance(old, Nothing):
            return [Difference(Kind.PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL)]
        return [Difference(Kind.PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL)]
    found = yield old, other
    if are_compatible(found, compatible):
        kind = Kind.PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    else:
        kind = Kind.PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    return [*found, Difference(kind)]


def _added(name: str, new: Node, writer: Object, reader: Object, compatible: Kinds) -> Comparer:
    """Return the differences of a property that only the reader names: the writer's content model decides."""
    is_required, has_default = name in reader.required, new.default is not None
    if _is_open(writer):
        if isinstance(new, Anything):
            kind = Kind.PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
        elif not is_required:
            kind = Kind.OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL
        elif has_default:
            kind = Kind.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL
        else:
            kind = Kind.REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL
        return [Difference(kind)]
    found: list[Difference] = []
    other = _schema_of_others(writer, name)
    if other is not None:
        covered = yield other, new
        if are_compatible(covered, compatible):
            kind = Kind.PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
        else:
            kind = Kind.PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
        found += [*covered, Difference(kind)]
    if not is_required:
        kind = Kind.OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    elif has_default:
        kind = Kind.REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL
    else:
        kind = Kind.REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    return [*found, Difference(kind)]


def _dependencies(writer: Object, reader: Object) -> Comparer:
    found: list[Difference] = []
    for name in sorted({*writer.required_with, *reader.required_with}):
        old, new = writer.required_with.get(name), reader.required_with.get(name)
        if old == new:
            continue
        if new is None:
            kind = Kind.DEPENDENCY_ARRAY_REMOVED
        elif old is None:
            kind = Kind.DEPENDENCY_ARRAY_ADDED
        elif old < new:
            kind = Kind.DEPENDENCY_ARRAY_EXTENDED
        else:
            kind = Kind.DEPENDENCY_ARRAY_NARROWED if old > new else Kind.DEPENDENCY_ARRAY_CHANGED
        found.append(Difference.at(kind, "dependencies", name))
    for name in sorted({*writer.schema_with, *reader.schema_with}):
        if name not in reader.schema_with:
            found.append(Difference.at(Kind.DEPENDENCY_SCHEMA_REMOVED, "dependencies", name))
        elif name not in writer.schema_with:
            found.append(Difference.at(Kind.DEPENDENCY_SCHEMA_ADDED, "dependencies", name))
        else:
            found += under((yield writer.schema_with[name], reader.schema_with[name]), "dependencies", name)
    return found


def _additional(writer: Object, reader: Object) -> Comparer:
    if writer.allows_additional != reader.allows_additional:
        if reader.allows_additional:
            return [Difference(Kind.ADDITIONAL_PROPERTIES_ADDED)]
        return [Difference(Kind.ADDITIONAL_PROPERTIES_REMOVED)]
    if writer.additional is None and reader.additional is not None:
        return [Difference(Kind.ADDITIONAL_PROPERTIES_NARROWED)]
    if writer.additional is not None and reader.additional is None:
        return [Difference(Kind.ADDITIONAL_PROPERTIES_EXTENDED)]
    return (yield writer.additional, reader.additional)


def compare_unevaluated(writer: Node | None, reader: Node | None, prefix: str) -> Comparer:
    """Return the differences of ``unevaluatedProperties`` or ``unevaluatedItems``, without a path.

    Args:
        writer: The keyword's schema; None if it is not there, which allows anything.
        reader: The same of the reader.
        prefix: How the names of the differences start.
    """
    if isinstance(writer, Nothing) != isinstance(reader, Nothing):
        change = "ADDED" if isinstance(writer, Nothing) else "REMOVED"
    elif writer is None and reader is None:
        return []
    elif writer is None or (isinstance(writer, Anything) and not isinstance(reader, Anything | None)):
        change = "NARROWED"
    elif reader is None or (isinstance(reader, Anything) and not isinstance(writer, Anything)):
        change = "EXTENDED"
    else:
        return (yield writer, reader)
    return [Difference(Kind(f"{prefix}_{change}"))]


def _is_open(schema: Object) -> bool:
    return (
        schema.allows_additional
        and schema.additional is None
        and not schema.patterns
        and (schema.unevaluated is None or isinstance(schema.unevaluated, Anything))
    )


def _schema_of_others(schema: Object, name: str) -> Node | None:
    """Return the schema that a partially open content model has for a property that it does not name."""
    for pattern, node in schema.patterns.items():
        if is_match(pattern, name):
            return node
    if schema.additional is not None:
        return schema.additional
    if schema.allows_additional and not isinstance(schema.unevaluated, Nothing | Anything):
        return schema.unevaluated
    return None
