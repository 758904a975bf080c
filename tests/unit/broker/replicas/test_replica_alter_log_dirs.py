"""Moves of a replica between two log directories: what is copied, what replaces what, what ends a move."""

import errno
import os
from collections.abc import Callable

import pytest

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.records.control import ControlRecordType
from kalda.storage import future_log_copy
from kalda.storage.checkpoints import read_offset_checkpoint
from kalda.storage.errors import LogDirectoryError
from kalda.storage.log_types import FetchIsolation
from kalda.storage.producer_state_manager import AppendOrigin
from tests.unit.broker.replicas.log_dir_move_fixtures import TOPIC_ID, A, B, MovingBroker
from tests.unit.storage.log_fixtures import (
    PARTITION,
    QueueExecutor,
    append,
    batch,
    marker,
    read_all,
    values_of,
)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One or two batches a step."""
    monkeypatch.setattr(future_log_copy, "COPY_BYTES", 200)


def filled(count: int = 20, **options: object) -> MovingBroker:
    broker = MovingBroker(**options)  # type: ignore[arg-type]  # the options of the fixture
    for number in range(count):
        append(broker.log, b"%d" % number, leader_epoch=number // 8)
    return broker


def numbers(count: int, start: int = 0) -> list[bytes | None]:
    return [b"%d" % number for number in range(start, count)]


# Requests.


def test_no_replica_moves_to_a_cordoned_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-1066."""
    broker = filled()
    monkeypatch.setattr(broker.manager, "cordoned_directories", lambda: (B,))
    assert ErrorCode.INVALID_REPLICA_ASSIGNMENT == broker.alter(B)
    assert [f"{A}/orders-0"] == broker.directories()


def test_a_replica_moves_with_all_its_records() -> None:
    broker = filled()
    assert [f"{A}/orders-0"] == broker.directories()
    assert ErrorCode.NONE == broker.alter(B)
    assert [f"{A}/orders-0", f"{B}/orders-0-future"] == broker.directories()
    broker.advance()
    assert (B, None) == (broker.place, broker.future)
    assert numbers(20) == values_of(read_all(broker.log))
    assert [f"{A}/orders-0-delete", f"{B}/orders-0"] == broker.directories()
    assert ((0, 0), (1, 8), (2, 16)) == broker.log.leader_epochs.entries
    broker.clock.advance(60)
    broker.manager.deletion_step()
    assert [f"{B}/orders-0"] == broker.directories()
    assert f"{B}/orders-0/replaced-directories" not in broker.file_system.nodes


def test_a_move_to_where_the_log_is_changes_nothing() -> None:
    broker = filled()
    assert ErrorCode.NONE == broker.alter(A)
    assert [f"{A}/orders-0"] == broker.directories()


def test_the_same_request_twice_is_one_move() -> None:
    broker = filled()
    broker.alter(B)
    future = broker.future
    assert ErrorCode.NONE == broker.alter(B)
    assert future is broker.future


def test_a_move_back_cancels_a_move() -> None:
    broker = filled()
    broker.alter(B)
    broker.step()
    assert ErrorCode.NONE == broker.alter(A)
    broker.advance()
    assert (A, None) == (broker.place, broker.future)
    assert [f"{A}/orders-0", f"{B}/orders-0-delete"] == broker.directories()
    assert numbers(20) == values_of(read_all(broker.log))
    assert ErrorCode.NONE == broker.alter(B)
    broker.advance()
    assert B == broker.place


def test_each_error_that_a_request_can_get() -> None:
    broker = filled()
    unhosted = TopicPartition("other", 3)
    assert ErrorCode.LOG_DIR_NOT_FOUND == broker.alter("/c")
    assert ErrorCode.LOG_DIR_NOT_FOUND == broker.alter(f"{B}/")
    assert ErrorCode.INVALID_TOPIC_EXCEPTION == broker.alter(B, TopicPartition("t" * 215, 0))
    assert ErrorCode.REPLICA_NOT_AVAILABLE == broker.alter(B, unhosted)
    broker.absence = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == broker.alter(B, unhosted)
    broker.absence = ErrorCode.KAFKA_STORAGE_ERROR
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.alter(B, unhosted)
    broker.manager.resources.failures.give_up(B, OSError(errno.EIO, "I/O error"))
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.alter(B)
    assert ErrorCode.NONE == broker.alter(A)


def test_no_move_begins_while_a_third_directory_is_offline() -> None:
    """It may have a future log of the partition."""
    broker = filled()
    broker.manager.resources.failures.give_up("/c", OSError(errno.EIO, "I/O error"))
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.alter(B)
    assert broker.future is None


def test_a_partition_that_comes_later_is_created_in_the_requested_directory() -> None:
    broker = filled()
    later = TopicPartition("later", 0)
    broker.alter(A, later)
    assert A == os.path.dirname(broker.manager.get_or_create(later).directory)
    assert {} == broker.manager.preferred


def test_requests_for_unknown_partitions_are_remembered_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kalda.broker.replicas.replica_alter_log_dirs.PREFERRED_MAX", 2)
    broker = filled()
    for topic in ("one", "two", "one", "three"):
        broker.alter(B, TopicPartition(topic, 0))
    assert ["one", "three"] == [name.topic for name in broker.manager.preferred]


# Copying.


def test_records_that_are_appended_meanwhile_are_copied() -> None:
    broker = filled(10)
    broker.alter(B)
    while broker.step():
        pass
    for number in range(10, 20):
        append(broker.log, b"%d" % number, leader_epoch=2)
    assert 10 == broker.moves.max_lag
    broker.advance()
    assert (B, numbers(20)) == (broker.place, values_of(read_all(broker.log)))
    append(broker.log, b"20", leader_epoch=2)
    assert numbers(21) == values_of(read_all(broker.log))


def test_a_truncation_of_the_log_truncates_the_copy() -> None:
    """As of a follower whose leader has other records: the copy must not keep the old ones."""
    broker = filled(20)
    broker.alter(B)
    while broker.step():
        pass
    broker.log.truncate_to(10)
    for number in range(10, 30):
        append(broker.log, b"new %d" % number, leader_epoch=5)
    broker.advance()
    expected = [*numbers(10), *(b"new %d" % number for number in range(10, 30))]
    assert (B, expected) == (broker.place, values_of(read_all(broker.log)))
    assert ((0, 0), (1, 8), (5, 10)) == broker.log.leader_epochs.entries


def test_a_truncation_within_an_epoch_truncates_the_copy() -> None:
    """Records of the old formats have no epochs: only the note of the truncation shows it."""
    broker = filled(6)
    broker.alter(B)
    while broker.step():
        pass
    broker.log.truncate_to(3)
    for number in range(3, 8):
        append(broker.log, b"new %d" % number)
    broker.advance()
    assert [*numbers(3), *(b"new %d" % number for number in range(3, 8))] == values_of(read_all(broker.log))


def test_a_log_that_lost_its_start_is_copied_from_there() -> None:
    broker = filled(20)
    broker.alter(B)
    broker.step()
    broker.log.delete_records_before(11)
    broker.log.delete_old_segments()
    broker.advance()
    assert (B, 11) == (broker.place, broker.log.log_start_offset)
    assert numbers(20, 11) == values_of(read_all(broker.log))


def test_the_copy_keeps_what_has_expired_as_long_as_the_log() -> None:
    """Else the log would begin later after the move, with its first records promised and gone."""
    broker = filled(20)
    broker.alter(B)
    while broker.step():
        pass
    broker.log.delete_records_before(5)
    broker.clock.advance(8 * 86400)
    broker.advance()
    assert (B, 5) == (broker.place, broker.log.log_start_offset)
    assert numbers(20, 5) == values_of(read_all(broker.log))


def test_retention_does_not_touch_a_log_that_was_replaced_meanwhile() -> None:
    broker = filled(20)
    broker.manager.get_or_create(TopicPartition("first", 0))
    old = broker.log
    # The pass has begun, and holds the logs of then.
    broker.manager._retention_pass = iter((old,))
    broker.manager._expiration_pass = iter((old,))
    broker.alter(B)
    broker.advance()
    broker.clock.advance(8 * 86400)
    broker.manager.retention_step()
    broker.manager.producer_expiration_step()
    assert (0, 20) == (old.log_start_offset, broker.log.log_end_offset)
    assert numbers(20) == values_of(read_all(broker.log))


def test_a_log_start_inside_a_batch_is_kept() -> None:
    broker = MovingBroker()
    append(broker.log, b"0", b"1", b"2")
    append(broker.log, b"3")
    broker.log.delete_records_before(1)
    broker.alter(B)
    broker.advance()
    assert (B, 1, 4) == (broker.place, broker.log.log_start_offset, broker.log.log_end_offset)
    assert numbers(4, 1) == values_of(read_all(broker.log))


def test_a_log_that_was_restarted_restarts_the_copy() -> None:
    broker = filled(10)
    broker.alter(B)
    broker.step()
    broker.log.truncate_fully_and_start_at(100)
    broker.advance()
    assert (B, 100, 100) == (broker.place, broker.log.log_start_offset, broker.log.log_end_offset)


def test_an_empty_log_moves() -> None:
    broker = MovingBroker()
    broker.alter(B)
    broker.advance()
    append(broker.log, b"0")
    assert (B, [(0, b"0")]) == (broker.place, read_all(broker.log))


def test_an_epoch_without_records_is_kept() -> None:
    broker = filled(4)
    broker.log.assign_leader_epoch(9)
    broker.alter(B)
    broker.advance()
    assert ((0, 0), (9, 4)) == broker.log.leader_epochs.entries


def test_high_watermark_and_open_transaction_are_kept() -> None:
    broker = MovingBroker()
    append(broker.log, b"0")
    broker.log.append_as_leader(
        batch(b"1", producer_id=5, epoch=0, sequence=0, transactional=True), leader_epoch=0
    )
    broker.log.append_as_leader(marker(ControlRecordType.ABORT, 5), 0, origin=AppendOrigin.COORDINATOR)
    broker.log.append_as_leader(
        batch(b"3", producer_id=6, epoch=0, sequence=0, transactional=True), leader_epoch=0
    )
    append(broker.log, b"4")
    state = broker.log.producer_state
    guard = state.begin_verification(7)
    broker.alter(B)
    broker.advance()
    assert (5, 3) == (broker.log.high_watermark, broker.log.last_stable_offset)
    assert state is broker.log.producer_state
    assert state.is_being_verified(7, guard), "a move voids no guard, and the guard is that of the new log"
    broker.log.append_as_leader(marker(ControlRecordType.ABORT, 7), 0, origin=AppendOrigin.COORDINATOR)
    assert not state.is_being_verified(7, guard)
    found = broker.log.read(0, 10_000, FetchIsolation.TXN_COMMITTED)
    aborted = found.aborted_transactions or []
    assert [(5, 1)] == [(each.producer_id, each.first_offset) for each in aborted]
    again = broker.kill()
    again.log.advance_high_watermark(5)
    assert (B, 3) == (again.place, again.log.last_stable_offset)


def test_a_producer_whose_batches_are_gone_is_still_known() -> None:
    """Else its retry of a batch would be appended a second time."""
    broker = MovingBroker()
    broker.log.append_as_leader(batch(b"a" * 300, producer_id=5, epoch=0, sequence=0), leader_epoch=0)
    for number in range(6):
        append(broker.log, b"%d" % number * 100)
    broker.log.delete_records_before(3)
    broker.log.delete_old_segments()
    broker.alter(B)
    broker.advance()
    assert [5] == list(broker.log.producer_state.producers)
    assert [5] == list(broker.stop().log.producer_state.producers)


def test_offsets_that_the_log_has_lost_are_lost_in_the_copy() -> None:
    broker = filled(6)
    broker.log.missing.add([(2, 4)])
    broker.alter(B)
    broker.advance()
    # The records are there all the same: nothing is missing in the copy.
    assert () == broker.log.missing.ranges


def test_a_log_with_a_gap_at_its_end_moves() -> None:
    broker = filled(4)
    broker.log.roll(9)
    broker.log.missing.add([(4, 9)])
    broker.alter(B)
    broker.advance()
    assert (B, 9) == (broker.place, broker.log.log_end_offset)
    assert [(4, 9)] == list(broker.log.missing.ranges)
    append(broker.log, b"9")
    assert [0, 1, 2, 3, 9] == [offset for offset, _ in read_all(broker.log)]


def test_what_the_log_got_back_is_copied_again() -> None:
    broker = filled(8)
    broker.alter(B)
    while broker.step():
        pass
    future = broker.future
    assert future is not None
    future.missing.add([(3, 5)])
    broker.step()
    assert 3 <= future.log_end_offset < 8
    assert () == future.missing.ranges
    broker.advance()
    assert (B, numbers(8)) == (broker.place, values_of(read_all(broker.log)))


# What the move waits for, and what ends it.


def test_a_move_waits_while_records_are_put_into_the_log() -> None:
    broker = filled()
    broker.repaired = True
    broker.alter(B)
    broker.advance()
    assert A == broker.place
    broker.repaired = False
    broker.advance()
    assert B == broker.place


def test_a_move_to_a_full_directory_waits_for_room() -> None:
    broker = filled()
    broker.alter(B)
    broker.file_system.space_left = 300
    broker.advance()
    assert (A, 1) == (broker.place, broker.moves.failed_count)
    assert [B] == list(broker.manager.resources.failures.full)
    broker.advance()
    assert A == broker.place
    broker.file_system.space_left = None
    broker.manager.resources.failures.full.clear()
    broker.advance()
    assert (B, numbers(20)) == (broker.place, values_of(read_all(broker.log)))
    assert 0 == broker.moves.failed_count


def test_a_full_new_directory_does_not_disturb_the_log() -> None:
    broker = filled()

    def fault(operation: str, path: str) -> None:
        if operation == "write" and path.startswith(f"{B}/"):
            raise OSError(errno.ENOSPC, "no space left on device")

    broker.alter(B)
    broker.file_system.fault = fault
    broker.advance()
    append(broker.log, b"20", leader_epoch=2)
    assert (A, True, numbers(21)) == (broker.place, broker.log.is_writable, values_of(read_all(broker.log)))
    assert ErrorCode.NONE == broker.alter(A)
    assert [f"{A}/orders-0", f"{B}/orders-0-delete"] == broker.directories()


def test_a_replica_moves_out_of_a_full_directory() -> None:
    broker = filled()
    broker.manager.resources.failures.full[A] = "no space left"
    broker.alter(B)
    broker.advance()
    assert (B, [broker.hosted]) == (broker.place, broker.moved_from_full)
    assert broker.log.is_writable


def test_a_deleted_partition_ends_its_move() -> None:
    broker = filled()
    broker.alter(B)
    broker.step()
    broker.hosted = None
    broker.manager.delete(PARTITION)
    broker.advance()
    assert [f"{A}/orders-0-delete", f"{B}/orders-0-delete"] == broker.directories()
    assert 0 == broker.moves.max_lag


def test_a_failure_of_the_new_directory_ends_the_move_only() -> None:
    broker = filled()
    broker.alter(B)
    broker.step()
    broker.manager.resources.failures.give_up(B, OSError(errno.EIO, "I/O error"))
    assert [] == broker.manager.take_offline(B)
    broker.advance()
    assert (A, None) == (broker.place, broker.future)
    append(broker.log, b"20")


def test_a_sync_that_fails_begins_the_copy_again() -> None:
    """Pages that a failed sync drops may be read as they were, and be gone later."""
    broker = filled()
    broker.alter(B)
    failures = 0

    def fault(operation: str, path: str) -> None:
        nonlocal failures
        if operation == "sync" and "-future" in path and path.endswith(".log") and not failures:
            failures += 1
            raise OSError(errno.ENOSPC, "no space")

    broker.file_system.fault = fault
    broker.advance()
    assert (A, 1) == (broker.place, failures)
    broker.manager.resources.failures.full.clear()
    broker.advance()
    assert broker.future is not None
    assert (1, 0) == (broker.moves.failed_count, broker.future.log_end_offset)
    broker.advance()
    assert (B, numbers(20)) == (broker.place, values_of(read_all(broker.log)))


def test_a_throttled_move_does_not_exceed_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = filled()
    broker.moves.quota.set_rate(100)

    async def sleep(seconds: float) -> None:
        broker.clock.advance(seconds)

    monkeypatch.setattr("kalda.broker.replicas.replica_alter_log_dirs.asyncio.sleep", sleep)
    broker.alter(B)
    broker.advance()
    assert B == broker.place
    assert broker.log.size / 100 - 11 <= broker.clock.monotonic() <= broker.log.size / 100 + 11


def test_the_pause_after_an_error_grows_up_to_a_bound() -> None:
    broker = filled()
    broker.alter(B)

    def fault(operation: str, path: str) -> None:
        if "-future" in path:
            raise OSError(errno.EMFILE, "too many open files")

    broker.file_system.fault = fault
    move = broker.moves._moves[PARTITION]
    pauses = []
    for _ in range(8):
        broker.advance()
        pauses.append(move.due - broker.clock.monotonic())
    assert [1, 2, 4, 8, 16, 32, 60, 60] == pauses


# Replacing.


def test_readers_keep_what_they_hold_of_the_replaced_log() -> None:
    broker = filled()
    held = broker.log.read(0, 10_000).records
    content = held.read()
    broker.alter(B)
    broker.advance()
    broker.clock.advance(60)
    broker.manager.deletion_step()
    assert content == held.read()


def test_checkpoints_move_with_the_log() -> None:
    broker = filled()
    broker.manager.checkpoint_high_watermarks()
    broker.alter(B)
    broker.advance()
    broker.log.flush()
    broker.manager.checkpoint_high_watermarks()
    broker.manager.checkpoint_recovery_points()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert {PARTITION: 20} == read_offset_checkpoint(broker.file_system, f"{B}/{name}")
        assert {} == read_offset_checkpoint(broker.file_system, f"{A}/{name}")


def test_the_checkpoint_of_an_earlier_stay_is_not_taken_for_the_copys() -> None:
    """The old line would make a start believe that unsynced records were synced."""
    broker = filled()
    broker.log.flush()
    broker.manager.checkpoint_recovery_points()
    broker.alter(B)
    broker.advance()
    again = broker.kill()
    assert (B, {PARTITION: 20}) == (again.place, recovery_points(again))
    again.alter(A)
    assert {} == recovery_points(again)


def recovery_points(broker: MovingBroker) -> dict[TopicPartition, int]:
    return read_offset_checkpoint(broker.file_system, f"{A}/recovery-point-offset-checkpoint")


def test_the_rename_that_fails_is_tried_again() -> None:
    broker = filled()
    broker.alter(B)

    def fault(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("-future"):
            raise OSError(errno.EMFILE, "too many open files")

    broker.file_system.fault = fault
    broker.advance()
    assert A == broker.place
    append(broker.log, b"20", leader_epoch=2)
    broker.file_system.fault = None
    broker.advance()
    assert (B, numbers(21)) == (broker.place, values_of(read_all(broker.log)))


def test_an_old_disk_that_fails_at_the_replacement_is_recognised_when_it_comes_back() -> None:
    """The old log is complete up to the replacement, and must not be taken for the current one."""
    broker = filled()
    broker.alter(B)

    def fault(operation: str, path: str) -> None:
        if operation == "rename" and path == f"{A}/orders-0":
            raise OSError(errno.EIO, "I/O error")

    broker.file_system.fault = fault
    broker.advance()
    assert B == broker.place
    append(broker.log, b"20", leader_epoch=2)
    broker.file_system.fault = None
    again = broker.kill()
    assert (B, numbers(21)) == (again.place, values_of(read_all(again.log)))
    assert [f"{A}/orders-0-delete", f"{B}/orders-0"] == again.directories()
    assert f"{B}/orders-0/replaced-directories" not in again.file_system.nodes


@pytest.mark.parametrize("first", [A, B])
def test_an_old_log_that_was_in_service_again_is_not_removed(first: str) -> None:
    """The new disk failed right after the move, the broker went on without it, and now it is back."""
    broker = filled()
    if first == B:
        broker.alter(B)
        broker.advance()
        broker.manager.deletion_step()
    source, target = (A, B) if first == A else (B, A)
    broker.alter(target)

    def fault(operation: str, path: str) -> None:
        if operation == "rename" and path == f"{source}/orders-0":
            raise OSError(errno.EIO, "I/O error")

    broker.file_system.fault = fault
    broker.advance()
    assert target == broker.place
    files = broker.file_system.crash()
    hidden = {path: node for path, node in files.nodes.items() if path.startswith(f"{target}/")}
    for path in hidden:
        del files.nodes[path]
    files.directories.discard(f"{target}/orders-0")
    without = MovingBroker(broker.config, files, broker.clock)
    assert source == without.place
    append(without.log, b"20", leader_epoch=7)
    files = files.crash()
    files.nodes |= hidden
    files.directories.add(f"{target}/orders-0")
    again = MovingBroker(broker.config, files, broker.clock)
    assert (source, numbers(21)) == (again.place, values_of(read_all(again.log)))


def test_two_logs_of_which_none_replaced_the_other_stop_a_start() -> None:
    broker = filled()
    broker.file_system.make_directory(f"{B}/orders-0")
    with pytest.raises(LogDirectoryError, match=r"is in two log directories, /a/orders-0 and /b/orders-0"):
        broker.kill()


def test_a_deletion_right_after_the_replacement_leaves_no_old_log() -> None:
    executor = QueueExecutor()
    broker = filled(executor=executor)
    broker.alter(B)
    # As far as the mover goes without waiting: nothing in the pool runs.
    while broker.step():
        pass
    broker.manager.futures.prepare_replacement(PARTITION, broker.log)()
    broker.manager.replace_with_future(PARTITION)
    assert f"{A}/orders-0" in broker.file_system.directories
    broker.manager.delete(PARTITION)
    executor.run()
    assert [f"{A}/orders-0-delete", f"{B}/orders-0-delete"] == broker.directories()


# Restarts.


@pytest.mark.parametrize("restart", [MovingBroker.stop, MovingBroker.kill, MovingBroker.cut_power])
def test_a_move_goes_on_after_a_restart(restart: Callable[[MovingBroker], MovingBroker]) -> None:
    broker = filled()
    broker.log.flush()
    broker.alter(B)
    for _ in range(5):
        broker.step()
    again = restart(broker)
    assert (A, 20) == (again.place, again.log.log_end_offset)
    assert again.future is not None
    again.advance()
    assert (B, numbers(20)) == (again.place, values_of(read_all(again.log)))


def test_a_copy_with_more_than_the_log_kept_is_truncated_by_epoch() -> None:
    """The power failed on the old disk: a new leader has written other records at the same offsets."""
    broker = filled(8)
    broker.log.flush()
    for number in range(8, 20):
        append(broker.log, b"%d" % number, leader_epoch=1)
    broker.alter(B)
    while broker.step():
        pass
    assert broker.future is not None
    broker.future.flush()
    again = broker.cut_power()
    assert again.log.log_end_offset < 20
    assert again.future is not None
    assert 20 == again.future.log_end_offset
    end = again.log.log_end_offset
    for number in range(end, 30):
        append(again.log, b"new %d" % number, leader_epoch=4)
    again.advance()
    expected = [*numbers(end), *(b"new %d" % number for number in range(end, 30))]
    assert (B, expected) == (again.place, values_of(read_all(again.log)))


def test_a_cancelled_copy_that_a_power_failure_brings_back_is_removed() -> None:
    """The rename of the directory was not on the device when the move was requested again."""
    broker = filled()
    broker.log.flush()
    for _ in range(2):
        broker.alter(B)
        assert broker.future is not None
        broker.step()
        broker.future.flush()
        broker.alter(A)
    broker.alter(B)
    again = broker.cut_power()
    assert [f"{A}/orders-0", *[f"{B}/orders-0-delete"] * 2, f"{B}/orders-0-future"] == again.directories()
    again.advance()
    assert (B, numbers(20)) == (again.place, values_of(read_all(again.log)))


def test_a_copy_whose_log_is_gone_makes_room_for_a_new_replica() -> None:
    """The old disk was replaced by an empty one."""
    broker = filled()
    broker.alter(B)
    broker.step()
    files = broker.file_system.crash()
    files.directories = {path for path in files.directories if not path.startswith(f"{A}/")}
    files.nodes = {path: node for path, node in files.nodes.items() if not path.startswith(f"{A}/")}
    again = MovingBroker(broker.config, files, broker.clock)
    assert (B, 0, None) == (again.place, again.log.log_end_offset, again.future)


def test_a_copy_of_an_earlier_topic_is_dropped() -> None:
    broker = filled()
    broker.alter(B)
    assert broker.future is not None
    files = broker.file_system
    path = f"{broker.future.directory}/partition.metadata"
    files.nodes[path].content[:] = bytes(files.nodes[path].content).replace(
        b"AAAAAAAAAAAAAAAAAAAABw", b"AAAAAAAAAAAAAAAAAAAACA"
    )
    again = broker.kill()
    assert (A, None) == (again.place, again.future)
    assert TOPIC_ID == again.log.topic_id
