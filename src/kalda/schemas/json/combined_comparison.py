"""Compares unions and products of schemas (``oneOf``, ``anyOf``, ``allOf``) and negations."""

from collections.abc import Iterable

from kalda.schemas.json.differences import Difference, Kind
from kalda.schemas.json.matching import largest_matching
from kalda.schemas.json.nodes import Combined, Criterion, Node, Not
from kalda.schemas.json.steps import Comparer, Kinds, MemberComparer, are_compatible, under
from kalda.schemas.json.text import normalized


def compare_combined(writer: Combined, reader: Combined, compatible: Kinds) -> Comparer:
    """Return the differences of two combined schemas.

    Each member of the smaller one needs a member of the larger one that it is compatible with, each another.
    """
    found = _criteria(writer, reader)
    if found and found[0].kind is Kind.COMBINED_TYPE_CHANGED:
        return found
    old, new = _distinct(writer.members), _distinct(reader.members)
    if len(old) < len(new):
        is_product = reader.criterion is Criterion.ALL
        found.append(Difference(Kind.PRODUCT_TYPE_EXTENDED if is_product else Kind.SUM_TYPE_EXTENDED))
    elif len(old) > len(new):
        is_product = writer.criterion is Criterion.ALL
        found.append(Difference(Kind.PRODUCT_TYPE_NARROWED if is_product else Kind.SUM_TYPE_NARROWED))
    edges: list[dict[int, list[Difference]]] = []
    for index, member in enumerate(old):
        fitting = {}
        for position, other in enumerate(new):
            between = yield member, other
            if are_compatible(between, compatible):
                fitting[position] = under(between, f"{writer.criterion.value}/{index}")
        edges.append(fitting)
    pairs = largest_matching([list(fitting) for fitting in edges])
    for index, position in sorted(pairs.items()):
        found += edges[index][position]
    if len(pairs) < min(len(old), len(new)):
        found.append(Difference(Kind.COMBINED_TYPE_SUBSCHEMAS_CHANGED))
    return found


def compare_not(writer: Not, reader: Not, compatible: Kinds) -> Comparer:
    """Return the differences of two negations: what is excluded must become less."""
    found = yield reader.schema, writer.schema
    kind = Kind.NOT_TYPE_NARROWED if are_compatible(found, compatible) else Kind.NOT_TYPE_EXTENDED
    return [Difference.at(kind, "not")]


def member_that_fits(writer: Node, reader: Node, compatible: Kinds) -> MemberComparer:
    """Return the differences to one member that suffices, where only one of the schemas is combined.

    None says that no member suffices, or that both or none of the schemas are combined.
    """
    if isinstance(reader, Combined) and not isinstance(writer, Combined):
        if len(reader.members) > 1 and reader.criterion is Criterion.ALL:
            return None
        pairs = [(writer, member) for member in reader.members]
        extra = Kind.SUM_TYPE_EXTENDED
    elif isinstance(writer, Combined) and not isinstance(reader, Combined):
        if len(writer.members) > 1 and writer.criterion is not Criterion.ALL:
            return None
        pairs = [(member, reader) for member in writer.members]
        extra = Kind.PRODUCT_TYPE_NARROWED
    else:
        return None
    for old, new in pairs:
        found = yield old, new
        if are_compatible(found, compatible):
            return found if len(pairs) == 1 else [*found, Difference(extra)]
    return None


def _criteria(writer: Combined, reader: Combined) -> list[Difference]:
    old, new = writer.criterion, reader.criterion
    if old is new:
        return []
    was_single, is_single = len(writer.members) == 1, len(reader.members) == 1
    if (
        new is Criterion.ANY
        or (was_single and (is_single or new is Criterion.ONE))
        or (is_single and old is Criterion.ALL)
    ):
        return [Difference(Kind.COMBINED_TYPE_EXTENDED)]
    return [Difference(Kind.COMBINED_TYPE_CHANGED)]


def _distinct(members: Iterable[Node]) -> list[Node]:
    """Return the members without those whose JSON is that of an earlier one."""
    found: dict[object, Node] = {}
    for member in members:
        key: object = id(member) if member.source is None else normalized(member.source)
        found.setdefault(key, member)
    return list(found.values())
