"""Requests that are tried again: until they succeed, for a few seconds, and not too many."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

from kalda.broker.nats.jetstream.attempts import BYTES_MAX, COUNT_MAX, Attempts
from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts
from tests.virtual_time import run_virtual


class Site:
    """Attempts whose tasks run on the loop."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.attempts = Attempts(cast("JetStreamParts", SimpleNamespace(run=self._run)))
        self.outcomes: list[str] = []

    def _run(self, _: str, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def add(self, name: str, *, size: int = 1, fails: int = 10**9) -> None:
        left = [fails]

        def attempt() -> bool:
            left[0] -= 1
            if left[0] < 0:
                self.outcomes.append(f"{name} done")
            return left[0] < 0

        self.attempts.add(size, attempt, lambda: self.outcomes.append(f"{name} failed"))

    async def end(self) -> list[str]:
        await asyncio.gather(*self.tasks)
        return self.outcomes


def test_attempts_end_with_success_or_with_the_time() -> None:
    async def scenario() -> None:
        site = Site()
        site.add("never")
        site.add("soon", fails=3)
        begin = asyncio.get_running_loop().time()
        assert ["soon done", "never failed"] == await site.end()
        # Clients wait for 5 s.
        assert asyncio.get_running_loop().time() - begin < 4.5

    run_virtual(scenario())


def test_too_many_and_too_large_ones_fail_at_once_and_make_room_at_their_end() -> None:
    async def scenario() -> None:
        site = Site()
        site.add("large", size=BYTES_MAX, fails=0)
        site.add("more")
        assert ["more failed"] == site.outcomes
        assert ["more failed", "large done"] == await site.end()
        for _ in range(COUNT_MAX):
            site.add("waits")
        site.add("beyond")
        assert "beyond failed" == site.outcomes[-1]
        site.attempts.close()
        assert COUNT_MAX == (await site.end()).count("waits failed")
        assert len(site.outcomes) == COUNT_MAX + 3

    run_virtual(scenario())
