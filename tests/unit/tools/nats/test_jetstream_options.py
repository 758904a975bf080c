"""Values of the options for streams and consumers, and the configurations that they make."""

import json
from pathlib import Path

import click
import pytest

from kalda.command.errors import ToolUsageError
from kalda.tools.nats.consumer import _config as consumer_config
from kalda.tools.nats.jetstream_options import Duration, Name, limit_text, read_config, time_text
from kalda.tools.nats.stream import _config as stream_config

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", SECOND // 2),
        ("90s", 90 * SECOND),
        ("1h30m", 5_400 * SECOND),
        ("7d", 604_800 * SECOND),
        ("0s", 0),
    ],
)
def test_times_are_read(text: str, expected: int) -> None:
    assert expected == Duration().convert(text, None, None)


@pytest.mark.parametrize("text", ["", "5", "5x", "-5s", "5s ", "s", "1h-5m", "9999999999s"])
def test_another_time_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError):
        Duration().convert(text, None, None)


@pytest.mark.parametrize("text", ["", "a.b", "a b", "*", "a>", "a\tb", "a/b"])
def test_a_name_is_one_token(text: str) -> None:
    with pytest.raises(click.UsageError):
        Name().convert(text, None, None)
    assert "ORDERS" == Name().convert("ORDERS", None, None)


def test_times_and_limits_as_text() -> None:
    assert ["1h30m", "7d", "1s500ms", "0ms", "-", "-"] == [
        time_text(each) for each in (5_400 * SECOND, 604_800 * SECOND, 1_500_000_000, 1, 0, None)
    ]
    assert ["unlimited", "unlimited", "5"] == [limit_text(each) for each in (-1, 0, 5)]


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    path.write_text(json.dumps({"config": {"subjects": ["old"], "max_msgs": 5}, "state": {}}))
    options = {"subjects": ("orders.>, returns", "audit"), "config": path, "max_age": SECOND, "no_ack": None}
    expected = {"subjects": ["orders.>", "returns", "audit"], "max_msgs": 5, "max_age": SECOND}
    assert expected == stream_config(options)


@pytest.mark.parametrize("content", ["", "[]", "5", "{", "[" * 100_000])
def test_a_file_that_is_no_configuration_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    path.write_text(content)
    with pytest.raises(ToolUsageError):
        read_config(path)
    with pytest.raises(ToolUsageError):
        read_config(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("deliver", "expected"),
    [
        ("new", {"deliver_policy": "new"}),
        ("subject", {"deliver_policy": "last_per_subject"}),
        ("17", {"deliver_policy": "by_start_sequence", "opt_start_seq": 17}),
        (
            "2026-11-22T14:30:00+01:00",
            {"deliver_policy": "by_start_time", "opt_start_time": "2026-11-22T13:30:00Z"},
        ),
        (None, {"deliver_policy": "all"}),
    ],
)
def test_where_a_consumer_begins(deliver: str | None, expected: dict[str, object]) -> None:
    options = {"filters": ("orders.eu",), "deliver": deliver, "max_pending": 5}
    assert {
        "durable_name": "packing",
        "filter_subject": "orders.eu",
        "max_ack_pending": 5,
        "ack_policy": "explicit",
        "replay_policy": "instant",
        **expected,
    } == consumer_config("packing", options)


@pytest.mark.parametrize("deliver", ["", "0", "yesterday", "²"])
def test_another_beginning_is_refused(deliver: str) -> None:
    with pytest.raises(ToolUsageError):
        consumer_config("packing", {"filters": (), "deliver": deliver})


def test_several_filters_and_an_ephemeral_consumer() -> None:
    found = consumer_config("packing", {"filters": ("a", "b"), "ephemeral": True})
    assert (["a", "b"], "packing") == (found["filter_subjects"], found["name"])
    assert "durable_name" not in found
