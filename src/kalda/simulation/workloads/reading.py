"""Reads of workloads: `polled` while faults last, `read_all` partitions, and `describe` what brokers know."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer_config import Isolation
from kalda.clients.consumer.consumer_errors import FetchCorruptionError
from kalda.clients.errors import BrokerResponseError
from kalda.clients.values import ConsumerRecord
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition

T = TypeVar("T")

_ATTEMPTS_MAX: Final = 30


async def describe(ask: Callable[[], Awaitable[T]]) -> T:
    """Return what a request that changes nothing returns, sent again while a broker has to reconnect.

    A broker that loses its connection to the coordination engine answers REQUEST_TIMED_OUT. It may lose one
    soon after the last fault, for instance when etcd compacts what the broker has still to hear.

    Raises:
        ClientError: it failed otherwise, or for half a minute.
    """
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return await ask()
        except BrokerResponseError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
        await asyncio.sleep(1)
    return await ask()


async def polled(
    consumer: AsyncConsumer[bytes, bytes], seconds: float, max_records: int | None = None
) -> list[ConsumerRecord[bytes, bytes]]:
    """Poll while faults last: a batch with a flipped bit, which a leader sends as it is, is asked for again.

    Raises:
        ClientError: another failure.
    """
    try:
        return await consumer.poll(seconds, max_records=max_records)
    except FetchCorruptionError:
        # Until the broker starts again, and gets the batch from another replica.
        await asyncio.sleep(seconds)
        return []


async def read_all(
    bootstrap: str,
    partitions: Sequence[TopicPartition],
    isolation_level: Isolation = "read_uncommitted",
) -> dict[tuple[int, int], ConsumerRecord[Any, bytes]]:
    """Return the records of partitions of a topic up to their present ends, by partition and offset.

    Raises:
        ClientError: the ends or positions cannot be learnt.
    """
    found: dict[tuple[int, int], ConsumerRecord[Any, bytes]] = {}
    consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level
    )
    async with consumer:
        await consumer.assign(partitions)
        await consumer.seek_to_beginning(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for record in await consumer.poll(1.0):
                found[record.partition, record.offset] = record
    return found
