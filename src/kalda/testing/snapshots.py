"""Compares the records of a topic with a golden file of JSON, which a test run can rewrite."""

import base64
import difflib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from kalda.testing.record_matching import ANYTHING, Record, json_of, text_of

UPDATE_OPTION: Final = "--kafka-update"
_DIFF_LINES_MAX: Final = 60


def snapshot_text(records: Sequence[Record], without: Collection[str]) -> str:
    """Return records as a golden file has them, a JSON list.

    Keys, values and headers are JSON objects and lists where they are that, else text, else base64. Offsets
    and timestamps are left out: a transaction's markers and the time of the run change them.

    Args:
        records: The records, in the order of the file.
        without: Names of fields that are left out of JSON objects at every depth, such as ids.
    """
    entries = []
    for record in records:
        entry: dict[str, object] = {"partition": record.partition}
        if record.key is not None:
            entry["key"] = _readable(record.key, without)
        entry["value"] = None if record.value is None else _readable(record.value, without)
        if record.headers:
            entry["headers"] = [
                [name, None if value is None else _readable(value, without)] for name, value in record.headers
            ]
        entries.append(entry)
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def check_snapshot(file: Path, text: str, *, is_update: bool) -> None:
    """Compare a topic's records with a golden file, or write the file.

    Raises:
        AssertionError: they differ, or the file does not exist; the message has the difference.
        OSError: the file cannot be read or written.
    """
    __tracebackhide__ = True
    expected = file.read_text(encoding="utf-8") if file.exists() else None
    if expected == text:
        return
    if is_update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    if expected is None:
        raise AssertionError(
            f"there is no snapshot {file}; run pytest with {UPDATE_OPTION} to write it, and look at it"
        )
    difference = list(
        difflib.unified_diff(expected.splitlines(), text.splitlines(), "snapshot", "topic", lineterm="", n=2)
    )
    more = len(difference) - _DIFF_LINES_MAX
    shown = difference[:_DIFF_LINES_MAX] + ([f"and {more} more lines"] if more > 0 else [])
    raise AssertionError(
        "\n".join([f"the records differ from {file} ({UPDATE_OPTION} rewrites it):", *shown])
    )


def _readable(data: bytes, without: Collection[str]) -> object:
    value = json_of(data)
    if value is not ANYTHING and isinstance(value, dict | list):
        return _pruned(value, without)
    text = text_of(data)
    return {"base64": base64.b64encode(data).decode()} if text is None else text


def _pruned(value: object, without: Collection[str]) -> object:
    if isinstance(value, dict):
        return {name: _pruned(each, without) for name, each in value.items() if name not in without}
    if isinstance(value, list):
        return [_pruned(each, without) for each in value]
    return value
