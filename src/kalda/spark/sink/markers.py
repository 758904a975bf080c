"""Defines the marker: the last batch that a task's transactional id has committed. Pure.

The marker is written in the same transaction as the rows, so it is there if and only if they are.
"""

import json
from dataclasses import dataclass

VERSION = 1


class StateFormatError(ValueError):
    """A value of ``__kalda_markers`` or ``__kalda_commits`` is not what this version writes."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a part of a batch has committed."""

    batch_id: int
    row_count: int

    def encode(self) -> bytes:
        """Return the value of the record."""
        return json.dumps({"version": VERSION, "batch": self.batch_id, "rows": self.row_count}).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Marker":
        """Read a record's value.

        Raises:
            StateFormatError: it is not a marker; the rows must not be written again on a guess.
        """
        try:
            fields = json.loads(value)
            batch_id, row_count = fields["batch"], fields["rows"]
        except (ValueError, KeyError, TypeError) as error:
            raise StateFormatError(f"{value!r} is no marker: {error}") from None
        if (
            fields.get("version") != VERSION
            or not isinstance(batch_id, int)
            or not isinstance(row_count, int)
        ):
            raise StateFormatError(f"{value!r} is no marker of version {VERSION}; use a newer Kalda")
        return cls(batch_id, row_count)
