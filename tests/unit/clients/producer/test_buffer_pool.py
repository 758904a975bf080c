"""The memory of the producer: never above its bound, and first come, first served."""

from kalda.clients.producer.buffer_pool import BufferPool


def test_memory_is_reserved_until_it_is_used_up() -> None:
    pool = BufferPool(100)
    assert pool.reserve_nowait(60)
    assert not pool.reserve_nowait(41)
    assert pool.reserve_nowait(40)
    assert 0 == pool.available


def test_waiters_are_served_in_order_and_nobody_passes_them_by() -> None:
    """A large request would starve if small ones could overtake it."""
    pool = BufferPool(100)
    woken: list[str] = []
    assert pool.reserve_nowait(100)
    large = pool.wait(80, lambda: woken.append("large"))
    small = pool.wait(10, lambda: woken.append("small"))
    pool.release(50)
    assert [] == woken
    assert not pool.reserve_nowait(1)
    pool.release(50)
    assert ["large", "small"] == woken
    assert large.is_granted
    assert small.is_granted
    assert 10 == pool.available


def test_a_waiter_that_gives_up_makes_room_for_the_next() -> None:
    pool = BufferPool(100)
    woken: list[str] = []
    assert pool.reserve_nowait(60)
    large = pool.wait(80, lambda: woken.append("large"))
    pool.wait(30, lambda: woken.append("small"))
    pool.cancel(large)
    assert ["small"] == woken


def test_memory_granted_to_one_who_gave_up_comes_back() -> None:
    pool = BufferPool(100)
    assert pool.reserve_nowait(100)
    waiter = pool.wait(50, lambda: None)
    pool.release(100)
    assert 50 == pool.available
    pool.cancel(waiter)
    assert 100 == pool.available
    pool.cancel(waiter)
    assert 100 == pool.available


def test_closing_wakes_waiters_without_memory() -> None:
    pool = BufferPool(10)
    woken: list[str] = []
    assert pool.reserve_nowait(10)
    waiter = pool.wait(10, lambda: woken.append("woken"))
    pool.fail_waiters()
    assert ["woken"] == woken
    assert not waiter.is_granted
