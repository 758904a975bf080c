"""The limit of open files, and the logs' share of it."""

import logging
import resource

import pytest

from kalda.storage.descriptors import DESCRIPTORS_MAX, OPEN_FILES_MAX, open_files_max, raise_descriptor_limit

INFINITY = resource.RLIM_INFINITY


class Limits:
    """Stands for the process's limits, so that a test does not change those of its own process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, maximum: int = 2**40) -> None:
        self.now = (soft, hard)
        self.maximum = maximum
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.now)
        monkeypatch.setattr(resource, "setrlimit", self._set)

    def _set(self, _: int, limits: tuple[int, int]) -> None:
        if limits[0] > self.maximum:
            raise ValueError("not allowed to raise maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "limit"),
    [
        (1024, 4096, 4096),
        (256, 256, 256),
        (1024, INFINITY, DESCRIPTORS_MAX),
        (1024, 2**30, DESCRIPTORS_MAX),
        (2**24, 2**30, 2**24),
    ],
)
def test_the_soft_limit_follows_the_hard_one_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, limit: int
) -> None:
    limits = Limits(monkeypatch, soft, hard)
    assert limit == raise_descriptor_limit()
    assert (limit, hard) == limits.now


def test_a_process_without_a_limit_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(monkeypatch, INFINITY, INFINITY)
    assert DESCRIPTORS_MAX == raise_descriptor_limit()
    assert (INFINITY, INFINITY) == limits.now


def test_a_system_that_refuses_keeps_the_limit_there_was(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(monkeypatch, 256, INFINITY, maximum=10_240)
    assert 256 == raise_descriptor_limit()
    assert (256, INFINITY) == limits.now


@pytest.mark.parametrize(
    ("limit", "files"), [(1, 1), (256, 85), (1024, 341), (DESCRIPTORS_MAX, OPEN_FILES_MAX)]
)
def test_the_logs_take_a_third(limit: int, files: int) -> None:
    assert files == open_files_max(limit)


@pytest.mark.parametrize(("limit", "warnings"), [(256, 1), (1024, 0)])
def test_a_low_limit_is_told(caplog: pytest.LogCaptureFixture, limit: int, warnings: int) -> None:
    with caplog.at_level(logging.WARNING):
        open_files_max(limit)
    assert warnings == len(caplog.records)
