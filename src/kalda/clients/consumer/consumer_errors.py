"""Defines the exceptions that only a consumer raises."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kalda.clients.errors import SerializationError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.public import public
from kalda.common.types import TopicPartition
from kalda.net.client.client_errors import ClientError, OffsetOutOfRangeError
from kalda.records.record import Header


@public
class WakeupError(ClientError):
    """Another thread called `wakeup` while the consumer waited, or before it did."""


@public
class NoOffsetForPartitionError(ClientError):
    """Partitions have no committed offset, and `auto.offset.reset` is none."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        self.partitions: Final = tuple(partitions)
        super().__init__(
            f"no committed offset for {_names(self.partitions)} and `auto.offset.reset` is none; "
            f"seek() to an offset, or set `auto.offset.reset` to earliest, latest or by_duration:"
        )


@public
class OffsetsOutOfRangeError(OffsetOutOfRangeError):
    """Positions lie outside the logs of their partitions, and `auto.offset.reset` is none."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets: Final = dict(offsets)
        """The positions that the leaders refused."""
        positions = ", ".join(f"{partition} at {offset}" for partition, offset in self.offsets.items())
        super().__init__(
            f"fetch of {positions} while `auto.offset.reset` is none (seek() to an offset between "
            f"beginning_offsets() and end_offsets())"
        )


@public
class LogTruncationError(ClientError):
    """A leader's log differs from what was consumed (KIP-320), and `auto.offset.reset` is none.

    An unclean leader election loses records. `divergent_offsets` are the first offsets that differ, where
    the leader knows them; seek there to go on without a gap.
    """

    def __init__(
        self,
        positions: Mapping[TopicPartition, int],
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        self.positions: Final = dict(positions)
        self.divergent_offsets: Final = dict(divergent_offsets)
        parts = []
        for partition, offset in self.positions.items():
            divergent = self.divergent_offsets.get(partition)
            where = (
                "the leader does not know that epoch" if divergent is None else f"from {divergent.offset} on"
            )
            parts.append(f"{partition} at {offset} ({where})")
        super().__init__(
            f"the log was truncated and differs from what was consumed: {', '.join(parts)}; "
            f"seek() to the divergent offset, or set `auto.offset.reset`"
        )


@public
class RecordDeserializationError(SerializationError):
    """A deserializer failed for one record (KIP-334); the position stays at that record.

    To go on behind it, ``consumer.seek(error.topic_partition, error.offset + 1)``.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        offset: int,
        part: str,
        *,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        reason: object = "",
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.offset: Final = offset
        self.part: Final = part
        """Which deserializer failed: ``key`` or ``value``."""
        self.timestamp_ms: Final = timestamp_ms
        self.key: Final = key
        """The key's bytes."""
        self.value: Final = value
        """The value's bytes."""
        self.headers: Final = headers
        self._problem: Final = (
            f"the {part} deserializer failed for the record at offset {offset} of {topic_partition}"
            f"{f': {reason}' if str(reason) else ''}"
        )
        super().__init__(f"{self._problem}; to skip the record, seek() to offset {offset + 1}")


@public
class FetchCorruptionError(ClientError):
    """Fetched bytes are not the records that the broker stored: a wrong CRC, or an impossible layout."""

    def __init__(self, topic_partition: TopicPartition, position: int, reason: object) -> None:
        self.topic_partition: Final = topic_partition
        self.position: Final = position
        self._problem: Final = (
            f"the records of {topic_partition} at offset {position} cannot be read: {reason}"
        )
        super().__init__(f"{self._problem}; seek() past them to go on")


def replace_remedy(error: RecordDeserializationError | FetchCorruptionError, remedy: str) -> None:
    """Change the remedy in an error's message: a share consumer has no positions."""
    error.args = (f"{error._problem}; {remedy}",)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))
