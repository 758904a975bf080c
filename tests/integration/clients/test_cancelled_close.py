"""A close that is cancelled halfway, by a time-out or Ctrl-C, leaves no task and no socket."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kalda import AsyncConsumer, AsyncProducer
from kalda.clients.consumer.consumer_config import GroupProtocol
from kalda.testing import KaldaProcess

STEPS_MAX = 40
"""Loop iterations before the cancellation: more than any close takes against an idle broker."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker in a process of its own: its sockets are not the clients'."""
    with KaldaProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap


async def cancel_after(steps: int, close: asyncio.Task[None]) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
    close.cancel()
    await asyncio.gather(close, return_exceptions=True)


def others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


@pytest.mark.parametrize("steps", range(1, STEPS_MAX, 3))
async def test_a_cancelled_close_of_a_producer_leaves_nothing(bootstrap: str, steps: int) -> None:
    before = others()
    producer = AsyncProducer(bootstrap_servers=bootstrap)
    await producer.send("cancelled", b"1")
    await cancel_after(steps, asyncio.create_task(producer.close()))
    await producer.close()
    assert before == others()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("steps", range(1, STEPS_MAX, 6))
async def test_a_cancelled_close_of_a_consumer_leaves_nothing(
    bootstrap: str, protocol: GroupProtocol, steps: int
) -> None:
    before = others()
    consumer = AsyncConsumer(
        "cancelled", bootstrap_servers=bootstrap, group_id=f"{protocol}-{steps}", group_protocol=protocol
    )
    await consumer.start()
    await consumer.poll(0.3)
    await cancel_after(steps, asyncio.create_task(consumer.close()))
    await consumer.close()
    assert before == others()
