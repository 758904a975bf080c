"""What one partition of ``__consumer_offsets`` says: groups and committed offsets.

`replay` is the only way in which groups and offsets appear, change for good or vanish; what is added while
this broker leads (who waits for what, timers) lives in the groups and is lost with the leadership, as in
Kafka. Other kinds of records are another protocol's: it registers a reader for its versions of keys, and may
watch loading.

What must not break: a record that cannot be read is skipped with a warning. Refusing it would keep the whole
partition, and every group in it, from loading.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord, read_version
from kalda.coordinator.group.classic.classic_group import ClassicGroup
from kalda.coordinator.group.group import Group, GroupType
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.offset_store import OffsetStore
from kalda.coordinator.group.records import (
    GROUP_METADATA_KEY_VERSION,
    OFFSET_COMMIT_KEY_VERSIONS,
    read_group_metadata_key,
    read_group_metadata_value,
    read_offset_commit_key,
    read_offset_commit_value,
)
from kalda.coordinator.runtime.coordinator_shard import ShardContext
from kalda.protocol.protocol_errors import ProtocolError

__all__ = ["GroupShard", "ShardPart"]

logger: Final = logging.getLogger(__name__)

SKIPPED_TOLD_MAX: Final = 10
"""How many records that cannot be read have a line in the log of their own: the rest is like them."""

_NOT_TRANSACTIONAL: Final = -1

RecordReader: TypeAlias = Callable[[bytes, bytes | None], None]
"""``read(key, value)`` of records of one version of keys, with the version's two bytes still in front."""


class ShardPart(Protocol):
    """A protocol's part in a shard: it acts on groups of its kind."""

    def on_loaded(self, context: ShardContext) -> None:
        """The shard is loaded: set timers."""
        ...

    def on_unloaded(self) -> None:
        """The shard is given up: whatever waits fails with NOT_COORDINATOR."""
        ...


class GroupShard:
    """Groups and offsets of one partition."""

    def __init__(self, partition: int, config: GroupConfig) -> None:
        self.partition: Final = partition
        self.config: Final = config
        self.groups: Final[dict[str, Group]] = {}
        self.offsets: Final = OffsetStore()
        self.readers: Final[dict[int, RecordReader]] = {GROUP_METADATA_KEY_VERSION: self._read_group}
        """By version of the key, how other records than offsets are taken in."""
        self.parts: Final[list[ShardPart]] = []
        """The protocols, in the order in which they hear of loading."""
        self._context: ShardContext | None = None
        self._unknown_versions: set[int] = set()
        self._skipped = 0
        """Records that could not be read."""

    # Looking up.

    @property
    def is_loaded(self) -> bool:
        """Whether everything in the log was replayed and this broker leads."""
        return self._context is not None

    @property
    def context(self) -> ShardContext:
        """Clock, timers and writes; once loaded."""
        assert self._context is not None, f"partition {self.partition} is not loaded"
        return self._context

    def group(self, group_id: str) -> Group:
        """Return a group of any kind.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        found = self.groups.get(group_id)
        if found is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return found

    def classic_group(self, group_id: str) -> ClassicGroup:
        """Return a group of the classic protocol.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        found = self.group(group_id)
        if not isinstance(found, ClassicGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return found

    # Replaying.

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Take one record in."""
        del producer_epoch  # The runtime fences; here only whose transaction it is matters.
        key, value = record.key, record.value
        try:
            version = read_version(key)
            if version in OFFSET_COMMIT_KEY_VERSIONS:
                self._read_offset(offset, producer_id, key, value)
                return
            reader = self.readers.get(version)
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
        except ProtocolError as error:
            self._skipped += 1
            if self._skipped <= SKIPPED_TOLD_MAX:
                logger.warning(
                    "__consumer_offsets-%d: the record at offset %d is skipped: %s",
                    self.partition,
                    offset,
                    error,
                )

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Take in that a producer's transaction ended: its offsets count, or are dropped."""
        del producer_epoch
        self.offsets.end_transaction(producer_id, committed)

    def on_loaded(self, context: ShardContext) -> None:
        """Begin to act: everything in the log was replayed."""
        self._context = context
        if self._skipped > SKIPPED_TOLD_MAX:
            logger.warning("__consumer_offsets-%d: %d records are skipped", self.partition, self._skipped)
        for part in self.parts:
            part.on_loaded(context)

    def on_unloaded(self) -> None:
        """Stop to act: the leadership is gone, and with it whatever waits here."""
        for part in self.parts:
            part.on_unloaded()
        self._context = None

    def _read_offset(self, offset: int, producer_id: int, key: bytes, value: bytes | None) -> None:
        group_id, topic, partition = read_offset_commit_key(key)
        if value is None:
            self.offsets.remove(group_id, topic, partition)
            return
        committed = read_offset_commit_value(value, offset)
        if group_id not in self.groups:
            # Whoever commits is a group, if a simple one: it is listed, and can be deleted.
            self.groups[group_id] = ClassicGroup(group_id)
        if producer_id == _NOT_TRANSACTIONAL:
            self.offsets.put(group_id, topic, partition, committed)
        else:
            self.offsets.put_pending(producer_id, group_id, topic, partition, committed)

    def _read_group(self, key: bytes, value: bytes | None) -> None:
        group_id = read_group_metadata_key(key)
        present = self.groups.get(group_id)
        if value is None:
            if present is not None and present.kind is GroupType.CLASSIC:
                del self.groups[group_id]
            return
        if self.is_loaded and isinstance(present, ClassicGroup):
            # Written just now by this very group, which knows more than the record says: who waits for what.
            return
        self.groups[group_id] = ClassicGroup.from_record(group_id, read_group_metadata_value(value))
