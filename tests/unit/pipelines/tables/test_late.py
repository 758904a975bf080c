"""Rows that come too late."""

import datetime as dt

import pyarrow as pa
import pytest

from kalda.pipelines.tables.errors import TableSpecError
from kalda.pipelines.tables.late import late_cutoff, split_late

DAY_MS = 86_400_000


def test_rows_behind_the_cutoff_are_late() -> None:
    """The boundary itself is in time, as `allow` says how far a row may lie behind."""
    moments = [dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (10, 7, 6)]
    rows = pa.record_batch({"id": [0, 1, 2, 3], "ts": pa.array([*moments, None], pa.timestamp("us", "UTC"))})
    watermark = round(moments[0].timestamp() * 1000)

    in_time, late = split_late(rows, "ts", late_cutoff(watermark, 3 * DAY_MS))

    assert ([0, 1, 3], [2]) == (in_time["id"].to_pylist(), late["id"].to_pylist())


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ns", "Europe/Berlin"), pa.date32()])
def test_times_of_each_unit_are_compared(kind: pa.DataType) -> None:
    rows = pa.record_batch({"ts": pa.array([dt.date(2026, 1, 1), dt.date(2026, 1, 3)]).cast(kind)})
    cutoff = round(dt.datetime(2026, 1, 2, tzinfo=dt.UTC).timestamp() * 1000)
    in_time, late = split_late(rows, "ts", cutoff)
    assert (1, 1) == (in_time.num_rows, late.num_rows)


def test_nothing_is_late_before_the_first_commit() -> None:
    rows = pa.record_batch({"ts": pa.array([dt.datetime(1970, 1, 1, tzinfo=dt.UTC)])})
    assert late_cutoff(None, 0) is None
    assert (rows, 0) == (lambda parts: (parts[0], parts[1].num_rows))(split_late(rows, "ts", None))


def test_a_wrong_column_is_named() -> None:
    rows = pa.record_batch({"ts": pa.array([1])})
    with pytest.raises(
        TableSpecError, match="event_time names the column 'when', which the rows lack; they have ts"
    ):
        split_late(rows, "when", 0)
    with pytest.raises(TableSpecError, match="'ts' of type int64; it must be a timestamp"):
        split_late(rows, "ts", 0)
