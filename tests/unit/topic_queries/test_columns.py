"""Records as rows: what bytes and times become, and what happens to a value that is not of its format."""

from typing import Any

import pyarrow as pa
import pytest

from kalda.clients.consumer.arrow_rows import ARROW_SCHEMA
from kalda.formats import FormatSpec, open_decoder
from kalda.topic_queries.columns import Columns, UndecodableValueError


def records(*rows: dict[str, Any]) -> pa.RecordBatch:
    usual = {"topic": "t", "partition": 3, "offset": 7, "timestamp": 0, "timestamp_type": 0, "headers": []}
    return pa.RecordBatch.from_pylist([{**usual, **row} for row in rows], schema=ARROW_SCHEMA)


def test_bytes_are_text_with_a_mark_for_what_is_none() -> None:
    rows = Columns().of_records(
        records({"key": b"k", "value": b"\xff!"}, {"key": None, "value": "é".encode()}), ["value", "key"]
    )

    assert {"value": ["\ufffd!", "é"], "key": ["k", None]} == rows.to_pydict()


def test_bytes_stay_bytes_where_they_are_asked_for() -> None:
    columns = Columns(is_key_text=False, is_value_text=False)

    rows = columns.of_records(records({"key": b"\xff", "value": b"\x00"}), ["key", "value"])

    assert {"key": [b"\xff"], "value": [b"\x00"]} == rows.to_pydict()


@pytest.mark.parametrize("milliseconds", [2**62, -(2**62), 253_402_300_800_000, -62_135_596_800_001])
def test_a_timestamp_that_is_no_date_is_null(milliseconds: int) -> None:
    """A producer may send any number, which must not end the query."""
    batch = records({"timestamp": 1500}, {"timestamp": pa.scalar(milliseconds, pa.timestamp("ms", "UTC"))})

    rows = Columns().of_records(batch, ["timestamp"])

    assert [1_500_000, None] == rows["timestamp"].cast(pa.int64()).to_pylist()


def test_a_value_that_is_not_of_the_format_names_its_record() -> None:
    columns = Columns(decoder=open_decoder(FormatSpec("json", "n bigint")))
    batch = records({"value": b'{"n": 1}'}, {"value": b"oops", "offset": 8}, {"value": None, "offset": 9})

    with pytest.raises(UndecodableValueError, match=r"the value at offset 8 of t-3: "):
        columns.of_records(batch, ["offset", "value"])
    assert [7, 8, 9] == columns.of_records(batch, ["offset"])["offset"].to_pylist()


def test_records_that_are_not_of_the_format_can_be_left_out() -> None:
    columns = Columns(decoder=open_decoder(FormatSpec("json", "n bigint")), skips_errors=True)
    batch = records({"value": b'{"n": 1}'}, {"value": b"oops", "offset": 8}, {"value": None, "offset": 9})

    rows = columns.of_records(batch, ["offset", "value"])

    assert {"offset": [7, 9], "value": [{"n": 1}, None]} == rows.to_pydict()
