"""Keeps the state of the share partitions in one partition of ``__share_group_state``.

State changes only in `replay`, so that loading and running are one path. After some updates a snapshot is
written instead of the next one, so that what is before it can be deleted: `redundant_offset` is the offset
below which no record is needed. A share partition that is not written to gets a new snapshot now and then for
the same reason. Kafka's counterpart is ``ShareCoordinatorShard``.
"""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord, NewerRecordError
from kalda.coordinator.runtime.coordinator_shard import Result, ShardContext
from kalda.coordinator.share.delivery_state import (
    COUNT_UNKNOWN,
    START_UNKNOWN,
    PartitionState,
    StateRange,
    combined,
)
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.coordinator.share.share_records import (
    SharePartitionKey,
    Snapshot,
    Update,
    decode,
    snapshot_record,
    update_record,
)
from kalda.protocol.protocol_errors import ProtocolError

logger: Final = logging.getLogger(__name__)

TOPIC: Final = "__share_group_state"

_COLD_TIMER: Final = "cold"
_COLD_MAX: Final = 500
"""Snapshots that are written at once of share partitions without updates: some 100 bytes each, if nothing is
in flight."""
_COLD_RANGES_MAX: Final = 20_000
"""Ranges in the snapshots that are written at once: some 20 bytes each. More than a batch may have could
never be written, and no record would become redundant any more."""
_NEXT_COLD_MS: Final = 1_000
"""The pause until the next ones."""

_UNCHANGED: Final = -1


class StateChange(NamedTuple):
    """A change of state that the leader of a share partition writes."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    ranges: tuple[StateRange, ...]


class _Stored:
    """A share partition as its records say."""

    __slots__ = ("snapshot", "snapshot_offset", "state", "updates")

    def __init__(self, snapshot: Snapshot, offset: int) -> None:
        self.snapshot: Final = snapshot
        self.snapshot_offset: Final = offset
        self.state = snapshot.state
        self.updates = 0
        """Records since the snapshot."""


class ShareShard:
    """A `kalda.coordinator.runtime.coordinator_shard.CoordinatorShard`."""

    def __init__(self, partition: int, config: ShareCoordinatorConfig) -> None:
        self.partition: Final = partition
        self._config: Final = config
        self._stored: Final[dict[SharePartitionKey, _Stored]] = {}
        self._end_offset = 0
        self._context: ShardContext | None = None

    # Looking.

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def redundant_offset(self) -> int:
        """The offset below which no record is needed."""
        return min((each.snapshot_offset for each in self._stored.values()), default=self._end_offset)

    def state(self, key: SharePartitionKey) -> PartitionState | None:
        """Return the stored state of a share partition, None if there is none."""
        stored = self._stored.get(key)
        return None if stored is None else stored.state

    # Operations.

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Result[None]:
        """Store a share partition that begins at an offset, or whose leader chooses one.

        A request that comes again, with the epoch that is stored, changes nothing. Nor does a creation,
        which leaves the start offset to the leader, of what is there: the group coordinator asks for it again
        at a later epoch where the answer was lost, and members may have acknowledged records since.

        Raises:
            ApiError: INVALID_REQUEST, a number is below what there is; FENCED_STATE_EPOCH, it was initialized
                with a later epoch.
        """
        if state_epoch < 0 or start_offset < START_UNKNOWN:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"State epoch {state_epoch} or start offset {start_offset} is out of range.",
            )
        stored = self._stored.get(key)
        if stored is not None:
            if start_offset == START_UNKNOWN or state_epoch == stored.state.state_epoch:
                return Result((), None)
            if state_epoch < stored.state.state_epoch:
                raise _fenced_state(key, state_epoch, stored.state)
        state = PartitionState(state_epoch, start_offset, complete_count=0)
        return Result([self._snapshot(key, stored, state)], None)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Result[PartitionState]:
        """Return the stored state, and record the reading leader's epoch, which fences earlier leaders.

        Raises:
            ApiError: INVALID_REQUEST, it was not initialized; FENCED_LEADER_EPOCH, a later leader has read.
        """
        stored = self._initialized(key, "read")
        state = stored.state
        if leader_epoch < state.leader_epoch:
            raise _fenced_leader(key, leader_epoch, state)
        if leader_epoch == state.leader_epoch:
            return Result((), state)
        change = StateChange(state.state_epoch, leader_epoch, _UNCHANGED, _UNCHANGED, ())
        return Result([self._record(key, stored, change)], state._replace(leader_epoch=leader_epoch))

    def write(self, key: SharePartitionKey, change: StateChange) -> Result[None]:
        """Store what the leader of a share partition has changed.

        Raises:
            ApiError: INVALID_REQUEST, it was not initialized, or a number is out of range;
                FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH, the writer is not the leader any more, or the
                group's offsets were reset.
        """
        stored = self._initialized(key, "written")
        wrong = next((each for each in change.ranges if not each.is_valid), None)
        if wrong is not None or change.start_offset < START_UNKNOWN:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Start offset {change.start_offset} or {wrong} is out of range."
            )
        if change.leader_epoch < stored.state.leader_epoch:
            raise _fenced_leader(key, change.leader_epoch, stored.state)
        if change.state_epoch != stored.state.state_epoch:
            # A later epoch is that of a group that was deleted: the epoch of the new one began at 1 again.
            raise _fenced_state(key, change.state_epoch, stored.state)
        return Result([self._record(key, stored, change)], None)

    def delete(self, key: SharePartitionKey) -> Result[None]:
        """Delete a share partition, if it is stored."""
        return Result([snapshot_record(key, None)] if key in self._stored else (), None)

    def _initialized(self, key: SharePartitionKey, verb: str) -> _Stored:
        stored = self._stored.get(key)
        if stored is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{key.coordinator_key} is not initialized, so it cannot be {verb}.",
            )
        return stored

    def _record(self, key: SharePartitionKey, stored: _Stored, change: StateChange) -> CoordinatorRecord:
        if stored.updates >= self._config.share_coordinator_snapshot_update_records_per_snapshot:
            return self._snapshot(key, stored, _changed(stored.state, change))
        update = Update(
            stored.snapshot.epoch,
            change.leader_epoch,
            change.start_offset,
            change.complete_count,
            change.ranges,
        )
        return update_record(key, update)

    def _snapshot(
        self, key: SharePartitionKey, stored: _Stored | None, state: PartitionState
    ) -> CoordinatorRecord:
        now_ms = self._time_ms()
        epoch, created_ms = 0, now_ms
        if stored is not None:
            epoch, created_ms = stored.snapshot.epoch + 1, stored.snapshot.created_ms
        return snapshot_record(key, Snapshot(epoch, state, created_ms, now_ms))

    def _time_ms(self) -> int:
        assert self._context is not None, f"{TOPIC}-{self.partition} is not loaded"
        return self._context.time_ms()

    def _snapshot_cold(self) -> Result[None]:
        """Write snapshots of share partitions that had none for a while."""
        assert self._context is not None, f"{TOPIC}-{self.partition} is not loaded"
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        before_ms = self._context.time_ms() - interval_ms
        cold = [key for key, each in self._stored.items() if each.snapshot.written_ms <= before_ms]
        records: list[CoordinatorRecord] = []
        range_count = 0
        for key in cold[:_COLD_MAX]:
            state = self._stored[key].state
            range_count += len(state.ranges)
            if records and range_count > _COLD_RANGES_MAX:
                break
            records.append(self._snapshot(key, self._stored[key], state))
        delay_ms = _NEXT_COLD_MS if len(cold) > len(records) else interval_ms
        self._context.schedule(_COLD_TIMER, delay_ms, self._snapshot_cold)
        return Result(records, None)

    # The interface `CoordinatorShard`.

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Apply one record; skip and log it if it cannot be read.

        Raises:
            NewerRecordError: a newer release wrote it.
        """
        self._end_offset = offset + 1
        try:
            decoded = decode(record)
        except NewerRecordError as error:
            raise error.at(TOPIC, self.partition, offset) from None
        except ProtocolError as error:
            logger.error("%s-%d at offset %d: %s", TOPIC, self.partition, offset, error)
            return
        if decoded is None:
            return
        key, value = decoded
        if value is None:
            self._stored.pop(key, None)
        elif isinstance(value, Snapshot):
            state = value.state
            ranges = combined((), state.ranges, state.start_offset)
            self._stored[key] = _Stored(value._replace(state=state._replace(ranges=ranges)), offset)
        elif (stored := self._stored.get(key)) is not None:
            change = StateChange(stored.state.state_epoch, *value[1:])
            stored.state = _changed(stored.state, change)
            stored.updates += 1

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Do nothing: no transaction writes to this topic."""

    def check_invariants(self, records: Iterable[CoordinatorRecord] | None = None) -> None:
        """Assert that the ranges of each share partition are in order, and none below its start offset."""
        for key, stored in self._stored.items():
            position = stored.state.start_offset
            for each in stored.state.ranges:
                assert position <= each.first <= each.last, f"{key}: {each} begins below {position}"
                position = each.last + 1

    def on_loaded(self, context: ShardContext) -> None:
        """Start to write snapshots of share partitions without updates."""
        self._context = context
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        context.schedule(_COLD_TIMER, interval_ms, self._snapshot_cold)

    def on_unloaded(self) -> None:
        """Stop: another broker coordinates the partition."""
        self._context = None


def _changed(state: PartitionState, change: StateChange) -> PartitionState:
    start_offset = max(state.start_offset, change.start_offset)
    count = change.complete_count
    return PartitionState(
        change.state_epoch,
        start_offset,
        max(state.leader_epoch, change.leader_epoch),
        state.complete_count if count == COUNT_UNKNOWN else count,
        combined(state.ranges, change.ranges, start_offset),
    )


def _fenced_leader(key: SharePartitionKey, leader_epoch: int, state: PartitionState) -> ApiError:
    return ApiError(
        ErrorCode.FENCED_LEADER_EPOCH,
        f"Leader epoch {leader_epoch} of {key.coordinator_key} is below {state.leader_epoch}.",
    )


def _fenced_state(key: SharePartitionKey, state_epoch: int, state: PartitionState) -> ApiError:
    return ApiError(
        ErrorCode.FENCED_STATE_EPOCH,
        f"State epoch {state_epoch} of {key.coordinator_key} is not {state.state_epoch}.",
    )
