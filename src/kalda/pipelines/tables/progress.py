"""Defines how far a query has come in a table: its last committed batch, and the event times around it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The last committed batch of a query, with the greatest event times (ms) before and after it."""

    batch_id: int
    watermark_before: int | None
    watermark: int | None

    def advanced(self, batch_id: int, event_time_max: int | None) -> "QueryProgress":
        """Return the progress after a later batch."""
        known = [each for each in (self.watermark, event_time_max) if each is not None]
        return QueryProgress(batch_id, self.watermark, max(known, default=None))

    def watermark_at(self, batch_id: int) -> int | None:
        """Return the greatest event time of the batches before `batch_id`."""
        return self.watermark_before if batch_id <= self.batch_id else self.watermark


NO_PROGRESS: Final = QueryProgress(-1, None, None)
