"""What a broker does beside requests, and how often."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from kalda.broker.context.service_tasks import ServiceTasks
from kalda.broker.logs.log_maintenance import run_log_maintenance
from kalda.settings import BrokerConfig


class Recorder:
    """Service tasks that note what is to be done instead of doing it."""

    def __init__(self) -> None:
        self.intervals: dict[str, int] = {}

    def every(self, name: str, interval_ms: int, step: Callable[[], object]) -> None:
        self.intervals[name] = interval_ms


def test_idle_producers_are_looked_for_apart_from_retention() -> None:
    """Retention may be switched to hours; sequence numbers are memory."""
    tasks = Recorder()
    config = BrokerConfig.from_properties(
        {"producer.id.expiration.check.interval.ms": "70", "log.retention.check.interval.ms": "9000"}
    )
    anything = cast("Any", type("Logs", (), {"__getattr__": lambda *_: None})())
    run_log_maintenance(cast("ServiceTasks", tasks), config, anything, anything)
    assert (70, 9000) == (tasks.intervals["producer expiration"], tasks.intervals["log retention"])


async def test_tasks_that_wait_for_coordination_end_when_it_falls_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller resigns on its way out; a coordination server that ends meanwhile never answers."""
    monkeypatch.setattr("kalda.broker.context.service_tasks.RESIGN_SECONDS_MAX", 3600.0)
    silent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    resigning = asyncio.Event()

    async def controller() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            resigning.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        service_tasks = ServiceTasks(tasks)
        service_tasks.run("controller", controller())
        await asyncio.sleep(0)
        ending = asyncio.ensure_future(service_tasks.end(silent))
        await resigning.wait()
        silent.set_result(None)
        async with asyncio.timeout(60):
            await ending
