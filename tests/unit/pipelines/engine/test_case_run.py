"""Tests of pipelines run what a run would, without Spark and without a cluster."""

import re
from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.engine.case_run import CaseResult, run_case
from kalda.pipelines.spec.cases import parse_cases
from kalda.pipelines.spec.parser import parse_pipeline_file

AVRO = """{"type": "record", "name": "o", "fields": [{"name": "id", "type": "long"},
{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}"""


def result(directory: Path, pipeline: str, test: str) -> CaseResult:
    text = f"name: shop\nstorage: {directory}/state\npipelines:\n  - name: orders\n{pipeline}"
    file = parse_pipeline_file(text, str(directory / "p.yml"), directory=directory, variables={})
    (case,) = parse_cases(f"tests:\n  - name: a\n{test}", "p.test.yml", file)
    return run_case(case, file)


def test_records_pass_through_decoding_steps_and_expectations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "case_steps.py").write_text(
        "import pyarrow.compute as pc\n\n\n"
        "def positive(batch):\n    return batch.filter(pc.greater(batch['amount'], 0))\n"
    )
    found = result(
        tmp_path,
        """
    from:
      topic: [orders, more]
      value: {format: json, schema: "id bigint, amount double"}
      keep: [key, topic, partition, offset, timestamp, headers]
    transform: [{python: case_steps:positive}, "select *, amount * 2 as twice"]
    expect: {small: {check: amount < 100, on_fail: fail}}
    to: {table: lake.orders, format: parquet}
""",
        """
    records:
      - {value: {id: 1, amount: 1.5}, key: k, headers: {h: v}, timestamp: 2026-02-03T04:05:06Z}
      - {value: {id: 2, amount: -1}}
      - {value: {id: 3, amount: 500}}
      - {value: bad}
      - {value: {id: 5, amount: 2}, topic: more, partition: 3, offset: 8}
    rows:
      - {id: 1, twice: 3, key: k, topic: orders, partition: 0, offset: 0, timestamp: 2026-02-03T04:05:06Z,
         headers: [{key: h, value: v}]}
      - {id: 5, twice: 4, topic: more, partition: 3, offset: 8, timestamp: 2026-01-01}
    dead_letters:
      - {record: 3, stage: expect, message: small}
      - {record: 4, stage: decode, cause: MalformedValue}
    filtered: 1
""",
    )
    assert (None, ()) == (found.error, found.differences)
    assert [] == list(tmp_path.glob("state*"))


@pytest.mark.parametrize(
    ("value", "content", "row"),
    [
        (
            f"{{format: avro, schema: '{AVRO}'}}",
            "{id: 1, at: 2026-01-02T00:00:00Z}",
            "{id: 1, at: 2026-01-02}",
        ),
        ('{format: csv, schema: "a string, b int"}', "{a: x, b: 2}", "{a: x, b: 2}"),
        (
            "{format: protobuf, schema: 'syntax = \"proto3\"; message O { int64 id = 1; string a = 2; }'}",
            "{id: 1, a: x}",
            "{id: 1, a: x}",
        ),
        ("string", "text", "{value: text}"),
        ("json", "{a: {b: [1]}}", "{a: {b: [1]}}"),
    ],
    ids=["avro", "csv", "protobuf", "string", "json without a schema"],
)
def test_a_mapping_is_written_in_the_format_of_the_pipeline(
    value: str, content: str, row: str, tmp_path: Path
) -> None:
    pipeline = f"    from: {{topic: orders, value: {value}}}\n    to: {{table: t, format: parquet}}\n"
    found = result(tmp_path, pipeline, f"    records: [{{value: {content}}}]\n    rows: [{row}]\n")
    assert (None, ()) == (found.error, found.differences)


@pytest.mark.parametrize(
    ("pipeline", "content", "error"),
    [
        (
            f"value: {{format: avro, schema: '{AVRO}'}}",
            "{id: x}",
            r"^the value of record 1 cannot be written as avro: id is ",
        ),
        ("value: raw", "x", r"^orders cannot be tested, because Spark executes it: .* needs all rows"),
    ],
)
def test_what_cannot_be_tested_is_an_error(pipeline: str, content: str, error: str, tmp_path: Path) -> None:
    transform = "    transform: ['select count(*) as n from input']\n" if "raw" in pipeline else ""
    found = result(
        tmp_path,
        f"    from: {{topic: orders, {pipeline}}}\n{transform}    to: {{table: t, format: parquet}}\n",
        f"    records: [{{value: {content}}}]\n",
    )
    assert found.error is not None
    assert re.search(error, found.error), found.error
    assert not found.is_passed


def test_no_record_makes_no_row(tmp_path: Path) -> None:
    found = result(
        tmp_path,
        "    from: {topic: orders, value: json}\n    to: {table: t, format: parquet}\n",
        "    records: []\n",
    )
    assert found.is_passed
