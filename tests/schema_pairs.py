"""Pairs of schemas with the answer that the documented rules of each format give."""

from collections.abc import Sequence
from dataclasses import dataclass

from kalda.schemas.compatibility import CompatibilityLevel


@dataclass(frozen=True, slots=True)
class Pair:
    """Two versions of a schema."""

    name: str
    old: str
    new: str
    backward: tuple[str, ...] = ()
    """Why the new schema cannot read what the old one wrote."""
    forward: tuple[str, ...] = ()
    """Why the old schema cannot read what the new one wrote."""

    def reasons(self, level: CompatibilityLevel) -> tuple[str, ...]:
        """Return the types of the reasons at a level, where the old schema is the only version."""
        forward = self.forward if level.is_forward else ()
        return (*forward, *(self.backward if level.is_backward else ()))


def ids(pairs: Sequence[Pair]) -> list[str]:
    """Return the names of pairs, each once."""
    names = [each.name for each in pairs]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
    return names
