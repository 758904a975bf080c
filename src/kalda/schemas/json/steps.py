"""Provides the steps that comparisons of JSON schemas share, such as comparing a nested pair of schemas."""

from collections.abc import Generator, Iterable
from typing import TypeAlias

from kalda.schemas.json.differences import Difference, Kind
from kalda.schemas.json.nodes import Node, Number

Comparer: TypeAlias = Generator[tuple[Node | None, Node | None], list[Difference], list[Difference]]
"""Yields (writer, reader) pairs, is sent the differences of each, and returns its own."""
MemberComparer: TypeAlias = Generator[
    tuple[Node | None, Node | None], list[Difference], list[Difference] | None
]
Kinds: TypeAlias = frozenset[Kind]


def under(found: Iterable[Difference], *path: str) -> list[Difference]:
    """Return the differences of a pair as seen from the schema that has the pair at a path."""
    return [each.under(*path) for each in found]


def are_compatible(found: Iterable[Difference], compatible: Kinds) -> bool:
    """Return whether a reader copes with all of the differences."""
    return all(each.kind in compatible for each in found)


def limit(name: str, prefix: str, writer: Number | None, reader: Number | None) -> list[Difference]:
    """Return the difference of a keyword that bounds something.

    Args:
        name: The keyword, such as ``maxLength``.
        prefix: How the names of its differences start, such as ``MAX_LENGTH``.
        writer: Its value in the writer's schema; None if it is not there.
        reader: Its value in the reader's schema.
    """
    if writer == reader:
        return []
    if writer is None:
        change = "ADDED"
    elif reader is None:
        change = "REMOVED"
    else:
        change = "INCREASED" if writer < reader else "DECREASED"
    return [Difference.at(Kind(f"{prefix}_{change}"), name)]
