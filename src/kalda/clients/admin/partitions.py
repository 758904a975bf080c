"""Holds the values that admin calls on partitions take and return; names are those of Java's client."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from kalda.clients.errors import ClientConfigError
from kalda.common.public import public
from kalda.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)

NO_OFFSET: Final = -1
HIGH_WATERMARK: Final = -1
"""Stands for the high watermark in `delete_records`."""


@public
@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Which offset of a partition to look up, e.g. ``OffsetSpec.for_timestamp(1_700_000_000_000)``."""

    timestamp_ms: int
    """Milliseconds since the epoch, or one of the protocol's negative numbers for special offsets."""

    @classmethod
    def earliest(cls) -> Self:
        """Return the first offset of the log."""
        return cls(EARLIEST_TIMESTAMP)

    @classmethod
    def latest(cls) -> Self:
        """Return the end of the log: the high watermark, or the last stable offset under read_committed."""
        return cls(LATEST_TIMESTAMP)

    @classmethod
    def for_timestamp(cls, timestamp_ms: int) -> Self:
        """Return the first offset whose record is not older than the time, in ms since the epoch.

        Raises:
            ClientConfigError: the time is negative.
        """
        if timestamp_ms < 0:
            raise ClientConfigError(f"timestamp_ms={timestamp_ms} is not allowed: it takes at least 0")
        return cls(timestamp_ms)

    @classmethod
    def max_timestamp(cls) -> Self:
        """Return the offset of the record with the largest timestamp (brokers 3.0 and newer, KIP-734)."""
        return cls(MAX_TIMESTAMP)

    @classmethod
    def earliest_local(cls) -> Self:
        """Return the first offset on the broker's own disks (brokers 3.6 and newer, KIP-405)."""
        return cls(EARLIEST_LOCAL_TIMESTAMP)

    @classmethod
    def latest_tiered(cls) -> Self:
        """Return the last offset in tiered storage (brokers 3.9 and newer, KIP-1005)."""
        return cls(LATEST_TIERED_TIMESTAMP)

    @classmethod
    def earliest_pending_upload(cls) -> Self:
        """Return the first offset that is not in tiered storage yet (brokers 4.3 and newer, KIP-1023)."""
        return cls(EARLIEST_PENDING_UPLOAD_TIMESTAMP)


@public
@dataclass(frozen=True, slots=True)
class ListOffsetsResultInfo:
    """An offset that was looked up."""

    offset: int
    """-1 where nothing fits, for example no record is as new as the time asked for."""
    timestamp_ms: int
    """The record's timestamp if the offset was looked up by time, else -1."""
    leader_epoch: int | None
    """The leader epoch of the offset, if the broker knows it."""

    @property
    def is_found(self) -> bool:
        """Whether there is such an offset."""
        return self.offset != NO_OFFSET


@public
@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """A partition whose first records were deleted."""

    low_watermark: int
    """The first offset that is left."""


@public
class ElectionType(IntEnum):
    """How to elect a leader; the numbers are the protocol's."""

    PREFERRED = 0
    """The preferred replica, if it is in sync (KIP-183)."""
    UNCLEAN = 1
    """Any replica that is alive, where none is in sync; records may be lost (KIP-460)."""


@public
@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that moves, as broker ids."""

    replicas: tuple[int, ...]
    """The present ones and the new ones together."""
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
