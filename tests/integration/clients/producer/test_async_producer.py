"""The producer for asyncio against a real broker."""

import asyncio
from collections.abc import Callable

import pytest

from kalda import AsyncProducer, RecordFuture
from kalda.clients.errors import BufferExhaustedError, IllegalStateError, RequestTimedOutError

TopicName = Callable[[str], str]


async def test_records_are_sent_and_awaited(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("async")
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        futures = [await producer.send(topic, b"%d" % number, key=b"k") for number in range(1_000)]
        await producer.flush(30)
        assert all(future.done() for future in futures)
        assert list(range(1_000)) == [(await future).offset for future in futures]


async def test_many_tasks_share_a_producer(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("tasks")
    async with AsyncProducer.from_config({"bootstrap.servers": bootstrap, "linger.ms": "1"}) as producer:

        async def send(number: int) -> int:
            return (await (await producer.send(topic, b"%d" % number))).offset

        offsets = await asyncio.gather(*(send(number) for number in range(200)))
    assert list(range(200)) == sorted(offsets)


async def test_a_full_buffer_makes_senders_wait(bootstrap: str, topic_name: TopicName) -> None:
    """100 KB go through 4 KB of memory."""
    topic = topic_name("full")
    async with AsyncProducer(bootstrap_servers=bootstrap, buffer_memory=4_000, batch_size=1_000) as producer:
        futures: list[RecordFuture] = []

        async def send(number: int) -> None:
            futures.append(await producer.send(topic, b"%d" % number * 100))

        await asyncio.gather(*(send(number) for number in range(500)))
        await producer.flush(30)
        assert 500 == len({future.result(0).offset for future in futures})
        assert 4_000 == producer._core.accumulator.pool.available


async def test_without_a_broker_waits_are_bounded() -> None:
    async with AsyncProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=50) as producer:
        with pytest.raises(RequestTimedOutError, match=r"topic t is not in the metadata after 50 ms"):
            await producer.send("t", b"v")


async def test_memory_that_is_not_freed_is_an_error(
    bootstrap: str, topic_name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent while it lingers; the full buffer alone would send it, so the sender is held back."""
    topic = topic_name("exhausted")
    async with AsyncProducer(
        bootstrap_servers=bootstrap, buffer_memory=2_000, batch_size=2_000, max_block_ms=100
    ) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(producer._core, "max_block_s", 60.0)
            await producer.partitions_for(topic)
        monkeypatch.setattr(producer._core.client, "is_ready", lambda node: False)
        first = await producer.send(topic, b"x" * 1_500)
        with pytest.raises(BufferExhaustedError, match=r"`buffer\.memory`=2000"):
            await producer.send(topic, b"x" * 1_500)
        monkeypatch.undo()
        producer._core.sender.wakeup()
        assert 0 == (await first).offset


async def test_close_ends_everything(bootstrap: str, topic_name: TopicName) -> None:
    producer = AsyncProducer(bootstrap_servers=bootstrap)
    future = await producer.send(topic_name("close"), b"v")
    await producer.close()
    await producer.close()
    assert 0 == (await future).offset
    with pytest.raises(IllegalStateError, match="closed"):
        await producer.send("t", b"v")
    assert {asyncio.current_task()} == asyncio.all_tasks()
