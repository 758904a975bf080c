"""Runs the background work of one broker, such as retention or the controller, as asyncio tasks.

All tasks belong to the task group of the broker, so a task that fails ends the broker: a broker that does
half of its work is worse than none.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

logger: Final = logging.getLogger(__name__)

RESIGN_SECONDS_MAX: Final = 2.0
"""How long a cancelled task may wait for ZooKeeper. The end of the session has the same effect later."""

SILENT_RESIGN_SECONDS_MAX: Final = 0.25
"""The same while ZooKeeper does not answer."""

_CANCELS_MAX: Final = 3


class ServiceTasks:
    """Starts the service tasks of one broker and ends them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._group: Final = tasks
        self._tasks: Final[list[asyncio.Task[None]]] = []

    def run(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine that does not end until it is cancelled."""
        self._tasks.append(self._group.create_task(work, name=name))

    def every(self, name: str, interval_ms: int, step: Callable[[], object]) -> None:
        """Call `step` every `interval_ms` and await its result if it is a coroutine."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                result = step()
                if asyncio.iscoroutine(result):
                    await result

        self.run(name, repeat())

    def cancel(self) -> None:
        """Cancel all tasks without waiting for them."""
        for task in self._tasks:
            task.cancel()

    async def end(self, silent: asyncio.Future[None]) -> None:
        """Cancel all tasks, and cancel those again that have not ended in time.

        A cancelled controller resigns, for which it waits for ZooKeeper; without an answer the end of the
        session ends its term. `silent` is done once ZooKeeper does not answer: then all tasks are cancelled
        again at once.
        """
        silent.add_done_callback(self._cancel_again)
        remaining = set(self._tasks)
        for _ in range(_CANCELS_MAX):
            for task in remaining:
                task.cancel()
            if remaining:
                seconds = SILENT_RESIGN_SECONDS_MAX if silent.done() else RESIGN_SECONDS_MAX
                _, remaining = await asyncio.wait(remaining, timeout=seconds)
        silent.remove_done_callback(self._cancel_again)
        if remaining:
            names = ", ".join(sorted(task.get_name() for task in remaining))
            logger.error("cancelled service tasks that have not ended: %s", names)

    def _cancel_again(self, _: asyncio.Future[None]) -> None:
        self.cancel()
