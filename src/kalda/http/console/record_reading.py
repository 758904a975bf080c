"""Reads records for pages: a few of each partition, or new ones as they come."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

from kalda.clients.admin.partitions import OffsetSpec
from kalda.common.types import TopicPartition
from kalda.http.callers import Caller
from kalda.http.console.reading import partitions_of
from kalda.http.console.record_views import Ranges, Record
from kalda.http.errors import HttpError

if TYPE_CHECKING:
    from kalda.clients.consumer.async_consumer import AsyncConsumer

READ_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.5
_POLL_RECORDS: Final = 500
_FETCH_BYTES: Final = str(1 << 20)
"""A page needs some records of each partition, not the megabytes that a consumer reads ahead."""
_SETTINGS: Final = {
    "client_id": "kalda-console",
    "enable_auto_commit": "false",
    "auto_offset_reset": "earliest",
    "allow_auto_create_topics": "false",
    "isolation_level": "read_committed",
    "max_partition_fetch_bytes": _FETCH_BYTES,
    "fetch_max_bytes": str(8 << 20),
}


@asynccontextmanager
async def open_consumer(caller: Caller) -> "AsyncIterator[AsyncConsumer[bytes, bytes]]":
    """Open a consumer without a group that reads as the caller; it is closed behind the block."""
    await caller.authenticate()
    consumer = caller.consumer(**_SETTINGS)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.close(1.0)


async def log_ranges(caller: Caller, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end of committed records of a topic's partitions.

    Raises:
        ClientError: the topic does not exist, or may not be read.
    """
    admin = await caller.admin()
    partitions = await partitions_of(admin, topic)
    starts, ends = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.earliest())),
        admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), isolation_level="read_committed"),
    )
    return {each.partition: (starts[each].offset, ends[each].offset) for each in partitions}


async def offsets_at(
    caller: Caller, topic: str, numbers: Mapping[int, object], time_ms: int
) -> dict[int, int | None]:
    """Return the first offset of each partition at a time or after it; None where no record is so new."""
    admin = await caller.admin()
    spec = OffsetSpec.for_timestamp(time_ms)
    found = await admin.list_offsets({TopicPartition(topic, number): spec for number in numbers})
    return {each.partition: info.offset if info.is_found else None for each, info in found.results.items()}


async def read_ranges(
    caller: Caller, topic: str, ranges: Ranges, *, bytes_max: int | None = None
) -> list[Record]:
    """Return the records in ranges of a topic, partition by partition.

    Args:
        caller: Who reads.
        topic: Its name.
        ranges: By partition, the first offset and the one behind the last.
        bytes_max: How many bytes of keys and values are kept; those read first are dropped for later ones.

    Raises:
        ClientError: the topic cannot be read.
        HttpError: the records did not come in time (504).
    """
    wanted = {TopicPartition(topic, number): each for number, each in ranges.items() if each[0] < each[1]}
    records: deque[Record] = deque()
    size = 0
    if not wanted:
        return []
    deadline = time.monotonic() + READ_SECONDS_MAX
    async with open_consumer(caller) as consumer:
        await consumer.assign(wanted)
        for partition, (lower, _) in wanted.items():
            await consumer.seek(partition, lower)
        while wanted:
            if time.monotonic() > deadline:
                raise HttpError(
                    504, f"records of {next(iter(wanted))} did not come within {READ_SECONDS_MAX:.0f} s"
                )
            # A record without key or value has None there, whatever the types of a caller's consumer say.
            for record in cast("list[Record]", await consumer.poll(_POLL_SECONDS, _POLL_RECORDS)):
                lower, upper = ranges[record.partition]
                if lower <= record.offset < upper:
                    records.append(record)
                    size += _size(record)
            while bytes_max is not None and size > bytes_max:
                size -= _size(records.popleft())
            done = [each for each, (_, upper) in wanted.items() if await consumer.position(each) >= upper]
            await consumer.pause(done)
            for each in done:
                del wanted[each]
    return list(records)


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


async def read_one(caller: Caller, topic: str, number: int, offset: int) -> Record | None:
    """Return one record; None if its offset holds none."""
    logs = await log_ranges(caller, topic)
    if number not in logs:
        raise HttpError(404, f"topic {topic} has no partition {number}")
    first, end = logs[number]
    if not first <= offset < end:
        return None
    found = await read_ranges(caller, topic, {number: (offset, offset + 1)})
    return found[0] if found else None


async def new_records(caller: Caller, topic: str, number: int | None) -> AsyncGenerator[list[Record], None]:
    """Yield records that come from now on, in lists; an empty one every second without records."""
    admin = await caller.admin()
    partitions = [each for each in await partitions_of(admin, topic) if number in (None, each.partition)]
    if not partitions:
        raise HttpError(404, f"topic {topic} has no partition {number}")
    async with open_consumer(caller) as consumer:
        await consumer.assign(partitions)
        await consumer.seek_to_end(partitions)
        # Where the end is, is asked for now: a record that comes before the first poll is shown, too.
        for each in partitions:
            await consumer.position(each)
        yield []
        while True:
            yield cast("list[Record]", await consumer.poll(1.0, _POLL_RECORDS))
