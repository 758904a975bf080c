"""Dumps and checks the three index files of a segment against its ``.log`` file.

Apache Kafka preallocates the indexes of an active segment with zeros, so a zero entry behind the first one is
the end of the index.
"""

import os
from collections.abc import Iterator
from struct import Struct

from kalda.records.errors import RecordsError
from kalda.storage.errors import CorruptIndexError
from kalda.storage.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, parse_offset_file_name
from kalda.storage.file_records import FileRecords
from kalda.storage.offset_index import ENTRY as OFFSET_ENTRY
from kalda.storage.time_index import ENTRY as TIME_ENTRY
from kalda.storage.transaction_index import TransactionIndex
from kalda.tools.dump_log.entries import DumpLine, Entry, Note, Problem
from kalda.tools.dump_log.read_only_files import ReadOnlyFileSystem
from kalda.tools.dump_log.segment import open_records


def dump_offset_index(path: str, *, verify_only: bool, sanity_only: bool) -> Iterator[DumpLine]:
    """Yield the entries of an ``.index`` file and what is wrong with them.

    With `verify_only` only the problems; with `sanity_only` only the check that a broker does at its start,
    which decides whether the index is built again.
    """
    base_offset = _base_offset(path)
    entries, torn = _read_entries(path, OFFSET_ENTRY)
    if not entries:
        yield Note(f"{path} is empty.", {"isEmpty": True})
        return
    if sanity_only:
        if torn:
            yield Problem(path, len(entries) * OFFSET_ENTRY.size, _torn_text(torn, OFFSET_ENTRY))
        elif entries[-1][0] <= 0 or entries[-1][1] < 0:
            # A broker adds no entry for the first batch of a segment.
            last = f"offset +{entries[-1][0]} at position {entries[-1][1]}"
            yield Problem(
                path,
                (len(entries) - 1) * OFFSET_ENTRY.size,
                f"the last entry is {last}; a valid one is above the base offset {base_offset}",
            )
        else:
            yield Note(f"{path} passed sanity check.", {"passedSanityCheck": True})
        return
    log = _log_of(path)
    if isinstance(log, Problem):
        yield log
    for slot, (relative, position) in enumerate(entries):
        if relative == 0 and slot > 0:
            return
        offset = base_offset + relative
        if not isinstance(log, Problem):
            found = _last_offset_at(log, position)
            if found != offset:
                shown = "no batch" if found is None else f"log offset: {found}"
                yield Problem(
                    path,
                    slot * OFFSET_ENTRY.size,
                    f"Mismatch at position {position} of the log: index offset: {offset}, {shown}",
                )
        if not verify_only:
            yield Entry("offset", {"offset": offset, "position": position})
    if torn:
        yield Problem(path, len(entries) * OFFSET_ENTRY.size, _torn_text(torn, OFFSET_ENTRY))


def dump_time_index(path: str, *, verify_only: bool, sanity_only: bool) -> Iterator[DumpLine]:
    """Yield the entries of a ``.timeindex`` file and what is wrong with them; options as above."""
    base_offset = _base_offset(path)
    entries, torn = _read_entries(path, TIME_ENTRY)
    if not entries:
        yield Note(f"{path} is empty.", {"isEmpty": True})
        return
    if sanity_only:
        if torn:
            yield Problem(path, len(entries) * TIME_ENTRY.size, _torn_text(torn, TIME_ENTRY))
        elif entries[-1][0] < entries[0][0] or entries[-1][1] < 0:
            yield Problem(path, (len(entries) - 1) * TIME_ENTRY.size, "the last entry is below the first one")
        else:
            yield Note(f"{path} passed sanity check.", {"passedSanityCheck": True})
        return
    log = _log_of(path)
    if isinstance(log, Problem):
        yield log
    positions = _positions(path)
    previous = -1
    for slot, (timestamp, relative) in enumerate(entries):
        if relative == 0 and slot > 0:
            return
        offset = base_offset + relative
        at = slot * TIME_ENTRY.size
        if not isinstance(log, Problem):
            reason = _time_reason(log, positions, base_offset, offset, timestamp)
            if reason is not None:
                yield Problem(path, at, reason)
        if previous >= timestamp:
            yield Problem(
                path, at, f"Out of order: index timestamp: {timestamp}, previously indexed: {previous}"
            )
        if not verify_only:
            yield Entry("time", {"timestamp": timestamp, "offset": offset})
        previous = timestamp
    if torn:
        yield Problem(path, len(entries) * TIME_ENTRY.size, _torn_text(torn, TIME_ENTRY))


def dump_transaction_index(path: str) -> Iterator[DumpLine]:
    """Yield the aborted transactions of a ``.txnindex`` file."""
    try:
        entries = TransactionIndex(ReadOnlyFileSystem(), path, os.stat(path).st_size).entries()
    except CorruptIndexError as error:
        yield Problem(path, None, str(error))
        return
    for aborted in entries:
        yield Entry(
            "abortedTransaction",
            {
                "version": 0,
                "producerId": aborted.producer_id,
                "firstOffset": aborted.first_offset,
                "lastOffset": aborted.last_offset,
                "lastStableOffset": aborted.last_stable_offset,
            },
        )


def _base_offset(path: str) -> int:
    name = parse_offset_file_name(os.path.basename(path))
    assert name is not None, f"the dispatch passes files of segments only, got {path}"
    return name[0]


def _read_entries(path: str, entry: Struct) -> tuple[list[tuple[int, int]], int]:
    """Return the entries of an index and the number of bytes behind the last whole one."""
    data = ReadOnlyFileSystem().read(path)
    torn = len(data) % entry.size
    return [(first, second) for first, second in entry.iter_unpack(data[: len(data) - torn])], torn


def _torn_text(torn: int, entry: Struct) -> str:
    return f"{torn} bytes behind the last entry: the size is no multiple of {entry.size}"


def _log_of(path: str) -> FileRecords | Problem:
    log = os.path.splitext(path)[0] + LOG_SUFFIX
    try:
        return open_records(log)
    except OSError as error:
        return Problem(path, None, f"its entries cannot be checked: {log}: {error.strerror}")


def _last_offset_at(log: FileRecords, position: int) -> int | None:
    if not 0 <= position < log.size:
        return None
    found = next(log.iter_positions(position), None)
    return None if found is None else found.last_offset


def _positions(path: str) -> list[tuple[int, int]]:
    """Return the entries of the offset index beside a time index, as relative offset and position."""
    try:
        return _read_entries(os.path.splitext(path)[0] + OFFSET_INDEX_SUFFIX, OFFSET_ENTRY)[0]
    except OSError:
        return []


def _time_reason(
    log: FileRecords, positions: list[tuple[int, int]], base_offset: int, offset: int, timestamp: int
) -> str | None:
    """Return how the log contradicts an entry of the time index, or None."""
    start = 0
    for relative, position in positions:
        if base_offset + relative > offset or position >= log.size:
            break
        start = position
    try:
        for _, header in log.iter_headers(start):
            if header.last_offset < offset:
                continue
            if header.last_offset != offset:
                return f"Indexed offset: {offset}, found log offset: {header.last_offset}"
            if header.max_timestamp != timestamp:
                return (
                    f"Timestamp mismatch: index timestamp: {timestamp}, log timestamp: {header.max_timestamp}"
                )
            return None
    except RecordsError as error:
        return f"the log cannot be read: {error}"
    return f"Indexed offset: {offset} is not in the log"
