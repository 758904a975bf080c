"""A broker's process runs a broker until its termination is requested."""

import asyncio
import os
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pytest

from kalda.broker.process.broker import serve
from kalda.runtime.network import readers_of
from kalda.runtime.system.event_loop import ConnectionEventLoop, ConnectionSelector


@pytest.mark.parametrize("microseconds", [0, 100])
def test_the_loop_polls_busily_as_configured(monkeypatch: pytest.MonkeyPatch, microseconds: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    broker = SimpleNamespace(start=AsyncMock(), stop=AsyncMock(), bootstrap="127.0.0.1:9092")
    termination = SimpleNamespace(
        unless_requested=lambda started: started,
        ready=Mock(),
        wait=AsyncMock(return_value=None),
        hurried=None,
    )
    config = SimpleNamespace(kalda_busy_poll_us=microseconds)

    async def main() -> float:
        await serve(broker, config, termination, "")  # type: ignore[arg-type] # they have what it uses
        selector = readers_of(asyncio.get_running_loop())
        assert isinstance(selector, ConnectionSelector)
        return selector.busy_poll_seconds

    with asyncio.Runner(loop_factory=ConnectionEventLoop) as runner:
        assert microseconds / 1e6 == runner.run(main())
    termination.ready.assert_called_once_with("bootstrap=127.0.0.1:9092 zookeeper=")
