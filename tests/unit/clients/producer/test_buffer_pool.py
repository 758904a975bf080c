"""The memory of the producer: never above its bound, and first come, first served."""

from collections.abc import Callable

from kalda.clients.producer.buffer_pool import BufferPool, MemoryWaiter


def wanted(size: int, wake: Callable[[], None] = lambda: None) -> MemoryWaiter:
    return MemoryWaiter(size, wake)


def test_memory_is_reserved_until_it_is_used_up() -> None:
    pool = BufferPool(100)
    assert pool.reserve_nowait(wanted(60))
    assert not pool.reserve_nowait(wanted(41))
    assert pool.reserve_nowait(wanted(40))
    assert 0 == pool.available


def test_waiters_are_served_in_order_and_nobody_passes_them_by() -> None:
    """A large request would starve if small ones could overtake it."""
    pool = BufferPool(100)
    woken: list[str] = []
    assert pool.reserve_nowait(wanted(100))
    large = wanted(80, lambda: woken.append("large"))
    pool.wait(large)
    small = wanted(10, lambda: woken.append("small"))
    pool.wait(small)
    pool.release(50)
    assert [] == woken
    assert not pool.reserve_nowait(wanted(1))
    pool.release(50)
    assert ["large", "small"] == woken
    assert large.is_granted
    assert small.is_granted
    assert 10 == pool.available


def test_a_waiter_that_gives_up_makes_room_for_the_next() -> None:
    pool = BufferPool(100)
    woken: list[str] = []
    assert pool.reserve_nowait(wanted(60))
    large = wanted(80, lambda: woken.append("large"))
    pool.wait(large)
    pool.wait(wanted(30, lambda: woken.append("small")))
    pool.cancel(large)
    assert ["small"] == woken


def test_memory_granted_to_one_who_gave_up_comes_back() -> None:
    pool = BufferPool(100)
    assert pool.reserve_nowait(wanted(100))
    waiter = wanted(50, lambda: None)
    pool.wait(waiter)
    pool.release(100)
    assert 50 == pool.available
    pool.cancel(waiter)
    assert 100 == pool.available
    pool.cancel(waiter)
    assert 100 == pool.available


def test_closing_wakes_waiters_without_memory() -> None:
    pool = BufferPool(10)
    woken: list[str] = []
    assert pool.reserve_nowait(wanted(10))
    waiter = wanted(10, lambda: woken.append("woken"))
    pool.wait(waiter)
    pool.fail_waiters()
    assert ["woken"] == woken
    assert not waiter.is_granted
