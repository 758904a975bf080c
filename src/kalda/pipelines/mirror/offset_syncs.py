"""Translates offsets of a source partition to offsets of its copy, and keeps the mirror's position.

A copy has other offsets: it lacks what the source compacted away, and both have markers of their own
transactions. Runs say where records lie that follow each other on both sides. A translated offset is never
beyond the true one, because a group would then miss records.
"""

import bisect
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kalda.common.types import TopicPartition

RUNS_OF_CHUNK_MAX: Final = 1_000
"""Runs that one transaction records for a partition; of more, some are left out, which translates groups that
stand in them to an earlier place."""
RUNS_KEPT_MAX: Final = 10_000
"""Runs that are kept in memory for a partition, the newest."""


@dataclass(frozen=True, slots=True)
class Run:
    """Records with offsets ``source .. source + count - 1`` that have ``target .. target + count - 1``."""

    source: int
    target: int
    count: int


class SyncError(ValueError):
    """A record of the topic of syncs cannot be read."""


class OffsetSyncs:
    """The runs of one partition, in order.

    Example: with runs (0 → 0, 10 records) and (20 → 11, 5 records), source offset 15 is target offset 10, and
    22 is 13.
    """

    def __init__(self, runs: Iterable[Run] = (), *, kept_max: int = RUNS_KEPT_MAX) -> None:
        self._kept_max: Final = kept_max
        self._runs: list[Run] = []
        self.add(runs)

    def add(self, runs: Iterable[Run]) -> None:
        """Take the following runs; they replace known ones of the same offsets, which were copied again."""
        for each in runs:
            while self._runs and self._runs[-1].source >= each.source:
                del self._runs[-1]
            last = self._runs[-1] if self._runs else None
            if last is not None and last.source + last.count > each.source:
                last = self._runs[-1] = Run(last.source, last.target, each.source - last.source)
            if (
                last is not None
                and last.source + last.count == each.source
                and last.target + last.count == each.target
            ):
                self._runs[-1] = Run(last.source, last.target, last.count + each.count)
            else:
                self._runs.append(each)
        del self._runs[: -self._kept_max]

    @property
    def runs(self) -> Sequence[Run]:
        """The runs that are kept, in order."""
        return self._runs

    def translate(self, offset: int) -> int | None:
        """Return where a group goes on in the copy; None if that lies before every known run."""
        index = bisect.bisect_right(self._runs, offset, key=lambda run: run.source) - 1
        if index < 0:
            return None
        run = self._runs[index]
        return run.target + min(offset - run.source, run.count)


def runs_of(
    source_offsets: Sequence[npt.NDArray[np.int64]], target_ranges: Iterable[tuple[int, int]]
) -> list[Run]:
    """Return the runs of records that were copied in this order.

    Args:
        source_offsets: the offsets of the records in the source.
        target_ranges: base offset and number of records of each piece of the copy, in order.
    """
    source = np.concatenate(source_offsets) if source_offsets else np.empty(0, np.int64)
    pieces = [np.arange(base, base + count, dtype=np.int64) for base, count in target_ranges]
    target = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    assert len(source) == len(target), f"{len(source)} records were read and {len(target)} written"
    if not len(source):
        return []
    breaks = np.flatnonzero((np.diff(source) != 1) | (np.diff(target) != 1)) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((starts, [len(source)])))
    assert int(counts.sum()) == len(source), f"runs of {counts.sum()} of {len(source)} records"
    runs = [
        Run(int(source[start]), int(target[start]), int(count))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    step = -(-len(runs) // RUNS_OF_CHUNK_MAX)
    return runs[::step]


def sync_key(mirror: str, partition: TopicPartition) -> bytes:
    """Return the key of a partition's records in the topic of syncs."""
    return json.dumps([mirror, partition.topic, partition.partition], separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Sync:
    """What one transaction recorded of a partition."""

    topic_id: str
    """Of the topic in the source, which no other topic of the name has; empty from old brokers."""
    position: int
    """Where the mirror goes on in the source."""
    runs: Sequence[Run]


def sync_value(sync: Sync) -> bytes:
    """Return the value of a record in the topic of syncs."""
    assert sync.position >= 0, f"a mirror goes on at {sync.position}"
    runs = [[each.source, each.target, each.count] for each in sync.runs]
    document = {"id": sync.topic_id, "position": sync.position, "runs": runs}
    return json.dumps(document, separators=(",", ":")).encode()


def read_sync(key: bytes, value: bytes) -> tuple[str, TopicPartition, Sync]:
    """Read a record of the topic of syncs: the mirror, the partition of the source and what was recorded.

    Raises:
        SyncError: no mirror wrote it.
    """
    try:
        mirror, topic, partition = json.loads(key)
        document = json.loads(value)
        runs = [Run(int(source), int(target), int(count)) for source, target, count in document["runs"]]
        sync = Sync(str(document["id"]), int(document["position"]), runs)
        return str(mirror), TopicPartition(str(topic), int(partition)), sync
    except (ValueError, TypeError, KeyError) as error:
        raise SyncError(f"{key[:100]!r} in the topic of syncs was written by no mirror") from error
