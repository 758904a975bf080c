"""Reading the tests of pipelines."""

from pathlib import Path

import pytest

from kalda.pipelines.spec.cases import Case, CaseRecord, ExpectedLetter, cases_path, parse_cases
from kalda.pipelines.spec.errors import PipelineFileError
from kalda.pipelines.spec.model import PipelineFile
from kalda.pipelines.spec.parser import parse_pipeline_file

PIPELINES = """
name: shop
storage: state
pipelines:
  - {name: orders, from: {topic: [orders, more], value: json}, to: {topic: clean}}
"""
OTHER = "  - {name: others, from: {pattern: o.*}, to: {topic: other}}\n"


def file_of(text: str, directory: Path) -> PipelineFile:
    return parse_pipeline_file(text, str(directory / "p.yml"), directory=directory, variables={})


def read(tests: str, directory: Path, *, pipelines: str = PIPELINES) -> list[Case]:
    return parse_cases(f"tests:\n{tests}", "p.test.yml", file_of(pipelines, directory))


def test_what_is_not_said_follows_from_the_pipeline(tmp_path: Path) -> None:
    (case,) = read(
        "  - {name: a b, records: [{value: 1}, {topic: more, offset: 7}, {topic: more}]}", tmp_path
    )
    assert ("a b", "orders", (), (), (), None) == (
        case.name,
        case.spec.name,
        case.rows,
        case.columns,
        case.letters,
        case.filtered,
    )
    assert [("orders", 0, 0, b"1"), ("more", 0, 7, None), ("more", 0, 8, None)] == [
        (each.topic, each.partition, each.offset, each.value) for each in case.records
    ]


def test_contents_are_as_in_json(tmp_path: Path) -> None:
    """YAML alone would make a date of one text, and a truth value of another."""
    (case,) = read(
        """
  - name: a
    records:
      - value: {a: 1, b: -2.5e1, c: true, d: null, e: 2026-01-02, f: "1", g: [on, 0x1F, 1_0], h: {}, i: []}
        key: {k: 1}
        headers: {h: 5}
        timestamp: 2026-01-02T00:00:00+01:00
      - {value_base64: /w==, key_base64: "AAE=", timestamp: 7}
      - {value: "null", key: null}
    rows: [{a: 1.5}]
    columns: [a, b]
    dead_letters: [{record: 2}, {record: 3, stage: decode, cause: X, message: y}]
    filtered: 0
""",
        tmp_path,
    )
    first, second, third = case.records
    assert (
        CaseRecord(
            value={
                "a": 1,
                "b": -25.0,
                "c": True,
                "d": None,
                "e": "2026-01-02",
                "f": "1",
                "g": ["on", "0x1F", "1_0"],
                "h": {},
                "i": [],
            },
            key=b'{"k": 1}',
            headers=(("h", b"5"),),
            timestamp_ms=1_767_308_400_000,
            topic="orders",
            partition=0,
            offset=0,
        )
        == first
    )
    assert (b"\xff", b"\x00\x01", 7) == (second.value, second.key, second.timestamp_ms)
    assert (b"null", None) == (third.value, third.key)
    assert ({"a": 1.5},) == case.rows
    assert (ExpectedLetter(1, None, None, None), ExpectedLetter(2, "decode", "X", "y")) == case.letters
    assert (("a", "b"), 0) == (case.columns, case.filtered)


@pytest.mark.parametrize(
    ("tests", "pipelines", "faults"),
    [
        ("  - {name: a, recrods: []}", PIPELINES, ["unknown key recrods in a test", "a test has no records"]),
        ("  - {name: a, records: [{valeu: 1}]}", PIPELINES, ["Did you mean value?"]),
        ("  - {name: a, records: [{value: 1, value_base64: AA==}]}", PIPELINES, ["not both"]),
        ("  - {name: a, records: [{value_base64: A}]}", PIPELINES, ["it takes bytes in Base64"]),
        ("  - {name: a, records: [{offset: 1}, {offset: 1}]}", PIPELINES, ["orders-0 must rise: 1 is too"]),
        ("  - {name: a, records: [], rows: [5]}", PIPELINES, ["it takes a mapping of columns to values"]),
        ("  - {name: a, records: [], dead_letters: [{record: 1}]}", PIPELINES, ["the test has 0 records"]),
        ("  - {name: a, records: [{timestamp: noon}]}", PIPELINES, ["it takes a date and time such as"]),
        ("  - {name: a, records: []}", PIPELINES + OTHER, ["has orders, others"]),
        ("  - {name: a, pipeline: orderz, records: []}", PIPELINES, ["no pipeline orderz", "mean orders?"]),
        ("  - {name: a, pipeline: others, records: [{}]}", PIPELINES + OTHER, ["others selects topics by"]),
        ("  5", PIPELINES, ["a mapping with the keys name, pipeline, records"]),
    ],
)
def test_faults_have_their_place(tests: str, pipelines: str, faults: list[str], tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError) as caught:
        read(tests, tmp_path, pipelines=pipelines)
    found = str(caught.value)
    assert found.startswith("p.test.yml:2:")
    for each in faults:
        assert each in found


def test_tests_are_beside_the_pipelines() -> None:
    assert Path("a/orders.test.yml") == cases_path(Path("a/orders.yml"))
