"""A starting broker serves clients once the controller has sent it the metadata of every partition."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from kalda.broker import server as broker_server
from kalda.broker.assembly import BrokerParts
from kalda.broker.server import wait_metadata
from tests.unit.broker.admin_fakes import AdminHarness
from tests.unit.broker.control_plane.test_controller_requests import Replicas, full_metadata, receiver


class Starting:
    """Broker 0 while it waits; `sent_away` counts how often waiting clients were."""

    def __init__(self) -> None:
        self.harness = AdminHarness()
        self.requests = receiver(self.harness, Replicas(), broker_epoch=5)
        self.sent_away = 0
        services = SimpleNamespace(
            broker_id=0,
            controller_requests=self.requests,
            controller=SimpleNamespace(wait_ready=self._wait_ready, controller_id=1),
        )
        self.parts = cast("BrokerParts", SimpleNamespace(services=services, early_requests=self))

    async def _wait_ready(self) -> None:
        return

    def give_up(self) -> None:
        self.sent_away += 1

    async def wait(self) -> None:
        await wait_metadata(self.parts)


async def test_what_the_controller_sent_while_the_broker_still_registered_counts() -> None:
    """The controller may see the registration before its owner has the answer; it sends only once."""
    starting = Starting()
    await starting.requests.apply(full_metadata(), 5)
    async with asyncio.timeout(1):
        await starting.wait()


async def test_clients_are_sent_away_while_no_controller_sends_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_server, "_METADATA_SECONDS", 0.0)
    starting = Starting()
    waiting = asyncio.ensure_future(starting.wait())
    while starting.sent_away < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    monkeypatch.setattr(broker_server, "_METADATA_SECONDS", 10.0)
    await starting.requests.apply(full_metadata(), 5)
    await waiting
