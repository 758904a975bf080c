"""Declares the job and the reports that the event loop and the cleaner process exchange as JSON lines.

A job names only closed segments. Their files do not change while the job runs, so the two processes share no
other state.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from kalda.runtime.error_text import error_text
from kalda.storage.cleaner.cleaner_config import UNLIMITED

Aborted = tuple[int, int, int, int]
"""Producer id, first offset, last offset, last stable offset: an entry of a transaction index."""

LastRecord = tuple[int, int, int]
"""Producer id, offset of its last data record (-1: none in this epoch), producer epoch."""


class SourceSegment(NamedTuple):
    """A closed segment: offsets [base_offset, end_offset), sizes in bytes."""

    base_offset: int
    end_offset: int
    size: int
    offset_index_size: int
    time_index_size: int
    transaction_index_size: int
    is_incomplete: bool = False
    """Whether records of it are missing, which other replicas may return."""


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """One cleaning of one log."""

    directory: str
    segments: tuple[SourceSegment, ...]
    """All closed segments, oldest first; from `first_uncleanable_offset` on only aborts are read."""
    first_dirty_offset: int
    """Keys are already unique below."""
    first_uncleanable_offset: int
    """The base offset of the first segment that stays unchanged."""
    aborted: tuple[Aborted, ...]
    """The aborted transactions in the active segment's index."""
    last_records: tuple[LastRecord, ...]
    """The last records of known producers, whose batches are kept, empty if need be."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    """Memory for the offset map, up to its load factor."""
    io_buffer_bytes: int
    bytes_per_second: float = UNLIMITED
    """The bound on reads and writes together."""


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """Segments whose replacement is complete and synced, under the suffix ``.cleaned``."""

    base_offset: int
    replaced: tuple[int, ...]
    """Base offsets of the segments that it replaces; the first is its own."""
    size: int
    offset_index_size: int
    time_index_size: int
    transaction_index_size: int


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """The result and the statistics of a cleaning."""

    end_offset: int
    """Everything below is clean; less than the job asked for if the keys did not fit into memory."""
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    records_without_key: int = 0
    map_bytes_read: int = 0
    map_seconds: float = 0.0
    seconds: float = 0.0
    map_utilization: float = 0.0


def encode_job(job: CleaningJob) -> Iterator[bytes]:
    """Yield a job as short lines, because a log may have a hundred thousand producers."""
    values = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    rows = {name: values.pop(name) for name in _ROWS}
    yield _line(["job", values])
    for name, items in rows.items():
        for start in range(0, len(items), _ROWS_PER_LINE):
            yield _line([name, items[start : start + _ROWS_PER_LINE]])
    yield _line(["run", None])


class JobDecoder:
    """Decodes a job from the lines of `encode_job`."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def feed(self, line: bytes) -> CleaningJob | None:
        """Process the next line; return the job when it is complete."""
        name, content = json.loads(line)
        if name == "job":
            self._values = {**content, **{row: [] for row in _ROWS}}
        elif name != "run":
            self._values[name] += [_ROWS[name](item) for item in content]
        else:
            for row in _ROWS:
                self._values[row] = tuple(self._values[row])
            return CleaningJob(**self._values)
        return None


def _line(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


_ROWS: Final[dict[str, Callable[[list[int]], tuple[int, ...]]]] = {
    "segments": SourceSegment._make,
    "aborted": tuple,
    "last_records": tuple,
}
_ROWS_PER_LINE: Final = 1000


@dataclass(frozen=True, slots=True)
class CleaningFailure:
    """The error that ended a cleaning; `errno` is 0 if the log's content caused it, not the disk."""

    message: str
    errno: int = 0


Report = CleanedGroup | CleaningResult | CleaningFailure

_KINDS: Final[dict[str, type[Report]]] = {
    "group": CleanedGroup,
    "result": CleaningResult,
    "failure": CleaningFailure,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode_report(report: Report) -> bytes:
    """Write a report as one line."""
    return _line([_NAMES[type(report)], asdict(report)])


def decode_report(line: bytes) -> Report:
    """Read what `encode_report` wrote."""
    kind, fields = json.loads(line)
    if "replaced" in fields:
        fields["replaced"] = tuple(fields["replaced"])
    return _KINDS[kind](**fields)


def failure_of(error: Exception) -> CleaningFailure:
    """Return the failure for an exception, with the errno of a disk error."""
    if isinstance(error, OSError):
        return CleaningFailure(error_text(error), error.errno or 0)
    return CleaningFailure(f"{type(error).__name__}: {error}")
