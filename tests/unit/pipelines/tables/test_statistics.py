"""Bounds of columns: never narrower than the values."""

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.pipelines.tables.model import ColumnStats
from kalda.pipelines.tables.statistics import column_stats, delta_stats, without_bounds

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


def stats_of(root: Path, table: pa.Table, group_rows: int = 3) -> dict[str, ColumnStats]:
    path = root / "x.parquet"
    pq.write_table(table, path, row_group_size=group_rows)
    return column_stats(pq.read_metadata(path), table.schema, without_bounds(table))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | texts, min_size=1, max_size=9), st.sampled_from([1, 3, 100]))
def test_each_text_lies_within_the_bounds(
    tmp_path_factory: object, values: list[str | None], group_rows: int
) -> None:
    root: Path = tmp_path_factory.mktemp("stats")  # type: ignore[attr-defined]  # pytest's factory
    found = stats_of(root, pa.table({"s": pa.array(values, pa.string())}), group_rows)["s"]
    assert values.count(None) == found.nulls
    present = [value.encode() for value in values if value is not None]
    if found.min is not None and found.max is not None:
        assert str(found.min).encode() <= min(present)
        assert max(present) <= str(found.max).encode()


def test_long_texts_are_cut_outwards(tmp_path: Path) -> None:
    last = "\U0010ffff"
    for text, upper in (("x" * 40, "x" * 32 + last), ("x" * 32, "x" * 32), (last * 40, last * 40)):
        found = stats_of(tmp_path, pa.table({"s": [text]}))["s"]
        assert (text[:32], upper) == (found.min, found.max)


def test_numbers_that_bounds_cannot_hold_have_none(tmp_path: Path) -> None:
    """A bound that leaves NaN out would hide its row from a filter."""
    table = pa.table(
        {
            "x": [1.5, math.nan, 2.5],
            "y": [1.0, math.inf, None],
            "z": [1.0, None, 3.0],
            "none": pa.nulls(3, pa.int64()),
            "raw": [b"a", b"b", None],
            "l": [[1], [2], None],
        }
    )
    found = stats_of(tmp_path, table)
    assert {"x", "y"} == without_bounds(table)
    assert (None, None, 0) == (found["x"].min, found["x"].max, found["x"].nulls)
    assert (None, None, 1) == (found["y"].min, found["y"].max, found["y"].nulls)
    assert (1.0, 3.0, 1) == (found["z"].min, found["z"].max, found["z"].nulls)
    assert (None, None, 3) == (found["none"].min, found["none"].max, found["none"].nulls)
    assert not {"raw", "l"} & found.keys()


def test_delta_s_text_has_bounds_for_all_columns_or_none() -> None:
    bounded = {"a": ColumnStats(1, 2, 0), "p": ColumnStats("x", "y", 0)}
    text = json.loads(delta_stats(5, bounded, frozenset(["p"])))
    assert {"numRecords": 5, "minValues": {"a": 1}, "maxValues": {"a": 2}, "nullCount": {"a": 0}} == text
    partly = json.loads(delta_stats(5, bounded | {"b": ColumnStats(None, None, 1)}, frozenset()))
    assert {"a": 0, "b": 1, "p": 0} == partly["nullCount"]
    assert not partly.get("minValues")
