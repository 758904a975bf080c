"""A log with every kind of record, cut at every byte: the tree is that of the records before the cut."""

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.port import Create, Delete, SetData
from kalda.zookeeper.server.data_tree import DataTree
from kalda.zookeeper.server.processor_requests import (
    CloseSession,
    CreateMode,
    CreateNode,
    Multi,
    SetAcl,
    Write,
)
from kalda.zookeeper.server.txn_log import TxnLog, frame, read_log
from kalda.zookeeper.server.txns import OPEN_ACL, encode_txn
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem

DIRECTORY = "/data/version-2"
SECRET = (Acl(31, "digest", "alice:hash"), Acl(1, "world", "anyone"))

CHANGES: list[Write] = [
    Create("/a", b"data"),
    CreateNode("/a/n", None, SECRET),
    CreateNode("/c", mode=CreateMode.CONTAINER),
    CreateNode("/c/t", b"t", mode=CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, ttl_ms=5),
    CreateNode("/e", mode=CreateMode.EPHEMERAL),
    SetData("/a", None),
    SetAcl("/a", SECRET),
    Delete("/a/n"),
    Multi([Create("/m"), Create("/m/x"), SetData("/a", b"again"), Delete("/m/x")]),
    SetAcl("/a", OPEN_ACL),
    CloseSession(),
]


def test_log_cut_at_each_byte_gives_the_tree_of_the_records_before() -> None:
    """Half a change is never seen, and no whole one is lost."""
    files = MemoryFileSystem()
    bench = Bench(files, log_reserve_bytes=0)
    session = bench.session()
    for change in CHANGES:
        assert isinstance(bench.do(session, change), list), change
    path = f"{DIRECTORY}/log.1"
    whole = bytes(files.inodes[path].data)
    tree = DataTree()
    moments = [tree.freeze()]
    ends = [16]
    for txn in read_log(whole).txns:
        tree.apply(txn)
        moments.append(tree.freeze())
        ends.append(ends[-1] + len(frame(encode_txn(txn))))
    assert (ends[-1], moments[-1]) == (len(whole), bench.server.freeze())
    for size in range(len(whole) + 1):
        cut = MemoryFileSystem()
        cut.open(path, create=True).write_at(whole[:size], 0)
        recovered = DataTree()
        for txn in TxnLog(DIRECTORY, cut).recover(0):
            recovered.apply(txn)
        count = sum(1 for end in ends[1:] if end <= size)
        assert recovered.freeze() == moments[count], f"cut at {size}"


def test_new_directory_gets_a_snapshot_at_once() -> None:
    """A ZooKeeper that takes over refuses logs without one."""
    files = MemoryFileSystem()
    Bench(files)
    assert f"{DIRECTORY}/snapshot.0" in files.inodes
    full = MemoryFileSystem()
    full.room = 0
    Bench(full)
    assert f"{DIRECTORY}/snapshot.0" not in full.inodes, "it is not worth refusing to start"
