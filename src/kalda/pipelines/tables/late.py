"""Which rows of a batch are late: their event time lies too far behind what was committed before the batch.

Decides alone, no I/O. The mark is that of `Table.watermark`, which is the same when the batch is replayed. Do
not break: a row is late or not by its event time and the batch's cutoff alone, in whichever task it is, so
that a replay sends it the same way.
"""

import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.tables.errors import TableSpecError


def late_cutoff(watermark_ms: int | None, allow_ms: int) -> int | None:
    """Return the event time (ms) before which rows of a batch are late; None while nothing is committed."""
    return None if watermark_ms is None else watermark_ms - allow_ms


def split_late(
    batch: pa.RecordBatch, event_time: str, cutoff_ms: int | None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows that are in time and those that are late; a row without a time is in time.

    Raises:
        TableSpecError: The rows lack the column, or it is neither a timestamp nor a date.
    """
    index = batch.schema.get_field_index(event_time)
    if index < 0:
        raise TableSpecError(
            f"event_time names the column {event_time!r}, which the rows lack; they have "
            f"{', '.join(batch.schema.names)}"
        )
    column = batch.column(index)
    if (
        not pa.types.is_temporal(column.type)
        or pa.types.is_time(column.type)
        or pa.types.is_duration(column.type)
    ):
        raise TableSpecError(
            f"event_time names {event_time!r} of type {column.type}; it must be a timestamp or a date. "
            "Cast it in the transform"
        )
    if cutoff_ms is None:
        return batch, batch.slice(0, 0)
    moments = column.cast(pa.timestamp("us", column.type.tz if pa.types.is_timestamp(column.type) else None))
    late = pc.fill_null(pc.less(moments.cast(pa.int64()), cutoff_ms * 1000), False)
    count = late.true_count
    if count == 0:
        return batch, batch.slice(0, 0)
    return batch.filter(pc.invert(late)), batch.filter(late)
