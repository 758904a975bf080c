"""Compares schemas of arrays: lists, and tuples, whose items come and go as properties of objects do."""

from kalda.schemas.json.differences import Difference, Kind
from kalda.schemas.json.nodes import Anything, Array, Node, Nothing
from kalda.schemas.json.object_comparison import compare_unevaluated
from kalda.schemas.json.steps import Comparer, Kinds, are_compatible, limit, under


def compare_arrays(writer: Array, reader: Array, compatible: Kinds) -> Comparer:
    """Return the differences of two schemas of arrays."""
    found = under((yield writer.items, reader.items), "items")
    for index in range(max(len(writer.prefix), len(reader.prefix))):
        item = yield from _item(index, writer, reader, compatible)
        found += under(item, f"items/{index}")
    found += under((yield from _additional(writer, reader)), "additionalItems")
    found += under(
        (yield from compare_unevaluated(writer.unevaluated, reader.unevaluated, "UNEVALUATED_ITEMS")),
        "unevaluatedItems",
    )
    found += limit("maxItems", "MAX_ITEMS", writer.max_items, reader.max_items)
    found += limit("minItems", "MIN_ITEMS", writer.min_items, reader.min_items)
    if writer.is_unique != reader.is_unique:
        kind = Kind.UNIQUE_ITEMS_REMOVED if writer.is_unique else Kind.UNIQUE_ITEMS_ADDED
        found.append(Difference.at(kind, "uniqueItems"))
    found += limit("maxContains", "MAX_CONTAINS", writer.max_contains, reader.max_contains)
    found += limit("minContains", "MIN_CONTAINS", writer.min_contains, reader.min_contains)
    return found


def _item(index: int, writer: Array, reader: Array, compatible: Kinds) -> Comparer:
    if index >= len(reader.prefix):
        return (yield from _removed(writer.prefix[index], reader, compatible))
    if index >= len(writer.prefix):
        return (yield from _added(reader.prefix[index], writer, compatible))
    return (yield writer.prefix[index], reader.prefix[index])


def _removed(old: Node, reader: Array, compatible: Kinds) -> Comparer:
    if _is_open(reader):
        return [Difference(Kind.ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL)]
    other = _schema_of_others(reader)
    if other is None:
        if isinstance(old, Nothing):
            return [Difference(Kind.ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL)]
        return [Difference(Kind.ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL)]
    found = yield old, other
    if are_compatible(found, compatible):
        kind = Kind.ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    else:
        kind = Kind.ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    return [*found, Difference(kind)]


def _added(new: Node, writer: Array, compatible: Kinds) -> Comparer:
    if _is_open(writer):
        if isinstance(new, Anything):
            return [Difference(Kind.ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL)]
        return [Difference(Kind.ITEM_ADDED_TO_OPEN_CONTENT_MODEL)]
    other = _schema_of_others(writer)
    if other is None:
        return [Difference(Kind.ITEM_ADDED_TO_CLOSED_CONTENT_MODEL)]
    found = yield other, new
    if are_compatible(found, compatible):
        kind = Kind.ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    else:
        kind = Kind.ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    return [*found, Difference(kind)]


def _additional(writer: Array, reader: Array) -> Comparer:
    if writer.allows_additional != reader.allows_additional:
        if reader.allows_additional:
            return [Difference(Kind.ADDITIONAL_ITEMS_ADDED)]
        return [Difference(Kind.ADDITIONAL_ITEMS_REMOVED)]
    if writer.additional is None and reader.additional is not None:
        return [Difference(Kind.ADDITIONAL_ITEMS_NARROWED)]
    if writer.additional is not None and reader.additional is None:
        return [Difference(Kind.ADDITIONAL_ITEMS_EXTENDED)]
    return (yield writer.additional, reader.additional)


def _is_open(schema: Array) -> bool:
    return (
        schema.allows_additional
        and schema.additional is None
        and (schema.unevaluated is None or isinstance(schema.unevaluated, Anything))
    )


def _schema_of_others(schema: Array) -> Node | None:
    if schema.additional is not None:
        return schema.additional
    if schema.allows_additional and not isinstance(schema.unevaluated, Nothing | Anything):
        return schema.unevaluated
    return None
