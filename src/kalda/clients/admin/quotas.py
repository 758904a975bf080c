"""Defines the values of admin calls on client quotas (KIP-546)."""

from dataclasses import dataclass, field

from kalda.common.public import public

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The parts of an entity's name, as sorted pairs of a type (``user``, ``client-id``, ``ip``) and a name; None
is the default of the type."""


@public
def quota_entity(names: dict[str, str | None]) -> QuotaEntity:
    """Return the entity with these names by type.

    >>> quota_entity({"user": "alice", "client-id": None})
    (('client-id', None), ('user', 'alice'))
    """
    return tuple(sorted(names.items()))


@public
@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Selects entities by one part of their names."""

    entity_type: str
    """``user``, ``client-id`` or ``ip``."""
    name: str | None = None
    """The name; None for the default, or for any name if `is_any`."""
    is_any: bool = False
    """Whether every name fits, and the default too."""


@public
@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """The changes of one entity's quotas."""

    entity: QuotaEntity
    quotas: dict[str, float | None] = field(default_factory=dict)
    """The values by name, e.g. ``producer_byte_rate``; None removes a quota."""
