"""The write-ahead log: each transaction as a framed, checksummed record, in files named by their first zxid.

Layout is ZooKeeper's (``log.<zxid in hex>``): a 16-byte file header, then per record an 8-byte Adler-32
of the payload, a 4-byte length, the payload, and the byte ``B``. Calls block, so they run on a background
thread, one at a time.

The one thing not to break: nothing is ever written behind a record that may be torn. `durable_size` moves
only after a successful sync, and an append that follows a failed one cuts the file back to it first. So in a
file the good records are a prefix, and what recovery cuts off was never acknowledged.
"""

import errno
import itertools
import os.path
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.storage.filesystem import File, FileSystem
from kalda.zk.proto.jute import JuteError
from kalda.zk.server.errors import CorruptionError
from kalda.zk.server.txns import Txn, decode_txn, peek_zxid

FILE_PREFIX: Final = "log."

_FILE_HEADER: Final = struct.pack(">iiq", 0x5A4B4C47, 2, 0)
"""``ZKLG``, format version 2, database id 0."""
_FRAME: Final = struct.Struct(">qi")
_END_OF_RECORD: Final = b"B"

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A file past this size is followed by a new one, so that purging frees space even without snapshots."""

RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
"""A length above this is nonsense in the tail: the largest multi we accept is far below."""


@dataclass(frozen=True, slots=True)
class LogContents:
    """What one file holds: the transactions asked for, where the last good record ends, the file's size."""

    txns: list[Txn]
    valid_size: int
    file_size: int


def frame(payload: bytes) -> bytes:
    """Return the record that holds a transaction's bytes."""
    return _FRAME.pack(zlib.adler32(payload), len(payload)) + payload + _END_OF_RECORD


def read_log(data: bytes, after_zxid: int = 0) -> LogContents:
    """Read the records of a file up to the first that is cut short, damaged or out of order.

    Those up to `after_zxid` are checked but not decoded.
    """
    txns: list[Txn] = []
    if data[: len(_FILE_HEADER)] != _FILE_HEADER:
        return LogContents(txns, 0, len(data))
    valid_size = len(_FILE_HEADER)
    last_zxid = 0
    for payload, end in _payloads(data):
        try:
            zxid = peek_zxid(payload)
            if zxid <= last_zxid:
                break
            if zxid > after_zxid:
                txns.append(decode_txn(payload))
        except JuteError:
            break
        last_zxid = zxid
        valid_size = end
    return LogContents(txns, valid_size, len(data))


def _payloads(data: bytes) -> Iterator[tuple[bytes, int]]:
    position = len(_FILE_HEADER)
    while position + _FRAME.size <= len(data):
        checksum, length = _FRAME.unpack_from(data, position)
        start = position + _FRAME.size
        end = start + length + 1
        # A length of 0 is the padding that ZooKeeper, and a file system after a power cut, leave behind.
        if not 0 < length <= RECORD_BYTES_MAX or end > len(data):
            return
        payload = data[start : end - 1]
        if data[end - 1 : end] != _END_OF_RECORD or zlib.adler32(payload) != checksum:
            return
        yield payload, end
        position = end


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
    ) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._sync = sync
        self._file_bytes_max = file_bytes_max
        self._file: File | None = None
        self._path = ""
        self.durable_size = 0
        """Bytes of the current file up to which all is durable. Invariant: whole records only."""
        self._is_torn = False
        """Whether there may be bytes after `durable_size`."""

    def append(self, records: Sequence[bytes], first_zxid: int) -> None:
        """Write framed records, the first of them of `first_zxid`, and return when they are durable.

        Raises:
            OSError: none of them counts as written; the next call starts where this one did.
        """
        if self._is_torn:
            self._cut_back()
        if self._file is None or self.durable_size >= self._file_bytes_max:
            self._open_next(first_zxid)
        file = self._file
        assert file is not None, "an append has a file"
        data = b"".join(records)
        self._is_torn = True
        _write(file, data, self.durable_size, self._path)
        if self._sync:
            file.sync()
        self.durable_size += len(data)
        self._is_torn = False

    def roll(self) -> None:
        """Have the next append begin a new file; done after a snapshot so that old files can be purged."""
        if self._is_torn:
            self._cut_back()
        self._file = None

    def close(self) -> None:
        """Let go of the file, without bytes after the last durable record if that can be had."""
        try:
            if self._is_torn:
                self._cut_back()
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

        Must be exhausted before the first `append`, which then starts a new file.

        Raises:
            CorruptionError: a file that is not the last one has a bad record, or transactions are missing.
            OSError: a file could not be read or cut.
        """
        files = self.files()
        # A file's transactions end where the next file's begin.
        needed = [
            path
            for index, (_, path) in enumerate(files)
            if index + 1 == len(files) or files[index + 1][0] > after_zxid + 1
        ]
        previous = after_zxid
        for index, path in enumerate(needed):
            is_last = index == len(needed) - 1
            contents = read_log(self._filesystem.read(path), after_zxid)
            if contents.valid_size < contents.file_size and not is_last:
                raise CorruptionError(
                    f"{path} has a bad record at {contents.valid_size} of {contents.file_size} bytes, and a "
                    "newer file follows; restore the directory from a copy"
                )
            for txn in contents.txns:
                if txn.zxid != previous + 1:
                    raise CorruptionError(
                        f"{path} goes on with transaction {txn.zxid:#x}, but {previous + 1:#x} is next; "
                        "a file is missing"
                    )
                previous = txn.zxid
                yield txn
            if contents.valid_size < contents.file_size:
                self._cut_tail(path, contents)

    def purge(self, oldest_snapshot_zxid: int) -> None:
        """Delete the files that no retained snapshot needs: whose successor starts at or before it."""
        files = self.files()
        for (_, path), (next_zxid, _) in itertools.pairwise(files):
            if next_zxid <= oldest_snapshot_zxid + 1 and path != self._path:
                self._filesystem.remove(path)

    def _open_next(self, first_zxid: int) -> None:
        path = os.path.join(self._directory, file_name(first_zxid))
        file = self._filesystem.open(path, create=True)
        self._file, self._path = file, path
        self.durable_size = 0
        self._is_torn = True
        file.truncate(0)
        _write(file, _FILE_HEADER, 0, path)
        if self._sync:
            file.sync()
            self._filesystem.sync_directory(self._directory)
        self.durable_size = len(_FILE_HEADER)
        self._is_torn = False

    def _cut_back(self) -> None:
        assert self._file is not None, "a torn file is open"
        self._file.truncate(self.durable_size)
        if self._sync:
            self._file.sync()
        self._is_torn = False
        if self.durable_size == 0:
            # Not even the header is there: begin the file again under the next transaction's name.
            self._filesystem.remove(self._path)
            self._file = None

    def _cut_tail(self, path: str, contents: LogContents) -> None:
        if contents.valid_size > len(_FILE_HEADER):
            file = self._filesystem.open(path)
            file.truncate(contents.valid_size)
            file.sync()
        else:
            # The next append may use this very name.
            self._filesystem.remove(path)


def _write(file: File, data: bytes, position: int, path: str) -> None:
    view = memoryview(data)
    while view:
        written = file.write_at(view, position)
        if written <= 0:
            raise OSError(errno.EIO, "the device takes no more bytes", path)
        view = view[written:]
        position += written
