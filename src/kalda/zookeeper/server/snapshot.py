"""Writes and reads snapshots of the data tree, in files named ``snapshot.<zxid in hex>``.

The layout is ZooKeeper's: file header, sessions, access lists, znodes in the order of their paths with
parents first, a final "/", and an Adler-32 of everything before it. A file gets its name only when it is
complete and durable, and recovery loads the newest file with a correct checksum, so a crash while writing
loses nothing. Unlike ZooKeeper's snapshots these are not fuzzy: the tree is frozen first. The database id in
the file header distinguishes the two kinds; ZooKeeper ignores it.

Snapshots that ZooKeeper wrote can be read too: with the digest and the zxid that versions 3.6 and 3.9 append,
each followed by a checksum of everything before it, and compressed with gzip.
"""

import gzip
import logging
import os.path
import struct
import zlib
from collections.abc import Callable
from typing import Final

from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import TEMPORARY_SUFFIX, FileSystem
from kalda.runtime.system.clock import sleep
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.protocol.jute import (
    INT,
    LONG,
    JuteError,
    Reader,
    write_buffer,
    write_int,
    write_long,
    write_text,
)
from kalda.zookeeper.server.data_directory_errors import CorruptionError, check_not_newer
from kalda.zookeeper.server.data_tree import DataTree, FrozenTree, TreeError, Znode
from kalda.zookeeper.server.txn_log import file_zxid
from kalda.zookeeper.server.txns import OPEN_ACL, read_acls, write_acls

FILE_PREFIX: Final = "snapshot."
RETAINED: Final = 3
"""The number of snapshots to keep, as in ZooKeeper: the newest may be unreadable."""

_MAGIC: Final = 0x5A4B534E
"""``ZKSN``."""
_VERSION: Final = 2
_OWN_DATABASE_ID: Final = 0x4B616C6461
"""``Kalda`` marks a snapshot that is not fuzzy. ZooKeeper writes -1."""
_HEADER: Final = struct.Struct(">iiq")
_FILE_HEADER: Final = _HEADER.pack(_MAGIC, _VERSION, _OWN_DATABASE_ID)
_STAT: Final = struct.Struct(">qqqqiiiqq")
_OPEN_ACL_INDEX: Final = -1
_SESSION: Final = struct.Struct(">qi")
_GZIP_SUFFIX: Final = ".gz"
_SNAPPY_SUFFIX: Final = ".snappy"

_PAUSE_ZNODES: Final = 200
_PAUSE_SECONDS: Final = 0.00005
"""The writer shares the interpreter with the event loop, and would hold it for 5 ms at a time. So it pauses
after every `_PAUSE_ZNODES` znodes; the loop then waits for less than one millisecond."""

logger: Final = logging.getLogger(__name__)


def encode_snapshot(tree: FrozenTree, pause: Callable[[], None] | None = None) -> bytes:
    """Return the file's bytes; calls `pause` every `_PAUSE_ZNODES` znodes, to let other threads run."""
    out = bytearray(_FILE_HEADER)
    write_int(out, len(tree.sessions))
    for session_id, timeout_ms in sorted(tree.sessions.items()):
        out += _SESSION.pack(session_id, timeout_ms)
    acls: dict[tuple[Acl, ...], int] = {}
    for node in tree.nodes.values():
        if node.acl is not OPEN_ACL and node.acl not in acls:
            acls[node.acl] = len(acls) + 1
    write_int(out, len(acls))
    for acl, index in acls.items():
        write_long(out, index)
        write_acls(out, acl)
    # Sorted paths put a parent before its children.
    for index, path in enumerate(sorted(tree.nodes)):
        if pause is not None and index % _PAUSE_ZNODES == 0:
            pause()
        node = tree.nodes[path]
        write_text(out, "" if path == "/" else path)
        write_buffer(out, node.data)
        write_long(out, _OPEN_ACL_INDEX if node.acl is OPEN_ACL else acls[node.acl])
        out += _STAT.pack(
            node.czxid,
            node.mzxid,
            node.ctime,
            node.mtime,
            node.version,
            node.created_count,
            node.aversion,
            node.ephemeral_owner,
            node.pzxid,
        )
    write_text(out, "/")
    out += LONG.pack(zlib.adler32(out))
    write_text(out, "/")
    return bytes(out)


def decode_snapshot(data: bytes, zxid: int) -> FrozenTree:
    """Decode a file that `encode_snapshot` or ZooKeeper wrote.

    Raises:
        JuteError: it is truncated, damaged, or no snapshot.
    """
    reader = Reader(data)
    magic, version, database_id = reader.unpack(_HEADER)
    if (magic, version) != (_MAGIC, _VERSION):
        raise JuteError("the file header is not a snapshot's")
    _check_seal(data)
    sessions = dict(_read_session(reader) for _ in range(reader.count(_SESSION.size)))
    acls: dict[int, tuple[Acl, ...]] = {_OPEN_ACL_INDEX: OPEN_ACL}
    for _ in range(reader.count(LONG.size + INT.size)):
        index = reader.int64()
        acls[index] = read_acls(reader)
    nodes: dict[str, Znode] = {}
    while (path := reader.text()) != "/":
        node_data = reader.buffer()
        acl_index = reader.int64()
        czxid, mzxid, ctime, mtime, version, created, aversion, owner, pzxid = reader.unpack(_STAT)
        acl = acls.get(acl_index)
        if acl is None:
            raise JuteError(f"{path} names access list {acl_index}, which the snapshot does not hold")
        nodes[path or "/"] = Znode(
            node_data, acl, czxid, mzxid, ctime, mtime, version, created, aversion, owner, pzxid
        )
    return FrozenTree(zxid, nodes, sessions, is_fuzzy=database_id != _OWN_DATABASE_ID)


def _step_aside() -> None:
    sleep(_PAUSE_SECONDS)


def _read_session(reader: Reader) -> tuple[int, int]:
    session_id, timeout_ms = reader.unpack(_SESSION)
    return session_id, timeout_ms


def _check_seal(data: bytes) -> None:
    # A seal is the checksum and the text "/", five bytes. The last seal covers the earlier ones.
    sealed_size = len(data) - LONG.size - INT.size - 1
    if sealed_size < len(_FILE_HEADER):
        raise JuteError("the file is cut short")
    (checksum,) = LONG.unpack_from(data, sealed_size)
    if zlib.adler32(memoryview(data)[:sealed_size]) != checksum:
        raise JuteError("the checksum does not match")


class SnapshotStore:
    """The snapshots of one directory. Calls block, so they run on a background thread or at start."""

    def __init__(self, directory: str, filesystem: FileSystem, *, retained: int = RETAINED) -> None:
        assert retained >= 1, f"at least one snapshot is kept, not {retained}"
        self._directory = directory
        self._filesystem = filesystem
        self._retained = retained

    def save(self, tree: FrozenTree) -> None:
        """Write a snapshot, complete and durable on return.

        Raises:
            OSError: it was not written; existing snapshots are unchanged.
        """
        path = os.path.join(self._directory, f"{FILE_PREFIX}{tree.zxid:x}")
        self._filesystem.replace(path, encode_snapshot(tree, _step_aside), sync=True)

    def save_first(self, tree: DataTree) -> None:
        """Write a snapshot if the directory has none: ZooKeeper refuses a directory with logs alone.

        A full disk does not prevent the start, because this server needs no such snapshot.
        """
        if not self.files():
            try:
                self.save(tree.freeze())
            except OSError as error:
                logger.warning("%s has no first snapshot: %s", self._directory, error_text(error))

    def files(self) -> list[tuple[int, str]]:
        """Return the zxid and the path of every snapshot, oldest first."""
        found = []
        for entry in self._filesystem.list_directory(self._directory):
            name = entry.name.removesuffix(_GZIP_SUFFIX).removesuffix(_SNAPPY_SUFFIX)
            zxid = file_zxid(name, FILE_PREFIX)
            if zxid is not None:
                found.append((zxid, os.path.join(self._directory, entry.name)))
        return sorted(found)

    def load_newest(self) -> DataTree:
        """Return the tree of the newest readable snapshot, or an empty tree if there are no snapshots.

        Raises:
            CorruptionError: there are snapshots, but none can be read, or a newer release wrote one.
            OSError: the directory or a file could not be read.
        """
        files = self.files()
        for zxid, path in reversed(files):
            try:
                data = self._read(path)
                check_not_newer(path, data, _FILE_HEADER)
                return DataTree.restore(decode_snapshot(data, zxid))
            except (JuteError, TreeError) as error:
                logger.warning("snapshot %s is skipped: %s", path, error_text(error))
        if files:
            raise CorruptionError(f"none of the {len(files)} snapshots in {self._directory} can be read")
        return DataTree()

    def _read(self, path: str) -> bytes:
        data = self._filesystem.read(path)
        if path.endswith(_SNAPPY_SUFFIX):
            raise JuteError(
                "it is compressed with snappy; configure the ZooKeeper that wrote it for gz or no compression"
            )
        if not path.endswith(_GZIP_SUFFIX):
            return data
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise JuteError(f"gzip: {error}") from None

    def remove_unfinished(self) -> None:
        """Remove the temporary file of a `save` that a crash interrupted."""
        for entry in self._filesystem.list_directory(self._directory):
            if entry.name.startswith(FILE_PREFIX) and entry.name.endswith(TEMPORARY_SUFFIX):
                self._filesystem.remove(os.path.join(self._directory, entry.name))

    def purge(self) -> int:
        """Delete all but the newest snapshots; return the zxid of the oldest one kept, or 0 without any."""
        files = self.files()
        for _, path in files[: -self._retained]:
            self._filesystem.remove(path)
        kept = files[-self._retained :]
        return kept[0][0] if kept else 0
