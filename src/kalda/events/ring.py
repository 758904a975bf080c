"""Keeps the newest events of a broker in two files of bounded size, in one of its log directories.

Events are appended to one file. When it has half of the bound, the other file is emptied and takes its place.
The files are regular ones whose names begin with a dot, so Apache Kafka passes over them. All methods block;
they are called outside the event loop, one writer at a time.
"""

import os.path
from typing import Final, NamedTuple

from kalda.events.event import event_number
from kalda.events.ring_file import HEADER, file_header, is_readable, records
from kalda.runtime.filesystem import File, FileSystem

EVENT_FILES: Final = (".kalda-events.0", ".kalda-events.1")


class _Found(NamedTuple):
    """One file as it was found: where its sound records end, and their contents."""

    end: int
    contents: list[bytes]


class EventRing:
    """The two files of one broker in one directory; `open` it first."""

    def __init__(self, file_system: FileSystem, directory: str, broker_id: int, bytes_max: int) -> None:
        self._file_system: Final = file_system
        self._paths: Final = tuple(os.path.join(directory, name) for name in EVENT_FILES)
        self._broker_id: Final = broker_id
        self._file_bytes_max: Final = bytes_max // 2
        self._active = 0
        self._file: File | None = None
        self._end = 0
        """Where the active file ends. What is behind it was cut off by a kill."""
        self.directory: Final = directory

    def open(self) -> bytes | None:
        """Find the file to append to; returns the newest event that is kept.

        Raises:
            OSError: a file cannot be read or written.
        """
        found = [self._read(path) for path in self._paths]
        self._active = _newer_of(found)
        self._end = found[self._active].end
        self._file = self._file_system.open(self._paths[self._active], create=True)
        if self._end == 0:
            self._begin_file()
        else:
            self._file.truncate(self._end)
        contents = found[self._active].contents
        return contents[-1] if contents else None

    def append(self, data: bytes) -> None:
        """Append records; the oldest half of the ring goes when the active file is full.

        Raises:
            OSError: they could not be written.
        """
        assert self._file is not None, "append to a ring that is not open"
        if self._end > HEADER.size and self._end + len(data) > self._file_bytes_max:
            self._active = 1 - self._active
            self._file = self._file_system.open(self._paths[self._active], create=True)
            self._begin_file()
        end = self._end
        try:
            self._write(data)
        except OSError:
            # The next records overwrite what a full disk took of these.
            self._end = end
            raise

    def contents(self) -> list[bytes]:
        """Return the contents of all records, oldest first.

        Raises:
            OSError: a file cannot be read.
        """
        older, newer = self._paths[1 - self._active], self._paths[self._active]
        return [*self._read(older).contents, *self._read(newer).contents]

    def _begin_file(self) -> None:
        assert self._file is not None, "a file that is not open"
        self._file.truncate(0)
        self._end = 0
        self._write(file_header(self._broker_id))

    def _write(self, data: bytes) -> None:
        assert self._file is not None, "a file that is not open"
        view = memoryview(data)
        while view:
            written = self._file.write_at(view, self._end)
            self._end += written
            view = view[written:]

    def _read(self, path: str) -> _Found:
        try:
            data = self._file_system.read(path)
        except FileNotFoundError:
            return _Found(0, [])
        if not is_readable(data, self._broker_id):
            return _Found(0, [])
        end, contents = HEADER.size, []
        for position, content in records(data):
            end = position
            contents.append(content)
        return _Found(end, contents)


def _newer_of(found: list[_Found]) -> int:
    first, second = found
    if not first.contents or not second.contents:
        return 1 if second.contents else 0
    return 1 if event_number(second.contents[-1]) > event_number(first.contents[-1]) else 0
