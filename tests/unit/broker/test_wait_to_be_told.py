"""A broker serves when the controller has told it of the cluster, however early that comes."""

import asyncio
from types import SimpleNamespace
from typing import cast

from kalda.broker.server import BrokerServer
from tests.unit.broker.admin_fakes import AdminWorld


async def test_what_the_controller_said_while_the_broker_still_registered_counts() -> None:
    """The controller may see the registration before its owner has the answer; it tells only once."""
    world = AdminWorld()

    async def wait_ready() -> None:
        return

    services = SimpleNamespace(
        broker_id=next(iter(world.cache.brokers)),
        metadata_cache=world.cache,
        controller=SimpleNamespace(wait_ready=wait_ready, controller_id=0),
    )
    server = cast("BrokerServer", SimpleNamespace(services=services))

    async with asyncio.timeout(1):
        await BrokerServer._wait_told(server)
