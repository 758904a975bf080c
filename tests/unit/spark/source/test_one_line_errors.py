import os
from collections.abc import Iterator

import pytest

from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.one_line_errors import HIDE_TRACEBACK, one_line_rows


def rows(error: Exception) -> Iterator[int]:
    yield 1
    raise error


@pytest.fixture(autouse=True)
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    monkeypatch.setenv(HIDE_TRACEBACK, "")


def test_an_error_between_rows_of_a_task_has_no_traceback() -> None:
    """Lost records and bad values are found by tasks, whose rows are a generator."""
    reading = one_line_rows(rows(DataLossError("gone")))

    assert 1 == next(reading)
    with pytest.raises(DataLossError, match="gone"):
        next(reading)
    assert "1" == os.environ[HIDE_TRACEBACK]


def test_an_error_of_ours_keeps_its_traceback() -> None:
    """What no user can cure is a defect, whose place counts."""
    with pytest.raises(ZeroDivisionError):
        list(one_line_rows(rows(ZeroDivisionError())))
    assert not os.environ[HIDE_TRACEBACK]
