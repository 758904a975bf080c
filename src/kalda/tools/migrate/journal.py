"""The journal of a roll: one JSON object a line, on the disk before the roll acts on it."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, assert_never

from kalda.command.errors import ToolError
from kalda.common.types import TopicPartition
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.tools.migrate.walk import (
    Began,
    Doubted,
    Ended,
    Entered,
    Event,
    Measured,
    Offsets,
    Phase,
    Progress,
    Returned,
    Software,
    Swapped,
)


class JournalError(ToolError):
    """The journal cannot be read or written."""


def encode(event: Event) -> dict[str, Any]:
    """Return an event as a JSON object."""
    match event:
        case Began(target):
            return {"event": "began", "target": target}
        case Measured(offsets):
            return {
                "event": "measured",
                "ends": _by_topic(offsets.ends),
                "committed": {group: _by_topic(each) for group, each in offsets.committed.items()},
            }
        case Entered(broker_id, phase):
            return {"event": "entered", "broker": broker_id, "phase": phase}
        case Swapped(broker_id):
            return {"event": "swapped", "broker": broker_id}
        case Returned(broker_id):
            return {"event": "returned", "broker": broker_id}
        case Doubted(reason):
            return {"event": "doubted", "reason": reason}
        case Ended():
            return {"event": "ended"}
        case _:
            assert_never(event)


def decode(document: Mapping[str, Any]) -> Event:
    """Read what `encode` returned.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    match document["event"]:
        case "began":
            return Began(Software(document["target"]))
        case "measured":
            committed = {group: _partitions(each) for group, each in document["committed"].items()}
            return Measured(Offsets(_partitions(document["ends"]), committed))
        case "entered":
            return Entered(int(document["broker"]), Phase(document["phase"]))
        case "swapped":
            return Swapped(int(document["broker"]))
        case "returned":
            return Returned(int(document["broker"]))
        case "doubted":
            return Doubted(str(document["reason"]))
        case "ended":
            return Ended()
        case other:
            raise ValueError(f"{other} is no event")


def read_journal(path: Path) -> list[Event]:
    """Read a journal; empty if there is none. A last line that was not written to its end is left out.

    Raises:
        JournalError: a line before the last is damaged, or the file cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from error
    events: list[Event] = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last line break was cut off
        try:
            events.append(decode(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise JournalError(f"{path}: line {number} is no event of a roll: {error}") from None
    return events


def progress_of(events: list[Event]) -> Progress:
    """Return where the roll of a journal is."""
    progress = Progress()
    for event in events:
        progress = progress.after(event)
    return progress


class Journal:
    """An open journal, which no other run may have open. Works with ``with``."""

    def __init__(self, path: Path) -> None:
        """Open the journal.

        Raises:
            JournalError: another run has it open, or it cannot be written.
        """
        self._path: Final = path
        # A file of its own: a record lock of the journal would end with the first close of any reader.
        try:
            lock = OsFileSystem(is_private=True).lock(f"{path}.lock")
        except OSError as error:
            raise JournalError(f"{path}.lock: {error.strerror}") from error
        if isinstance(lock, int):
            raise JournalError(
                f"{path}: another `kalda migrate`, process {lock}, is at work with this journal"
            )
        self._lock: Final = lock
        try:
            self._file: Final = path.open("ab")
        except OSError as error:
            lock.release()
            raise JournalError(f"{path}: {error.strerror}") from error
        self._cut_torn_line()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._lock.release()

    def append(self, event: Event) -> None:
        """Write an event and return when it is on the disk.

        Raises:
            JournalError: it cannot be written.
        """
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, **encode(event)})
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from error

    def _cut_torn_line(self) -> None:
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return topics


def _partitions(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }
