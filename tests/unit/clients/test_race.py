import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kalda.clients.race import first_success
from tests.virtual_time import run_virtual

Attempt = Callable[[], Coroutine[Any, Any, str]]


class Attempts:
    def __init__(self) -> None:
        self.started: list[tuple[str, float]] = []
        self.cancelled: list[str] = []

    def attempt(self, name: str, seconds: float, failure: Exception | None = None) -> Attempt:
        return functools.partial(self._run, name, seconds, failure)

    async def _run(self, name: str, seconds: float, failure: Exception | None) -> str:
        self.started.append((name, round(asyncio.get_running_loop().time() - 1000, 6)))
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if failure is not None:
            raise failure
        return name


def run(*attempts: Attempt) -> str:
    async def main() -> str:
        return await first_success(attempts, next_after_seconds=0.5, passing=(ConnectionError,))

    return run_virtual(main())


def test_a_fast_answer_starts_no_second_attempt() -> None:
    attempts = Attempts()

    assert "a" == run(attempts.attempt("a", 0.4), attempts.attempt("b", 0))
    assert [("a", 0.0)] == attempts.started


def test_one_that_hangs_is_overtaken_and_cancelled() -> None:
    attempts = Attempts()

    assert "c" == run(attempts.attempt("a", 30), attempts.attempt("b", 30), attempts.attempt("c", 1))
    assert [("a", 0.0), ("b", 0.5), ("c", 1.0)] == attempts.started
    assert ["a", "b"] == sorted(attempts.cancelled)


def test_a_slow_first_one_may_still_win() -> None:
    attempts = Attempts()

    assert "a" == run(attempts.attempt("a", 0.7), attempts.attempt("b", 30))


def test_the_next_attempt_follows_a_failure_at_once() -> None:
    attempts = Attempts()
    refused = ConnectionError("refused")

    assert "c" == run(
        attempts.attempt("a", 0.1, refused), attempts.attempt("b", 0.1, refused), attempts.attempt("c", 0)
    )
    assert [("a", 0.0), ("b", 0.1), ("c", 0.2)] == attempts.started


def test_the_last_failure_is_raised_when_all_failed() -> None:
    attempts = Attempts()

    with pytest.raises(ConnectionError, match="second"):
        run(
            attempts.attempt("a", 0.1, ConnectionError("first")),
            attempts.attempt("b", 0.1, ConnectionError("second")),
        )


def test_a_success_counts_beside_a_failure_of_the_same_moment() -> None:
    attempts = Attempts()

    assert "b" == run(attempts.attempt("a", 1.0, ConnectionError("slow")), attempts.attempt("b", 0.5))


def test_a_failure_of_another_kind_ends_all() -> None:
    attempts = Attempts()

    with pytest.raises(ValueError, match="for good"):
        run(
            attempts.attempt("a", 30),
            attempts.attempt("b", 0, ValueError("for good")),
            attempts.attempt("c", 0),
        )
    assert ["a"] == attempts.cancelled


def test_a_cancelled_caller_leaves_no_attempt() -> None:
    attempts = Attempts()

    async def main() -> None:
        task = asyncio.create_task(
            first_success(
                [attempts.attempt("a", 30), attempts.attempt("b", 30)],
                next_after_seconds=0.5,
                passing=(ConnectionError,),
            )
        )
        await asyncio.sleep(0.7)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())
    assert ["a", "b"] == sorted(attempts.cancelled)
