"""The event loop of a simulated process."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from kalda.simulation.event_loop import SimulatedEventLoop, Watched, new_simulated_loop
from kalda.simulation.scheduler import Scheduler


class Box:
    """Readable while there is something in it."""

    def __init__(self) -> None:
        self.content: list[int] = []

    def is_readable(self) -> bool:
        return bool(self.content)

    def is_writable(self) -> bool:
        return True


def _loop(watched: dict[int, Watched] | None = None) -> tuple[Scheduler, SimulatedEventLoop]:
    scheduler = Scheduler(Random(1))
    return scheduler, new_simulated_loop(scheduler, {} if watched is None else watched)


def _run(main: Callable[[], Coroutine[Any, Any, object]], seconds: float = 100.0) -> Scheduler:
    scheduler, loop = _loop()
    task = loop.create_task(main())
    assert scheduler.run_until(task.done, seconds)
    task.result()
    return scheduler


def test_sleeping_takes_virtual_time_only() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await asyncio.sleep(3600)
        assert 3600 == loop.time() - begin

    _run(main, 4000)


def test_timeouts_task_groups_and_events_work() -> None:
    async def main() -> None:
        event = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(event.wait())
            asyncio.get_running_loop().call_later(1.0, event.set)
        assert waiting.result()
        try:
            async with asyncio.timeout(2.0):
                await asyncio.sleep(3.0)
        except TimeoutError:
            return
        raise AssertionError("the time-out did not end the sleep")

    assert 3.0 == _run(main).now


def test_a_task_group_cancels_its_tasks_in_the_order_of_their_making() -> None:
    """Its tasks are a set; hashes of usual tasks are addresses, which differ from process to process."""
    cancelled: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def main() -> None:
        group = asyncio.TaskGroup()
        async with group:
            for number in range(5):
                group.create_task(wait(number), name=f"wait {number}")
            await asyncio.sleep(0)
            for task in group._tasks:
                task.cancel()

    _run(main)
    assert [0, 1, 2, 3, 4] == cancelled


def test_work_of_an_executor_runs_on_the_loop() -> None:
    async def main() -> None:
        assert 5 == await asyncio.get_running_loop().run_in_executor(None, len, "abcde")

    _run(main)


def test_watching_is_level_triggered() -> None:
    box = Box()
    scheduler, loop = _loop({7: box})
    read: list[int] = []
    loop.add_reader(7, lambda: read.append(box.content.pop(0)))
    box.content += [1, 2, 3]
    loop.notice(7)

    scheduler.run_until(lambda: len(read) == 3, 1.0)
    box.content.append(4)
    assert loop.remove_reader(7)
    loop.notice(7)
    scheduler.run_until(lambda: False, 1.0)

    assert [1, 2, 3] == read


def test_a_held_process_stands_still_and_goes_on_later() -> None:
    scheduler, loop = _loop()
    ran: list[float] = []
    loop.call_later(1.0, lambda: ran.append(scheduler.now))
    loop.hold()
    scheduler.run_until(lambda: False, 5.0)
    assert not ran

    loop.release()
    scheduler.run_until(lambda: bool(ran), 1.0)

    assert [5.0] == ran


def test_nothing_of_an_ended_process_runs() -> None:
    scheduler, loop = _loop()
    ran: list[str] = []
    loop.call_soon(ran.append, "soon")
    loop.call_later(1.0, ran.append, "later")

    loop.end()
    loop.call_soon(ran.append, "after the end")
    scheduler.run_until(lambda: False, 2.0)

    assert not ran
    assert loop.is_closed()


def test_an_exception_of_a_callback_is_reported() -> None:
    scheduler, loop = _loop()
    reported: list[dict[str, Any]] = []
    loop.on_error = reported.append

    def fail() -> None:
        raise ValueError("a bug")

    loop.call_soon(fail)
    scheduler.run_until(lambda: bool(reported), 1.0)

    assert "a bug" == str(reported[0]["exception"])
