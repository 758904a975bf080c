"""Files of a newer release stop the start of the coordination server; nothing of them is cut off."""

import pytest

from kalda.zookeeper.port import Create
from kalda.zookeeper.server.data_directory_errors import CorruptionError
from kalda.zookeeper.server.snapshot import SnapshotStore, encode_snapshot
from kalda.zookeeper.server.txn_log import TxnLog
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem

DIRECTORY = "/data/version-2"


def test_a_newer_log_is_not_taken_for_a_torn_one() -> None:
    files = MemoryFileSystem()
    bench = Bench(files, log_reserve_bytes=0)
    bench.do(bench.session(), Create("/a"))
    path = f"{DIRECTORY}/log.1"
    files.open(path).write_at(b"\0\0\0\3", 4)
    with pytest.raises(CorruptionError, match=f"^{path} has format version 3, .* reads version 2: a newer"):
        list(TxnLog(DIRECTORY, files).recover(0))


def test_a_newer_snapshot_is_not_passed_over_for_an_older_one() -> None:
    """The log behind the older one may be gone."""
    files = MemoryFileSystem()
    bench = Bench(files)
    bench.do(bench.session(), Create("/a"))
    data = encode_snapshot(bench.server.freeze())
    for name, content in (("snapshot.1", data), ("snapshot.2", data[:4] + b"\0\0\0\3" + data[8:])):
        files.open(f"{DIRECTORY}/{name}", create=True).write_at(content, 0)
    with pytest.raises(CorruptionError, match=f"^{DIRECTORY}/snapshot.2 has format version 3, .* version 2"):
        SnapshotStore(DIRECTORY, files).load_newest()
