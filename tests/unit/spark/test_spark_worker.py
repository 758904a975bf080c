"""The pool of log readers of a Spark worker process; no reader connects here, because none is called."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.spark import worker
from kalda.spark.worker import READERS_MAX, close_readers, pooled_reader, prepare_planner, prepare_worker


def _config(port: int) -> LogReaderConfig:
    return LogReaderConfig.from_properties({"bootstrap.servers": f"127.0.0.1:{port}"})


@pytest.fixture(autouse=True)
def _empty_pool() -> Iterator[None]:
    close_readers()
    yield
    close_readers()


def test_a_reader_is_lent_again_to_the_next_task_with_equal_settings() -> None:
    """Each task unpickles its own options, so that settings are compared by value."""
    with pooled_reader(_config(1)) as first:
        pass
    with pooled_reader(_config(1)) as second:
        assert first is second


def test_holders_share_a_reader() -> None:
    """A worker has one connection for each broker, whatever number of threads reads."""
    with pooled_reader(_config(1)) as first, pooled_reader(_config(1)) as second:
        assert first is second


def test_other_settings_have_another_reader() -> None:
    """A reader sees one isolation level and one cluster."""
    with pooled_reader(_config(1)) as first, pooled_reader(_config(2)) as second:
        assert first is not second


def test_the_readers_not_used_for_longest_are_closed_beyond_the_limit() -> None:
    """A process that visits many clusters keeps few threads."""
    with pooled_reader(_config(1)) as oldest:
        pass
    for port in range(2, READERS_MAX + 2):
        with pooled_reader(_config(port)):
            pass
    with pooled_reader(_config(1)) as again:
        assert oldest is not again


def test_a_held_reader_is_never_closed() -> None:
    """A task that lends a reader goes on with it while others come and go."""
    with pooled_reader(_config(1)) as held:
        for port in range(2, READERS_MAX + 4):
            with pooled_reader(_config(port)):
                pass
        with pooled_reader(_config(1)) as again:
            assert held is again


def test_a_fork_starts_with_an_empty_pool() -> None:
    """The threads of a reader exist in the parent only."""
    with pooled_reader(_config(1)) as reader:
        pid = os.fork()
        if not pid:
            with pooled_reader(_config(1)) as child_reader:
                os._exit(0 if child_reader is not reader else 1)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_worker_freezes_its_heap_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second freeze would keep the garbage of the first task for ever."""
    freezes: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: freezes.append(os.getpid()))
    monkeypatch.setattr(worker, "_frozen_in", [])
    prepare_worker()
    prepare_worker()
    assert [os.getpid()] == freezes


@pytest.mark.parametrize(
    ("module", "is_frozen"),
    [("pyspark.daemon", True), ("pyspark.sql.streaming.python_streaming_source_runner", False)],
)
def test_a_planner_freezes_its_heap_where_the_daemon_collects_garbage(
    monkeypatch: pytest.MonkeyPatch, module: str, is_frozen: bool
) -> None:
    """The source of a stream plans too, and a collection there would delay the start of the query."""
    freezes: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: freezes.append(os.getpid()))
    monkeypatch.setattr(worker, "_frozen_in", [])
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-m", module, "pyspark.sql.worker.plan"])
    prepare_planner()
    assert is_frozen == bool(freezes)
