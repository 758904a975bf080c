"""How busy a thread is."""

from pathlib import Path

import pytest

from kalda.common import busy_time
from kalda.common.busy_time import IdleShare, busy_seconds


def test_share_is_that_of_the_last_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_time, "monotonic", lambda: 0.0)
    busy = 0.0
    share = IdleShare(lambda: busy)
    assert 1.0 == share.read(0.0)
    for now, seconds, expected in (
        (10.0, 0.0, 1.0),
        (20.0, 10.0, 0.5),
        (40.0, 30.0, 0.0),
        (50.0, 30.0, 10 / 30),
        (500.0, 30.0, 1.0),
    ):
        busy = seconds
        assert expected == pytest.approx(share.read(now)), now


def test_many_readings_keep_few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_time, "monotonic", lambda: 0.0)
    share = IdleShare(lambda: 0.0)
    for number in range(100_000):
        share.read(number / 100)
    assert len(share._marks) < 40


def test_work_makes_a_thread_busy() -> None:
    before = busy_seconds()
    while busy_seconds() == before:
        sum(range(1000))


def test_without_the_kernels_figure_processor_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is Linux' alone, and some kernels are built without it."""

    def missing(path: str, mode: str) -> Path:
        raise FileNotFoundError(path)

    monkeypatch.setattr("builtins.open", missing)
    monkeypatch.setattr(busy_time, "thread_time", lambda: 7.0)
    assert 7.0 == busy_seconds()
