"""Drives the comparison of many partitions: what to fetch next from which broker, what is done. Pure.

Each round fetches from every replica and compares what all of them returned. A partition with a replica that
cannot be read, or stays behind, is given up after `ROUNDS_MAX` rounds, so that a verification ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.common.types import TopicPartition
from kalda.tools.verify_replicas.comparison import Fetched, Mismatch, compare

ROUNDS_MAX: Final = 30
"""Rounds without progress after which a partition is given up; with the default pauses some 15 seconds."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A partition, or one of its replicas, that cannot be verified."""

    topic_partition: TopicPartition
    offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"partition {self.topic_partition} cannot be verified from offset {self.offset} on: {self.reason}"
        )


@dataclass(slots=True)
class _Partition:
    replicas: Sequence[int]
    offset: int
    target: int | None
    """Where the verification ends; None never ends."""

    lag: int = 0
    idle_rounds: int = 0
    fetched: dict[int, Fetched] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.target is not None and self.offset >= self.target


class Verification:
    """The state of one run."""

    def __init__(self) -> None:
        self._partitions: Final[dict[TopicPartition, _Partition]] = {}
        self._round = 0
        self.compared = 0
        """Batches that were compared."""
        self.mismatches = 0
        self.given_up = 0

    def add(
        self, topic_partition: TopicPartition, replicas: Sequence[int], offset: int, target: int | None
    ) -> None:
        """Add a partition; `target` is the high watermark to reach, None to go on for ever."""
        self._partitions[topic_partition] = _Partition(replicas, offset, target)

    @property
    def is_done(self) -> bool:
        """Whether every partition was verified or given up."""
        return self.done_count == self.partition_count

    @property
    def partition_count(self) -> int:
        """How many partitions there are."""
        return len(self._partitions)

    @property
    def done_count(self) -> int:
        """How many of them were verified or given up."""
        return sum(each.is_done for each in self._partitions.values())

    @property
    def max_lag(self) -> tuple[TopicPartition, int, int] | None:
        """The partition with the largest lag behind its high watermark, the lag, and its offset."""
        if not self._partitions:
            return None
        name, found = max(self._partitions.items(), key=lambda item: item[1].lag)
        return name, found.lag, found.offset

    def wanted(self) -> dict[int, dict[TopicPartition, int]]:
        """Return what to fetch in this round: by broker, the offset of each partition.

        The order changes from round to round: a response has room for some partitions only.
        """
        waiting = [(name, each) for name, each in self._partitions.items() if not each.is_done]
        start = self._round % len(waiting) if waiting else 0
        wanted: dict[int, dict[TopicPartition, int]] = {}
        for name, each in waiting[start:] + waiting[:start]:
            each.fetched.clear()
            each.errors.clear()
            for broker in each.replicas:
                wanted.setdefault(broker, {})[name] = each.offset
        return wanted

    def received(self, broker: int, topic_partition: TopicPartition, fetched: Fetched) -> None:
        """Note what a replica returned."""
        self._partitions[topic_partition].fetched[broker] = fetched

    def moved(self, topic_partition: TopicPartition, log_start_offset: int) -> None:
        """Note that the records before an offset were deleted."""
        found = self._partitions[topic_partition]
        if log_start_offset > found.offset:
            found.offset = log_start_offset
            found.idle_rounds = 0

    def failed(self, broker: int, topic_partition: TopicPartition, reason: str) -> None:
        """Note that a replica could not be read."""
        self._partitions[topic_partition].errors[broker] = reason

    def end_round(self) -> Iterator[Mismatch | GivenUp]:
        """Compare what was received; yield the differences, and the partitions that are given up."""
        self._round += 1
        for name, each in self._partitions.items():
            if each.is_done:
                continue
            before = each.offset
            if len(each.fetched) == len(each.replicas):
                found = compare(name, each.offset, each.fetched)
                each.offset, each.lag = found.next_offset, found.lag
                self.compared += found.compared
                self.mismatches += len(found.mismatches)
                yield from found.mismatches
                if any(mismatch.is_offset for mismatch in found.mismatches):
                    yield self._give_up(name, each, "the batches of its replicas end at different offsets")
                    continue
            each.idle_rounds = 0 if each.offset > before else each.idle_rounds + 1
            if each.idle_rounds >= ROUNDS_MAX and (each.target is not None or each.errors):
                yield self._give_up(name, each, _why(each))

    def _give_up(self, name: TopicPartition, found: _Partition, reason: str) -> GivenUp:
        self.given_up += 1
        found.target = found.offset
        return GivenUp(name, found.offset, reason)


def _why(found: _Partition) -> str:
    if found.errors:
        return "; ".join(f"replica {broker}: {reason}" for broker, reason in sorted(found.errors.items()))
    behind = [
        f"replica {broker} has returned nothing (its high watermark is {fetched.high_watermark})"
        for broker, fetched in sorted(found.fetched.items())
        if not any(batch.last_offset < fetched.high_watermark for batch in fetched.batches)
    ]
    return "; ".join(behind) or "a batch did not fit into the fetch size, see --fetch-size"
