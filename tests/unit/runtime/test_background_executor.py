"""Work leaves the owner's thread and its outcome comes back to it."""

import asyncio
import errno
import logging
import threading

import pytest

from kalda.runtime.background import InlineExecutor
from kalda.runtime.system.background import EventLoopExecutor


async def test_work_runs_elsewhere_and_done_on_the_loop() -> None:
    executor = EventLoopExecutor(asyncio.get_running_loop(), threads_max=1)
    finished = asyncio.Event()
    threads: list[int] = []
    errors: list[BaseException | None] = []

    def done(error: BaseException | None) -> None:
        threads.append(threading.get_ident())
        errors.append(error)
        finished.set()

    executor.submit(lambda: threads.append(threading.get_ident()), done)
    await finished.wait()
    assert threads[0] != threads[1] == threading.get_ident()
    assert [None] == errors
    executor.close()


async def test_an_error_reaches_done() -> None:
    executor = EventLoopExecutor(asyncio.get_running_loop(), threads_max=1)
    outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def fail() -> None:
        raise OSError(5, "disk")

    executor.submit(fail, outcome.set_result)
    assert isinstance(await outcome, OSError)
    executor.close()


def test_an_error_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "disk")

    with caplog.at_level(logging.ERROR):
        InlineExecutor().submit(fail)
    assert "Input/output error" in caplog.text


async def test_calls_run_elsewhere_and_works_in_parallel_report_their_errors() -> None:
    own = threading.get_ident()
    executor = EventLoopExecutor(asyncio.get_running_loop(), threads_max=1)
    assert own != await executor.call(threading.get_ident)

    both = threading.Barrier(2)

    def meet() -> None:
        both.wait(30)

    def fail() -> None:
        raise OSError(5, "disk")

    first, second, third = executor.run_all([meet, meet, fail])
    assert first is None
    assert second is None
    assert isinstance(third, OSError)
    executor.close()


async def test_inline_work_stays_on_the_thread_and_starts_no_process() -> None:
    own = threading.get_ident()
    inline = InlineExecutor()
    assert own == await inline.call(threading.get_ident)
    assert not inline.has_processes

    def fail() -> None:
        raise OSError(5, "disk")

    done, failed = inline.run_all([lambda: None, fail])
    assert done is None
    assert isinstance(failed, OSError)
