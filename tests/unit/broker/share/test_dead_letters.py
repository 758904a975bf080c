"""The batches of dead letters: what they say, what they copy, and how much fits into one."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kalda.broker.share.dead_letters import (
    COPIED_BYTES_MAX,
    DeadLetters,
    Origin,
    build_letters,
    find_batches,
    read_records,
    upto,
)
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.coordinator.share.in_flight_records import DeadRange
from kalda.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kalda.records.batch import HEADER_SIZE, read_header
from kalda.records.record import Record, RecordBatchBuilder, iter_records
from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import ManualClock
from kalda.storage.file_records import FileSlice
from kalda.storage.log_config import LogConfig
from kalda.storage.unified_log import FetchDataInfo
from tests.unit.storage.log_fixtures import Broker

ORIGIN = Origin("jobs", 3, "workers")
NOW_MS = 1_700_000_000_000


def letters(*arguments: Any) -> list[Record]:
    return list(iter_records(build_letters(*arguments)[0]))


def test_a_letter_says_where_its_record_is_from_and_why_it_is_dead() -> None:
    dead = [DeadRange(7, 7, 2, True), DeadRange(9, 9, 5, False)]
    found = letters(ORIGIN, dead, {}, 1000, NOW_MS)
    assert [(None, None, NOW_MS), (None, None, NOW_MS)] == [(e.key, e.value, e.timestamp) for e in found]
    assert [
        ("__dlq.errors.topic", b"jobs"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"7"),
        ("__dlq.errors.group", b"workers"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ] == found[0].headers
    assert [
        ("__dlq.errors.offset", b"9"),
        ("__dlq.errors.delivery.count", b"5"),
        ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    ] == [found[1].headers[index] for index in (2, 4, 5)]


def test_a_letter_has_the_reason_that_a_member_gave() -> None:
    dead = [DeadRange(7, 8, 1, True, b"too late"), DeadRange(9, 9, 1, True)]
    assert [b"too late", b"too late", b"Offset rejected by client."] == [
        each.headers[-1][1] for each in letters(ORIGIN, dead, {}, 2000, NOW_MS)
    ]


def test_a_reason_never_makes_a_letter_too_large_for_the_topic() -> None:
    """It would never be written otherwise, and hold up all letters after it."""
    records = {0: record(0, b"v" * 2000)}
    dead = [DeadRange(0, 1, 1, True, b"r" * 1000)]
    (copied,) = letters(ORIGIN, dead, records, 2500, NOW_MS)
    assert (b"v" * 2000, b"Offset rejected by client.") == (copied.value, copied.headers[-1][1])
    (named,) = letters(ORIGIN, dead, records, 1700, NOW_MS)
    assert b"r" * 1000 + b" The record is too large for a copy." == named.headers[-1][1]
    batch, written = build_letters(ORIGIN, dead, records, 700, NOW_MS)
    assert (True, [DeadRange(0, 0, 1, True, b"r" * 1000)]) == (len(batch) <= 700, written)
    (plain,) = iter_records(batch)
    assert b"Offset rejected by client. The record is too large for a copy." == plain.headers[-1][1]


def record(offset: int, value: bytes) -> Record:
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(b"k", value, timestamp=1, headers=[("trace", b"1")])
    return next(iter(iter_records(builder.build())))


def test_a_copy_has_key_value_and_headers_of_the_record() -> None:
    (found,) = letters(ORIGIN, [DeadRange(7, 7, 1, True)], {7: record(7, b"v")}, 1000, NOW_MS)
    assert (b"k", b"v", NOW_MS) == (found.key, found.value, found.timestamp)
    assert [("trace", b"1"), ("__dlq.errors.topic", b"jobs")] == found.headers[:2]


def test_letters_that_do_not_fit_come_with_the_next_batch() -> None:
    records = {offset: record(offset, b"v" * 400) for offset in range(5)}
    batch, written = build_letters(ORIGIN, [DeadRange(0, 4, 1, True)], records, 1500, NOW_MS)
    assert [DeadRange(0, 1, 1, True)] == written
    assert len(batch) <= 1500


def test_a_record_that_is_too_large_for_the_topic_leaves_a_letter_without_a_copy() -> None:
    """It would never be written otherwise, and hold up all letters after it."""
    records = {0: record(0, b"v" * 2000), 1: record(1, b"small")}
    found = letters(ORIGIN, [DeadRange(0, 1, 1, True)], records, 1500, NOW_MS)
    assert [None, b"small"] == [each.value for each in found]
    assert b"Offset rejected by client. The record is too large for a copy." == found[0].headers[-1][1]


def test_a_letter_that_is_too_large_all_the_same_is_left_to_the_topic_to_refuse() -> None:
    assert 1 == len(letters(ORIGIN, [DeadRange(0, 3, 1, True)], {}, HEADER_SIZE, NOW_MS))


def test_only_the_batches_of_dead_records_are_read() -> None:
    log = Broker().log
    for first in (0, 10, 20):
        builder = RecordBatchBuilder()
        for number in range(10):
            builder.append(None, b"%d" % (first + number), timestamp=1)
        log.append_as_leader(memoryview(builder.build()), 0)
    log.advance_high_watermark(30)
    dead = [DeadRange(2, 3, 1, True), DeadRange(5, 5, 1, True), DeadRange(28, 29, 1, True)]
    batches = find_batches(log, dead)
    assert [0, 20] == [header.base_offset for header, _ in batches]
    records, read = read_records(batches, dead)
    assert dead == read
    assert {2: b"2", 3: b"3", 5: b"5", 28: b"28", 29: b"29"} == {
        offset: each.value for offset, each in records.items()
    }
    assert [DeadRange(2, 3, 1, True), DeadRange(5, 5, 1, True)] == upto(dead, 9)


def test_records_that_cannot_be_decoded_are_not_copied() -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"v", timestamp=1)
    batch = bytes(builder.build())
    header = read_header(batch)
    torn = cast(Any, type("Slice", (), {"read_part": lambda self, start, size: batch[:-1] + b"\xff\xff"}))()
    dead = [DeadRange(0, 0, 1, True)]
    assert ({}, dead) == read_records([(header, torn)], dead)


@pytest.mark.parametrize("deltas", [[0, 1, 2], [2, 1, 0]], ids=["in order", "as no honest producer counts"])
def test_what_is_copied_at_once_is_bounded_however_small_it_is_compressed(deltas: list[int]) -> None:
    """Some kilobytes may hold hundreds of megabytes, and a member may reject them all."""
    builder = RecordBatchBuilder()
    for _ in deltas:
        builder.append(None, bytes(COPIED_BYTES_MAX // 2 + 1), timestamp=1)
    batch = bytearray(builder.build())
    position = HEADER_SIZE
    for delta in deltas:
        # Behind the length, of four bytes, the attributes and the time.
        batch[position + 6] = 2 * delta
        position += (builder.size - HEADER_SIZE) // 3
    batches = [(read_header(batch), FileSlice(cast(Any, Bytes(bytes(batch))), 0, len(batch)))]
    dead = [DeadRange(0, 2, 1, True)]
    records, read = read_records(batches, dead)
    assert [deltas[0]] == list(records)
    assert [DeadRange(0, deltas[0], 1, True)] == read
    assert [None] * deltas[0] + [COPIED_BYTES_MAX // 2 + 1] == [
        each.value and len(each.value)
        for each in letters(ORIGIN, read, records, 2 * COPIED_BYTES_MAX, NOW_MS)
    ]


class Bytes:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_at(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]


class BrokenDisk:
    """A file that cannot be read any more."""

    def read_at(self, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "the disk is broken")


class Cache:
    """Metadata of a cluster in which every topic has two partitions, led by the brokers 1 and 2."""

    def __init__(self) -> None:
        self.leaders = [1, 2]

    def __contains__(self, topic: str) -> bool:
        return True

    def on_change(self, listener: object) -> None: ...

    def partition_count(self, topic: str) -> int:
        return 2

    def partition(self, name: TopicPartition) -> object:
        return SimpleNamespace(leader=self.leaders[name.partition])

    def endpoint(self, broker_id: int, listener: str) -> object:
        return SimpleNamespace(host="127.0.0.1", port=broker_id)

    def topic_id(self, topic: str) -> UUID:
        return UUID(int=1)


class Leaders:
    """Brokers to which letters go; broker 1 never answers."""

    async def dial(self, host: str, port: int, options: object) -> object:
        return SimpleNamespace(is_closed=False, close=lambda: None, request=partial(self._request, port))

    async def _request(self, broker_id: int, request: ProduceRequest, **options: object) -> ProduceResponse:
        if broker_id == 1:
            await asyncio.Event().wait()
        answers = [PartitionProduceResponse(index=0)]
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=answers)])


def dead_letters(*, copies: bool, cache: Cache | None = None) -> DeadLetters:
    settings: Any = SimpleNamespace(
        dead_letter_topic=lambda group_id: "dlq.jobs", copies_dead_letters=lambda group_id: copies
    )
    part = SimpleNamespace(errors_deadletterqueue_topic_name_prefix="dlq.")
    config: Any = SimpleNamespace(
        part=lambda kind: part, inter_broker_listener_name="A", request_timeout_ms=1000
    )

    async def load_topics(*_: object) -> None:
        pass

    store: Any = SimpleNamespace(
        load_topics=load_topics,
        log_config=lambda topic: LogConfig(errors_deadletterqueue_group_enable=True),
    )
    unused: Any = None
    return DeadLetters(
        1,
        config,
        store,
        unused,
        cast(Any, cache or Cache()),
        unused,
        settings,
        cast(Any, Leaders()),
        ManualClock(),
        cast(Any, Random(1)),
        InlineExecutor(),
        lambda group_id: "",
    )


@asynccontextmanager
async def running(writer: DeadLetters) -> AsyncIterator[None]:
    task = asyncio.ensure_future(writer.run())
    yield
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


DEAD = [DeadRange(0, 0, 1, True)]


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_a_broken_disk_fails_the_letters_and_not_the_broker() -> None:
    """A task of the broker that ends ends the broker. A record of the topic itself needs no letter."""
    broken = FileSlice(cast(Any, BrokenDisk()), 0, 100)
    log: Any = SimpleNamespace(
        read=lambda offset, size: FetchDataInfo(broken, offset, 100),
        disk_errors=Broker().log.disk_errors,
    )
    writer = dead_letters(copies=True)
    done = writer.write("g", TopicPartition("jobs", 0), log, DEAD)
    async with running(writer):
        await turns()
        assert isinstance(done.error, ApiError)
        assert ErrorCode.KAFKA_STORAGE_ERROR is done.error.code
        own = writer.write("g", TopicPartition("dlq.jobs", 0), log, DEAD)
        assert (DEAD, 0) == (own.value, writer.counts.written)


async def test_a_leader_that_does_not_answer_delays_only_its_own_letters() -> None:
    """Those of other groups go to other leaders, and waited until its requests had timed out."""
    writer, log = dead_letters(copies=False), cast(Any, None)
    async with running(writer):
        held = [writer.write(f"g{number}", TopicPartition("jobs", 0), log, DEAD) for number in range(50)]
        await turns()
        others = [writer.write(f"g{number}", TopicPartition("jobs", 1), log, DEAD) for number in range(50)]
        for _ in range(50):
            await turns()
        assert all(each.is_done and each.error is None for each in others)
        assert not any(each.is_done for each in held)
        assert 50 == writer.counts.written


async def test_letters_wait_for_the_leader_that_the_partition_has_by_now() -> None:
    cache = Cache()
    writer, log = dead_letters(copies=False, cache=cache), cast(Any, None)
    cache.leaders = [-1, -1]
    unled = writer.write("g", TopicPartition("jobs", 0), log, DEAD)
    cache.leaders = [2, 1]
    moved = [writer.write(f"g{number}", TopicPartition("jobs", 1), log, DEAD) for number in range(5)]
    cache.leaders = [2, 2]
    async with running(writer):
        for _ in range(10):
            await turns()
        assert [DEAD] * 6 == [each.value for each in (unled, *moved)]


async def test_letters_for_another_leader_wait_when_the_broker_shuts_down() -> None:
    """No task is started for them then, and nothing is raised where the records were given up."""
    writer, log = dead_letters(copies=False), cast(Any, None)
    async with running(writer):
        await turns()
    assert not writer.write("g", TopicPartition("jobs", 1), log, DEAD).is_done
