"""One partition of ``__consumer_offsets``: replays its records and runs its protocols and housekeeping.

Replaying records is the only way in which groups and offsets appear, change for good or vanish; the state is
in `GroupShardState`, the decisions are in the two protocols and in `offset_operations`.

What must not break: a record that cannot be read is skipped with a warning. Refusing it would keep the whole
partition, and every group in it, from loading.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from kalda.coordinator.coordinator_record import CoordinatorRecord, NewerRecordError, read_version
from kalda.coordinator.group.classic.classic_group import (
    GROUP_METADATA_KEY_VERSION,
    ClassicGroup,
    read_group_metadata_key,
    read_group_metadata_value,
)
from kalda.coordinator.group.classic.classic_protocol import ClassicProtocol
from kalda.coordinator.group.consumer.classic_members import ClassicMembers
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_protocol import ConsumerProtocol
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.group.member_memory import MemberMemory
from kalda.coordinator.group.offset_events import when_written
from kalda.coordinator.group.offset_operations import cleanup
from kalda.coordinator.group.offset_records import (
    OFFSET_COMMIT_KEY_VERSIONS,
    read_group_id,
    read_offset_commit_key,
    read_offset_commit_value,
)
from kalda.coordinator.runtime.coordinator_shard import Result, ShardContext
from kalda.events.event import NO_EVENTS, EventSink
from kalda.protocol.protocol_errors import ProtocolError

if TYPE_CHECKING:
    from kalda.coordinator.group.share.share_protocol import ShareProtocol

logger: Final = logging.getLogger(__name__)

SKIPPED_LOGGED_MAX: Final = 10
"""How many unreadable records get a log line of their own; the others are counted."""

CHECKED_WHEN_LOADED_MAX: Final = 200
"""How many groups a full check after loading looks at: a load may bring tens of thousands."""

_NOT_TRANSACTIONAL: Final = -1

_CLEANUP_TIMER: Final = "cleanup"
_NEXT_SLICE_MS: Final = 20
"""The pause between two slices of housekeeping, in which requests are served."""

RecordReader: TypeAlias = Callable[[bytes, bytes | None], None]
"""Replays a record, given key and value with the two bytes of their versions still in front."""

ConsumerProtocolMaker: TypeAlias = Callable[[GroupShardState, ClassicProtocol], ConsumerProtocol]
ShareProtocolMaker: TypeAlias = "Callable[[GroupShardState], ShareProtocol]"


@dataclass(slots=True)
class GroupStatistics:
    """The counters of the group coordinator of one broker since the broker's start."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0

    def completed_rebalance(self) -> None:
        """Count a rebalance of a classic group that ended with an assignment."""
        self.completed_rebalances += 1


class GroupShard(GroupShardState):
    """The `CoordinatorShard` of groups and offsets."""

    def __init__(
        self,
        partition: int,
        config: GroupConfig,
        statistics: GroupStatistics,
        new_id: Callable[[], str],
        make_consumer: ConsumerProtocolMaker | None = None,
        memory: MemberMemory | None = None,
        events: EventSink = NO_EVENTS,
        make_share: "ShareProtocolMaker | None" = None,
    ) -> None:
        """`make_consumer` adds the consumer protocol (KIP-848), whose records are unknown without it.

        `make_share` adds share groups (KIP-932) in the same way.
        """
        super().__init__(partition, config, memory, events)
        self._statistics: Final = statistics
        self.classic: Final = ClassicProtocol(
            self, new_id=new_id, completed_rebalance=statistics.completed_rebalance
        )
        self.consumer: Final = make_consumer(self, self.classic) if make_consumer is not None else None
        self._readers: Final[dict[int, RecordReader]] = {GROUP_METADATA_KEY_VERSION: self._replay_group}
        if self.consumer is not None:
            self._readers.update(self.consumer.readers)
        self._make_share: Final = make_share
        self._share: ShareProtocol | None = None
        self._to_check: Final[deque[str]] = deque()
        """The groups that this round of housekeeping has not reached yet; empty between rounds."""
        self._unknown_versions: Final[set[int]] = set()
        self._skipped = 0
        """Records that could not be read."""

    @property
    def share(self) -> "ShareProtocol | None":
        """What serves share groups, made when first used: few clusters have any. None if none may exist."""
        if self._share is None and self._make_share is not None:
            self._share = self._make_share(self)
            self._readers.update(self._share.readers)
        return self._share

    def classic_requests(self, group_id: str) -> ClassicProtocol | ClassicMembers:
        """Return the handler of classic protocol requests for a group, by the group's type."""
        if self.consumer is not None and isinstance(self.groups.get(group_id), ConsumerGroup):
            return self.consumer.classic_members
        return self.classic

    # Leadership.

    def on_loaded(self, context: ShardContext) -> None:
        """Start timers: the whole log was replayed, and this broker leads.

        Housekeeping first runs after one interval: members need time to come back after a failover.
        """
        self._context = context
        if self._skipped > SKIPPED_LOGGED_MAX:
            logger.warning("__consumer_offsets-%d: %d records are skipped", self.partition, self._skipped)
        self.classic.on_loaded()
        context.schedule(_CLEANUP_TIMER, self.config.offsets_retention_check_interval_ms, self._clean_up)
        if self.consumer is not None:
            self.consumer.on_loaded()
        if self._share is not None:
            self._share.on_loaded()

    def on_unloaded(self) -> None:
        """Fail all waiting requests: another broker leads."""
        self.classic.on_unloaded()
        if self.consumer is not None:
            self.consumer.on_unloaded()
        if self._share is not None:
            self._share.on_unloaded()
        self._context = None

    def _clean_up(self) -> Result[None]:
        """Delete the expired offsets and unused groups of one slice, and schedule the next slice or round."""
        if not self._to_check:
            self._to_check.extend(self.groups)
        found = cleanup(self, self._to_check)
        self._statistics.offset_expirations += len(found.expired)
        interval_ms = self.config.offsets_retention_check_interval_ms
        delay_ms = min(_NEXT_SLICE_MS, interval_ms) if self._to_check else interval_ms
        self.context.schedule(_CLEANUP_TIMER, delay_ms, self._clean_up)
        return Result(found.records, None, when_written(lambda: found.note(self)))

    # Invariants.

    def check_invariants(self, records: Iterable[CoordinatorRecord] | None = None) -> None:
        """Assert the state of the groups that `records` are about; after loading, of some groups."""
        if records is not None:
            group_ids = list(dict.fromkeys(read_group_id(record.key) for record in records))
        else:
            group_ids = list(islice(self.groups, CHECKED_WHEN_LOADED_MAX))
        if records is None and len(group_ids) == len(self.groups):
            self.offsets.check_invariants()
        else:
            self.offsets.check_pending()
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                self.classic.rebalance.check_invariants(group)
            elif group is not None:
                group.check_invariants()

    # Replaying.

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Apply one record to the state; skip it if it cannot be read.

        Raises:
            NewerRecordError: a newer release wrote it.
        """
        del producer_epoch  # The log fences producers; here only the producer id counts.
        key, value = record.key, record.value
        try:
            version = read_version(key)
            if version in OFFSET_COMMIT_KEY_VERSIONS:
                self._replay_offset(offset, producer_id, key, value)
                return
            reader = self._readers.get(version)
            if reader is None and self.share is not None:
                reader = self._readers.get(version)
            if reader is not None:
                reader(key, value)
            elif version not in self._unknown_versions:
                self._unknown_versions.add(version)
                logger.warning(
                    "__consumer_offsets-%d: records with keys of version %d are unknown and skipped, the "
                    "first is at offset %d; a newer broker may have written them",
                    self.partition,
                    version,
                    offset,
                )
        except NewerRecordError as error:
            raise error.at("__consumer_offsets", self.partition, offset) from None
        except ProtocolError as error:
            self._skipped += 1
            if self._skipped <= SKIPPED_LOGGED_MAX:
                logger.warning(
                    "__consumer_offsets-%d: the record at offset %d is skipped: %s",
                    self.partition,
                    offset,
                    error,
                )

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Apply a transaction marker: the producer's pending offsets become committed, or are dropped."""
        del producer_epoch
        self.offsets.end_transaction(producer_id, committed)

    def _replay_offset(self, offset: int, producer_id: int, key: bytes, value: bytes | None) -> None:
        group_id, topic, partition = read_offset_commit_key(key)
        if value is None:
            self.offsets.remove(group_id, topic, partition)
            return
        committed = read_offset_commit_value(value, offset)
        if group_id not in self.groups:
            # A consumer that only commits makes a simple group, which is listed and can be deleted.
            self.groups[group_id] = ClassicGroup(group_id)
        if producer_id == _NOT_TRANSACTIONAL:
            self.offsets.put(group_id, topic, partition, committed)
        else:
            self.offsets.put_pending(producer_id, group_id, topic, partition, committed)

    def _replay_group(self, key: bytes, value: bytes | None) -> None:
        group_id = read_group_metadata_key(key)
        present = self.groups.get(group_id)
        if value is None:
            if isinstance(present, ClassicGroup):
                del self.groups[group_id]
        elif not (self.is_loaded and isinstance(present, ClassicGroup)):
            group = ClassicGroup.from_record(group_id, read_group_metadata_value(value))
            self.groups[group_id] = group
            if self.is_loaded:
                self.classic.rebalance_downgraded(group)
        # Otherwise the live group has written the record itself, and also has what a record cannot hold.
