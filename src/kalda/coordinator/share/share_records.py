"""Encodes and decodes the records of ``__share_group_state``, byte for byte as Kafka writes them.

A snapshot has the whole state of a share partition, an update what changed since. Both name the share
partition in their keys, which differ in the version.
"""

from typing import Final, NamedTuple

from kalda.common.types import UUID, uuid_to_text
from kalda.coordinator.coordinator_record import (
    CoordinatorRecord,
    RecordTypes,
    decode_key,
    decode_value,
    encode_record,
)
from kalda.coordinator.share.delivery_state import PartitionState, StateRange
from kalda.protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from kalda.protocol.protocol_errors import ProtocolError

SNAPSHOT_KEY: Final = 0
UPDATE_KEY: Final = 1

RECORD_TYPES: Final[RecordTypes] = {
    SNAPSHOT_KEY: (ShareSnapshotKey, ShareSnapshotValue),
    UPDATE_KEY: (ShareUpdateKey, ShareUpdateValue),
}


class SharePartitionKey(NamedTuple):
    """A partition and the share group that it is delivered to."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The text whose hash chooses the partition of ``__share_group_state``, and FindCoordinator's key."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class Snapshot(NamedTuple):
    """A snapshot of a share partition."""

    epoch: int
    """Grows with each snapshot of the share partition."""
    state: PartitionState
    created_ms: int
    written_ms: int


class Update(NamedTuple):
    """What changed since the snapshot of the same epoch or the update before; -1 in a field: no change."""

    epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    ranges: tuple[StateRange, ...]


def snapshot_record(key: SharePartitionKey, snapshot: Snapshot | None) -> CoordinatorRecord:
    """Return the record of a snapshot; None deletes the share partition."""
    value = None
    if snapshot is not None:
        state = snapshot.state
        value = ShareSnapshotValue(
            snapshot_epoch=snapshot.epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete_count,
            create_timestamp=snapshot.created_ms,
            write_timestamp=snapshot.written_ms,
            state_batches=_batches(state.ranges),
        )
    return encode_record(ShareSnapshotKey(**key._asdict()), SNAPSHOT_KEY, value)


def update_record(key: SharePartitionKey, update: Update) -> CoordinatorRecord:
    """Return the record of an update."""
    value = ShareUpdateValue(
        snapshot_epoch=update.epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.complete_count,
        state_batches=_batches(update.ranges),
    )
    return encode_record(ShareUpdateKey(**key._asdict()), UPDATE_KEY, value)


def decode(record: CoordinatorRecord) -> tuple[SharePartitionKey, Snapshot | Update | None] | None:
    """Return a share partition and what the record says of it, None if it is deleted.

    Returns None alone for a key of a later version, or a tombstone of an update.

    Raises:
        ProtocolError: the record is not one of ``__share_group_state``, or no share partition has such
            offsets.
    """
    found = decode_key(RECORD_TYPES, record.key)
    if found is None:
        return None
    _, key = found
    assert isinstance(key, ShareSnapshotKey | ShareUpdateKey), "there are two keys"
    name = SharePartitionKey(key.group_id, key.topic_id, key.partition)
    if record.value is None:
        return (name, None) if isinstance(key, ShareSnapshotKey) else None
    if isinstance(key, ShareUpdateKey):
        change = decode_value(ShareUpdateValue, record.value)
        return name, Update(
            change.snapshot_epoch,
            change.leader_epoch,
            change.start_offset,
            change.delivery_complete_count,
            _ranges(change.state_batches),
        )
    value = decode_value(ShareSnapshotValue, record.value)
    state = PartitionState(
        value.state_epoch,
        value.start_offset,
        value.leader_epoch,
        value.delivery_complete_count,
        _ranges(value.state_batches),
    )
    return name, Snapshot(value.snapshot_epoch, state, value.create_timestamp, value.write_timestamp)


def _batches(ranges: tuple[StateRange, ...]) -> list[StateBatch]:
    return [
        StateBatch(
            first_offset=each.first,
            last_offset=each.last,
            delivery_state=each.state,
            delivery_count=each.deliveries,
        )
        for each in ranges
    ]


def _ranges(batches: list[StateBatch]) -> tuple[StateRange, ...]:
    ranges = tuple(
        StateRange(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batches
    )
    wrong = next((each for each in ranges if not each.is_valid), None)
    if wrong is not None:
        raise ProtocolError(f"{wrong} is out of range")
    return ranges
