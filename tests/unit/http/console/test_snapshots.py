"""What is known of the cluster: fresh, a little old, or read again, once for all who wait."""

import asyncio

import pytest

from kalda.clients.errors import RequestTimedOutError
from kalda.http.console.snapshots import ENTRIES_MAX, FRESH_READS, FRESH_SECONDS, STALE_SECONDS, Snapshots
from kalda.http.errors import HttpError


class Caller:
    """A caller whose login is valid or not."""

    def __init__(self, principal: str = "User:a", *, is_valid: bool = True) -> None:
        self.principal = principal
        self.is_valid = is_valid

    async def authenticate(self) -> None:
        if not self.is_valid:
            raise HttpError(401, "no")


class Thing:
    """Something that is read, and counts how often."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()

    async def read(self) -> int:
        self.count += 1
        self.begun.set()
        count = self.count
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return count


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def snapshots(clock: Clock) -> Snapshots:
    return Snapshots(clock)


async def get(snapshots: Snapshots, thing: Thing, caller: Caller | None = None) -> int:
    return await snapshots.get(caller or Caller(), "thing", thing.read)  # type: ignore[arg-type]  # a stand-in


async def test_all_who_ask_at_once_wait_for_one_read(snapshots: Snapshots) -> None:
    thing = Thing()

    assert [1] * 20 == await asyncio.gather(*(get(snapshots, thing) for _ in range(20)))
    assert 1 == thing.count


async def test_a_little_old_value_is_shown_while_a_slow_read_goes_on(
    snapshots: Snapshots, clock: Clock
) -> None:
    thing = Thing()
    await get(snapshots, thing)
    thing.gate = asyncio.Event()
    clock.now += FRESH_SECONDS

    assert 1 == await get(snapshots, thing)
    thing.gate.set()
    clock.now += FRESH_SECONDS
    thing.gate = None
    assert await get(snapshots, thing) >= 2


async def test_a_quick_read_is_waited_for(snapshots: Snapshots, clock: Clock) -> None:
    thing = Thing()
    await get(snapshots, thing)
    clock.now += FRESH_SECONDS

    assert 2 == await get(snapshots, thing)


async def test_an_old_value_is_not_shown(snapshots: Snapshots, clock: Clock) -> None:
    """An error is, then."""
    thing = Thing()
    await get(snapshots, thing)
    clock.now += STALE_SECONDS
    thing.error = RequestTimedOutError("gone")

    with pytest.raises(RequestTimedOutError):
        await get(snapshots, thing)
    thing.error = None
    assert 3 == await get(snapshots, thing)


async def test_a_failed_read_leaves_the_last_value_for_a_while(snapshots: Snapshots, clock: Clock) -> None:
    thing = Thing()
    await get(snapshots, thing)
    clock.now += FRESH_SECONDS
    thing.error = RequestTimedOutError("gone")

    assert 1 == await get(snapshots, thing)


async def test_each_caller_has_a_view_and_a_login_that_is_not_valid_has_none(snapshots: Snapshots) -> None:
    """The name of a user alone opens nothing."""
    thing = Thing()
    await get(snapshots, thing, Caller("User:a"))

    assert 2 == await get(snapshots, thing, Caller("User:b"))
    with pytest.raises(HttpError, match="no"):
        await get(snapshots, thing, Caller("User:a", is_valid=False))


async def test_a_read_that_began_before_a_change_is_not_shown_after_it(snapshots: Snapshots) -> None:
    """A second window that reads the page kept a topic in the list that this visitor had deleted."""
    thing, caller = Thing(), Caller()
    thing.gate = asyncio.Event()
    before = asyncio.create_task(get(snapshots, thing, caller))
    async with asyncio.timeout(60):
        await thing.begun.wait()
    snapshots.forget(caller)  # type: ignore[arg-type]  # a stand-in
    after = asyncio.create_task(get(snapshots, thing, caller))
    await asyncio.sleep(0)
    thing.gate.set()

    assert [1, 2] == [await before, await after]
    assert 2 == await get(snapshots, thing, caller)


async def test_after_a_change_everything_is_read_again(snapshots: Snapshots) -> None:
    thing, caller = Thing(), Caller()
    await get(snapshots, thing, caller)
    snapshots.forget(caller)  # type: ignore[arg-type]  # a stand-in

    assert 2 == await get(snapshots, thing, caller)


async def test_what_is_kept_is_bounded(snapshots: Snapshots) -> None:
    thing = Thing()
    for number in range(ENTRIES_MAX + 1):
        await get(snapshots, thing, Caller(f"User:{number}"))

    assert ENTRIES_MAX + 2 == await get(snapshots, thing, Caller("User:0"))


class SlowThing(Thing):
    """Takes longer than a value is fresh."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    async def read(self) -> int:
        self._clock.now += 2 * FRESH_SECONDS
        return await super().read()


async def test_what_takes_long_to_read_is_fresh_for_longer(snapshots: Snapshots, clock: Clock) -> None:
    """With 10,000 topics a value was old when it was there, and each page read it again."""
    thing = SlowThing(clock)

    first, again = await get(snapshots, thing), await get(snapshots, thing)
    clock.now += FRESH_READS * 2 * FRESH_SECONDS
    later = await get(snapshots, thing)

    assert [1, 1, 2] == [first, again, later]
