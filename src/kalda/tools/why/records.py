"""Finds out where a record is: still there, cut off at either end, or gone from the middle of its log."""

from typing import TYPE_CHECKING, Final

from kalda.common.types import TopicPartition

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.command.command import Tool

_FIXED: Final = {"enable.auto.commit": "false", "max.poll.records": "1", "auto.offset.reset": "earliest"}

_READ_MS: Final = 3_000
"""How long a record is waited for; behind the last one of a partition nothing comes."""


async def whereabouts(
    tool: "Tool", admin: "AsyncAdmin", partition: TopicPartition, offset: int
) -> tuple[list[str], bool]:
    """Return what the log says of a record now, in sentences, and whether the record is there."""
    from kalda.clients.admin.partitions import OffsetSpec

    start = (await admin.list_offsets({partition: OffsetSpec.earliest()}))[partition].offset
    end = (await admin.list_offsets({partition: OffsetSpec.latest()}))[partition].offset
    name = f"{partition}@{offset}"
    if offset >= end:
        return [f"{name} is not in the log, which ends before offset {end}."], False
    if offset < start:
        return [f"{name} is not in the log any more, which begins at offset {start}."], False
    found = await _next_offset(tool, partition, offset, "read_uncommitted")
    if found == offset:
        committed = await _next_offset(tool, partition, offset, "read_committed")
        if committed == offset:
            return [f"{name} is there: the log has offsets {start} to {end - 1}."], True
        hidden = f"{name} is there, but read_committed consumers do not see it: its transaction is open, or "
        return [f"{hidden}was aborted."], True
    following = "no record follows it" if found is None else f"the next record has offset {found}"
    gone = f"{name} has no record: {following}. It was removed by compaction, or it is the marker of a "
    return [f"{gone}transaction, which no consumer sees."], False


async def _next_offset(tool: "Tool", partition: TopicPartition, offset: int, isolation: str) -> int | None:
    """Return the offset of the first record from `offset` on that a consumer sees."""
    from kalda.clients.consumer.async_consumer import AsyncConsumer
    from kalda.clients.consumer.consumer_config import ConsumerConfig

    settings = {**tool.settings_for(ConsumerConfig), **_FIXED, "isolation.level": isolation}
    async with AsyncConsumer.from_config(settings) as consumer:
        await consumer.assign([partition])
        await consumer.seek(partition, offset)
        records = await consumer.poll(_READ_MS / 1000)
        return records[0].offset if records else None
