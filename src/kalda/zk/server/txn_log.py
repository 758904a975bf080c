"""The write-ahead log: each transaction as a framed, checksummed record, in files named by their first zxid.

Layout is ZooKeeper's (``log.<zxid in hex>``): a 16-byte file header, then per record an 8-byte Adler-32
of the payload, a 4-byte length, the payload, and the byte ``B``. A ZooKeeper reads our directory, and we read
one of a standalone ZooKeeper or of an ensemble's member. Calls block, so they run on a background thread, one
at a time.

The one thing not to break: nothing is ever written behind a record that may be torn. `durable_size` moves
only after a successful sync, and an append that follows a failed one first writes zeros over what that one
may have left. So in a file the good records are a prefix, and what recovery cuts off was never acknowledged:
an intact record behind a bad one is no torn write but damage, and then recovery raises and changes nothing.

As in ZooKeeper the file runs ahead of its records with zeros. That space is ours when the disk is full, so
that topics can still be deleted to make room. It stays when the process ends, and the next one goes on in the
same file: so that a broker on a full disk can start.
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

from kalda.storage.filesystem import File, FileSystem
from kalda.zk.proto.jute import JuteError
from kalda.zk.server.data_directory_errors import CorruptionError
from kalda.zk.server.txns import Txn, decode_txn, is_error, peek_zxid

FILE_PREFIX: Final = "log."

_FILE_HEADER: Final = struct.pack(">iiq", 0x5A4B4C47, 2, 0)
"""``ZKLG``, format version 2, database id 0."""
_FRAME: Final = struct.Struct(">qi")
_END_OF_RECORD: Final = b"B"
_RECORD_START: Final = re.compile(rb"(?=\0{4}.{4}(?:\0(?!\0{3})|[\x01-\x07]))", re.DOTALL)
"""Where a record may begin: 32 bits of checksum in 64, then a length below 128 MiB that is not 0."""

RECORD_BYTES_MAX: Final = 128 * 1024 * 1024 - 1
"""What the search for intact records finds; the largest multi that is accepted is below."""

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A file past this size is followed by a new one, so that purging frees space even without snapshots."""


RESERVE_BYTES: Final = 256 * 1024
"""How far a file is extended at a time. At least half of it is left when the disk fills up: room for the
deletion of some hundred topics."""

_RESERVE_FALLBACK_SHARE: Final = 8
"""What part of the reserve is asked for when all of it cannot be had: room for a few starts and deletions."""

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogContents:
    """What one file holds: the transactions asked for, where the last good record ends, the file's size."""

    txns: list[Txn]
    last_zxid: int
    """Of the last good record; 0 without any."""
    valid_size: int
    file_size: int
    is_tail_zero: bool
    """Whether only zeros follow: room that no record has used."""
    intact_position: int | None
    """Where a later record stands intact although the good ones end before: the file is damaged, not torn."""


def frame(payload: bytes) -> bytes:
    """Return the record that holds a transaction's bytes."""
    assert len(payload) <= RECORD_BYTES_MAX, f"a record of {len(payload)} bytes could not be found again"
    return _FRAME.pack(zlib.adler32(payload), len(payload)) + payload + _END_OF_RECORD


def read_log(data: bytes, after_zxid: int = 0) -> LogContents:
    """Read the records of a file up to the first that is cut short, damaged or out of order.

    Those up to `after_zxid` are checked but not decoded.
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
                    # A ZooKeeper logs a request that it could not even read, under the last number.
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
    # A length of 0 is the padding that ZooKeeper, and a file system after a power cut, leave behind.
    if length <= 0 or data[end : end + 1] != _END_OF_RECORD:
        return None
    payload = data[start:end]
    return payload if zlib.adler32(payload) == checksum else None


def _find_intact(data: bytes, position: int, last_zxid: int) -> int | None:
    """Return where the first record at or behind `position` is that is intact and newer than `last_zxid`."""
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
    """Return the transaction id in a file's name, or None for a name of another kind."""
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
        """Bytes of the current file up to which all is durable. Invariant: whole records only."""
        self._torn_end = 0
        """Where a write that failed may have reached; at or below `durable_size` there was none."""
        self._allocated = 0
        """Size to which the file was extended. Invariant: `durable_size`, `_torn_end` <= `_allocated`."""
        self._is_roll_due = False

    def append(self, records: Sequence[bytes], first_zxid: int) -> None:
        """Write framed records, the first of them of `first_zxid`, and return when they are durable.

        Raises:
            OSError: none of them counts as written; the next call starts where this one did.
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
        """Have the next append begin a new file; done after a snapshot so that old files can be purged."""
        self._is_roll_due = self._file is not None

    def close(self) -> None:
        """Let go of the file; the room put by stays in it for the next process.

        Raises:
            OSError: what a failed write left could not be cleared; recovery will cut it off.
        """
        try:
            if self._file is not None and self._torn_end > self.durable_size:
                self._clear_torn()
        finally:
            self._file = None

    def files(self) -> list[tuple[int, str]]:
        """Return first zxid and path of every file, oldest first."""
        found = []
        for entry in self._filesystem.list_directory(self._directory):
            zxid = file_zxid(entry.name, FILE_PREFIX)
            if zxid is not None:
                found.append((zxid, os.path.join(self._directory, entry.name)))
        return sorted(found)

    def recover(self, after_zxid: int) -> Iterator[Txn]:
        """Yield the transactions after a snapshot's, cutting a torn tail off the last file.

        Must be exhausted before the first `append`, which goes on in the last file or, if a snapshot covers
        all of that, in a new one. Nothing is changed before all has been read and found good.

        Raises:
            CorruptionError: a record is bad that was acknowledged, or transactions are missing.
            OSError: a file could not be read or cut.
        """
        begun, needed = self._needed_files(after_zxid)
        previous = after_zxid
        found: list[tuple[str, LogContents]] = []
        for index, path in enumerate(needed):
            contents = read_log(self._filesystem.read(path), after_zxid)
            newest = max(previous, contents.last_zxid)
            _check_damage(path, contents, newest, is_last=index == len(needed) - 1)
            for txn in contents.txns:
                if txn.zxid != previous + 1 and not _is_next_epoch(previous, txn.zxid):
                    raise CorruptionError(
                        f"{path} goes on with transaction {txn.zxid:#x}, but {previous + 1:#x} is next; "
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
        """Return the files that were begun and given up, and those with the transactions asked for."""
        # A file without records was begun and given up; the one before it may have gone on.
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
        """Delete the files that no retained snapshot needs: whose successor starts at or before it."""
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
            # There is room in the file we have, if not for a new one.
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
        """Extend the file so that `size` bytes fit, and more if the disk has room."""
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
        # Zeros, not a cut: the space would be somebody else's before we could have it back.
        assert self._file is not None, "a torn file is open"
        _write(self._file, bytes(self._torn_end - self.durable_size), self.durable_size, self._path)
        if self._sync:
            self._file.sync()
        self._torn_end = self.durable_size

    def _cut_tail(self, path: str, contents: LogContents) -> None:
        if not contents.is_tail_zero:
            lost = contents.file_size - contents.valid_size
            logger.warning("%s ends in %d bytes of a write that was never acknowledged: cut off", path, lost)
        if contents.valid_size > len(_FILE_HEADER):
            file = self._filesystem.open(path)
            file.truncate(contents.valid_size)
            file.sync()
        else:
            # The next append may use this very name.
            self._filesystem.remove(path)


def _is_next_epoch(previous: int, zxid: int) -> bool:
    """Return whether a gap is that between two leaders of an ensemble, each of whom counts from 1."""
    return zxid >> 32 > previous >> 32


def _check_damage(path: str, contents: LogContents, newest_zxid: int, *, is_last: bool) -> None:
    """Raise if what follows the good records cannot be the rest of a write that was never acknowledged."""
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
