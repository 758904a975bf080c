"""A crash after a truncation: the checkpoints must not claim what the log no longer has."""

import pytest

from kalda.common.types import TopicPartition
from kalda.runtime.filesystem import FileSystem
from kalda.storage.checkpoints import parse_offset_checkpoint
from kalda.storage.file_names import RECOVERY_POINT_CHECKPOINT_FILE
from kalda.storage.log_config import LogConfig
from kalda.storage.offset_checkpoint import OffsetCheckpointFile
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import DIRECTORY, Broker, QueueExecutor, append, batch

EACH_FLUSHED = LogConfig(flush_messages=1)
PATH = f"{DIRECTORY}/{RECOVERY_POINT_CHECKPOINT_FILE}"
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def on_disk(files: FileSystem) -> dict[TopicPartition, int]:
    return parse_offset_checkpoint(files.read(PATH))


def checkpointed(executor: QueueExecutor | None = None) -> Broker:
    """Return a broker with six flushed records, two of them not committed, and a checkpoint of that."""
    broker = Broker(EACH_FLUSHED, executor=executor)
    for number in range(4):
        append(broker.log, b"%d" % number)
    for _ in range(2):
        broker.log.append_as_leader(batch(b"not committed"), 0)
    if executor is not None:
        executor.run()
    broker.manager.checkpoint_recovery_points()
    broker.manager.checkpoint_high_watermarks()
    if executor is not None:
        executor.run()
    return broker


@pytest.mark.parametrize("offset", [5, 3, 0])
def test_a_kill_right_after_a_truncation_loses_no_records(offset: int) -> None:
    executor = QueueExecutor()
    broker = checkpointed(executor)
    broker.log.truncate_to(offset)
    assert () == broker.cut_power().log.missing.ranges
    again = broker.kill()
    assert () == again.log.missing.ranges
    assert offset == again.log.log_end_offset


def test_a_kill_after_a_truncation_between_two_checkpoints_loses_no_records() -> None:
    executor = QueueExecutor()
    broker = checkpointed(executor)
    broker.manager.get_or_create(SECOND)
    broker.manager.checkpoint_recovery_points()
    broker.log.truncate_to(5)  # while the checkpoint is being written
    executor.run()
    assert 5 == on_disk(broker.file_system)[FIRST]
    assert () == broker.kill().log.missing.ranges


def test_a_log_that_is_truncated_fully_claims_nothing_above_its_start() -> None:
    broker = checkpointed(QueueExecutor())
    broker.log.truncate_fully_and_start_at(2)
    again = broker.kill()
    assert () == again.log.missing.ranges
    assert 2 == again.log.log_end_offset


def test_a_call_during_a_write_has_the_rest_written_after_it() -> None:
    files, executor = FaultyFileSystem(), QueueExecutor()
    files.make_directory(DIRECTORY)
    file = OffsetCheckpointFile(files, PATH)
    file.update(FIRST, 6)
    file.write(executor)
    file.update(SECOND, 7)
    file.write(executor)
    executor.run()
    assert {FIRST: 6, SECOND: 7} == on_disk(files)


def test_an_offset_is_lowered_on_disk_only_if_the_file_may_have_a_higher_one() -> None:
    files, executor = FaultyFileSystem(), QueueExecutor()
    files.make_directory(DIRECTORY)
    file = OffsetCheckpointFile(files, PATH)
    file.update(FIRST, 6)
    file.write(executor)
    executor.run()
    written: list[str] = []
    files.fault = lambda operation, _: written.append(operation)
    file.lower(FIRST, 6)
    file.lower(SECOND, 0)
    assert [] == written
    files.fault = None
    file.lower(FIRST, 5)
    assert {FIRST: 5} == on_disk(files)


def test_a_write_that_is_still_to_be_done_does_not_restore_what_was_lowered() -> None:
    files, executor = FaultyFileSystem(), QueueExecutor()
    files.make_directory(DIRECTORY)
    file = OffsetCheckpointFile(files, PATH)
    file.update(FIRST, 6)
    file.write(executor)
    file.lower(FIRST, 5)
    executor.run()
    assert {FIRST: 5} == on_disk(files)


def test_a_lowered_offset_counts_only_once_it_is_on_disk() -> None:
    files, executor = FaultyFileSystem(), QueueExecutor()
    files.make_directory(DIRECTORY)
    file = OffsetCheckpointFile(files, PATH)
    file.update(FIRST, 6)
    file.write(executor)
    executor.run()
    file.update(FIRST, 5)
    file.write(executor)
    file.lower(FIRST, 5)
    assert {FIRST: 5} == on_disk(files)
