"""Compares two schemas: what a reader's schema changes of a writer's one.

Each pair of nodes is compared once, however many paths lead to it, and without recursion of Python, because
a chain of definitions may be long. A pair that is met within itself is taken to be compatible. That may prove
wrong for a pair whose result was used meanwhile, so the whole is repeated with the pairs known to be
incompatible until there are no more of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.json.array_comparison import compare_arrays
from kalda.schemas.json.combined_comparison import compare_combined, compare_not, member_that_fits
from kalda.schemas.json.differences import Difference, Kind
from kalda.schemas.json.nodes import Anything, Array, Combined, Node, Not, Nothing, Object, Reference
from kalda.schemas.json.object_comparison import compare_objects
from kalda.schemas.json.steps import Comparer, Kinds
from kalda.schemas.json.value_comparison import compare_annotations, compare_values

STEPS_MAX: Final = 500_000
"""Pairs that one comparison asks for, two seconds of work; a union of a hundred types takes 10,000."""
_INCOMPATIBLE_MAX: Final = 100
"""How many incompatible differences of a pair are kept; a definition that is used in 2^20 ways would have
each of its differences so many times."""
_COMPATIBLE_MAX: Final = 20

_Pair: TypeAlias = tuple[int, int]


def differences(writer: Node, reader: Node, compatible: Kinds) -> list[Difference]:
    """Return what differs, in the order of the writer's keywords.

    Args:
        writer: The schema that values were written by.
        reader: The schema that is to read them.
        compatible: The kinds of differences that a reader copes with; unions are matched by it.

    Raises:
        InvalidSchemaError: The schemas take more than `STEPS_MAX` steps to compare.
    """
    incompatible: Mapping[_Pair, list[Difference]] = {}
    steps = 0
    while True:
        run = _Pass(compatible, incompatible, steps)
        found = run.compare(writer, reader)
        again = run.incompatible()
        if not run.has_assumed or again.keys() == incompatible.keys():
            return found
        incompatible, steps = again, run.steps


@dataclass(slots=True)
class _Frame:
    pair: _Pair
    comparer: Comparer


class _Pass:
    """One comparison with what earlier passes found."""

    def __init__(self, compatible: Kinds, known: Mapping[_Pair, list[Difference]], steps: int) -> None:
        self.has_assumed = False
        self.steps = steps
        self._compatible: Final = compatible
        self._known: Final = known
        self._found: Final[dict[_Pair, list[Difference]]] = {}
        self._keys: Final[dict[int, int]] = {}
        self._unions: Final[dict[object, int]] = {}

    def compare(self, writer: Node, reader: Node) -> list[Difference]:
        """Return the differences of two schemas."""
        stack = [_Frame(self._pair(writer, reader), _compare(writer, reader, self._compatible))]
        open_pairs = {stack[0].pair}
        answer: list[Difference] | None = None
        while True:
            frame = stack[-1]
            try:
                old, new = next(frame.comparer) if answer is None else frame.comparer.send(answer)
            except StopIteration as stop:
                answer = self._found[frame.pair] = self._bounded(stop.value)
                open_pairs.remove(frame.pair)
                stack.pop()
                if not stack:
                    return answer
                continue
            self._count()
            if old is None or new is None:
                answer = _of_one(old, new)
                continue
            old, new = _target(old), _target(new)
            pair = self._pair(old, new)
            answer = self._found.get(pair)
            if answer is None and pair in open_pairs:
                answer = self._known.get(pair, [])
                self.has_assumed |= pair not in self._known
            if answer is None:
                stack.append(_Frame(pair, _compare(old, new, self._compatible)))
                open_pairs.add(pair)

    def incompatible(self) -> Mapping[_Pair, list[Difference]]:
        """Return the pairs that proved to be incompatible, with their differences."""
        return {
            pair: found
            for pair, found in self._found.items()
            if any(each.kind not in self._compatible for each in found)
        }

    def _pair(self, writer: Node, reader: Node) -> _Pair:
        return self._key(writer), self._key(reader)

    def _key(self, node: Node) -> int:
        """Return the identity of a node; unions of the same definitions have the same one.

        Without it, n types that refer to each other by a union each would take n^4 steps.
        """
        identity = id(node)
        if not isinstance(node, Combined):
            return identity
        if identity not in self._keys:
            members = tuple(id(_target(each)) for each in node.members)
            parts = node.criterion, members, node.id, node.title, node.description, node.default
            self._keys[identity] = self._unions.setdefault(parts, identity)
        return self._keys[identity]

    def _count(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise InvalidSchemaError(
                f"comparing it takes more than {STEPS_MAX} steps: too many alternatives (oneOf, anyOf) "
                "refer to each other"
            )

    def _bounded(self, found: list[Difference]) -> list[Difference]:
        if len(found) <= _COMPATIBLE_MAX:
            return found
        good = [each for each in found if each.kind in self._compatible]
        bad = [each for each in found if each.kind not in self._compatible]
        return bad[:_INCOMPATIBLE_MAX] + good[:_COMPATIBLE_MAX]


def _of_one(writer: Node | None, reader: Node | None) -> list[Difference]:
    """Return the difference of a schema that only one side has."""
    if writer is reader:
        return []
    return [Difference(Kind.SCHEMA_ADDED if writer is None else Kind.SCHEMA_REMOVED)]


def _target(node: Node) -> Node:
    if isinstance(node, Reference):
        assert node.target is not None
        return node.target
    return node


def _compare(writer: Node, reader: Node, compatible: Kinds) -> Comparer:
    fitting = yield from member_that_fits(writer, reader, compatible)
    if fitting is not None:
        return fitting
    if type(writer) is not type(reader):
        if isinstance(writer, Nothing) or isinstance(reader, Anything):
            return []
        if writer.is_bytes and reader.is_bytes:
            return []
        return [Difference(Kind.TYPE_CHANGED)]
    found = compare_annotations(writer, reader)
    if isinstance(writer, Object) and isinstance(reader, Object):
        found += yield from compare_objects(writer, reader, compatible)
    elif isinstance(writer, Array) and isinstance(reader, Array):
        found += yield from compare_arrays(writer, reader, compatible)
    elif isinstance(writer, Combined) and isinstance(reader, Combined):
        found += yield from compare_combined(writer, reader, compatible)
    elif isinstance(writer, Not) and isinstance(reader, Not):
        found += yield from compare_not(writer, reader, compatible)
    else:
        found += compare_values(writer, reader)
    return found
