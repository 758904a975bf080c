"""The state of share partitions: snapshots, what is redundant before them, and records that cannot be
read."""

from typing import Any
from uuid import UUID

import pytest

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord, NewerRecordError
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.share.delivery_state import START_UNKNOWN, PartitionState, StateRange
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.coordinator.share.share_records import (
    SharePartitionKey,
    Snapshot,
    Update,
    decode,
    snapshot_record,
    update_record,
)
from kalda.coordinator.share.share_shard import ShareShard, StateChange
from kalda.protocol import codec
from kalda.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
)
from tests.unit.coordinator.group.consumer.consumer_simulation import FakeContext

KEY = SharePartitionKey("g", UUID(int=1), 0)
OTHER = SharePartitionKey("g", UUID(int=1), 1)


class Log:
    """A shard with the records that it has written."""

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.context = FakeContext(self.apply, 1_000_000)
        self.shard = self.load()

    def load(self) -> ShareShard:
        config = ShareCoordinatorConfig(share_coordinator_snapshot_update_records_per_snapshot=2)
        self.shard = ShareShard(0, config)
        for offset, record in enumerate(self.records):
            self.shard.replay(offset, -1, -1, record)
        self.shard.on_loaded(self.context)
        return self.shard

    def apply(self, result: Result[Any]) -> Any:
        for record in result.records:
            self.shard.replay(len(self.records), -1, -1, record)
            self.records.append(record)
        self.shard.check_invariants()
        return result.response

    def write(self, key: SharePartitionKey, start: int, *ranges: StateRange) -> None:
        self.apply(self.shard.write(key, StateChange(1, 0, start, 0, ranges)))


def test_a_snapshot_takes_the_place_of_an_update_and_makes_what_is_before_it_redundant() -> None:
    log = Log()
    assert 0 == log.shard.redundant_offset
    log.apply(log.shard.initialize(KEY, 1, 0))
    for start in (1, 2, 3):
        log.write(KEY, start, StateRange(start + 5, start + 5, 2, 1))
    assert (3, 4) == (log.shard.redundant_offset, len(log.records))
    expected = PartitionState(1, 3, 0, 0, (StateRange(6, 8, 2, 1),))
    assert expected == log.shard.state(KEY)
    log.records[:3] = [log.records[3]] * 3
    assert expected == log.load().state(KEY)


def test_a_share_partition_without_updates_gets_a_snapshot_now_and_then() -> None:
    """Its old one would keep every record of the others."""
    log = Log()
    log.apply(log.shard.initialize(OTHER, 1, 7))
    log.apply(log.shard.initialize(KEY, 1, 0))
    assert 0 == log.shard.redundant_offset
    log.context.advance(300_000)
    assert 2 == log.shard.redundant_offset
    state = log.shard.state(OTHER)
    assert state is not None
    assert 7 == state.start_offset


def test_a_request_to_initialize_that_comes_again_resets_nothing() -> None:
    log = Log()
    log.apply(log.shard.initialize(KEY, 1, 0))
    log.write(KEY, 4)
    log.apply(log.shard.initialize(KEY, 1, 0))
    state = log.shard.state(KEY)
    assert state is not None
    assert 4 == state.start_offset
    with pytest.raises(ApiError) as caught:
        log.shard.initialize(KEY, 0, 0)
    assert ErrorCode.FENCED_STATE_EPOCH == caught.value.code


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_a_creation_that_is_asked_for_again_keeps_what_members_have_acknowledged(epoch: int) -> None:
    """The group coordinator asks again, at its epoch of then, where it did not get or keep the answer."""
    log = Log()
    log.apply(log.shard.initialize(KEY, 1, START_UNKNOWN))
    log.write(KEY, 4)
    log.apply(log.shard.initialize(KEY, epoch, START_UNKNOWN))
    state = log.shard.state(KEY)
    assert state is not None
    assert (1, 4) == (state.state_epoch, state.start_offset)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (StateChange(0, 5, 0, 0, ()), ErrorCode.FENCED_STATE_EPOCH),
        (StateChange(1, 4, 0, 0, ()), ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_writers_of_the_past_are_fenced(change: StateChange, code: ErrorCode) -> None:
    log = Log()
    log.apply(log.shard.initialize(KEY, 1, 0))
    log.apply(log.shard.read(KEY, 5))
    with pytest.raises(ApiError) as caught:
        log.shard.write(KEY, change)
    assert code == caught.value.code
    assert 2 == len(log.records)
    log.apply(log.shard.read(KEY, 5))
    assert 2 == len(log.records)


def test_what_was_deleted_is_not_initialized() -> None:
    log = Log()
    log.apply(log.shard.initialize(KEY, 1, 0))
    log.apply(log.shard.delete(KEY))
    log.apply(log.shard.delete(KEY))
    assert (2, None, 0) == (len(log.records), log.shard.state(KEY), len(log.shard))
    for operation in (
        lambda: log.shard.read(KEY, 1),
        lambda: log.shard.write(KEY, StateChange(1, 0, 0, 0, ())),
    ):
        with pytest.raises(ApiError) as caught:
            operation()
        assert ErrorCode.INVALID_REQUEST == caught.value.code
    assert 2 == log.shard.redundant_offset


def test_records_that_cannot_be_read_are_skipped() -> None:
    log = Log()
    log.apply(log.shard.initialize(KEY, 1, 3))
    record = log.records[0]
    for key, value in (
        (b"\x00", b""),
        (record.key, b"\x00\x00\x01"),
        (b"\x00\x63" + record.key[2:], record.value),
        (b"\x00\x01" + record.key[2:], None),
    ):
        log.shard.replay(1, -1, -1, CoordinatorRecord(key, value))
    state = log.shard.state(KEY)
    assert state is not None
    assert 3 == state.start_offset
    assert decode(CoordinatorRecord(b"\x00\x63", b"")) is None
    with pytest.raises(NewerRecordError, match="__share_group_state-0"):
        log.shard.replay(1, -1, -1, CoordinatorRecord(record.key, b"\x00\x07" + (record.value or b"")[2:]))


GARBAGE = (
    StateRange(9, 3, 2, 1),
    StateRange(-5, 8, 2, 1),
    StateRange(3, 2**63 - 1, 2, 1),
    StateRange(3, 8, 77, 1),
)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_write_of_what_cannot_be_is_refused(garbage: StateRange) -> None:
    log = Log()
    log.apply(log.shard.initialize(KEY, 1, 0))
    for change in (StateChange(1, 0, 0, 0, (garbage,)), StateChange(1, 0, -7, 0, ())):
        with pytest.raises(ApiError) as caught:
            log.shard.write(KEY, change)
        assert ErrorCode.INVALID_REQUEST == caught.value.code
    for numbers in ((-1, 0), (2, -2)):
        with pytest.raises(ApiError) as caught:
            log.shard.initialize(KEY, *numbers)
        assert ErrorCode.INVALID_REQUEST == caught.value.code


@pytest.mark.parametrize("garbage", GARBAGE)
def test_records_of_what_cannot_be_are_skipped(garbage: StateRange) -> None:
    log = Log()
    log.apply(log.shard.initialize(KEY, 1, 3))
    snapshot = Snapshot(4, PartitionState(1, 5, ranges=(garbage,)), 0, 0)
    for record in (
        snapshot_record(KEY, snapshot),
        snapshot_record(OTHER, snapshot),
        update_record(KEY, Update(0, 1, 9, 0, (garbage,))),
    ):
        log.shard.replay(1, -1, -1, record)
    log.shard.check_invariants()
    assert PartitionState(1, 3, complete_count=0) == log.shard.state(KEY)
    assert log.shard.state(OTHER) is None


def test_ranges_of_a_snapshot_that_overlap_are_put_in_order() -> None:
    log = Log()
    state = PartitionState(1, 2, ranges=(StateRange(6, 9, 2, 1), StateRange(0, 7, 0, 1)))
    log.shard.replay(0, -1, -1, snapshot_record(KEY, Snapshot(0, state, 0, 0)))
    log.shard.check_invariants()
    found = log.shard.state(KEY)
    assert found is not None
    assert (StateRange(2, 7, 0, 1), StateRange(8, 9, 2, 1)) == found.ranges


def test_the_leader_of_a_deleted_group_does_not_write_to_a_new_one() -> None:
    """The epoch of a group begins again with it, so the epoch that the old leader knows is a later one."""
    log = Log()
    log.apply(log.shard.initialize(KEY, 8, 0))
    log.apply(log.shard.delete(KEY))
    log.apply(log.shard.initialize(KEY, 1, 0))
    with pytest.raises(ApiError) as caught:
        log.shard.write(KEY, StateChange(8, 0, 100, 0, ()))
    assert ErrorCode.FENCED_STATE_EPOCH == caught.value.code


def test_a_message_about_a_long_group_id_fits_into_a_response() -> None:
    """A broker that could not encode it would close the connection that other groups use, too."""
    log = Log()
    with pytest.raises(ApiError) as caught:
        log.shard.read(KEY._replace(group_id="g" * 32_767), 0)
    result = PartitionResult(partition=0, error_code=42, error_message=caught.value.message)
    topic = ReadStateResult(topic_id=KEY.topic_id, partitions=[result])
    assert codec.encode(ReadShareGroupStateResponse(results=[topic]), 0)


def test_snapshots_with_many_ranges_are_written_in_parts() -> None:
    """More than a batch may have could never be written."""
    log = Log()
    ranges = tuple(StateRange(number, number, 2 * (number % 2), 1) for number in range(10_001))
    for number in range(3):
        key = KEY._replace(partition=number)
        log.apply(log.shard.initialize(key, 1, 0))
        log.apply(log.shard.write(key, StateChange(1, 0, 0, 0, ranges)))
    counts = []
    for pause_ms in (300_000, 1_000, 1_000, 1_000):
        log.context.advance(pause_ms)
        counts.append(len(log.records))
    assert [7, 8, 9, 9] == counts
    assert 6 == log.shard.redundant_offset
