"""`kalda pipeline init` writes a file that runs, and never over another one."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from kalda.cli import main
from kalda.pipelines.engine.planner import plans_of
from kalda.pipelines.spec.json_schema import FILE_NAME, TESTS_FILE_NAME, cases_json_schema, json_schema
from kalda.pipelines.spec.parser import read_pipeline_file


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Run `kalda pipeline` and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["kalda", "pipeline", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0


@pytest.mark.parametrize("target", ["delta", "iceberg", "parquet", "topic"])
def test_the_file_can_be_planned_for_every_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """`validate` makes the same plan, and asks the cluster."""
    path = tmp_path / "shop.yml"
    assert 0 == run(monkeypatch, "init", str(path), "--target", target)

    (plan,) = plans_of(read_pipeline_file(path, variables={}))
    assert (f"orders_{target}", True) == (plan.spec.name, plan.is_direct)
    first_line, *_ = path.read_text(encoding="utf-8").splitlines()
    assert f"# yaml-language-server: $schema={FILE_NAME}" == first_line
    assert json_schema() == json.loads((tmp_path / FILE_NAME).read_text(encoding="utf-8"))
    assert cases_json_schema() == json.loads((tmp_path / TESTS_FILE_NAME).read_text(encoding="utf-8"))


@pytest.mark.parametrize("target", ["delta", "iceberg", "parquet", "topic"])
def test_the_tests_of_the_file_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """They are the first thing that a new user runs, without a cluster."""
    path = tmp_path / "shop.yml"
    assert 0 == run(monkeypatch, "init", str(path), "--target", target)
    assert 0 == run(monkeypatch, "test", str(path))


def test_files_that_exist_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE_NAME).write_text("{}")
    assert 0 == run(monkeypatch, "init", "--target", "topic")
    written = (tmp_path / "pipeline.yml").read_text(encoding="utf-8")

    assert 1 == run(monkeypatch, "init")
    assert "pipeline.yml exists and stays as it is" in capsys.readouterr().err
    assert written == (tmp_path / "pipeline.yml").read_text(encoding="utf-8")
    assert "{}" == (tmp_path / FILE_NAME).read_text()
    assert 1 == run(monkeypatch, "init", "no/such/directory.yml")
    assert "no/such/directory.yml cannot be written: No such file or directory" in capsys.readouterr().err


def test_schema_prints_the_schema(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert 0 == run(monkeypatch, "schema")
    assert json_schema() == json.loads(capfdbinary.readouterr().out)
    assert 0 == run(monkeypatch, "schema", "--tests")
    assert cases_json_schema() == json.loads(capfdbinary.readouterr().out)
