"""Records of the history that others wrote: they give what can be shown, or nothing."""

import json

import pytest

from kalda.cluster.history.changes import UNKNOWN, Change, SnapshotMark, decode_note, decode_record

KEY = b"/brokers/topics/orders"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"origin":"x"}',
        b'{"origin":["written"]}',
        b'{"time":1e999}',
    ],
)
def test_junk_is_no_record(value: bytes) -> None:
    assert decode_record(KEY, value) is None
    assert decode_record(b"", value) is None
    assert [] == decode_note("n", value, 1)


@pytest.mark.parametrize("number", [-5, 10**30, 1.5, "1", None, [1]])
def test_numbers_that_cannot_be_are_not_known(number: object) -> None:
    """A time may be shown, and a year has four digits."""
    value = {"origin": "written", "data": 1, "time": number, "version": number, "zxid": number}
    found = decode_record(KEY, json.dumps(value).encode())
    assert isinstance(found, Change)
    assert (UNKNOWN, UNKNOWN, UNKNOWN) == (found.time_ms, found.version, found.zxid)
    mark = decode_record(b"", json.dumps({"snapshot": "s", "time": number}).encode())
    assert SnapshotMark("s", False, UNKNOWN) == mark


def test_data_that_is_nested_deeply_is_not_read() -> None:
    """A client that may write to the topic must not break those who read it."""
    nested = "[" * 900 + "]" * 900
    found = decode_record(KEY, f'{{"origin":"written","time":1,"data":{nested}}}'.encode())
    assert isinstance(found, Change)
    assert "data that is nested too deeply" == found.value
