"""What `kalda pipeline dlq list` shows of dead letters."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kalda.cli import main
from kalda.pipelines.dlq import replay
from kalda.pipelines.dlq.letters import Letter
from kalda.pipelines.dlq.replay import OpenLetter

LETTER = Letter(
    pipeline="orders",
    topic="orders",
    partition=3,
    offset=70,
    stage="decode",
    error_class="MalformedValue",
    error_message="no JSON",
    schema_id=None,
    batch=1,
    time_ms=0,
    retries=0,
)
LETTERS = [
    OpenLetter(0, 0, LETTER, b"k1", b'{"id": 1, ' + 100 * b"x"),
    OpenLetter(0, 1, LETTER, b"\xff", None),
    OpenLetter(0, 2, None, None, b"line\nbreak"),
]


@pytest.fixture
def listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return what the command prints of the letters."""
    path = tmp_path / "shop.yml"
    path.write_text(
        f"name: shop\nstorage: {tmp_path}/s\n"
        "pipelines: [{name: orders, from: {topic: orders}, to: {table: lake.o, format: parquet}}]\n"
    )
    monkeypatch.setattr(replay, "open_letters", lambda *_: iter(LETTERS))

    def run(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["kalda", "pipeline", "dlq", "list", str(path), "orders", *options])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capsys.readouterr().out

    return run


def test_the_table_has_the_begin_of_keys_and_values(listed: Callable[..., str]) -> None:
    """The cause alone does not say what to correct; a value of a megabyte would hide the other letters."""
    lines = listed().splitlines()[-3:]
    first, second, third = [
        [cell.strip() for cell in line.split("  ") if cell.strip()][2:4] for line in lines
    ]

    assert ["k1", '{"id": 1, ' + 50 * "x" + "... (110 bytes)"] == first
    assert ["\N{REPLACEMENT CHARACTER}", "-"] == second
    assert ["-", "line\\nbreak"] == third


def test_the_json_has_them_whole(listed: Callable[..., str]) -> None:
    first, second, third = json.loads(listed("--json"))["letters"]

    assert ("k1", '{"id": 1, ' + 100 * "x") == (first["key"], first["value"])
    assert ("/w==", None) == (second["keyBase64"], second["value"])
    assert (None, "line\nbreak", 2) == (third["key"], third["value"], third["dlqOffset"])
