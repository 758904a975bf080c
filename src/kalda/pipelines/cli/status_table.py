"""Lays out statuses of pipelines as a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kalda.tools.framework.tables import Table

if TYPE_CHECKING:
    from kalda.pipelines.engine.status import PipelineStatus

COLUMNS = (
    "PIPELINE",
    "STATE",
    "EXECUTION",
    "TARGET",
    "BATCH",
    "RECORDS",
    "ROWS",
    "DLQ",
    "RECORDS/S",
    "LAG",
    "FRESHNESS-S",
    "ERROR",
)


def status_table(statuses: "Sequence[PipelineStatus]", now_ms: int | None) -> Table:
    """Return the table; with a time, a pipeline whose driver is gone shows as such."""
    rows = [
        (
            each.pipeline,
            "not responding" if now_ms is not None and each.is_stale(now_ms) else str(each.state),
            each.execution,
            each.target,
            each.batch_id,
            each.records,
            each.rows_out,
            each.dlq,
            round(each.records_per_second),
            each.lag,
            each.freshness_seconds,
            each.error,
        )
        for each in statuses
    ]
    return Table(COLUMNS, rows)
