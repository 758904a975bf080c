"""Lookups of schema ids: shared, bounded, and never the proof of more than they asked."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from kalda.broker.schemas.registry_lookups import (
    LookupFailedError,
    LookupLimits,
    ReadSchema,
    RegistryLookups,
)
from kalda.runtime.background import Background
from kalda.runtime.clock import ManualClock


class Registry:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.subjects: dict[int, frozenset[str]] = {}
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_asked = asyncio.Event()
        self.is_away = False

    async def call(self, read: Callable[[], Any]) -> Any:
        """Stand for the background that calls `read`."""
        self.is_asked.set()
        try:
            return read()
        finally:
            await self.answers.wait()

    def read(self, schema_id: int) -> ReadSchema:
        self.asked.append(schema_id)
        if self.is_away:
            raise LookupFailedError("http://registry.invalid could not be read")
        return ReadSchema(self.subjects.get(schema_id, frozenset()))


@asynccontextmanager
async def lookups_of(
    registry: Registry, clock: ManualClock, *, cache_size: int = 100, wait_max_seconds: float = 60.0
) -> AsyncIterator[RegistryLookups]:
    limits = LookupLimits(cache_size, 5.0, wait_max_seconds)
    lookups = RegistryLookups(registry.read, clock, cast(Background, registry), limits)
    task = asyncio.create_task(lookups.run())
    try:
        yield lookups
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def looked_up(lookups: RegistryLookups, *wanted: tuple[int, str]) -> None:
    done = asyncio.Event()
    lookups.wait(set(wanted), done.set)
    await done.wait()


async def test_an_id_is_looked_up_once_for_all_that_wait() -> None:
    registry = Registry()
    registry.subjects[7] = frozenset({"a"})
    registry.answers.clear()
    async with lookups_of(registry, ManualClock()) as lookups:
        waits = [asyncio.create_task(looked_up(lookups, (7, ""))) for _ in range(3)]
        await registry.is_asked.wait()
        registry.answers.set()
        await asyncio.gather(*waits)

        found = lookups.find(7)

    assert found is not None
    assert frozenset({"a"}) == found.subjects
    assert [7] == registry.asked


async def test_what_is_missing_is_believed_for_a_time() -> None:
    registry, clock = Registry(), ManualClock()
    async with lookups_of(registry, clock) as lookups:
        await looked_up(lookups, (7, ""))
        is_denied = lookups.is_denied((7, ""))
        clock.advance(6.0)

        assert is_denied
        assert not lookups.is_denied((7, ""))
        assert lookups.find(7) is None


async def test_a_subject_is_denied_only_by_a_lookup_made_for_it() -> None:
    """Another topic's lookup may be older than the registration under this topic's subject."""
    registry = Registry()
    registry.subjects[7] = frozenset({"a"})
    async with lookups_of(registry, ManualClock()) as lookups:
        await looked_up(lookups, (7, "a"))
        before = lookups.is_denied((7, "b"))
        await looked_up(lookups, (7, "b"))

        assert not before
        assert lookups.is_denied((7, "b"))
        assert not lookups.is_denied((7, "a"))


async def test_a_lookup_that_runs_already_denies_nothing_to_who_comes_later() -> None:
    registry = Registry()
    registry.answers.clear()
    async with lookups_of(registry, ManualClock()) as lookups:
        first = asyncio.create_task(looked_up(lookups, (7, "a")))
        await registry.is_asked.wait()
        second = asyncio.create_task(looked_up(lookups, (7, "b")))
        await asyncio.sleep(0)
        registry.answers.set()
        await asyncio.gather(first, second)

        assert lookups.is_denied((7, "a"))
        assert not lookups.is_denied((7, "b"))


async def test_a_registry_that_is_away_fails_what_waits_and_is_left_alone_for_a_second() -> None:
    registry, clock = Registry(), ManualClock()
    registry.is_away = True
    async with lookups_of(registry, clock) as lookups:
        await looked_up(lookups, (7, ""))
        problem = lookups.problem()
        await looked_up(lookups, (8, ""))
        asked = list(registry.asked)
        registry.is_away = False
        clock.advance(1.5)
        await looked_up(lookups, (8, ""))

        assert "http://registry.invalid could not be read" == problem
        assert [7] == asked
        assert lookups.problem() is None
        assert lookups.is_denied((8, ""))
        assert not lookups.is_denied((7, ""))


async def test_a_wait_ends_when_the_registry_stays_silent() -> None:
    registry = Registry()
    registry.answers.clear()
    async with lookups_of(registry, ManualClock(), wait_max_seconds=0.01) as lookups:
        await looked_up(lookups, (7, ""))

        assert "the schema registry has not answered for 0.01 s" == lookups.problem()
        registry.answers.set()


async def test_too_many_ids_fail_at_once() -> None:
    registry = Registry()
    registry.answers.clear()
    async with lookups_of(registry, ManualClock()) as lookups:
        for start in range(0, 1_024, 64):
            lookups.wait({(each, "") for each in range(start, start + 64)}, lambda: None)

        assert "1000 schema ids wait to be looked up" == lookups.problem()
        registry.answers.set()


async def test_the_oldest_schemas_are_dropped() -> None:
    registry = Registry()
    registry.subjects = {each: frozenset({"a"}) for each in range(3)}
    async with lookups_of(registry, ManualClock(), cache_size=2) as lookups:
        for each in range(3):
            await looked_up(lookups, (each, ""))

        assert [False, True, True] == [lookups.find(each) is not None for each in range(3)]
