"""The consumer for asyncio against a real broker."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kalda import AsyncConsumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition, WakeupError
from kalda.clients.errors import IllegalStateError
from tests.integration.clients.consumer.records import TIMEOUT_SECONDS, create_topic, produce

TopicName = Callable[[str], str]
# A seek waits until the fetch that is under way is answered.
EARLIEST: Any = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_iterated_and_committed(
    bootstrap: str, topic_name: TopicName, protocol: str
) -> None:
    topic = topic_name("async")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(1_000)])
    partition = TopicPartition(topic, 0)
    events: list[tuple[str, list[TopicPartition]]] = []

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.sleep(0)
            events.append(("assigned", list(partitions)))

        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await consumer.commit({partition: 123})
            events.append(("revoked", list(partitions)))

    options: Any = {**EARLIEST, "group_id": topic, "group_protocol": protocol, "enable_auto_commit": False}
    seen = []
    async with AsyncConsumer(topic, bootstrap_servers=bootstrap, listener=Listener(), **options) as consumer:
        async for record in consumer:
            seen.append(record.offset)
            if record.offset == 599:
                await consumer.commit()
                assert 600 == await consumer.position(partition)
                assert {partition: 400} == await consumer.lag()
                break
        committed = await consumer.committed([partition])
        assert {partition: OffsetAndMetadata(600, "", 0)} == committed
        assert {partition} == await consumer.assignment()
        assert {topic} == await consumer.subscription()
        assert topic == (await consumer.group_metadata()).group_id
        await consumer.unsubscribe()
        assert 123 == (await consumer.committed([partition]))[partition].offset  # type: ignore[union-attr]  # it was just committed
    assert list(range(600)) == seen
    assert [("assigned", [partition]), ("revoked", [partition])] == events


async def test_resume_wakes_a_poll_that_waits(bootstrap: str, topic_name: TopicName) -> None:
    """What was fetched before the pause is there already, and nothing else would wake the poll."""
    topic = topic_name("resume")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"0", b"1"])
    partition = TopicPartition(topic, 0)
    async with AsyncConsumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        await consumer.assign([partition])
        assert [b"0"] == [each.value for each in await consumer.poll(TIMEOUT_SECONDS, 1)]
        await consumer.pause([partition])
        assert [] == await consumer.poll(0.0)
        waiting = asyncio.create_task(consumer.poll(10 * TIMEOUT_SECONDS))
        for _ in range(5):
            await asyncio.sleep(0)
        await consumer.resume([partition])
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert [b"1"] == [each.value for each in await waiting]


async def test_polls_seek_pause_and_resume(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("polls")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(100)])
    partition = TopicPartition(topic, 0)
    async with AsyncConsumer.from_config({"bootstrap.servers": bootstrap}, **EARLIEST) as consumer:
        await consumer.assign([partition])
        assert [0, 1] == [record.offset for record in await consumer.poll(TIMEOUT_SECONDS, max_records=2)]
        await consumer.pause([partition])
        assert {partition} == await consumer.paused()
        assert [] == await consumer.poll(0.05)
        await consumer.resume([partition])
        await consumer.seek(partition, 98)
        assert [98, 99] == [record.offset for record in await consumer.poll(TIMEOUT_SECONDS)]
        await consumer.seek_to_beginning()
        assert 0 == (await anext(aiter(consumer))).offset
        await consumer.seek_to_end()
        assert 100 == await consumer.position(partition)
        assert {partition: 0} == await consumer.beginning_offsets([partition])
        assert {partition: 100} == await consumer.end_offsets([partition])


async def test_a_waiting_poll_is_woken_cancelled_or_closed(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("waiting")
    create_topic(bootstrap, topic)
    consumer = AsyncConsumer(bootstrap_servers=bootstrap, **EARLIEST)
    with pytest.raises(IllegalStateError, match="not started"):
        await consumer.poll(0)
    await consumer.start()
    await consumer.assign([TopicPartition(topic, 0)])
    waiting = asyncio.ensure_future(consumer.poll(TIMEOUT_SECONDS))
    await asyncio.sleep(0.1)
    with pytest.raises(IllegalStateError, match="another task polls"):
        await consumer.poll(0)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        await waiting
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(consumer.poll(TIMEOUT_SECONDS), 0.1)
    produce(bootstrap, topic, [b"v"])
    assert 1 == len(await consumer.poll(TIMEOUT_SECONDS))
    waiting = asyncio.ensure_future(consumer.poll(TIMEOUT_SECONDS))
    await asyncio.sleep(0.1)
    await consumer.close()
    with pytest.raises(IllegalStateError, match="was closed while it waited"):
        await waiting
    with pytest.raises(IllegalStateError, match="is closed"):
        await consumer.poll(0)
    await consumer.close()


async def test_a_loop_ends_when_the_consumer_is_closed_inside(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("closing")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(10)])
    consumer = AsyncConsumer(bootstrap_servers=bootstrap, **EARLIEST)
    await consumer.start()
    await consumer.assign([TopicPartition(topic, 0)])
    seen = []
    async for record in consumer:
        seen.append(record.offset)
        if record.offset == 4:
            await consumer.close()
    assert [0, 1, 2, 3, 4] == seen


async def test_without_a_broker_calls_end_in_time() -> None:
    async with AsyncConsumer(bootstrap_servers="127.0.0.1:1", group_id="g", **EARLIEST) as consumer:
        await consumer.assign([TopicPartition("t", 0)])
        assert [] == await consumer.poll(0.2)
        with pytest.raises(Exception, match="within 200 ms"):
            await consumer.position(TopicPartition("t", 0), 0.2)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 20
