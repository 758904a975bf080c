"""Long work is done in turns, and every iteration of the loop has one turn only."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import STEPS_AT_ONCE, STEPS_PER_TURN, Steps, Turns, between, first_turn, result_of


def counted(count: int, log: list[str], name: str = "a") -> Steps[str]:
    for _ in range(count):
        log.append(name)
        yield
    return name


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


def test_short_work_is_done_at_once() -> None:
    log: list[str] = []
    assert "a" == first_turn(counted(STEPS_AT_ONCE - 1, log))
    assert STEPS_AT_ONCE - 1 == len(log)


def test_the_first_turn_of_long_work_ends() -> None:
    log: list[str] = []
    steps = counted(STEPS_AT_ONCE + 1, log)
    assert steps is first_turn(steps)
    assert STEPS_AT_ONCE == len(log)
    assert "a" == result_of(steps)


async def test_two_works_take_turns_with_each_other_and_with_the_loop() -> None:
    """An iteration of the loop has one turn, however many works wait: others wait for a millisecond."""
    log: list[str] = []
    turns = Turns.of_running_loop()
    works = [turns.run(counted(3 * STEPS_PER_TURN, log, name)) for name in "ab"]
    seen = []
    while not all(work.is_done for work in works):
        await asyncio.sleep(0)
        seen.append(len(log))
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= STEPS_PER_TURN
    assert ["a", "b"] == [work.value for work in works]
    assert "a" * STEPS_PER_TURN + "b" * STEPS_PER_TURN == "".join(log[: 2 * STEPS_PER_TURN])


async def test_abandoned_work_ends() -> None:
    log: list[str] = []
    work = Turns.of_running_loop().run(counted(10 * STEPS_PER_TURN, log))
    await asyncio.sleep(0)
    work.abandon()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (False, STEPS_PER_TURN) == (work.is_done, len(log))


async def test_an_error_ends_the_work_and_not_the_turns_of_others() -> None:
    def fails() -> Steps[str]:
        yield
        raise ApiError(ErrorCode.INVALID_REQUEST)

    log: list[str] = []
    turns = Turns.of_running_loop()
    failed, other = turns.run(fails()), turns.run(counted(STEPS_PER_TURN + 1, log))
    await until(lambda: other.is_done)
    with pytest.raises(ApiError):
        _ = failed.value
    assert "a" == other.value


async def test_coroutines_wait_for_a_turn_between_elements() -> None:
    seen: list[int] = []

    async def work() -> None:
        for index in range(3 * STEPS_PER_TURN):
            await between(index)
            seen.append(index)

    task = asyncio.create_task(work())
    counts = [0]
    while not task.done():
        await asyncio.sleep(0)
        counts.append(len(seen))
    assert STEPS_PER_TURN == max(after - before for before, after in itertools.pairwise(counts))
    assert 3 * STEPS_PER_TURN == len(seen)


async def test_a_coroutine_has_steps_done_in_turns() -> None:
    log: list[str] = []
    task = asyncio.create_task(Turns.of_running_loop().result(counted(STEPS_AT_ONCE + 20, log)))
    counts = [0]
    while not task.done():
        await asyncio.sleep(0)
        counts.append(len(log))
    first, *others = filter(None, (after - before for before, after in itertools.pairwise(counts)))
    assert (STEPS_AT_ONCE, STEPS_PER_TURN) == (first, max(others))
    assert "a" == task.result()


async def test_brokers_do_not_wait_for_the_turns_of_clients() -> None:
    """A client with much work must not delay what a controller asks for."""
    log: list[str] = []
    works = [Turns.of_running_loop().run(counted(100 * STEPS_PER_TURN, log)) for _ in range(20)]
    ours = Turns.of_brokers().run(counted(5 * STEPS_PER_TURN, log, "broker"))
    iterations = 0
    while not ours.is_done:
        iterations += 1
        await asyncio.sleep(0)
    assert iterations <= 7
    for work in works:
        work.abandon()
