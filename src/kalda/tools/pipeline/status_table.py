"""Lays out statuses of pipelines as a table."""

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Final

from kalda.command.tables import Table

if TYPE_CHECKING:
    from kalda.pipelines.engine.status import PipelineStatus

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
_UNITS: Final = (
    ("d", _DAY_S, 1 << 62),
    ("h", _HOUR_S, _DAY_S),
    ("m", _MINUTE_S, _HOUR_S),
    ("s", 1, _MINUTE_S),
)
"""Each unit in seconds, and the next larger one."""

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
    "FRESHNESS",
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
            None if each.freshness_seconds is None else age_text(each.freshness_seconds),
            each.error,
        )
        for each in statuses
    ]
    return Table(COLUMNS, rows)


def age_text(seconds: float) -> str:
    """Return a length of time in its two largest units.

    Example: 830,445 seconds are ``9d 14h``, and 2.43 seconds ``2.4s``.
    """
    sign, left = ("-" if seconds < 0 else ""), abs(seconds)
    if left < _MINUTE_S:
        return f"{sign}{left:.1f}s"
    whole = int(left)
    units = [f"{whole % above // unit}{name}" for name, unit, above in _UNITS if whole >= unit]
    return sign + " ".join(units[:2])
