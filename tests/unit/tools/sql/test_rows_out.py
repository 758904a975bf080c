"""The rows of a query as table, JSON lines, CSV and Arrow."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kalda.command.output import Form, Output
from kalda.tools.sql.request import RowForm
from kalda.tools.sql.rows_out import TABLE_ROWS, open_writer

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def written(form: RowForm, *batches: pa.RecordBatch, schema: pa.Schema | None = None) -> bytes:
    """Return what is written to a file, which is what stdout gets as well."""
    stdout, file = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.BytesIO()
    for target in (None, file):
        output = Output(Form.PLAIN, stdout, io.StringIO())
        writer = open_writer(form, schema or batches[0].schema, output, target)
        for batch in batches:
            writer.write(batch)
        writer.close()
        output.flush()
    assert file.getvalue() == stdout.buffer.getvalue()
    return file.getvalue()


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_json_has_one_object_for_each_row_with_the_types_of_json() -> None:
    rows = batch(
        n=pa.array([1, None], pa.int64()),
        at=pa.array([datetime(2026, 11, 28, 12, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        day=[date(2026, 11, 28), None],
        total=pa.array([Decimal(3), None], pa.decimal128(38, 0)),
        price=pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        text=["ä", None],
        headers=pa.array([[{"key": "h", "value": b"v"}, {"key": "i", "value": b"\xff"}], None], HEADERS),
    )

    first, second = written(RowForm.JSON, rows).decode().splitlines()

    assert {
        "n": 1,
        "at": "2026-11-28T12:00:00Z",
        "day": "2026-11-28",
        "total": 3,
        "price": 1.5,
        "text": "ä",
        "headers": [{"key": "h", "value": "v"}, {"key": "i", "valueBase64": "/w=="}],
    } == json.loads(first)
    assert {None} == set(json.loads(second).values())


def test_numbers_that_json_does_not_have_are_words() -> None:
    assert b'{"f": "NaN"}\n{"f": "Infinity"}\n' == written(
        RowForm.JSON, batch(f=[float("nan"), float("inf")])
    )


def test_csv_tells_null_from_the_empty_text_and_writes_nested_values_as_json() -> None:
    rows = batch(a=["x,\n", "", None], n=[1, 2, None], nested=[{"b": 1}, None, None])

    assert b'"a","n","nested"\n"x,\n",1,"{""b"":1}"\n"",2,\n,,\n' == written(RowForm.CSV, rows)


@pytest.mark.parametrize("form", RowForm)
def test_a_result_without_rows_is_an_empty_table_and_has_its_columns_in_files(form: RowForm) -> None:
    empty = written(form, schema=pa.schema([("a", pa.string())]))

    expected = {RowForm.TABLE: b"", RowForm.CSV: b'"a"\n', RowForm.JSON: b""}
    if form is RowForm.ARROW:
        assert ["a"] == pa.ipc.open_stream(empty).schema.names
    else:
        assert expected[form] == empty


def test_arrow_is_a_stream_with_the_types_of_the_query() -> None:
    rows = batch(a=[1, 2], b=[b"\x00", None])

    assert (
        pa.Table.from_batches([rows, rows])
        == pa.ipc.open_stream(written(RowForm.ARROW, rows, rows)).read_all()
    )


def test_a_table_has_its_heading_again_where_its_rows_are_many() -> None:
    lines = written(RowForm.TABLE, batch(n=range(TABLE_ROWS + 1))).decode().splitlines()

    assert TABLE_ROWS + 3 == len(lines)
    assert ["n", "n"] == [line.strip() for line in (lines[0], lines[TABLE_ROWS + 1])]
    assert str(TABLE_ROWS) == lines[-1].strip()


def test_a_table_shows_all_digits_and_no_control_characters() -> None:
    rows = batch(f=[1.23456], t=["\x1b[2J"], n=pa.nulls(1))

    assert ["f        t        n", "1.23456  \\x1b[2J  -"] == written(
        RowForm.TABLE, rows
    ).decode().splitlines()
