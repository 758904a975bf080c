"""The write-ahead log of the ZooKeeper server: framed, checksummed transaction records in ZooKeeper's layout.

A file ``log.<first zxid in hex>`` has a 16-byte header, then per record an 8-byte Adler-32 of the payload, a
4-byte length, the payload, and the byte ``B``. ZooKeeper can read the directory, and this module can read one
that a standalone ZooKeeper or a member of an ensemble wrote. Calls block, so they run on a background thread,
one at a time.

Nothing must ever be written behind a record that may be torn. `durable_size` advances only after a successful
sync, and an append after a failed one first overwrites the rest of the failed write with zeros. So the good
records of a file are a prefix, and recovery cuts off only writes that were never acknowledged. An intact
record behind a bad one means that the file is damaged, not torn; then recovery raises and changes nothing.

As in ZooKeeper the file is extended ahead of its records with zeros. This reserve remains usable when the
disk is full, so that topics can be deleted to free space. It stays when the process ends, and the next
process continues in the same file, so that a broker on a full disk can start.
"""

import contextlib
import errno
import itertools
import logging
import os.path
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.runtime.filesystem import File, FileSystem
from kalda.zookeeper.protocol.jute import JuteError
from kalda.zookeeper.server.data_directory_errors import CorruptionError, check_not_newer
from kalda.zookeeper.server.txns import Txn, decode_txn, is_error, peek_zxid

FILE_PREFIX: Final = "log."

_FILE_HEADER: Final = struct.pack(">iiq", 0x5A4B4C47, 2, 0)
"""``ZKLG``, format version 2, database id 0."""
_FRAME: Final = struct.Struct(">qi")
_END_OF_RECORD: Final = b"B"
_RECORD_START: Final = re.compile(rb"(?=\0{4}.{4}(?:\0(?!\0{3})|[\x01-\x07]))", re.DOTALL)
"""Matches where a record may begin: a 32-bit checksum in 64 bits, then a length from 1 to 128 MiB."""

RECORD_BYTES_MAX: Final = 128 * 1024 * 1024 - 1
"""The largest record that the search for intact records finds; every accepted multi is smaller."""

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A file past this size is followed by a new one, so that purging frees space even without snapshots."""


RESERVE_BYTES: Final = 256 * 1024
"""How far a file is extended at a time. At least half of it remains when the disk becomes full: enough to
delete some hundred topics."""

_RESERVE_FALLBACK_SHARE: Final = 8
"""The divisor of the reserve to try if the disk lacks space for all of it: a few starts and deletions."""

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogContents:
    """The content of one file: its transactions, the end of its last good record, its size."""

    txns: list[Txn]
    last_zxid: int
    """The zxid of the last good record; 0 without any."""
    valid_size: int
    file_size: int
    is_tail_zero: bool
    """Whether only zeros follow: reserve that no record has used."""
    intact_position: int | None
    """The position of an intact record behind a bad one: the file is damaged, not torn."""


def frame(payload: bytes) -> bytes:
    """Return the record that holds a transaction's bytes."""
    assert len(payload) <= RECORD_BYTES_MAX, f"a record of {len(payload)} bytes could not be found again"
    return _FRAME.pack(zlib.adler32(payload), len(payload)) + payload + _END_OF_RECORD


def read_log(data: bytes, after_zxid: int = 0) -> LogContents:
    """Read the records of a file up to the first that is truncated, damaged or out of order.

    Records up to `after_zxid` are checked but not decoded.
    """
    txns: list[Txn] = []
    last_zxid = valid_size = 0
    if data.startswith(_FILE_HEADER):
        valid_size = len(_FILE_HEADER)
        for payload, end in _payloads(data):
            try:
                zxid = peek_zxid(payload)
                if zxid <= last_zxid:
                    if zxid != last_zxid or not is_error(payload):
                        break
                    # ZooKeeper logs a request that it could not parse under the last zxid.
                    valid_size = end
                    continue
                if zxid > after_zxid:
                    txns.append(decode_txn(payload))
            except JuteError:
                break
            last_zxid = zxid
            valid_size = end
    intact_position = None
    is_tail_zero = not data[valid_size:].strip(b"\x00")
    if not is_tail_zero:
        intact_position = _find_intact(data, valid_size, last_zxid)
    return LogContents(txns, last_zxid, valid_size, len(data), is_tail_zero, intact_position)


def _payloads(data: bytes) -> Iterator[tuple[bytes, int]]:
    position = len(_FILE_HEADER)
    while (payload := _payload_at(data, position)) is not None:
        position += _FRAME.size + len(payload) + len(_END_OF_RECORD)
        yield payload, position


def _payload_at(data: bytes, position: int) -> bytes | None:
    if position + _FRAME.size > len(data):
        return None
    checksum, length = _FRAME.unpack_from(data, position)
    start = position + _FRAME.size
    end = start + length
    # A length of 0 is padding by ZooKeeper, or by a file system after a power failure.
    if length <= 0 or data[end : end + 1] != _END_OF_RECORD:
        return None
    payload = data[start:end]
    return payload if zlib.adler32(payload) == checksum else None


def _find_intact(data: bytes, position: int, last_zxid: int) -> int | None:
    """Return the position of the first intact record at or after `position` newer than `last_zxid`."""
    for match in _RECORD_START.finditer(data, position, len(data.rstrip(b"\x00"))):
        payload = _payload_at(data, match.start())
        if payload is not None:
            with contextlib.suppress(JuteError):
                if peek_zxid(payload) > last_zxid:
                    return match.start()
    return None


def file_name(zxid: int) -> str:
    """Return the name of the file whose first transaction is `zxid`."""
    return f"{FILE_PREFIX}{zxid:x}"


def file_zxid(name: str, prefix: str) -> int | None:
    """Return the zxid in a file's name, or None if it is no such name."""
    if not name.startswith(prefix):
        return None
    try:
        return int(name[len(prefix) :], 16)
    except ValueError:
        return None


class TxnLog:
    """Appends to the newest file. Not thread-safe: one call at a time."""

    def __init__(
        self,
        directory: str,
        filesystem: FileSystem,
        *,
        sync: bool = True,
        file_bytes_max: int = FILE_BYTES_MAX,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._sync = sync
        self._file_bytes_max = file_bytes_max
        self._reserve_bytes = reserve_bytes
        self._file: File | None = None
        self._path = ""
        self.durable_size = 0
        """Size of the durable part of the current file. Invariant: whole records only."""
        self._torn_end = 0
        """The end of a failed write; at or below `durable_size` if there was none."""
        self._allocated = 0
        """Size to which the file is extended. Invariant: `durable_size`, `_torn_end` <= `_allocated`."""
        self._is_roll_due = False

    def append(self, records: Sequence[bytes], first_zxid: int) -> None:
        """Write framed records, starting with `first_zxid`, and return when they are durable.

        Raises:
            OSError: none of them counts as written; the next call starts at the same position.
        """
        if self._torn_end > self.durable_size:
            self._clear_torn()
        if self._file is None or self._is_roll_due or self.durable_size >= self._file_bytes_max:
            self._open_next(first_zxid)
        file = self._file
        assert file is not None, "an append has a file"
        data = b"".join(records)
        self._reserve(file, len(data))
        self._torn_end = self.durable_size + len(data)
        _write(file, data, self.durable_size, self._path)
        if self._sync:
            file.sync()
        self.durable_size = self._torn_end

    def roll(self) -> None:
        """Start a new file at the next append; called after a snapshot, so that old files can be purged."""
        self._is_roll_due = self._file is not None

    def close(self) -> None:
        """Close the file; its reserve stays for the next process.

        Raises:
            OSError: the rest of a failed write could not be cleared; the next recovery cuts it off.
        """
        try:
            if self._file is not None and self._torn_end > self.durable_size:
                self._clear_torn()
        finally:
            self._file = None

    def files(self) -> list[tuple[int, str]]:
        """Return the first zxid and the path of every file, oldest first."""
        found = []
        for entry in self._filesystem.list_directory(self._directory):
            zxid = file_zxid(entry.name, FILE_PREFIX)
            if zxid is not None:
                found.append((zxid, os.path.join(self._directory, entry.name)))
        return sorted(found)

    def recover(self, after_zxid: int) -> Iterator[Txn]:
        """Yield the transactions after a snapshot, then cut a torn tail off the last file.

        The caller must exhaust the iterator before the first `append`, which continues in the last file or,
        if a snapshot covers all of it, in a new one. No file changes before all have been read and checked.

        Raises:
            CorruptionError: an acknowledged record is bad, or transactions are missing.
            OSError: a file could not be read or cut.
        """
        begun, needed = self._needed_files(after_zxid)
        previous = after_zxid
        found: list[tuple[str, LogContents]] = []
        for index, path in enumerate(needed):
            data = self._filesystem.read(path)
            check_not_newer(path, data, _FILE_HEADER)
            contents = read_log(data, after_zxid)
            newest = max(previous, contents.last_zxid)
            _check_damage(path, contents, newest, is_last=index == len(needed) - 1)
            for txn in contents.txns:
                if txn.zxid != previous + 1 and not _is_next_epoch(previous, txn.zxid):
                    raise CorruptionError(
                        f"{path} continues with transaction {txn.zxid:#x}, but {previous + 1:#x} is next; "
                        "a file is missing"
                    )
                previous = txn.zxid
                yield txn
            found.append((path, contents))
        for path in begun:
            self._filesystem.remove(path)
        for path, contents in found:
            goes_on = path == needed[-1] and contents.last_zxid == previous > 0
            if contents.valid_size < contents.file_size and not (goes_on and contents.is_tail_zero):
                self._cut_tail(path, contents)
            if goes_on:
                self._go_on_in(path, contents.valid_size)
                self._is_roll_due = previous == after_zxid

    def _needed_files(self, after_zxid: int) -> tuple[list[str], list[str]]:
        """Return the abandoned files without records, and the files with the needed transactions."""
        # The file before an abandoned one may have been continued.
        begun: list[str] = []
        kept: list[tuple[int, str]] = []
        for zxid, path in self.files():
            if self._filesystem.open(path).size() <= len(_FILE_HEADER):
                begun.append(path)
            else:
                kept.append((zxid, path))
        # A file's transactions end where the next file's begin.
        needed = [
            path
            for index, (_, path) in enumerate(kept)
            if index + 1 == len(kept) or kept[index + 1][0] > after_zxid + 1
        ]
        return begun, needed

    def purge(self, oldest_snapshot_zxid: int) -> None:
        """Delete files that no retained snapshot needs: the next file starts at or before the snapshot."""
        files = self.files()
        for (_, path), (next_zxid, _) in itertools.pairwise(files):
            if next_zxid <= oldest_snapshot_zxid + 1 and path != self._path:
                self._filesystem.remove(path)

    def _open_next(self, first_zxid: int) -> None:
        path = os.path.join(self._directory, file_name(first_zxid))
        try:
            file = self._filesystem.open(path, create=True)
            file.truncate(0)
            _write(file, _FILE_HEADER, 0, path)
            if self._sync:
                file.sync()
                self._filesystem.sync_directory(self._directory)
        except OSError:
            if self._file is None:
                raise
            # The current file has a reserve even if the disk has no space for a new file.
            self._filesystem.remove(path)
            return
        before = self._file
        if before is not None:
            with contextlib.suppress(OSError):
                before.truncate(self.durable_size)
        self._file, self._path = file, path
        self._is_roll_due = False
        self.durable_size = self._torn_end = self._allocated = len(_FILE_HEADER)

    def _go_on_in(self, path: str, valid_size: int) -> None:
        self._file, self._path = self._filesystem.open(path), path
        self.durable_size = self._torn_end = valid_size
        self._allocated = self._file.size()

    def _reserve(self, file: File, size: int) -> None:
        """Extend the file so that `size` bytes fit, and by a reserve if the disk has space."""
        end = self.durable_size + size
        if end + self._reserve_bytes // 2 <= self._allocated:
            return
        fallback = self._reserve_bytes // _RESERVE_FALLBACK_SHARE
        for target in (end + self._reserve_bytes, end + fallback, end):
            if target <= self._allocated:
                return
            try:
                _write(file, bytes(target - self._allocated), self._allocated, self._path)
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(self._allocated)
                if target == end:
                    raise
            else:
                self._allocated = target
                return

    def _clear_torn(self) -> None:
        # Zeros, not truncation: another process could take the freed space.
        assert self._file is not None, "a torn file is open"
        _write(self._file, bytes(self._torn_end - self.durable_size), self.durable_size, self._path)
        if self._sync:
            self._file.sync()
        self._torn_end = self.durable_size

    def _cut_tail(self, path: str, contents: LogContents) -> None:
        if not contents.is_tail_zero:
            lost = contents.file_size - contents.valid_size
            logger.warning("%s: cut off %d bytes of a write that was never acknowledged", path, lost)
        if contents.valid_size > len(_FILE_HEADER):
            file = self._filesystem.open(path)
            file.truncate(contents.valid_size)
            file.sync()
        else:
            # The next append may create a file of the same name.
            self._filesystem.remove(path)


def _is_next_epoch(previous: int, zxid: int) -> bool:
    """Return whether a gap lies between two leaders of an ensemble, each of which counts from 1."""
    return zxid >> 32 > previous >> 32


def _check_damage(path: str, contents: LogContents, newest_zxid: int, *, is_last: bool) -> None:
    """Raise if the bytes after the good records cannot be the rest of a write that was not acknowledged."""
    if contents.intact_position is not None:
        reason = f"an intact record stands at byte {contents.intact_position}"
    elif not contents.is_tail_zero and not is_last:
        reason = "a newer file follows"
    else:
        return
    way_out = f"`truncate -s {contents.valid_size} {path}`"
    if not is_last:
        way_out += " and remove the newer log files"
    raise CorruptionError(
        f"{path} has a bad record at byte {contents.valid_size} of {contents.file_size}, and {reason}: "
        f"the file is damaged, and was left as it is. Restore {os.path.dirname(path)} from a copy, or give "
        f"up every change after zxid {newest_zxid:#x}: {way_out}"
    )


def _write(file: File, data: bytes, position: int, path: str) -> None:
    view = memoryview(data)
    while view:
        written = file.write_at(view, position)
        if written <= 0:
            raise OSError(errno.EIO, "the device takes no more bytes", path)
        view = view[written:]
        position += written
