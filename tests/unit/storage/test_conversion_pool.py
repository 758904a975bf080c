"""Conversions take turns between connections, end early, and share memory."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from kalda.records.compression import Checkpoint
from kalda.storage.conversions import (
    PIECES_MAX,
    QUEUED_BYTES_MAX,
    SMALL_BYTES,
    ConversionAbandonedError,
    ConversionPool,
)


class Owner:
    def __init__(self) -> None:
        self.is_closed = False


class Outcomes:
    """The errors that conversions ended with, in order."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []
        self._changed = asyncio.Event()

    def done(self, error: BaseException | None) -> None:
        self.errors.append(error)
        self._changed.set()

    async def wait(self, count: int) -> None:
        while len(self.errors) < count:
            self._changed.clear()
            await self._changed.wait()


@pytest.fixture
async def pool() -> AsyncIterator[ConversionPool]:
    pool = ConversionPool()
    yield pool
    pool.close()
    await asyncio.to_thread(pool.join)


class Blockers:
    """Work that occupies all threads until it is released."""

    def __init__(self, pool: ConversionPool, outcomes: Outcomes) -> None:
        self._release = threading.Event()
        started = threading.Semaphore(0)

        def work(checkpoint: Checkpoint) -> None:
            started.release()
            self._release.wait()

        for _ in range(2):
            pool.submit(Owner(), 0, work, outcomes.done)
        for _ in range(2):
            started.acquire()

    def release(self) -> None:
        self._release.set()


async def test_owners_take_turns(pool: ConversionPool) -> None:
    outcomes, order = Outcomes(), list[str]()
    blockers = Blockers(pool, outcomes)
    busy, other = Owner(), Owner()
    for index in range(20):
        pool.submit(busy, 0, lambda _, index=index: order.append(f"busy {index}"), outcomes.done)  # type: ignore[misc]
    pool.submit(other, 0, lambda _: order.append("other"), outcomes.done)
    blockers.release()
    await outcomes.wait(23)
    # Two threads may note what they do in either order.
    assert order.index("other") <= 3
    assert [None] * 23 == outcomes.errors


async def test_work_of_a_closed_connection_ends(pool: ConversionPool) -> None:
    """What runs ends at its next checkpoint, what waits does not begin."""
    outcomes, owner = Outcomes(), Owner()
    started, checked = threading.Event(), threading.Event()
    begun: list[int] = []

    def work(checkpoint: Checkpoint) -> None:
        started.set()
        checked.wait()
        checkpoint(0)
        begun.append(1)

    pool.submit(owner, 0, work, outcomes.done)
    await asyncio.to_thread(started.wait)
    owner.is_closed = True
    pool.submit(owner, 0, lambda _: begun.append(2), outcomes.done)
    checked.set()
    await outcomes.wait(2)
    assert [] == begun
    assert all(isinstance(error, ConversionAbandonedError) for error in outcomes.errors)


async def test_close_ends_all_work(pool: ConversionPool) -> None:
    outcomes = Outcomes()
    started = threading.Semaphore(0)

    def work(checkpoint: Checkpoint) -> None:
        started.release()
        while True:
            checkpoint(0)

    for _ in range(5):
        pool.submit(Owner(), 0, work, outcomes.done)
    await asyncio.to_thread(started.acquire)
    pool.close()
    pool.submit(Owner(), 0, work, outcomes.done)
    await asyncio.to_thread(pool.join)
    await outcomes.wait(6)
    assert all(isinstance(error, ConversionAbandonedError) for error in outcomes.errors)


async def test_a_short_job_passes_long_ones(pool: ConversionPool) -> None:
    """Else the small batch of a client would wait for the large ones of others to be opened."""
    outcomes, order = Outcomes(), list[str]()
    is_short_done = threading.Event()
    pieces = [0] * 5

    def long(index: int, checkpoint: Checkpoint) -> None:
        for _ in range(3_000 * PIECES_MAX):
            if is_short_done.is_set():
                break
            pieces[index] += 1
            checkpoint(0)
        order.append("long")

    def short(_: Checkpoint) -> None:
        is_short_done.set()
        order.append("short")

    for index in range(5):
        pool.submit(Owner(), 0, partial(long, index), outcomes.done)
    pool.submit(Owner(), 0, short, outcomes.done)
    await outcomes.wait(6)
    assert "short" == order[0]
    # One of them is in work, and the others have been put off once at most.
    assert max(sorted(pieces)[:-1]) <= PIECES_MAX + 2
    assert [None] * 6 == outcomes.errors


async def test_what_waits_behind_a_job_that_is_put_off_waits_with_it(pool: ConversionPool) -> None:
    """A request of many batches does not take the thread of short jobs once for each."""
    outcomes, begun = Outcomes(), list[int]()
    is_long, release = threading.Event(), threading.Event()

    def first(checkpoint: Checkpoint) -> None:
        checkpoint(SMALL_BYTES + 1)
        is_long.set()
        release.wait()

    def large(index: int, checkpoint: Checkpoint) -> None:
        begun.append(index)
        checkpoint(SMALL_BYTES + 1)

    pool.submit(Owner(), 0, first, outcomes.done)
    await asyncio.to_thread(is_long.wait)
    owner = Owner()
    for index in range(3):
        pool.submit(owner, 0, partial(large, index), outcomes.done)
    pool.submit(Owner(), 0, lambda _: begun.append(9), outcomes.done)
    await outcomes.wait(1)
    assert [0, 9] == begun
    release.set()
    await outcomes.wait(5)
    assert [0, 9, 0, 1, 2] == begun
    assert [None] * 5 == outcomes.errors


async def test_a_job_that_is_put_off_ends_with_its_connection(pool: ConversionPool) -> None:
    outcomes, owner = Outcomes(), Owner()
    is_long, release = threading.Event(), threading.Event()

    def first(checkpoint: Checkpoint) -> None:
        checkpoint(SMALL_BYTES + 1)
        is_long.set()
        release.wait()

    pool.submit(Owner(), 0, first, outcomes.done)
    await asyncio.to_thread(is_long.wait)
    pool.submit(owner, 0, lambda checkpoint: checkpoint(SMALL_BYTES + 1), outcomes.done)
    pool.submit(Owner(), 0, lambda _: None, outcomes.done)
    await outcomes.wait(1)
    owner.is_closed = True
    release.set()
    await outcomes.wait(3)
    assert [ConversionAbandonedError] == [type(error) for error in outcomes.errors if error is not None]


async def test_an_owner_of_long_work_waits_with_long_work(pool: ConversionPool) -> None:
    """Else each batch of a client that sends nothing but bombs takes the thread of short jobs at first."""
    outcomes, begun = Outcomes(), list[str]()
    owner = Owner()

    def long(checkpoint: Checkpoint) -> None:
        for _ in range(PIECES_MAX + 1):
            checkpoint(0)

    pool.submit(owner, 0, long, outcomes.done)
    await outcomes.wait(1)
    for expected in (["other"], ["next", "other"]):
        is_long, release = threading.Event(), threading.Event()

        def other(checkpoint: Checkpoint, is_long: threading.Event, release: threading.Event) -> None:
            checkpoint(SMALL_BYTES + 1)
            is_long.set()
            release.wait()

        begun.clear()
        count = len(outcomes.errors)
        pool.submit(Owner(), 0, partial(other, is_long=is_long, release=release), outcomes.done)
        await asyncio.to_thread(is_long.wait)
        pool.submit(owner, 0, lambda _: begun.append("next"), outcomes.done)
        pool.submit(Owner(), 0, lambda _: begun.append("other"), outcomes.done)
        await outcomes.wait(count + len(expected))
        begun_beside = list(begun)
        # The next job of the owner is short, so its jobs are taken for short ones again.
        release.set()
        await outcomes.wait(count + 3)
        assert expected == begun_beside
    assert [None] * len(outcomes.errors) == outcomes.errors


async def test_one_conversion_at_a_time_holds_much_memory(pool: ConversionPool) -> None:
    outcomes = Outcomes()
    holding = threading.Lock()

    def work(checkpoint: Checkpoint) -> None:
        checkpoint(SMALL_BYTES)
        checkpoint(SMALL_BYTES + 1)
        assert holding.acquire(blocking=False), "two hold much"
        for _ in range(10):
            checkpoint(SMALL_BYTES * 2)
        holding.release()

    for _ in range(6):
        pool.submit(Owner(), 0, work, outcomes.done)
    await outcomes.wait(6)
    assert [None] * 6 == outcomes.errors


async def test_bytes_that_wait_are_bounded_beyond_one_request(pool: ConversionPool) -> None:
    outcomes = Outcomes()
    blockers = Blockers(pool, outcomes)
    assert pool.has_room(10 * QUEUED_BYTES_MAX)
    pool.submit(Owner(), QUEUED_BYTES_MAX - 1, lambda _: None, outcomes.done)
    assert (True, False) == (pool.has_room(1), pool.has_room(2))
    blockers.release()
    await outcomes.wait(3)
    assert pool.has_room(10 * QUEUED_BYTES_MAX)


async def test_an_idle_pool_that_nobody_closes_keeps_no_process_from_ending(pool: ConversionPool) -> None:
    outcomes = Outcomes()
    before = set(threading.enumerate())
    pool.submit(Owner(), 1, lambda checkpoint: None, outcomes.done)
    await outcomes.wait(1)
    assert [True] == [each.daemon for each in set(threading.enumerate()) - before]
