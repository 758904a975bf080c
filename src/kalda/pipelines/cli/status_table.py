"""Lays out statuses of pipelines as a table."""

from collections.abc import Container, Sequence
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


def status_table(
    statuses: "Sequence[PipelineStatus]", now_ms: int | None, dead: Container[str] = ()
) -> Table:
    """Return the table; with a time, a pipeline whose driver does not write its status shows as such.

    Args:
        statuses: What drivers wrote.
        now_ms: The time, in milliseconds since 1970; None for the statuses of this process.
        dead: The names of pipelines whose drivers are known to be gone.
    """

    def state(status: "PipelineStatus") -> str:
        if status.pipeline in dead:
            return "dead"
        is_stale = now_ms is not None and status.is_stale(now_ms)
        return "not responding" if is_stale else str(status.state)

    rows = [
        (
            each.pipeline,
            state(each),
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
