"""The steps of a transform on Arrow batches, and how dropped rows are counted."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.direct.row_steps import (
    OFFSET_COLUMN,
    FunctionStep,
    StepError,
    apply_steps,
    load_function,
    without_offsets,
)
from kalda.pipelines.sql.row_query import RowQuery

ROWS = pa.RecordBatch.from_pydict({"amount": [5, None, 20, 30], OFFSET_COLUMN: [10, 11, 13, 14]})


def large(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.field("amount") > 10)


def doubled(rows: pa.RecordBatch) -> pa.Table:
    return pa.table({"twice": pc.multiply(rows.column("amount"), 2)})


def first_only(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"amount": rows.column("amount")[:1]})


def repeated(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.take(pa.array([0, 0, 1]))


def invented(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({OFFSET_COLUMN: pa.array([1, 2], pa.int64())})


def wrong(rows: pa.RecordBatch) -> list[int]:
    return [1]


def leaves(rows: pa.RecordBatch) -> pa.RecordBatch:
    sys.exit("no rates today")


def named(function: object) -> FunctionStep:
    return FunctionStep(f"{__name__}:{function.__name__}")  # type: ignore[attr-defined]  # a function has a name


def sql(text: str) -> RowQuery:
    return RowQuery(text, carried=(OFFSET_COLUMN,))


def test_filter_drops_rows_that_are_false_or_null() -> None:
    rows, dropped = apply_steps(ROWS, [sql("select * where amount > 10")])

    assert [20, 30] == rows.column("amount").to_pylist()
    assert [13, 14] == rows.column(OFFSET_COLUMN).to_pylist()
    assert 2 == dropped


def test_projection_keeps_every_row_and_its_offset() -> None:
    rows, dropped = apply_steps(ROWS, [sql("select amount, amount div 2 as half")])

    assert ["amount", "half", OFFSET_COLUMN] == rows.schema.names
    assert [10, 11, 13, 14] == rows.column(OFFSET_COLUMN).to_pylist()
    assert [2, None, 10, 15] == rows.column("half").to_pylist()
    assert 0 == dropped


def test_a_projection_of_no_rows_has_its_columns() -> None:
    """The schema of a table comes from steps that are applied to a batch without rows."""
    rows = sql("select amount").apply(ROWS.slice(0, 0))

    assert pa.schema({"amount": pa.int64(), OFFSET_COLUMN: pa.int64()}) == rows.schema


def test_rows_that_a_function_filters_are_counted_by_their_offsets() -> None:
    rows, dropped = apply_steps(ROWS, [named(large)])

    assert [13, 14] == rows.column(OFFSET_COLUMN).to_pylist()
    assert 2 == dropped


def test_a_function_may_build_new_columns_for_all_rows() -> None:
    rows, dropped = apply_steps(ROWS, [named(doubled)])

    assert [10, None, 40, 60] == without_offsets(rows).column("twice").to_pylist()
    assert [10, 11, 13, 14] == rows.column(OFFSET_COLUMN).to_pylist()
    assert 0 == dropped


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (first_only, "made 1 rows of 4 without the column __kalda_offset; drop rows with batch.filter"),
        (repeated, "repeats or reorders rows"),
        (invented, "returned rows that it did not get"),
        (wrong, "returned list; it must return a pyarrow.RecordBatch or a pyarrow.Table"),
    ],
)
def test_a_function_that_loses_track_of_rows_is_an_error(function: object, message: str) -> None:
    """Otherwise the ledger would balance although records are lost or doubled."""
    with pytest.raises(StepError, match=message):
        apply_steps(ROWS, [named(function)])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_colon", "'no_colon' is not of the form package.module:function"),
        ("no_such_module_x:f", "the function no_such_module_x:f cannot be imported: No module named"),
        ("json:nothing", "the function json:nothing cannot be imported: module 'json' has no attribute"),
        ("json:__name__", "json:__name__ is no function, but str"),
    ],
)
def test_a_function_that_is_not_there_is_named(name: str, message: str) -> None:
    with pytest.raises(StepError, match=message):
        load_function(name)


def test_no_step_runs_behind_the_one_that_dropped_all() -> None:
    """A function of the user need not expect a batch without rows in the middle of a run."""
    rows, dropped = apply_steps(ROWS, [sql("select * where amount > 100"), named(wrong)])

    assert (0, 4) == (rows.num_rows, dropped)


def test_a_step_that_exits_has_failed() -> None:
    """Else the worker ends, and Spark's error does not name the step."""
    with pytest.raises(StepError, match="leaves raised SystemExit: no rates today; its batch had 4 rows"):
        named(leaves).apply(ROWS)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with modules of a user, on Python's path."""
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "ux_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "steps.py").write_text(
        "from ux_package.rates import rate\ndef enrich(rows):\n    rate(rows)\n"
    )
    (package / "rates.py").write_text("def rate(rows):\n    return rows.column('absent')\n")
    (tmp_path / "ux_lines.py").write_text("def f(rows):\n    raise ValueError('one\\n  two')\n")
    (tmp_path / "ux_deep.py").write_text("def f(rows):\n    f(rows)\n")
    (tmp_path / "ux_broken.py").write_text("\n\nLIMIT = 1 / 0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "ux_package.steps:enrich",
            (
                "ux_package.steps:enrich raised KeyError: 'Field \"absent\" does not exist in schema'; "
                "its batch had 4 rows; at steps.py:3 in enrich, rates.py:2 in rate"
            ),
        ),
        ("ux_lines:f", "ux_lines:f raised ValueError: one two; its batch had 4 rows; at ux_lines.py:2 in f"),
        (
            "ux_deep:f",
            (
                "ux_deep:f raised RecursionError: maximum recursion depth exceeded; its batch had 4 rows; "
                f"at {', '.join(['ux_deep.py:2 in f'] * 5)}"
            ),
        ),
        (
            "ux_broken:f",
            (
                "the function ux_broken:f cannot be imported: ZeroDivisionError: division by zero; "
                "at ux_broken.py:3 in <module>"
            ),
        ),
    ],
)
def test_a_failure_names_the_lines_of_the_users_module_alone(
    modules: Path, function: str, message: str
) -> None:
    """The message is one line of a status, and its reader can change no other module."""
    with pytest.raises(StepError) as raised:
        FunctionStep(function).apply(ROWS)
    assert message == str(raised.value)
