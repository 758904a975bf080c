"""Golden files of topics."""

from pathlib import Path

import pytest

from kalda.testing.record_matching import Record
from kalda.testing.snapshots import check_snapshot, snapshot_text
from tests.unit.testing.test_record_matching import record

SNAPSHOT = """[
  {
    "partition": 0,
    "key": "alice",
    "value": {
      "lines": [
        {
          "n": 1
        }
      ]
    },
    "headers": [
      [
        "trace",
        "1"
      ]
    ]
  },
  {
    "partition": 1,
    "key": {
      "base64": "/w=="
    },
    "value": null
  }
]
"""


def records() -> list[Record]:
    return [
        record(b'{"id": 7, "lines": [{"id": 8, "n": 1}]}', b"alice", (("trace", b"1"),), offset=3),
        record(None, b"\xff", partition=1),
    ]


def test_a_file_shows_json_text_and_binary_data_and_no_offsets() -> None:
    """A reader of a diff sees what changed; offsets and times change with every run."""
    assert SNAPSHOT == snapshot_text(records(), ["id"])


def test_a_missing_file_is_an_error_that_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"there is no snapshot .*--kafka-update"):
        check_snapshot(tmp_path / "a.json", "[]\n", is_update=False)


def test_an_update_writes_the_file_and_its_directory(tmp_path: Path) -> None:
    file = tmp_path / "module/a.json"
    check_snapshot(file, "[]\n", is_update=True)
    check_snapshot(file, "[]\n", is_update=False)

    assert "[]\n" == file.read_text()


def test_a_difference_is_shown_as_a_diff_of_bounded_length(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("".join(f"{number}\n" for number in range(1000)))

    with pytest.raises(AssertionError) as raised:
        check_snapshot(file, "".join(f"{number}\n" for number in range(1, 2000)), is_update=False)

    text = str(raised.value)
    assert "\n-0\n" in text
    assert "\n+1000\n" in text
    assert "more lines" in text
    assert len(text.splitlines()) < 70
