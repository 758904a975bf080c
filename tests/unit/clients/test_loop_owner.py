import asyncio
import os

import pytest

from kalda import AsyncAdmin, AsyncConsumer, AsyncProducer
from kalda.clients.errors import IllegalStateError
from kalda.clients.loop_owner import LoopOwner
from kalda.clients.producer.buffer_pool import MemoryWaiter
from kalda.clients.producer.producer_core import PendingRecord


def test_a_client_belongs_to_one_loop() -> None:
    """asyncio's own errors on another loop do not say what to do, and some calls hung."""
    owner = LoopOwner("AsyncConsumer")

    async def use() -> None:
        owner.check()
        owner.check()

    asyncio.run(use())
    with pytest.raises(IllegalStateError, match="AsyncConsumer was started on another event loop"):
        asyncio.run(use())


async def test_a_client_belongs_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = LoopOwner("AsyncConsumer")
    owner.check()
    monkeypatch.setattr(os, "getpid", lambda: 7)
    with pytest.raises(IllegalStateError, match="cannot be used in its fork 7"):
        owner.check()


def test_every_asynchronous_client_says_that_it_belongs_to_another_loop() -> None:
    consumer = AsyncConsumer(bootstrap_servers="127.0.0.1:1")
    producer = AsyncProducer(bootstrap_servers="127.0.0.1:1")
    admin = AsyncAdmin(bootstrap_servers="127.0.0.1:1")

    async def start() -> None:
        await consumer.start()
        await producer.start()
        admin._open_runner()

    async def use_elsewhere() -> None:
        for call in (consumer.poll(0), consumer.close(), producer.flush(), producer.close(), admin.close()):
            with pytest.raises(IllegalStateError, match="another event loop"):
                await call

    async def close() -> None:
        await consumer.close(0)
        await producer.close(0)
        await admin.close(0)

    with asyncio.Runner() as runner:
        runner.run(start())
        with asyncio.Runner() as other:
            other.run(use_elsewhere())
        runner.run(close())


def test_a_record_for_an_open_batch_is_refused_where_nothing_would_send_it() -> None:
    """Its future would be pending for ever; the batch was begun on a loop that is closed."""
    producer = AsyncProducer(bootstrap_servers="127.0.0.1:1")

    async def begin() -> None:
        await producer.start()
        core = producer._core
        size = core.accumulator.memory_for(None, b"v", ())
        reserved = MemoryWaiter(size, lambda: None)
        assert core.accumulator.reserve(reserved)
        core._append(PendingRecord("t", None, b"v", (), 0, 1, None), reserved)
        assert not (await producer.send("t", b"v", partition=0)).done()

    async def send() -> None:
        with pytest.raises(IllegalStateError, match="another event loop"):
            await producer.send("t", b"v", partition=0)

    asyncio.run(begin())
    asyncio.run(send())
    # No warning that it was not closed: its loop is.
    producer._is_closed = True
