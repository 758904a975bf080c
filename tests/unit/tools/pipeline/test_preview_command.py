"""How `kalda pipeline preview` shows what pipelines make of records."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from kalda.cli import main
from kalda.common.types import TopicPartition
from kalda.pipelines.engine import preview as engine
from kalda.pipelines.engine.trial import DeadRecord, Trial, TrialError
from kalda.pipelines.spec.model import PipelineSpec

FILE = """
name: shop
storage: state
clusters: {{west: {{bootstrap.servers: "h:1"}}}}
pipelines:
  - {{name: orders, from: {{topic: orders}}, to: {{topic: clean}}}}
  - {{name: broken, from: {{topic: absent}}, to: {{topic: other}}}}
  - {{name: copy, mirror: {{source: main, target: west, topics: ".*"}}}}
"""
FOUND = Trial(
    pipeline="orders",
    records=3,
    filtered=1,
    columns=("id", "at", "price", "raw", "tags", "nothing"),
    rows=[
        {
            "id": 1,
            "at": datetime(2026, 1, 2, tzinfo=UTC),
            "price": Decimal("1.50"),
            "raw": b"\xff",
            "tags": ["a", {"b": 80 * "c"}],
            "nothing": None,
        }
    ],
    dead=[DeadRecord(TopicPartition("orders", 2), 70, None, b"bad", "decode", "MalformedValue", "no JSON")],
    note="a note",
)


@pytest.fixture
def previewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str, str]]:
    """Return the exit code and what the command prints to stdout and stderr."""
    path = tmp_path / "shop.yml"
    path.write_text(FILE.format())

    def found(spec: PipelineSpec, _file: object, count: int) -> Trial:
        assert 7 == count
        if spec.name == "broken":
            raise TrialError("broken: topic absent does not exist")
        return FOUND

    monkeypatch.setattr(engine, "preview_pipeline", found)

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["kalda", "pipeline", "preview", str(path), *arguments, "--from", "7"]
        )
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return run


def test_tables_have_the_rows_and_dead_letters(previewed: Callable[..., tuple[object, str, str]]) -> None:
    code, out, _ = previewed("orders")
    assert 0 == code
    lines = out.splitlines()
    assert [
        "orders: 1 row of the newest 3 records, 1 filtered, 1 dead letter",
        "orders: a note",
        "Rows:",
    ] == lines[:3]
    tags = '["a", {"b": "' + 47 * "c" + "..."
    row = f"1  2026-01-02T00:00:00+00:00  1.50   \N{REPLACEMENT CHARACTER}    {tags}  -"
    assert row == lines[4].strip()
    assert "orders-2       70  -    bad    decode  MalformedValue  no JSON" == lines[-1].strip()


def test_json_has_values_whole(previewed: Callable[..., tuple[object, str, str]]) -> None:
    code, out, _ = previewed("orders", "--json")
    assert 0 == code
    (found,) = json.loads(out)["previews"]
    assert [
        {
            "id": 1,
            "at": "2026-01-02T00:00:00+00:00",
            "price": "1.50",
            "raw": "/w==",
            "tags": ["a", {"b": 80 * "c"}],
            "nothing": None,
        }
    ] == found["rows"]
    assert [("orders", 2, 70, None, "bad")] == [
        tuple(each[name] for name in ("topic", "partition", "offset", "key", "value"))
        for each in found["deadLetters"]
    ]


def test_a_pipeline_that_cannot_be_shown_does_not_hide_the_others(
    previewed: Callable[..., tuple[object, str, str]],
) -> None:
    code, out, err = previewed()
    assert (1, True) == (code, out.startswith("orders: 1 row"))
    assert "kalda: broken: topic absent does not exist" in err


def test_a_pipeline_without_topics_is_refused(previewed: Callable[..., tuple[object, str, str]]) -> None:
    code, _, err = previewed("copy")
    assert 2 == code
    assert "preview shows pipelines that read topics" in err
