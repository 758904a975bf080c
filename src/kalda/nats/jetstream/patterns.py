"""Compares subjects with patterns, and patterns with each other."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from kalda.common.steps import Steps
from kalda.nats.subjects import ANY_TOKEN, ANY_TOKENS, is_literal, is_valid_subject

K = TypeVar("K")

SUBJECT_BYTES_MAX: Final = 4096
VISITED_PER_STEP: Final = 64
"""Nodes of a set of patterns that one step looks at, some 50 microseconds, but for one pattern."""

_END: Final = b""
"""The key of a node where a pattern ends; no token is empty."""

_Node: TypeAlias = dict[bytes, "_Node"]


def is_pattern(text: str) -> bool:
    """Return whether a text from a request can be subscribed to: a subject, perhaps with wildcards."""
    subject = text.encode()
    return (
        len(subject) <= SUBJECT_BYTES_MAX
        and not any(each in subject for each in b" \t\r\n\0")
        and is_valid_subject(subject)
    )


class Pattern:
    """A subject, perhaps with wildcards."""

    __slots__ = ("_expression", "_tokens", "is_literal", "text")

    def __init__(self, text: bytes) -> None:
        self.text: Final = text
        self.is_literal: Final = is_literal(text)
        self._tokens: Final = text.split(b".")
        self._expression: re.Pattern[bytes] | None = None

    def includes(self, subject: bytes) -> bool:
        """Return whether a subject without wildcards matches."""
        if self.is_literal:
            return subject == self.text
        expression = self._expression
        if expression is None:
            expression = self._expression = re.compile(self.expression, re.DOTALL)
        return expression.fullmatch(subject) is not None

    @property
    def expression(self) -> bytes:
        """A regular expression that takes linear time: a stream's million subjects are compared with it."""
        parts = [b"[^.]*" if each == ANY_TOKEN else re.escape(each) for each in self._tokens]
        if self._tokens[-1] == ANY_TOKENS:
            parts[-1] = b".*"
        return rb"\.".join(parts)

    def includes_all(self, other: "Pattern") -> bool:
        """Return whether each subject that the other pattern includes is included."""
        mine, others = self._tokens, other._tokens
        for index, token in enumerate(mine):
            if token == ANY_TOKENS:
                return len(others) > index
            if index >= len(others) or others[index] == ANY_TOKENS:
                return False
            if token != ANY_TOKEN and token != others[index]:
                return False
        return len(mine) == len(others)

    def overlaps(self, other: "Pattern") -> bool:
        """Return whether some subject is included in both."""
        mine, others = self._tokens, other._tokens
        for one, two in zip(mine, others, strict=False):
            if ANY_TOKENS in (one, two):
                return True
            if one != two and ANY_TOKEN not in (one, two):
                return False
        return len(mine) == len(others)


class PatternSet:
    """Some patterns, to find out whether one of them overlaps with another pattern."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._root: Final[_Node] = {}
        self.visited = 0
        """Nodes that were looked at since the start: the cost of `overlaps`."""
        for each in patterns:
            node = self._root
            for token in each._tokens:
                node = node.setdefault(token, {})
            node[_END] = {}

    def overlaps(self, other: Pattern) -> bool:
        """Return whether some subject is included in a pattern of the set and in the other one."""
        level = [self._root]
        for token in other._tokens:
            self.visited += len(level)
            if any(ANY_TOKENS in node for node in level):
                return True
            if token == ANY_TOKENS:
                return any(node.keys() - {_END} for node in level)
            following: list[_Node] = []
            for node in level:
                if token == ANY_TOKEN:
                    following += (child for key, child in node.items() if key != _END)
                    continue
                for key in (token, ANY_TOKEN):
                    child = node.get(key)
                    if child is not None:
                        following.append(child)
            level = following
            if not level:
                return False
        return any(_END in node for node in level)


def overlapping(patterns: Iterable[Pattern], groups: Iterable[tuple[K, Sequence[Pattern]]]) -> Steps[list[K]]:
    """Find the keys of the groups that have a pattern with a subject of one of some patterns, in steps."""
    wanted = PatternSet(patterns)
    found: list[K] = []
    looked_at = 0
    for key, group in groups:
        for each in group:
            if wanted.visited >= looked_at + VISITED_PER_STEP:
                looked_at = wanted.visited
                yield
            if wanted.overlaps(each):
                found.append(key)
                break
    return found
