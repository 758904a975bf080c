"""Defines `ProducerRecord`, a record before it is serialised, as interceptors see it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from kalda.clients.reprs import record_repr
from kalda.common.public import public
from kalda.records.record import Header


@public
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerRecord:
    """A record that a program gave to a producer; `dataclasses.replace` makes a changed copy of it."""

    topic: str
    value: object = None
    """None is a tombstone, which deletes the key in a compacted topic."""
    key: object = None
    headers: Sequence[Header] = ()
    """Pairs of a name and bytes or None; a name may occur several times."""
    partition: int | None = None
    """None leaves the choice to the partitioner."""
    timestamp_ms: int | None = None
    """Milliseconds since the epoch; None is the time of `send`."""

    def __repr__(self) -> str:
        return record_repr(self, {each.name: getattr(self, each.name) for each in fields(self)})
