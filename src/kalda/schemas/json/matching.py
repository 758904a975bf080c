"""Finds a largest set of pairs between two sets in which no two pairs share an element."""

from collections.abc import Sequence


def largest_matching(edges: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return which right element each left element is paired with, for as many as possible.

    >>> largest_matching([[0, 1], [0]])
    {0: 1, 1: 0}

    Args:
        edges: The right elements that each left one may be paired with.
    """
    left_of: dict[int, int] = {}
    for start in range(len(edges)):
        _augment(start, edges, left_of)
    return {left: right for right, left in sorted(left_of.items(), key=lambda pair: pair[1])}


def _augment(start: int, edges: Sequence[Sequence[int]], left_of: dict[int, int]) -> None:
    """Give a left element a partner; others may change theirs for it."""
    came_from: dict[int, int] = {}  # right element: the left one that asks for it
    waiting = [start]
    while waiting:
        left = waiting.pop()
        for right in edges[left]:
            if right in came_from:
                continue
            came_from[right] = left
            if right in left_of:
                waiting.append(left_of[right])
                continue
            free: int | None = right
            while free is not None:
                asking = came_from[free]
                previous = next((own for own, partner in left_of.items() if partner == asking), None)
                left_of[free] = asking
                free = previous
            return
