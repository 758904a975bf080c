"""Compares what the replicas of one partition returned from the same offset. Pure.

A follower's copy is equal to the leader's byte by byte up to the high watermark, so batches have equal last
offsets and equal CRCs. Above the high watermark, and where one replica returned less, nothing is compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kalda.common.types import TopicPartition


class FetchedBatch(NamedTuple):
    """What identifies a batch in a comparison."""

    last_offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one replica returned for a partition."""

    high_watermark: int
    batches: Sequence[FetchedBatch]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Two replicas that differ."""

    topic_partition: TopicPartition
    replica: int
    other: int
    batch: FetchedBatch
    other_batch: FetchedBatch

    @property
    def is_offset(self) -> bool:
        """Whether the batches end at different offsets; else their bytes differ."""
        return self.batch.last_offset != self.other_batch.last_offset

    def __str__(self) -> str:
        if self.is_offset:
            return (
                f"partition {self.topic_partition}: replica {self.replica}'s offset {self.batch.last_offset} "
                f"doesn't match replica {self.other}'s offset {self.other_batch.last_offset}"
            )
        return (
            f"partition {self.topic_partition} has unmatched checksum at offset {self.batch.last_offset}; "
            f"replica {self.replica}'s checksum {self.batch.crc}; "
            f"replica {self.other}'s checksum {self.other_batch.crc}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far the replicas were compared, and where they differ."""

    next_offset: int
    """Where the next fetch starts: behind the last batch that all replicas returned."""

    lag: int
    """The highest high watermark less `next_offset`."""

    mismatches: Sequence[Mismatch]
    compared: int
    """How many batches were compared."""


def compare(topic_partition: TopicPartition, offset: int, replicas: Mapping[int, Fetched]) -> Comparison:
    """Compare what replicas returned from `offset` on, batch by batch.

    Batches with different bytes are reported and the comparison goes on; behind batches that end at different
    offsets nothing can be compared, so it ends there.
    """
    mismatches: list[Mismatch] = []
    compared = 0
    for row in _rows(replicas):
        (first_id, first), *others = row.items()
        found = [
            Mismatch(topic_partition, first_id, other_id, first, other)
            for other_id, other in others
            if other != first
        ]
        mismatches += found
        if any(each.is_offset for each in found):
            break
        compared += 1
        offset = first.last_offset + 1
    highest = max((fetched.high_watermark for fetched in replicas.values()), default=offset)
    return Comparison(offset, max(0, highest - offset), mismatches, compared)


def _rows(replicas: Mapping[int, Fetched]) -> Iterator[dict[int, FetchedBatch]]:
    """Yield the first, second, ... batch of every replica, while all of them have one that is replicated."""
    visible = [
        [batch for batch in fetched.batches if batch.last_offset < fetched.high_watermark]
        for fetched in replicas.values()
    ]
    for row in zip(*visible, strict=False):
        yield dict(zip(replicas, row, strict=True))
