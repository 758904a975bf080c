"""A broker that loses a disk: what it answers, whom it tells, and that it goes on."""

import asyncio
import errno
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import pytest

from kalda.broker.replicas.log_dir_failures import LogDirFailures
from kalda.broker.replicas.partition import Partition
from kalda.cluster import paths, schema
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import StopReplica
from kalda.storage.errors import LogDirectoryError
from kalda.zookeeper.errors import ConnectionLossError
from tests.unit.broker.data_path_fakes import batch, leadership
from tests.unit.broker.leading_fakes import BROKER_ID, Leading
from tests.unit.storage.faulty_file_system import FaultyFileSystem

BROKER_EPOCH = 2**40


class Fetching:
    """Takes note of what is followed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    def follow(self, partitions: Sequence[Partition]) -> None:
        self.calls.append(("follow", [each.topic_partition for each in partitions]))

    def unfollow(self, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(("unfollow", list(partitions)))


class Disks(Leading):
    """A broker on two disks, with partitions 0 and 2 on the first, 1 and 3 on the other."""

    files: FaultyFileSystem
    fetching: Fetching
    failures: LogDirFailures

    async def set_up(self) -> None:
        self.failures = LogDirFailures(
            BROKER_ID, self.logs, self.replicas.roles, self.store, broker_epoch=lambda: BROKER_EPOCH
        )
        await self.lead(0, 1)
        self.host(*(leadership(index, leader=2, replicas=(1, 2, 3)) for index in (2, 3)))

    def break_disk(self, at: int, code: int = errno.EIO) -> str:
        directory = self.logs.directories[at]

        def fault(action: str, path: str) -> None:
            if path.startswith(directory) and action == "write":
                raise OSError(code, "broken")

        self.files.fault = fault
        return directory


@pytest.fixture
async def broker() -> AsyncIterator[Disks]:
    files, fetching = FaultyFileSystem(), Fetching()
    disks = await Disks.open(Path("/disks/a"), Path("/disks/b"), file_system=files, fetching=fetching)
    disks.files, disks.fetching = files, fetching
    await disks.set_up()
    yield disks
    disks.close()


def names(*indexes: int) -> set[TopicPartition]:
    return {TopicPartition("orders", index) for index in indexes}


async def test_the_replicas_on_a_broken_disk_go_offline_and_the_others_serve(broker: Disks) -> None:
    directory = broker.break_disk(0)
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.produce({0: batch(b"a")}).error_code
    broker.failures.take_failed_offline()
    assert names(0, 2) == set(broker.replicas.offline_partitions)
    assert {directory} == set(broker.replicas.offline_partitions.values())
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.produce({0: batch(b"a")}).error_code
    answer = broker.fetch({0: 0}).responses[0].partitions[0]
    assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code
    assert 0 == broker.produce({1: batch(b"a")}).error_code


async def test_its_fetchers_stop_before_the_logs_go(broker: Disks) -> None:
    broker.fetching.calls.clear()
    broker.break_disk(0)
    broker.produce({0: batch(b"a")})
    broker.failures.take_failed_offline()
    assert [("unfollow", names(0, 2))] == [(what, set(which)) for what, which in broker.fetching.calls]


async def test_what_waits_is_answered(broker: Disks) -> None:
    produced = broker.produce_request({0: batch(b"a")}, acks=-1, timeout_ms=100_000)
    fetched = broker.fetch_request({0: 1}, max_wait_ms=100_000)
    broker.break_disk(0)
    broker.produce({0: batch(b"b")})
    assert not produced.is_done
    broker.failures.take_failed_offline()
    code = broker.produce_response(produced).responses[0].partition_responses[0].error_code
    assert ErrorCode.KAFKA_STORAGE_ERROR == code
    code = broker.fetch_response(fetched).responses[0].partitions[0].error_code
    assert ErrorCode.KAFKA_STORAGE_ERROR == code


async def test_the_controller_is_told_and_hears_which(broker: Disks) -> None:
    broker.break_disk(0)
    broker.produce({0: batch(b"a")})
    broker.failures.take_failed_offline()
    assert await broker.failures.notify_controller()
    (note,) = await broker.zookeeper.children(paths.LOG_DIR_EVENTS)
    data, _ = await broker.zookeeper.get(f"{paths.LOG_DIR_EVENTS}/{note}")
    assert schema.LogDirEvent(BROKER_ID) == schema.decode_log_dir_event(data)
    errors = broker.host(*(leadership(index, replicas=(1, 2, 3)) for index in range(4)))
    assert dict.fromkeys(names(0, 2), ErrorCode.KAFKA_STORAGE_ERROR) == errors
    stop = StopReplica(1, 1, list(names(0)), True, {})
    assert {TopicPartition("orders", 0): ErrorCode.KAFKA_STORAGE_ERROR} == (
        broker.replicas.roles.apply_stop_replica(stop)
    )


async def test_the_note_is_left_as_soon_as_coordination_answers(broker: Disks) -> None:
    create = broker.zookeeper.create

    async def fail(*_: object, **__: object) -> str:
        raise ConnectionLossError("gone")

    broker.zookeeper.create = fail  # type: ignore[method-assign]  # a fault
    assert not await broker.failures.notify_controller()
    broker.zookeeper.create = create  # type: ignore[method-assign]  # its end
    assert await broker.failures.notify_controller()


async def test_a_full_disk_is_no_broken_one(broker: Disks) -> None:
    broker.break_disk(0, errno.ENOSPC)
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.produce({0: batch(b"a")}).error_code
    broker.failures.take_failed_offline()
    assert {} == broker.replicas.offline_partitions
    broker.files.fault = None
    assert 0 == broker.produce({0: batch(b"a")}).error_code


async def test_the_broker_ends_only_with_the_last_disk(broker: Disks) -> None:
    for at in (0, 1):
        broker.break_disk(at)
        broker.produce({at: batch(b"a")})
        if not at:
            broker.failures.take_failed_offline()
    with pytest.raises(LogDirectoryError, match="every log directory has failed"):
        await broker.failures.run()


async def test_the_controller_gets_the_reasons_of_a_broker_that_ends(broker: Disks) -> None:
    """Its own events are on the disks that failed, so nobody else could explain the end."""
    directories = broker.logs.directories
    for at in (0, 1):
        broker.break_disk(at)
        broker.produce({at: batch(b"a")})
    with pytest.raises(LogDirectoryError):
        await broker.failures.run()
    (note,) = await broker.zookeeper.children(paths.LOG_DIR_EVENTS)
    data, _ = await broker.zookeeper.get(f"{paths.LOG_DIR_EVENTS}/{note}")
    event = schema.decode_log_dir_event(data)
    assert (BROKER_ID, BROKER_EPOCH) == (event.broker_id, event.broker_epoch)
    assert dict.fromkeys(directories, "broken") == event.ended_by


async def test_the_broker_ends_without_coordination_too(broker: Disks) -> None:
    async def fail(*_: object, **__: object) -> str:
        raise ConnectionLossError("gone")

    for at in (0, 1):
        broker.break_disk(at)
        broker.produce({at: batch(b"a")})
    broker.zookeeper.create = fail  # type: ignore[method-assign]  # a fault
    with pytest.raises(LogDirectoryError, match="every log directory has failed"):
        await broker.failures.run()


async def test_an_old_replica_is_not_made_anew_beside_the_broken_disk(broker: Disks) -> None:
    """An empty log in its place could be elected, and everything would be gone."""
    broker.logs.take_offline(broker.logs.directories[0])
    role = leadership(7, replicas=(1, 2, 3))
    assert {TopicPartition("orders", 7): ErrorCode.KAFKA_STORAGE_ERROR} == broker.host(role)


async def test_a_new_partition_is_made_on_the_disk_that_is_left(broker: Disks) -> None:
    broker.break_disk(0)
    broker.produce({0: batch(b"a")})
    broker.failures.take_failed_offline()
    assert {} == await broker.lead(8, is_new=True)
    assert broker.partition(8).log.directory.startswith(broker.logs.directories[1])


async def test_the_controller_is_asked_again_when_a_full_disk_has_room(broker: Disks) -> None:
    """It holds the replicas for lost, and nothing but this broker's word would make it elect them."""
    broker.replicas.watch_recovery(broker.failures.announce_recovery)
    broker.files.space_left = 0
    errors = broker.host(leadership(7, leader=BROKER_ID, leader_epoch=9, replicas=(1, 2, 3)))
    assert dict.fromkeys(names(7), ErrorCode.KAFKA_STORAGE_ERROR) == errors
    task = asyncio.create_task(broker.failures.run())
    try:
        broker.replicas.roles.retry_refused()
        before = await notes(broker)
        broker.files.space_left = None
        broker.replicas.roles.retry_refused()
        assert before + 1 == await notes(broker)
    finally:
        task.cancel()


async def notes(broker: Disks) -> int:
    """Let the loop turn and count the notifications for the controller."""
    for _ in range(10):
        await asyncio.sleep(0)
    return len(await broker.zookeeper.children(paths.LOG_DIR_EVENTS))


async def test_replicas_on_a_full_disk_are_ineligible_and_those_beside_it_are_not(broker: Disks) -> None:
    """By this answer the controller elects others; reads go on until it has, or where it cannot."""
    assert 0 == broker.produce({0: batch(b"a")}).error_code
    broker.follow(2, 1)
    broker.follow(3, 1)
    broker.break_disk(0, errno.ENOSPC)
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.produce({0: batch(b"b")}).error_code
    errors = broker.host(*(leadership(index, replicas=(1, 2, 3)) for index in range(4)))
    assert dict.fromkeys(names(0, 2), ErrorCode.INELIGIBLE_REPLICA) == errors
    assert {} == broker.replicas.offline_partitions
    answer = broker.fetch({0: 0}).responses[0].partitions[0]
    assert (0, 1) == (answer.error_code, answer.high_watermark)
    assert 0 == broker.produce({1: batch(b"a")}).error_code


async def test_a_full_disk_is_announced_once_and_its_replicas_follow_nobody(
    broker: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower that fetched on would be taken back into the ISR, and removed again, and so on."""
    broker.fetching.calls.clear()
    directory = broker.break_disk(0, errno.ENOSPC)
    task = asyncio.create_task(broker.failures.run())
    try:
        for _ in range(3):
            broker.produce({0: batch(b"a")})
            assert 1 == await notes(broker)
    finally:
        task.cancel()
    assert [("unfollow", [TopicPartition("orders", 0), TopicPartition("orders", 2)])] == broker.fetching.calls
    role = leadership(2, leader=3, leader_epoch=4, replicas=(1, 2, 3))
    assert dict.fromkeys(names(2), ErrorCode.INELIGIBLE_REPLICA) == broker.host(role)
    assert ("follow", [TopicPartition("orders", 2)]) not in broker.fetching.calls
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert [f"Log directory {directory} is full ("] == [each[: each.index("(") + 1] for each in errors]


async def test_with_room_again_its_replicas_follow_and_the_controller_asks(
    broker: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    directory = broker.break_disk(0, errno.ENOSPC)
    broker.produce({0: batch(b"a")})
    broker.failures.pause_full()
    broker.fetching.calls.clear()

    def no_room(action: str, path: str) -> None:
        if action == "replace" and path.startswith(directory):
            raise OSError(errno.ENOSPC, "full")

    broker.files.fault = no_room
    await broker.failures.probe(directory)
    assert [] == broker.fetching.calls
    broker.files.fault = None
    await broker.failures.probe(directory)
    assert [("follow", [TopicPartition("orders", 2)])] == broker.fetching.calls
    assert {} == broker.host(*(leadership(index, replicas=(1, 2, 3)) for index in range(4)))
    assert f"Log directory {directory} has room again" in caplog.text
    task = asyncio.create_task(broker.failures.run())
    try:
        broker.failures.announce_recovery()
        assert 1 == await notes(broker)
    finally:
        task.cancel()


async def test_a_disk_has_room_again_only_above_the_reserve(broker: Disks) -> None:
    """A few bytes would be used up at once, and leaderships go to and fro."""
    total = 1024**3
    free = total // 100 - 1
    failures = LogDirFailures(
        BROKER_ID, broker.logs, broker.replicas.roles, broker.store, lambda _: (total, free)
    )
    directory = broker.break_disk(0, errno.ENOSPC)
    broker.produce({0: batch(b"a")})
    broker.files.fault = None
    await failures.probe(directory)
    assert [directory] == list(broker.logs.resources.failures.full)
    free += 1
    await failures.probe(directory)
    assert {} == broker.logs.resources.failures.full


async def test_a_disk_that_breaks_while_it_is_full_goes_out_of_service(broker: Disks) -> None:
    directory = broker.break_disk(0, errno.ENOSPC)
    broker.produce({0: batch(b"a")})

    def broken(action: str, path: str) -> None:
        if path.startswith(directory):
            raise OSError(errno.EIO, "broken")

    broker.files.fault = broken
    await broker.failures.probe(directory)
    broker.failures.take_failed_offline()
    broker.failures.pause_full()
    assert names(0, 2) == set(broker.replicas.offline_partitions)
    assert {} == broker.logs.resources.failures.full


async def test_a_full_disk_is_acted_on_while_coordination_is_away(broker: Disks) -> None:
    """Followers go on as soon as there is room, whether or not the controller can be notified."""

    async def fail(*_: object, **__: object) -> str:
        raise ConnectionLossError("gone")

    create = broker.zookeeper.create
    broker.zookeeper.create = fail  # type: ignore[method-assign]  # a fault
    task = asyncio.create_task(broker.failures.run())
    try:
        directory = broker.break_disk(0, errno.ENOSPC)
        broker.produce({0: batch(b"a")})
        await notes(broker)
        broker.fetching.calls.clear()
        broker.files.fault = None
        await broker.failures.probe(directory)
        assert [("follow", [TopicPartition("orders", 2)])] == broker.fetching.calls
        broker.zookeeper.create = create  # type: ignore[method-assign]  # its end
        broker.failures.announce_recovery()
        assert 1 == await notes(broker)
    finally:
        task.cancel()


async def test_a_leader_elected_on_a_full_disk_serves_reads_and_notes_its_epoch_with_the_first_append(
    broker: Disks,
) -> None:
    """Where nobody else can lead there is no other leader to read from."""
    broker.produce({0: batch(b"a")})
    broker.break_disk(0, errno.ENOSPC)
    broker.files.space_left = 0
    role = leadership(0, leader_epoch=9, replicas=(1, 2, 3), isr=(1,))
    assert dict.fromkeys(names(0), ErrorCode.INELIGIBLE_REPLICA) == broker.host(role)
    log = broker.partition(0).log
    assert (3, 1) == log.end_offset_for_epoch(3)
    assert (3, 1) == log.end_offset_for_epoch(8)
    assert 0 == broker.fetch({0: 0}).responses[0].partitions[0].error_code
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.produce({0: batch(b"b")}).error_code
    broker.files.fault, broker.files.space_left = None, None
    assert 0 == broker.produce({0: batch(b"b")}).error_code
    assert (9, 2) == log.end_offset_for_epoch(9)
    assert b"9 1\n" in broker.files.read(log.leader_epochs.path)


async def test_a_new_partition_is_made_on_the_disk_with_room(broker: Disks) -> None:
    broker.break_disk(0, errno.ENOSPC)
    broker.produce({0: batch(b"a")})
    await broker.lead(8, 9, 10, is_new=True)
    for index in (8, 9, 10):
        assert broker.partition(index).log.directory.startswith(broker.logs.directories[1])


async def test_a_full_leader_announces_at_once_that_another_replica_is_in_sync(broker: Disks) -> None:
    """The controller lets it take over; usual changes are gathered for seconds."""
    await broker.lead(0, leader_epoch=4, isr=(1,))
    broker.break_disk(0, errno.ENOSPC)
    broker.produce({0: batch(b"a")})
    broker.follow(2, 0)
    await broker.settle()
    assert (1, 2) == (await broker.state(0)).isr
    await broker.changes.announce()
    assert 1 == len(await broker.zookeeper.children(paths.ISR_CHANGES))
