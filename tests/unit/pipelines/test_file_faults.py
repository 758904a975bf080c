"""The faults of a pipeline file, as its commands print them."""

import io
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from kalda.cli import main
from kalda.command.command import Tool
from kalda.command.output import Form, Output
from kalda.pipelines.spec.errors import Fault, PipelineFileError
from kalda.pipelines.spec.model import Place
from kalda.tools.pipeline.arguments import file_error


def test_json_has_the_faults_of_a_file() -> None:
    """An editor or a program shows each at its place, without parsing lines for people."""
    stdout, stderr = io.StringIO(), io.StringIO()
    faults = [Fault(Place("p.yml", line, 3), f"fault {line}") for line in (1, 2)]
    error = file_error(Tool(Output(Form.JSON, stdout, stderr), {}), PipelineFileError(faults))

    assert {
        "faults": [
            {"file": "p.yml", "line": line, "column": 3, "message": f"fault {line}"} for line in (1, 2)
        ]
    } == json.loads(stdout.getvalue())
    assert ("kalda: p.yml:1:3: fault 1\n", "p.yml:2:3: fault 2") == (stderr.getvalue(), str(error))


def test_faults_of_structure_do_not_hide_those_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One look at the file mends all of it."""
    path = tmp_path / "p.yml"
    path.write_text("""
name: shop
storage: state
pipelines:
  - name: a
    from: {topik: orders}
    transform: ["select 1 fro input where", {python: no_such_module:f}, "", {python: nothing}]
    to: {table: lake.orders, mode: upsert, deletes: ""}
    expect: {x: {check: "amount >"}, y: {check: ""}}
  - name: b
    from: {topic: orders, value: {format: jsn}}
    to: {table: lake.orders}
  - name: c
    from: {topic: orders, value: {format: json, schema: "a dubble"}}
    to: {table: lake.orders}
  - name: d
    from: {topic: orders, value: {format: avro, schema_file: missing.avsc}}
    to: {table: lake.orders}
""")
    monkeypatch.setattr(sys, "argv", ["kalda", "pipeline", "validate", str(path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert 2 == end.value.code
    found = capsys.readouterr().err
    for each in (
        ":6:11: from takes one of topic",
        "unknown key topik in from with a topic",
        ":7:17: 'select 1 fro input where' is not SQL: ",
        ": the function no_such_module:f cannot be imported",
        ": transform[2]: it is empty",
        ": 'amount >' is not SQL: an operand is missing near '>'",
        ": 'jsn' is not a format (did you mean 'json'?)",
        ": 'dubble' is not a type (did you mean 'double'?)",
    ):
        assert each in found
    assert "'' is not" not in found
    assert "missing.avsc cannot be read" in found
    assert "needs a schema" not in found, "the file would have it"
