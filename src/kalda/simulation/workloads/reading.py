"""Reads partitions from their start to their end, for workloads: `read_all`."""

from collections.abc import Sequence
from typing import Any

from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer_config import Isolation
from kalda.clients.values import ConsumerRecord
from kalda.common.types import TopicPartition


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
