"""Compares the records of a source with their copies, piece by piece as they are copied.

A pair of offsets that have the same records before them on both sides is the beginning of the next piece, so
only what came since the last piece is read while writers wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kalda.clients.errors import OffsetOutOfRangeError
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.journal import Cut
from kalda.pipelines.cutover.log_rows import Digest
from kalda.pipelines.mirror.offset_syncs import Run


class DifferenceError(ValueError):
    """A copy does not have the records of its original."""


class Digests(Protocol):
    """Makes digests of a cluster's partitions, as `LogRows` does."""

    def digest(self, partition: TopicPartition, start: int, end: int, before: Digest) -> Digest:
        """Return the digest of the records of `before` and of a range."""
        ...


@dataclass(frozen=True, slots=True)
class Begins:
    """Where the logs of a partition begin."""

    source: int
    target: int


def common_begin(runs: Sequence[Run], begins: Begins, end: Cut) -> Cut:
    """Return the first pair of offsets of one record that both logs have; `end` if there is none.

    Example: of the runs (0 → 0, 10 records) and (20 → 11, 5 records), and logs that begin at 4 and 2, it is
    4 → 4; if the copy begins at 12, it is 21 → 12.
    """
    for run in runs:
        skipped = max(begins.source - run.source, begins.target - run.target, 0)
        if skipped < run.count:
            return Cut(run.source + skipped, run.target + skipped)
    return end


class Comparison:
    """Compares partitions up to where they were copied."""

    def __init__(self, source: Digests, target: Digests, compared: Mapping[TopicPartition, Cut]) -> None:
        """Take what was compared before."""
        self._source: Final = source
        self._target: Final = target
        self.compared: Final = dict(compared)
        self.passed_over: Final[dict[TopicPartition, str]] = {}
        """Partitions with records that were not compared, and why."""

    def extend(
        self, partition: TopicPartition, runs: Sequence[Run], begins: Begins, end: Cut, *, is_compacted: bool
    ) -> int:
        """Compare what was copied since the last call, up to a pair that has all records before it.

        Several threads may compare different partitions.

        Returns:
            How many records were compared.

        Raises:
            DifferenceError: the copy has other records, or other ones in between.
            ClientError, RecordsError: a log cannot be read.
        """
        known = self.compared.get(partition)
        start = common_begin(runs, begins, end) if known is None else known
        if begins.source > start.source or begins.target > start.target:
            self.passed_over[partition] = "its beginning was deleted before it was compared"
            start = common_begin(runs, begins, end)
        try:
            there = self._source.digest(partition, start.source, end.source, Digest())
            here = self._target.digest(partition, start.target, end.target, Digest())
        except OffsetOutOfRangeError:
            self.passed_over[partition] = "records were deleted while they were compared"
            self.compared[partition] = end
            return 0
        if there != here:
            if not is_compacted:
                raise DifferenceError(
                    f"{partition} has {there.count} records in the source from offset {start.source} to "
                    f"{end.source}, and {here.count} in the target from {start.target} to {end.target}"
                    f"{'' if there.count != here.count else ', with other ' + _different(there, here)}; "
                    "another program may write to the copy"
                )
            self.passed_over[partition] = "it is compacted, at other times in each cluster"
        self.compared[partition] = end
        return here.count


def _different(there: Digest, here: Digest) -> str:
    names = ("keys", "values", "headers", "timestamps")
    return ", ".join(each for each in names if getattr(there, each) != getattr(here, each))
