"""Snapshots: complete or not there, and recovery from the newest that can be read."""

import pytest

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.port import Create, Delete, SetData
from kalda.zookeeper.protocol.jute import JuteError
from kalda.zookeeper.server.data_directory_errors import CorruptionError, DirectoryInUseError
from kalda.zookeeper.server.data_tree import DataTree, FrozenTree
from kalda.zookeeper.server.snapshot import SnapshotStore, decode_snapshot, encode_snapshot
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem

DIRECTORY = "/data/version-2"


def filled_tree() -> FrozenTree:
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.multi(session, Create("/a", b"data"), Create("/a/b"), Create("/a-b"), Create("/e", b"", True))
    bench.do(session, SetData("/a", b"more"))
    frozen = bench.server.freeze()
    secret = (Acl(1, "digest", "user:hash"),)
    frozen.nodes["/a/b"] = frozen.nodes["/a/b"]._replace(acl=secret, data=None)
    return frozen


def test_snapshot_holds_the_whole_tree() -> None:
    """Data that is null, access lists, owners, versions: what is not written would change at a restart."""
    frozen = filled_tree()
    assert frozen == decode_snapshot(encode_snapshot(frozen), frozen.zxid)


def test_snapshot_cut_or_damaged_at_any_byte_is_refused() -> None:
    data = encode_snapshot(filled_tree())
    for size in range(len(data)):
        with pytest.raises(JuteError):
            decode_snapshot(data[:size], 1)
    for position in range(len(data) - 5):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(JuteError):
            decode_snapshot(bytes(damaged), 1)


def test_frozen_view_does_not_change_with_the_tree() -> None:
    """The writer works on another thread while the tree goes on."""
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.do(session, Create("/a", b"before"))
    frozen = bench.server.freeze()
    before = encode_snapshot(frozen)
    bench.multi(session, SetData("/a", b"after"), Create("/a/b"))
    assert before == encode_snapshot(frozen)


def test_recovery_takes_the_newest_readable_snapshot_and_the_log_after_it() -> None:
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    for number in range(4):
        bench.do(session, Create(f"/a{number}"))
        bench.server.snapshot()
    bench.do(session, Delete("/a0"))
    expected = bench.server.freeze()
    files.crash(lambda size: 0)
    snapshots = sorted(name for name in files.inodes if "snapshot" in name)
    assert [f"{DIRECTORY}/snapshot.{zxid}" for zxid in (3, 4, 5)] == snapshots
    files.inodes[snapshots[-1]].data[40] ^= 1
    assert expected == Bench(files).server.freeze()


def test_snapshots_that_cannot_be_read_stop_the_start() -> None:
    """An empty tree in their place would look like a cluster without topics."""
    files = MemoryFileSystem()
    bench = Bench(files)
    bench.do(bench.session(), Create("/a"))
    bench.server.snapshot()
    files.crash(lambda size: 0)
    for name, inode in files.inodes.items():
        if "snapshot" in name:
            inode.data[40] ^= 1
    for _ in range(2):
        # The second attempt shows that the first let go of the directory.
        with pytest.raises(CorruptionError, match="none of the 2 snapshots"):
            Bench(files)


def test_snapshot_is_taken_after_enough_changes_and_bounds_the_log() -> None:
    files = MemoryFileSystem()
    bench = Bench(files, snapshot_changes=10)
    session = bench.session()
    for number in range(100):
        bench.do(session, SetData("/", b"%d" % number))
    assert bench.server.statistics().changes_since_snapshot < 10
    logs = [name for name in files.inodes if "/log." in name]
    assert 3 == len(SnapshotStore(DIRECTORY, files).files())
    assert len(logs) <= 5
    assert f"{DIRECTORY}/log.1" not in logs
    files.crash(lambda size: 0)
    again = Bench(files)
    assert again.server.freeze() == bench.server.freeze()


def test_snapshot_that_finds_no_room_leaves_those_before_it() -> None:
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    bench.do(session, Create("/a"))
    bench.server.snapshot()
    outcomes: list[BaseException | None] = []
    files.room = 10
    bench.server.snapshot(outcomes.append)
    files.room = None
    bench.do(session, Create("/b"))
    assert isinstance(outcomes[0], OSError)
    files.crash(lambda size: 0)
    assert {"/a": b"", "/b": b""} == Bench(files).tree()


def test_unfinished_snapshot_is_removed_at_the_start() -> None:
    """A crash while one is written would otherwise leave its bytes on the disk for ever."""
    files = MemoryFileSystem()
    bench = Bench(files)
    bench.do(bench.session(), Create("/a"))
    files.crash(lambda size: 0)
    files.open(f"{DIRECTORY}/snapshot.2.tmp", create=True)
    assert {"/a": b""} == Bench(files).tree()
    assert not any(name.endswith(".tmp") for name in files.inodes)


def test_restored_tree_knows_children_and_owners() -> None:
    frozen = filled_tree()
    tree = DataTree.restore(frozen)
    assert {"a", "a-b", "e", "zookeeper"} == tree.children("/")
    assert {"b"} == tree.children("/a")
    assert [{"/e"}] == [tree.ephemerals(session) for session in frozen.sessions]


def test_directory_serves_one_process_at_a_time() -> None:
    files = MemoryFileSystem()
    bench = Bench(files)
    with pytest.raises(DirectoryInUseError, match="process 4711"):
        Bench(files)
    closed: list[BaseException | None] = []
    bench.server.close(closed.append)
    bench.settle()
    assert [None] == closed
    Bench(files)
