"""The threads for what takes long."""

import asyncio
import threading

import pytest

from kalda.http.background import WAITING_MAX, Background
from kalda.http.errors import HttpError


async def test_results_and_errors_come_back() -> None:
    background = Background(2)

    assert [0, 1, 4] == await asyncio.gather(*(background.run(pow, each, 2) for each in range(3)))
    with pytest.raises(ZeroDivisionError):
        await background.run(divmod, 1, 0)
    background.close()


async def test_a_shutdown_does_not_wait_for_what_runs() -> None:
    """A shutdown waited for all of `http.drain.ms` while a schema of minutes was parsed."""
    background = Background(1)
    has_begun, may_end = threading.Event(), threading.Event()

    def long() -> None:
        has_begun.set()
        may_end.wait()

    running = asyncio.create_task(background.compute(long))
    waiting = asyncio.create_task(background.compute(pow, 2, 2))
    await asyncio.to_thread(has_begun.wait)
    background.stop(after_seconds=0)

    for each in (running, waiting):
        with pytest.raises(HttpError, match="shuts down") as refused:
            await each
        assert 503 == refused.value.status
    with pytest.raises(HttpError, match="shuts down"):
        await background.compute(pow, 2, 2)
    threads = [each for each in threading.enumerate() if each.name == "kalda-http-0"]
    assert [True] == [each.daemon for each in threads]
    may_end.set()
    background.close()


async def test_a_shutdown_lets_what_has_effects_end() -> None:
    """A retry of dead letters went on after its visitor had read that it failed."""
    background = Background(1)
    has_begun, may_end = threading.Event(), threading.Event()

    def retry() -> str:
        has_begun.set()
        may_end.wait()
        return "done"

    running = asyncio.create_task(background.run(retry))
    waiting = asyncio.create_task(background.run(pow, 2, 2))
    computing = asyncio.create_task(background.compute(pow, 2, 2))
    await asyncio.to_thread(has_begun.wait)
    background.stop(after_seconds=0)

    with pytest.raises(HttpError, match="shuts down"):
        await computing
    may_end.set()
    assert ("done", 4) == (await running, await waiting)
    background.close()
    with pytest.raises(HttpError, match="shuts down"):
        await background.run(pow, 2, 2)


async def test_a_call_that_is_cancelled_beside_a_shutdown_is_cancelled() -> None:
    background = Background(1)
    may_end = threading.Event()
    running = asyncio.create_task(background.run(may_end.wait))
    await asyncio.sleep(0)

    background.close()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    may_end.set()


async def test_too_many_calls_are_refused() -> None:
    background = Background(1)
    may_end = threading.Event()
    calls = [asyncio.create_task(background.run(may_end.wait)) for _ in range(WAITING_MAX + 1)]
    await asyncio.sleep(0)

    with pytest.raises(HttpError) as refused:
        await background.run(pow, 2, 2)
    assert 503 == refused.value.status
    may_end.set()
    assert [True] * len(calls) == await asyncio.gather(*calls)
    background.close()
