"""What happens to a log while it is cleaned, and what a cleaning that fails does to the others."""

import asyncio
import errno
import os
from collections.abc import Callable

import pytest

from kalda.common.types import TopicPartition
from kalda.records.batch import iter_headers
from kalda.records.record import iter_records
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.job import CleaningJob, CleaningResult
from kalda.storage.cleaner.log_cleaner import RETRY_MS
from kalda.storage.cleaner.runner import InlineRunner, OnGroup, WorkerDiedError
from kalda.storage.cleaner.swap import RETIRED_PER_STEP
from kalda.storage.log_types import FetchIsolation
from tests.unit.storage.cleaning_fixtures import (
    COMPACT_AND_DELETE,
    CompactedBroker,
    compacted,
    contents,
    put,
    records_of,
)
from tests.unit.storage.log_fixtures import NOW_MS, PARTITION

OTHER = TopicPartition("other", 0)


def filled(count: int = 60, **settings: object) -> CompactedBroker:
    broker = CompactedBroker(compacted(**settings))
    for number in range(count):
        broker.put((b"k%d" % (number % 9), b"%d" % number * 10), timestamp=NOW_MS + number)
    broker.roll()
    return broker


def interrupted_after(steps: int, broker: CompactedBroker, action: Callable[[], object]) -> bool:
    """Begin a cleaning, give the loop so many turns, act, and let it end; tells whether it was under way."""

    async def run() -> bool:
        cleaning = asyncio.create_task(broker.cleaner.clean_filthiest(broker.runner))
        for _ in range(steps):
            await asyncio.sleep(0)
        was_running = not cleaning.done()
        action()
        await cleaning
        return was_running

    return asyncio.run(run())


def leftovers(broker: CompactedBroker) -> list[str]:
    return [name for name in broker.file_names() if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("steps", range(1, 40))
@pytest.mark.parametrize("offset", [0, 5, 25, 60])
def test_truncated_while_it_is_cleaned(steps: int, offset: int) -> None:
    """An unclean election may cut below what is being cleaned: the cut counts, whatever the step."""
    broker = filled()
    before = contents(records_of(broker.log))

    interrupted_after(steps, broker, lambda: broker.log.truncate_to(offset))

    assert offset == broker.log.log_end_offset
    assert not leftovers(broker)
    assert set(contents(records_of(broker.log))) <= {each for each in before if each[0] < offset}
    assert (broker.cleaner.clean_offset(PARTITION) or 0) <= offset
    assert not broker.log.is_being_cleaned
    for number in range(9):
        broker.put((b"k%d" % number, b"new"))
    broker.roll()
    broker.clean()
    for each in (broker, broker.restarted()):
        assert {b"k%d" % number: b"new" for number in range(9)} == {
            record.key: record.value for record in records_of(each.log)
        }


@pytest.mark.parametrize("steps", range(1, 40, 2))
def test_deleted_while_it_is_cleaned(steps: int) -> None:
    """The directory goes under its new name with whatever is in it, and nothing comes back."""
    broker = filled()

    interrupted_after(steps, broker, lambda: broker.manager.delete(PARTITION))

    assert broker.manager.get(PARTITION) is None
    assert not broker.file_names()
    assert broker.cleaner.clean_offset(PARTITION) is None
    assert not broker.cleaner.in_progress
    again = broker.manager.get_or_create(PARTITION)
    assert 0 == again.log_end_offset


@pytest.mark.parametrize("steps", range(1, 40, 2))
def test_closed_while_it_is_cleaned(steps: int) -> None:
    """A clean stop in the middle: the next start opens the log by its ends."""
    broker = filled()
    wanted = {record.key: record for record in records_of(broker.log)}

    interrupted_after(steps, broker, broker.manager.close)

    again = broker.restarted()
    assert wanted == {record.key: record for record in records_of(again.log)}
    assert not leftovers(again)
    again.clean()
    assert sorted(wanted.values()) == records_of(again.log)


@pytest.mark.parametrize("steps", range(1, 40, 3))
def test_written_to_while_it_is_cleaned(steps: int) -> None:
    """Appends, rolls and retention go on beside a cleaning; reads that had begun see the old segments."""
    broker = filled(cleanup_policy=COMPACT_AND_DELETE)
    old = broker.log.read(0, 10_000).records
    expected = old.read()

    def act() -> None:
        for number in range(20):
            broker.put((b"new%d" % number, b"x" * 50))
        assert broker.manager.retention_step()
        broker.log.flush()

    interrupted_after(steps, broker, act)

    assert expected == old.read()
    values = {record.key: record.value for record in records_of(broker.log)}
    assert 29 == len(values)
    assert 80 == broker.log.log_end_offset
    broker.roll()
    broker.clean()
    assert 29 == len(records_of(broker.log)) == len(records_of(broker.restarted().log))


def test_every_read_between_two_steps_is_right() -> None:
    """A reader that comes at any time sees the old log or the new one, at any offset."""
    broker = filled()
    before = contents(records_of(broker.log))
    seen: set[tuple[object, ...]] = set()

    async def run() -> None:
        cleaning = asyncio.create_task(broker.cleaner.clean_filthiest(broker.runner))
        while not cleaning.done():
            await asyncio.sleep(0)
            # As after many other reads: nothing is open any more, so files are found by their names.
            for segment in broker.log.segments:
                segment.forget()
            everything = contents(records_of(broker.log))
            seen.add(tuple(everything))
            assert set(everything) <= set(before)
            for offset in range(0, 60, 7):
                expected = [each for each in everything if each[0] >= offset]
                assert expected == contents(records_of(broker.log, offset))

    asyncio.run(run())
    assert len(seen) > 2


def test_many_small_segments_are_retired_in_short_steps() -> None:
    """A group may stand for thousands of segments; the loop gets its turns."""
    broker = CompactedBroker(compacted(segment_bytes=100_000))
    for number in range(5 * RETIRED_PER_STEP):
        broker.put((b"k", b"%d" % number))
        broker.roll()
    assert broker.clean()
    assert 2 == len(broker.log.segments)
    assert [(39, b"k", b"39")] == contents(records_of(broker.log))


def with_other(broker: CompactedBroker) -> CompactedBroker:
    """Add a log that is less dirty, so that it comes second."""
    log = broker.manager.get_or_create(OTHER)
    for number in range(20):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
    log.roll()
    return broker


def test_a_log_with_a_bad_batch_does_not_stop_the_others() -> None:
    """It is left alone, untouched, and counted; deleting it forgets that."""
    broker = with_other(filled())
    path = broker.log.segments[1].records.path
    broker.file_system.nodes[path].content[70] ^= 1
    names = broker.file_names()

    assert not broker.clean()
    assert broker.clean()
    assert not broker.clean()

    assert [PARTITION] == list(broker.cleaner.uncleanable)
    assert names == broker.file_names()
    directory = broker.manager.directories[0]
    assert 1 == broker.cleaner.uncleanable_count(directory)
    assert 0 < broker.cleaner.uncleanable_bytes(directory)
    broker.manager.delete(PARTITION)
    assert not broker.cleaner.uncleanable


def test_a_full_disk_puts_a_cleaning_off() -> None:
    """What was written is removed at once; the others go on, and the log is tried again later."""
    broker = with_other(filled())
    wanted = {record.key: record for record in records_of(broker.log)}
    broker.file_system.space_left = 20
    assert not broker.clean()
    assert wanted == {record.key: record for record in records_of(broker.log)}
    assert not leftovers(broker)
    broker.file_system.space_left = None
    assert broker.clean()
    assert broker.cleaner.clean_offset(OTHER)
    assert not broker.cleaner.uncleanable
    assert not broker.clean()
    broker.clock.advance(RETRY_MS / 1000)
    assert broker.clean()
    assert broker.cleaner.clean_offset(PARTITION)


@pytest.mark.parametrize("suffix", [".log.cleaned", ".index.cleaned", ".timeindex", ".log.swap"])
def test_a_swap_that_the_disk_refuses_for_now(suffix: str) -> None:
    """Before the log shows the new segment it is undone, after that it is tried until it works."""
    broker = filled()
    failures = iter([True, True])

    def fault(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(suffix) and next(failures, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    broker.file_system.fault = fault
    wanted = {record.key: record for record in records_of(broker.log)}
    broker.clean()
    assert wanted == {record.key: record for record in records_of(broker.log)}
    assert not leftovers(broker)
    broker.clock.advance(RETRY_MS / 1000)
    broker.clean()
    broker.clock.advance(RETRY_MS / 1000)
    broker.clean()
    assert sorted(wanted.values()) == records_of(broker.log) == records_of(broker.restarted().log)


def test_a_broken_disk_takes_its_directory_out_of_service() -> None:
    """As any other user of the disk would find (KIP-112)."""
    broker = filled()

    def fault(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".cleaned"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    broker.file_system.fault = fault
    assert not broker.clean()
    assert list(broker.manager.directories) == list(broker.manager.resources.failures.failed)


class DyingRunner(InlineRunner):
    """A runner whose process dies after the first group."""

    async def run(self, job: CleaningJob, on_group: OnGroup) -> CleaningResult:
        async def die(_: object) -> None:
            raise WorkerDiedError("the cleaner's process 1 ended with exit code -9")

        return await super().run(job, die)


def test_a_process_that_dies_twice_over_a_log_leaves_it_alone() -> None:
    """Once may be the system's fault, or an operator's."""
    broker = filled()
    broker.runner = DyingRunner(broker.file_system)
    assert not broker.clean()
    assert 1 == broker.cleaner.dead_workers
    assert not broker.cleaner.uncleanable
    assert not leftovers(broker)
    broker.clock.advance(RETRY_MS / 1000)
    assert not broker.clean()
    assert [PARTITION] == list(broker.cleaner.uncleanable)


def test_slots_follow_the_setting() -> None:
    """`log.cleaner.threads` and `log.cleaner.backoff.ms` change while it runs."""
    broker = with_other(filled())
    broker.cleaner_config = CleanerConfig(threads=0)

    async def until(condition: Callable[[], object]) -> None:
        for _ in range(1000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it does not happen")

    async def run() -> None:
        task = asyncio.create_task(broker.cleaner.run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.cleaner.clean_offset(PARTITION) is None
        broker.cleaner_config = CleanerConfig(threads=2)
        broker.cleaner.reconfigure()
        await until(lambda: broker.cleaner.clean_offset(PARTITION) and broker.cleaner.clean_offset(OTHER))
        put(broker.log, (b"k1", b"late"))
        broker.roll()
        broker.cleaner.reconfigure()
        await until(lambda: broker.cleaner.clean_offset(PARTITION) == broker.log.log_end_offset)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_batches_in_a_cleaned_log_are_sound() -> None:
    """Every reader checks the CRC; followers check the order too."""
    broker = filled()
    assert broker.clean()
    follower = CompactedBroker(compacted())
    for segment in broker.log.segments:
        data = segment.records.slice(0, segment.size).read()
        if data:
            follower.log.append_as_follower(bytearray(data), 0)
    assert records_of(broker.log) == records_of(follower.log)
    for position, header in iter_headers(data):
        list(iter_records(data, position, header))


def test_a_follower_takes_the_gaps_of_a_cleaned_log() -> None:
    """It fetches from its own end, which may lie where the leader has nothing any more."""
    leader = filled()
    assert leader.clean()
    log = CompactedBroker().log
    while fetched := leader.log.read(log.log_end_offset, 500, FetchIsolation.LOG_END).records.read():
        log.append_as_follower(bytearray(fetched), 0)
    assert leader.log.log_end_offset == log.log_end_offset
    assert records_of(leader.log) == records_of(log)
