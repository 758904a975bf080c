"""How `kalda pipeline test` reports."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("sqlglot")

from kalda.cli import main

FILE = """
name: shop
storage: state
pipelines:
  - name: orders
    from: {topic: orders, value: {format: json, schema: "id int"}}
    to: {topic: clean, value: json}
  - {name: sums, from: {topic: orders}, transform: select count(*) as key from input, to: {topic: sums}}
"""
TESTS = """
tests:
  - {name: good, pipeline: orders, records: [{value: {id: 1}}], rows: [{id: 1}]}
  - {name: "bad \\a <&", pipeline: orders, records: [{value: {id: 1}}], rows: [{id: 2}]}
  - {name: left to Spark, pipeline: sums, records: []}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yml"
    path.write_text(FILE)
    (tmp_path / "shop.test.yml").write_text(TESTS)
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["kalda", "pipeline", "test", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0


def test_each_test_has_a_line_and_failures_their_differences(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == run(monkeypatch, file)
    out, err = capsys.readouterr()
    tests = file.with_name("shop.test.yml")
    assert [
        "passed  orders: good",
        f"FAILED  orders: bad \\x07 <& ({tests}:4:5)",
        "    row 1: id: expected 2, got 1",
        f"FAILED  sums: left to Spark ({tests}:5:5)",
    ] == out.splitlines()[:4]
    assert "    sums cannot be tested, because Spark executes it: " in out
    assert "kalda: tests failed: 2 of 3\n" == err


def test_junit_has_a_suite_for_each_pipeline(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI servers read it; text of the user must not break the XML."""
    report = tmp_path / "report.xml"
    assert 1 == run(monkeypatch, file, "--junit", report)
    suites = ElementTree.parse(report).getroot()
    assert [("orders", "2", "1", "0"), ("sums", "1", "0", "1")] == [
        tuple(each.get(name) for name in ("name", "tests", "failures", "errors")) for each in suites
    ]
    good, bad = suites[0]
    assert ("orders", "good", 0) == (good.get("classname"), good.get("name"), len(good))
    assert ("bad \N{REPLACEMENT CHARACTER} <&", "4") == (bad.get("name"), bad.get("line"))
    assert "row 1: id: expected 2, got 1" == bad[0].text
    assert "error" == suites[1][0][0].tag


def test_json_has_the_results(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == run(monkeypatch, file, "orders", "--json")
    found = json.loads(capsys.readouterr().out)["tests"]
    assert [("good", True, []), ("bad \a <&", False, ["row 1: id: expected 2, got 1"])] == [
        (each["name"], each["passed"], each["differences"]) for each in found
    ]


def test_tests_may_be_elsewhere(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yml"
    other.write_text("tests: [{name: good, pipeline: orders, records: []}]")
    assert 0 == run(monkeypatch, file, "--tests", other)
    assert ("passed  orders: good\n", "1 test passed\n") == capsys.readouterr()


@pytest.mark.parametrize(
    ("tests", "error"),
    [
        (None, "shop.test.yml does not exist; write tests there, or name their file with --tests"),
        ("tests: [{name: a}]", "shop.test.yml:1:9: a test needs a pipeline"),
        ("tests: [{name: a, pipeline: orders, records: []}]", "shop.test.yml has no test of sums"),
        (b"\xff", "is not text in UTF-8"),
    ],
)
def test_a_wrong_file_is_a_wrong_command(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tests: str | bytes | None,
    error: str,
) -> None:
    path = file.with_name("shop.test.yml")
    path.unlink()
    if tests is not None:
        path.write_bytes(tests if isinstance(tests, bytes) else tests.encode())
    assert 2 == run(monkeypatch, file, "sums")
    assert error in capsys.readouterr().err
