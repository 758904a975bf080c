"""What the controller's requests do to the hosted partitions."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kalda.broker.replicas.in_sync import FollowerState
from kalda.broker.replicas.role_changes import RETRIES_PER_STEP, RETRY_FAILURES_MAX
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import LeaderAndIsr, StopReplica
from kalda.records.batch import set_base_offset_and_leader_epoch
from tests.unit.broker.data_path_fakes import DataPath, batch, leadership
from tests.unit.storage.faulty_file_system import FaultyFileSystem

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    yield path
    path.close()


def stop(broker: DataPath, epoch: int, *, delete: bool) -> dict[TopicPartition, ErrorCode]:
    request = StopReplica(1, 1, [PARTITION], delete, {PARTITION: epoch})
    return broker.replicas.roles.apply_stop_replica(request)


def test_leadership_is_taken_and_handed_over_by_epoch(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=3, replicas=(1, 2)))
    assert broker.partition().is_leader
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    assert not broker.partition().is_leader
    assert 2 == broker.partition().leader_id


def test_an_older_leader_epoch_changes_nothing(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=3))
    assert {PARTITION: ErrorCode.STALE_CONTROLLER_EPOCH} == broker.host(leadership(leader=2, leader_epoch=2))
    assert broker.partition().is_leader


def test_a_replaced_controller_is_refused(broker: DataPath) -> None:
    broker.host(leadership())
    broker.replicas.roles.apply_leader_and_isr(LeaderAndIsr(1, 5, []))
    request = LeaderAndIsr(1, 4, [leadership(leader=2, leader_epoch=9)])
    assert {PARTITION: ErrorCode.STALE_CONTROLLER_EPOCH} == broker.replicas.roles.apply_leader_and_isr(
        request
    )
    stale = StopReplica(1, 4, [PARTITION], True, {})
    assert {PARTITION: ErrorCode.STALE_CONTROLLER_EPOCH} == broker.replicas.roles.apply_stop_replica(stale)
    assert broker.partition().is_leader


def test_a_partition_without_a_replica_here_is_refused(broker: DataPath) -> None:
    errors = broker.host(leadership(leader=2, replicas=(2, 3)))
    assert {PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == errors


def test_another_topic_of_the_same_name_is_refused(broker: DataPath) -> None:
    broker.host(leadership())
    other = leadership(topic_id=uuid.UUID(int=99), leader_epoch=9)
    assert {PARTITION: ErrorCode.INCONSISTENT_TOPIC_ID} == broker.host(other)


def test_a_stopped_replica_is_gone_and_its_log_deleted_if_asked(broker: DataPath) -> None:
    broker.host(leadership())
    broker.produce(batch(b"a"))
    assert {} == stop(broker, -2, delete=True)
    assert broker.logs.get(PARTITION) is None
    with pytest.raises(ApiError) as caught:
        broker.partition()
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER is caught.value.code
    assert (
        ErrorCode.UNKNOWN_TOPIC_ID
        == broker.fetch(version=13, topic_id=uuid.UUID(int=1)).responses[0].partitions[0].error_code
    )


def test_a_stopped_replica_keeps_its_log_by_default(broker: DataPath) -> None:
    broker.host(leadership())
    broker.produce(batch(b"a"))
    assert {} == stop(broker, 3, delete=False)
    broker.host(leadership(leader_epoch=4))
    assert 1 == broker.partition().log.log_end_offset


def test_a_stop_of_an_older_epoch_is_fenced(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=3))
    assert {PARTITION: ErrorCode.FENCED_LEADER_EPOCH} == stop(broker, 2, delete=True)
    assert broker.partition().is_leader


def test_a_deleted_topic_can_come_back_under_its_name(broker: DataPath) -> None:
    broker.host(leadership())
    broker.produce(batch(b"a"))
    stop(broker, -2, delete=True)
    broker.host(leadership(topic_id=uuid.UUID(int=8), leader_epoch=0))
    assert 0 == broker.produce(batch(b"b")).base_offset


def refuse_log(broker: DataPath, tmp_path: Path, **role: Any) -> Path:
    """Have the disk refuse the log of a partition, by a file where its directory should be."""
    obstacle = tmp_path / "orders-0"
    obstacle.write_bytes(b"")
    assert {PARTITION: ErrorCode.KAFKA_STORAGE_ERROR} == broker.host(leadership(**role))
    return obstacle


def test_a_log_that_the_disk_refuses_is_opened_once_the_cause_is_gone(
    broker: DataPath, tmp_path: Path
) -> None:
    """The metadata says that the partition is led here, and the controller does not ask twice."""
    obstacle = refuse_log(broker, tmp_path)
    assert ErrorCode.KAFKA_STORAGE_ERROR == broker.produce(batch(b"a")).error_code
    answer = broker.fetch(version=13, topic_id=leadership().topic_id).responses[0].partitions[0]
    assert ErrorCode.KAFKA_STORAGE_ERROR == answer.error_code
    assert not broker.replicas.roles.retry_refused()
    obstacle.unlink()
    broker.replicas.roles.retry_refused()
    assert 0 == broker.produce(batch(b"a")).error_code
    assert 3 == broker.partition().leader_epoch


def test_a_refused_role_that_a_newer_one_replaced_is_not_taken(broker: DataPath, tmp_path: Path) -> None:
    obstacle = refuse_log(broker, tmp_path, leader_epoch=3, replicas=(1, 2))
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    assert {PARTITION: ErrorCode.STALE_CONTROLLER_EPOCH} == broker.host(leadership(leader_epoch=3))
    obstacle.unlink()
    broker.replicas.roles.retry_refused()
    assert (2, 4) == (broker.partition().leader_id, broker.partition().leader_epoch)


@pytest.mark.parametrize("delete", [True, False])
def test_a_refused_role_ends_with_the_replica(broker: DataPath, tmp_path: Path, delete: bool) -> None:
    obstacle = refuse_log(broker, tmp_path, leader_epoch=3)
    assert {PARTITION: ErrorCode.FENCED_LEADER_EPOCH} == stop(broker, 2, delete=delete)
    assert {} == stop(broker, -2, delete=delete)
    obstacle.unlink()
    broker.replicas.roles.retry_refused()
    assert not broker.replicas.partitions
    assert not obstacle.exists()


def test_many_refused_roles_are_tried_in_turn(broker: DataPath, tmp_path: Path) -> None:
    """A full disk must not cost a try for each of thousands of partitions, nor starve those at the end."""
    count = 3 * RETRIES_PER_STEP
    for index in range(count):
        (tmp_path / f"orders-{index}").write_bytes(b"")
    broker.host(*(leadership(index) for index in range(count)))
    (tmp_path / f"orders-{2 * RETRY_FAILURES_MAX}").unlink()
    for _ in range(2):
        assert not broker.replicas.roles.retry_refused()
        assert not broker.replicas.partitions
    broker.replicas.roles.retry_refused()
    assert [TopicPartition("orders", 2 * RETRY_FAILURES_MAX)] == list(broker.replicas.partitions)
    for index in range(count):
        if index != 2 * RETRY_FAILURES_MAX:
            (tmp_path / f"orders-{index}").unlink()
    assert broker.replicas.roles.retry_refused()
    assert broker.replicas.roles.retry_refused()
    assert not broker.replicas.roles.retry_refused()
    assert count == len(broker.replicas.partitions)


def test_an_epoch_that_cannot_be_written_down_leaves_the_role_as_it_was(
    broker: DataPath, tmp_path: Path
) -> None:
    broker.host(leadership(leader=2, leader_epoch=3, replicas=(1, 2)))
    obstacle = tmp_path / "orders-0" / "leader-epoch-checkpoint.tmp"
    obstacle.mkdir()
    errors = broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    assert {PARTITION: ErrorCode.KAFKA_STORAGE_ERROR} == errors
    assert (2, 3) == (broker.partition().leader_id, broker.partition().leader_epoch)
    obstacle.rmdir()
    broker.replicas.roles.retry_refused()
    assert broker.partition().is_leader
    assert 4 == broker.partition().leader_epoch


def test_a_refused_replica_takes_no_role_before_its_disk_takes_writes(
    broker: DataPath, tmp_path: Path
) -> None:
    """To follow writes nothing. Answered with success, the controller would elect this replica at once, hear
    that it cannot lead, and go round as fast as it can: a full disk for coordination, too."""
    recovered: list[TopicPartition] = []
    broker.replicas.watch_recovery(lambda: recovered.extend(broker.replicas.partitions))
    broker.host(leadership(leader=2, leader_epoch=3, replicas=(1, 2)))
    obstacle = tmp_path / "orders-0" / "leader-epoch-checkpoint.tmp"
    obstacle.mkdir()
    for epoch, leader in ((4, 1), (5, -1), (6, 2)):
        errors = broker.host(leadership(leader=leader, leader_epoch=epoch, replicas=(1, 2)))
        assert {PARTITION: ErrorCode.KAFKA_STORAGE_ERROR} == errors
        broker.replicas.roles.retry_refused()
    assert 3 == broker.partition().leader_epoch
    assert not recovered
    obstacle.rmdir()
    broker.replicas.roles.retry_refused()
    assert (2, 6) == (broker.partition().leader_id, broker.partition().leader_epoch)
    assert [PARTITION] == recovered


def test_the_high_watermark_is_the_least_end_of_the_isr(broker: DataPath) -> None:
    """Broker 3 lags but is out of sync, so only broker 2 holds it back."""
    broker.host(leadership(replicas=(1, 2, 3), isr=(1, 2)))
    for _ in range(3):
        broker.produce(batch(b"a"))
    partition = broker.partition()
    partition.update_follower(3, 1, 0, 0.0)
    assert 0 == partition.log.high_watermark
    assert partition.update_follower(2, 2, 0, 0.0)
    assert 2 == partition.log.high_watermark


def test_the_high_watermark_rests_below_min_insync_replicas(broker: DataPath) -> None:
    broker.configure(min_insync_replicas=2)
    broker.host(leadership(replicas=(1, 2), isr=(1,)))
    broker.produce(batch(b"a"), acks=1)
    assert 0 == broker.partition().log.high_watermark


def test_what_is_known_of_followers_survives_a_change_of_the_isr_only(broker: DataPath) -> None:
    broker.host(leadership(replicas=(1, 2)))
    broker.produce(batch(b"a"))
    partition = broker.partition()
    partition.update_follower(2, 1, 0, 0.0)
    change = replace(leadership(replicas=(1, 2, 3)), partition_epoch=1)
    assert not partition.become_leader(change)
    assert 1 == partition.followers[2].log_end_offset
    assert partition.become_leader(replace(leadership(leader_epoch=4, replicas=(1, 2)), partition_epoch=2))
    assert 1 == partition.followers[2].log_end_offset
    partition.become_follower(
        replace(leadership(leader=2, leader_epoch=5, replicas=(1, 2)), partition_epoch=3)
    )
    assert partition.become_leader(replace(leadership(leader_epoch=6, replicas=(1, 2)), partition_epoch=4))
    assert -1 == partition.followers[2].log_end_offset


def test_a_leader_with_a_full_disk_follows_the_next_one_by_the_epochs_of_the_records() -> None:
    """It led in epoch 4 and could not write that; the next leader has more records of epoch 3."""
    files = FaultyFileSystem()
    broker = DataPath(Path("/data"), file_system=files)
    broker.host(leadership(leader_epoch=3, replicas=(1, 2)))
    broker.produce(batch(b"a"))
    partition = broker.partition()
    files.space_left = 0
    partition.become_leader(replace(leadership(leader_epoch=4, replicas=(1, 2)), partition_epoch=1))
    files.space_left = None
    partition.become_follower(
        replace(leadership(leader=2, leader_epoch=5, replicas=(1, 2)), partition_epoch=2)
    )
    more = bytearray(batch(b"b"))
    set_base_offset_and_leader_epoch(more, 0, 1, 3)
    partition.log.append_as_follower(more, 5)
    partition.become_leader(replace(leadership(leader_epoch=6, replicas=(1, 2)), partition_epoch=3))
    assert ((3, 0), (6, 2)) == partition.log.leader_epochs.entries
    assert (3, 2) == partition.log.leader_epochs.end_offset_for(3, 2)


def test_a_stranger_is_no_follower(broker: DataPath) -> None:
    broker.host(leadership(replicas=(1, 2)))
    with pytest.raises(ApiError) as caught:
        broker.partition().update_follower(7, 0, 0, 0.0)
    assert ErrorCode.UNKNOWN_LEADER_EPOCH is caught.value.code


def test_a_follower_of_a_busy_leader_counts_as_caught_up() -> None:
    """It never reaches the end, but each fetch has what the leader had at the one before."""
    follower = FollowerState()
    follower.fetched(10, 0, leader_end_offset=10, now=1.0)
    follower.fetched(15, 0, leader_end_offset=20, now=2.0)
    assert 1.0 == follower.last_caught_up
    follower.fetched(20, 0, leader_end_offset=30, now=3.0)
    assert 2.0 == follower.last_caught_up
    follower.fetched(25, 0, leader_end_offset=40, now=4.0)
    assert 2.0 == follower.last_caught_up
