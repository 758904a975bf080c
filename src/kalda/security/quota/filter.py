"""Selects the entities that a DescribeClientQuotas request asks for (KIP-546)."""

from dataclasses import dataclass
from typing import Final

from kalda.security.quota.entity import CLIENT_ID, IP, USER, QuotaEntity

EXACT: Final = 0
"""The entities with the given name."""
OF_DEFAULT: Final = 1
"""The entities of the default."""
ANY: Final = 2
"""The entities that have a name of the type, or its default."""

_TYPES: Final = (USER, CLIENT_ID, IP)


@dataclass(frozen=True, slots=True)
class FilterPart:
    """The condition on one part of an entity's name."""

    entity_type: str
    match_type: int
    match: str | None = None

    def accepts(self, names: dict[str, str | None]) -> bool:
        """Whether the names of an entity fit."""
        if self.entity_type not in names:
            return False
        if self.match_type == ANY:
            return True
        return names[self.entity_type] == (self.match if self.match_type == EXACT else None)


class UnknownEntityTypeError(ValueError):
    """A filter names a type of entities that does not exist."""


class QuotaFilter:
    """Accepts the entities that fit all parts; a strict one no entities with other parts besides."""

    def __init__(self, parts: list[FilterPart], *, is_strict: bool) -> None:
        """Check the parts.

        Raises:
            UnknownEntityTypeError: a part names a type that does not exist.
            ValueError: a part is malformed, a type is named twice, or an address stands beside others.
        """
        types = [part.entity_type for part in parts]
        for part in parts:
            if not part.entity_type:
                raise ValueError("Unexpected empty filter component entity type")
            if part.entity_type not in _TYPES:
                raise UnknownEntityTypeError(f"Custom entity type '{part.entity_type}' not supported")
            if types.count(part.entity_type) > 1:
                raise ValueError(f"Duplicate {part.entity_type} filter component entity type")
            if part.match_type not in (EXACT, OF_DEFAULT, ANY):
                raise ValueError(f"Unexpected match type {part.match_type}; allowed are 0, 1 and 2")
            if (part.match is not None) != (part.match_type == EXACT):
                raise ValueError(
                    f"A filter of {part.entity_type} needs a name with match type 0, and none with others"
                )
        if IP in types and len(types) > 1:
            raise ValueError(f"Invalid entity filter component combination: {', '.join(types)}")
        self._parts: Final = parts
        self._types: Final = frozenset(types)
        self._is_strict: Final = is_strict

    def accepts(self, entity: QuotaEntity) -> bool:
        """Whether an entity is asked for."""
        names = entity.names
        if self._is_strict and not self._types.issuperset(names):
            return False
        return all(part.accepts(names) for part in self._parts)
