"""Chooses which small files of a table become one: bins of one partition's files, up to the target size.

Decides alone, no I/O, and is the same for all formats. Do not break: a file is in one bin at most, bins hold
files of one partition, and files younger than the policy allows are in none, for batches that are still being
merged or published must not lose their files to a compaction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.pipelines.tables.model import CompactPolicy

LARGE_ENOUGH: Final = 0.75
"""A file of this share of the target gains nothing from being written again."""

BINS_PER_COMMIT: Final = 16
"""Bounds what one conflict with another writer costs."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file of a table: path, partition, size, and when it was committed (milliseconds since the epoch)."""

    path: str
    partition: tuple[tuple[str, str | None], ...]
    size_bytes: int
    committed_ms: int


def plan_bins(files: Iterable[Candidate], policy: CompactPolicy, now_ms: int) -> list[tuple[Candidate, ...]]:
    """Return the bins of a run, oldest files first within a partition."""
    newest_ms = now_ms - round(policy.newest_kept_s * 1000)
    large = policy.file_bytes_target * LARGE_ENOUGH
    by_partition: dict[tuple[tuple[str, str | None], ...], list[Candidate]] = {}
    for file in files:
        if file.size_bytes < large and file.committed_ms <= newest_ms:
            by_partition.setdefault(file.partition, []).append(file)
    bins: list[tuple[Candidate, ...]] = []
    left = policy.bytes_max
    for partition in by_partition.values():
        for group in _pack(sorted(partition, key=lambda file: (file.committed_ms, file.path)), policy):
            size = sum(file.size_bytes for file in group)
            if size <= left:
                left -= size
                bins.append(group)
    return bins


def _pack(files: Sequence[Candidate], policy: CompactPolicy) -> list[tuple[Candidate, ...]]:
    """Fill bins in order, so that rows that came together stay together."""
    groups: list[tuple[Candidate, ...]] = []
    current: list[Candidate] = []
    size = 0
    for file in files:
        if current and size + file.size_bytes > policy.file_bytes_target:
            groups.append(tuple(current))
            current, size = [], 0
        current.append(file)
        size += file.size_bytes
    groups.append(tuple(current))
    # The last bin of a partition grows by each run: it is worth a write only with enough files.
    return [group for group in groups if len(group) >= max(2, policy.files_min)]
