"""Encodes how far a table is published, in the text that is committed with the records.

A position is a step of the table's history (the whole table at a version, or the changes of a version) and
how many rows of the step are published. A step gives its rows in the same order each time. Positions that
were committed by an earlier version of this module stay readable.
"""

import json
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """The part of a table that is published at a position."""

    SNAPSHOT = "snapshot"
    """All rows of a version."""
    CHANGES = "changes"
    """The changes of a version."""


class PositionError(ValueError):
    """The committed progress was not written by a pipeline, or belongs to another table."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a table is published."""

    table: str
    """The table's URI, so that a pipeline that is pointed to another table is noticed."""
    step: Step
    version: int
    rows: int
    """Rows of the step that are published."""
    is_complete: bool
    """Whether these are all rows of the step."""
    since: int | None = None
    """With `CHANGES`: the version whose successor this is, as the ids of versions need not rise."""

    def to_json(self) -> str:
        """Return the text."""
        return json.dumps(
            {
                "table": self.table,
                "step": self.step.value,
                "version": self.version,
                "rows": self.rows,
                "complete": self.is_complete,
                "since": self.since,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> "Position":
        """Read what `to_json` returned.

        Raises:
            PositionError: the text is something else.
        """
        try:
            document = json.loads(text)
            since = document["since"]
            return cls(
                table=str(document["table"]),
                step=Step(document["step"]),
                version=int(document["version"]),
                rows=int(document["rows"]),
                is_complete=bool(document["complete"]),
                since=None if since is None else int(since),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PositionError(f"{text[:200]!r} is no progress of a published table") from error
