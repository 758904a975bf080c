"""The service tasks of one broker: what runs beside the requests, for as long as the broker does.

All of them are in the task group of the broker, so one that fails ends it: a broker that does half its work
is worse than none.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

from kalda.broker.services import BrokerServices

logger: Final = logging.getLogger(__name__)

FAREWELL_SECONDS_MAX: Final = 2.0
"""How long the end of a task may wait for coordination, which does not need to hear of it: sessions end
anyway."""

SILENT_FAREWELL_SECONDS_MAX: Final = 0.25
"""The same while coordination does not answer."""

_CANCELS_MAX: Final = 3

_STEP_MS_MAX: Final = 1_000
"""Deferred deletions and ``flush.ms`` are looked at this often; both look only at what is due."""


class Upkeep:
    """The tasks, by name."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._group: Final = tasks
        self._tasks: Final[list[asyncio.Task[None]]] = []

    def run(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run what goes on until it is cancelled."""
        self._tasks.append(self._group.create_task(work, name=name))

    def every(self, name: str, interval_ms: int, step: Callable[[], object]) -> None:
        """Call `step` again and again, and await what it returns if that can be awaited."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                result = step()
                if asyncio.iscoroutine(result):
                    await result

        self.run(name, repeat())

    def cancel(self) -> None:
        """Cancel all; nobody waits for their end."""
        for task in self._tasks:
            task.cancel()

    async def end(self, silent: asyncio.Future[None]) -> None:
        """Cancel all, and once more those that have not ended in time.

        The controller resigns on its way out, which waits for coordination; if that is out of reach, the end
        of the session ends the term. So once `silent` is done, which says that coordination does not answer,
        the tasks are cancelled again at once.
        """
        silent.add_done_callback(self._cancel_again)
        remaining = set(self._tasks)
        for _ in range(_CANCELS_MAX):
            for task in remaining:
                task.cancel()
            if remaining:
                seconds = SILENT_FAREWELL_SECONDS_MAX if silent.done() else FAREWELL_SECONDS_MAX
                _, remaining = await asyncio.wait(remaining, timeout=seconds)
        silent.remove_done_callback(self._cancel_again)
        if remaining:
            names = ", ".join(sorted(task.get_name() for task in remaining))
            logger.error("these tasks do not end: %s", names)

    def _cancel_again(self, _: asyncio.Future[None]) -> None:
        self.cancel()


def start_log_upkeep(upkeep: Upkeep, services: BrokerServices) -> None:
    """Keep the logs: retention, flushes, deletions, checkpoints, producers, replicas the disk refused."""
    config, logs = services.config, services.log_manager

    async def apply_retention() -> None:
        while not logs.retention_step():  # noqa: ASYNC110
            # Requests go between two steps of a pass over thousands of logs.
            await asyncio.sleep(0)

    async def expire_producers() -> None:
        while not logs.producer_expiration_step():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def retry_refused() -> None:
        while services.replica_manager.retry_refused():  # noqa: ASYNC110
            await asyncio.sleep(0)

    for name, interval_ms, step in (
        ("log retention", config.log_retention_check_interval_ms, apply_retention),
        ("producer expiration", config.producer_id_expiration_check_interval_ms, expire_producers),
        ("log flush", min(config.log_flush_scheduler_interval_ms, _STEP_MS_MAX), logs.flush_step),
        ("log deletion", _STEP_MS_MAX, logs.deletion_step),
        ("refused replicas", _STEP_MS_MAX, retry_refused),
        (
            "recovery points",
            config.log_flush_offset_checkpoint_interval_ms,
            logs.checkpoint_recovery_points,
        ),
        (
            "log start offsets",
            config.log_flush_start_offset_checkpoint_interval_ms,
            logs.checkpoint_log_start_offsets,
        ),
        (
            "high watermarks",
            config.replica_high_watermark_checkpoint_interval_ms,
            logs.checkpoint_high_watermarks,
        ),
    ):
        upkeep.every(name, interval_ms, step)
