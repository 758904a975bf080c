"""ZooKeeper's rules for znodes, as clients observe them through the whole chain."""

import pytest

from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StorageError,
    ZooKeeperError,
)
from kalda.zookeeper.path_validation import check_path
from kalda.zookeeper.port import Check, Create, Delete, SetData, Stat
from kalda.zookeeper.server.data_tree import DataTree
from kalda.zookeeper.server.prep_processor import DATA_BYTES_MAX
from kalda.zookeeper.server.processor_requests import CloseSession, Read
from kalda.zookeeper.server.txn_log import RESERVE_BYTES
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem


def stat_of(bench: Bench, session: int, path: str) -> Stat:
    stat = bench.do(session, Read(lambda tree, watches: tree.stat(path)))
    assert isinstance(stat, Stat)
    return stat


@pytest.fixture
def bench() -> Bench:
    return Bench(MemoryFileSystem())


def test_children_are_listed_in_the_order_of_their_creation(bench: Bench) -> None:
    """An order by hash would differ from process to process."""
    session = bench.session()
    names = ["z", "b", "a", "d", "c"]
    bench.do(session, Create("/top"))
    for name in names:
        bench.do(session, Create(f"/top/{name}"))
    bench.do(session, Delete("/top/a"))
    bench.do(session, Create("/top/a"))
    children = bench.do(session, Read(lambda tree, watches: list(tree.children("/top"))))
    assert ["z", "b", "d", "c", "a"] == children


def test_stat_counts_as_zookeeper_does(bench: Bench) -> None:
    """Clients compare versions and transaction ids, so each field must mean what ZooKeeper's means."""
    session = bench.session()
    bench.do(session, Create("/a", b"one"))
    created = stat_of(bench, session, "/a")
    bench.clock.advance(1)
    bench.do(session, SetData("/a", b"three"))
    bench.do(session, Create("/a/x", b""))
    bench.do(session, Create("/a/y", b""))
    bench.do(session, Delete("/a/x"))
    stat = stat_of(bench, session, "/a")
    assert (
        Stat(
            czxid=2,
            mzxid=2,
            ctime=1_700_000_000_000,
            mtime=1_700_000_000_000,
            version=0,
            cversion=0,
            aversion=0,
            ephemeral_owner=0,
            data_length=3,
            num_children=0,
            pzxid=2,
        )
        == created
    )
    assert (2, 3, 6) == (stat.czxid, stat.mzxid, stat.pzxid)
    assert (1, 3, 1, 5) == (stat.version, stat.cversion, stat.num_children, stat.data_length)
    assert stat.ctime + 1000 == stat.mtime


def test_sequential_names_count_every_child_ever_created(bench: Bench) -> None:
    """A queue's order must survive deletions, so numbers are never used again."""
    session = bench.session()
    bench.do(session, Create("/q"))
    first = bench.do(session, Create("/q/n-", sequential=True))
    bench.do(session, Delete("/q/n-0000000000"))
    bench.do(session, Create("/q/plain"))
    second = bench.do(session, Create("/q/n-", sequential=True))
    unnamed = bench.do(session, Create("/q/", sequential=True))
    assert [["/q/n-0000000000"], ["/q/n-0000000002"], ["/q/0000000003"]] == [first, second, unnamed]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Create("/a"), NodeExistsError),
        (Create("/missing/child"), NoNodeError),
        (Create("/e/child"), NoChildrenForEphemeralsError),
        (SetData("/missing", b""), NoNodeError),
        (SetData("/a", b"", version=7), BadVersionError),
        (Delete("/missing"), NoNodeError),
        (Delete("/a", version=7), BadVersionError),
        (Delete("/a"), NotEmptyError),
        (Delete("/zookeeper"), BadArgumentsError),
        (Check("/a", 7), BadVersionError),
        (Check("/missing", 0), NoNodeError),
        (Create("no-slash"), BadArgumentsError),
        (SetData("/a", bytes(DATA_BYTES_MAX + 1)), BadArgumentsError),
    ],
)
def test_refused_operations_change_nothing(
    bench: Bench, operation: Create | SetData | Delete | Check, expected: type[ZooKeeperError]
) -> None:
    """A refusal names its reason by type and leaves no trace, not even a transaction number."""
    session = bench.session()
    bench.multi(session, Create("/a", b"data"), Create("/a/child"), Create("/e", ephemeral=True))
    before = bench.server.freeze()
    assert isinstance(bench.do(session, operation), expected)
    assert before == bench.server.freeze()


@pytest.mark.parametrize(
    "path",
    ["", "a", "/a/", "//a", "/a//b", "/.", "/a/../b", "/a\x00", "/a\x1f", "/\x7f", "/\ud800", "/\ufff0"],
)
def test_paths_that_zookeeper_refuses(path: str) -> None:
    with pytest.raises(BadArgumentsError):
        check_path(path)


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/ä", "/日本", "/a.b", "/...", "/a b"])
def test_paths_that_zookeeper_accepts(path: str) -> None:
    check_path(path)


def test_multi_is_all_or_nothing_and_tells_which_operation_failed(bench: Bench) -> None:
    session = bench.session()
    bench.do(session, Create("/a"))
    before = bench.server.freeze()
    outcome = bench.multi(session, Create("/b"), SetData("/a", b"x"), Check("/a", 5), Delete("/b"))
    assert isinstance(outcome, BadVersionError)
    assert 2 == outcome.operation_index
    assert before == bench.server.freeze()


def test_operations_of_a_multi_see_those_before_them(bench: Bench) -> None:
    session = bench.session()
    outcome = bench.multi(
        session,
        Create("/a"),
        Create("/a/n-", sequential=True),
        Create("/a/n-", sequential=True),
        SetData("/a", b"x", version=0),
        Check("/a", 1),
        Delete("/a/n-0000000000"),
        Delete("/a/n-0000000001"),
        Delete("/a", version=1),
    )
    assert isinstance(outcome, list)
    assert ["/a", "/a/n-0000000000", "/a/n-0000000001"] == outcome[:3]
    assert [None, None, None, None] == outcome[4:]
    assert {} == bench.tree()


def test_pipelined_writes_are_judged_by_those_before_them(bench: Bench) -> None:
    """Writes on their way to the disk count: else two compare-and-sets of one version would both succeed."""
    session = bench.session()
    bench.do(session, Create("/a"))
    outcomes = [
        bench.submit(session, SetData("/a", b"1", version=0)),
        bench.submit(session, SetData("/a", b"2", version=0)),
        bench.submit(session, Create("/a/b")),
        bench.submit(session, Delete("/a")),
        bench.submit(session, Read(lambda tree, watches: tree.nodes["/a"].data)),
    ]
    assert [[], [], [], [], []] == outcomes
    bench.settle()
    assert isinstance(outcomes[0][0], list)
    assert isinstance(outcomes[1][0], BadVersionError)
    assert [["/a/b"]] == outcomes[2]
    assert isinstance(outcomes[3][0], NotEmptyError)
    assert [b"1"] == outcomes[4]


def test_ephemerals_end_with_their_session(bench: Bench) -> None:
    owner, other = bench.session(), bench.session()
    bench.do(owner, Create("/a"))
    bench.do(owner, Create("/a/e", ephemeral=True))
    bench.do(other, Create("/f", ephemeral=True))
    assert owner == stat_of(bench, other, "/a/e").ephemeral_owner
    pending = bench.submit(owner, Create("/late", ephemeral=True))
    closing = bench.submit(owner, CloseSession())
    after = bench.submit(owner, Create("/never"))
    bench.settle()
    assert [["/late"]] == pending
    assert [[]] == closing
    assert isinstance(after[0], SessionExpiredError)
    assert {"/a": b"", "/f": b""} == bench.tree()


def test_sessions_of_other_processes_survive_a_restart_and_those_inside_do_not() -> None:
    """A session with a time-out waits for its client to come back; one of this very process cannot."""
    files = MemoryFileSystem()
    bench = Bench(files)
    outside, inside = bench.session(timeout_ms=1000), bench.session(timeout_ms=0)
    bench.do(outside, Create("/outside", ephemeral=True))
    bench.do(inside, Create("/inside", ephemeral=True))
    files.crash(lambda size: 0)
    again = Bench(files)
    assert {"/outside": b""} == again.tree()
    assert isinstance(again.do(inside, Create("/x")), SessionExpiredError)
    assert ["/x"] == again.do(outside, Create("/x"))


def test_session_that_begins_and_ends_in_one_group_is_over(bench: Bench) -> None:
    """A client may be gone before its session is durable; others' changes go on all the while."""
    other = bench.session()
    opened: list[object] = []
    brief = bench.server.open_session(1000, lambda: None, opened.append)
    created = bench.submit(brief, Create("/e", ephemeral=True))
    closed = bench.submit(brief, CloseSession())
    late = bench.submit(brief, Create("/late"))
    kept = bench.submit(other, Create("/kept"))
    bench.settle()
    assert ([[]], [["/e"]], [[]], [["/kept"]]) == (opened, created, closed, kept)
    assert isinstance(late[0], SessionExpiredError)
    assert {"/kept": b""} == bench.tree()
    assert isinstance(bench.do(brief, Create("/later")), SessionExpiredError)


def use_up_the_reserve(bench: Bench, session: int) -> None:
    """Fill the disk, and then the room that the log had put by."""
    bench.files.room = 0
    for size in (10_000, 1_000, 100, 1):
        while not isinstance(bench.do(session, SetData("/", bytes(size))), StorageError):
            pass


def test_full_disk_leaves_room_for_deletions() -> None:
    """Deleting topics is how an operator makes room, and it has to be written down first."""
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    bench.multi(session, *(Create(f"/t{n}", bytes(100)) for n in range(300)))
    files.room = 0
    for number in range(300):
        assert [
            f"/mark{number}",
            None,
        ] == bench.multi(session, Create(f"/mark{number}"), Delete(f"/mark{number}"))
        assert [None] == bench.do(session, Delete(f"/t{number}"))
    files.crash(lambda size: 0)
    assert {} == Bench(files).tree()


@pytest.mark.parametrize("is_clean", [True, False])
def test_server_starts_on_the_disk_that_it_left_full(is_clean: bool) -> None:
    """A broker that cannot start cannot delete a topic either; what the last one put by must be there."""
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    bench.multi(session, *(Create(f"/t{n}", bytes(100)) for n in range(50)))
    files.room = 0
    for number in range(50):
        if is_clean:
            bench.close()
        else:
            files.crash(lambda size: size)
        bench = Bench(files)
        session = bench.session()
        assert [None] == bench.do(session, Delete(f"/t{number}"))
    files.crash(lambda size: 0)
    assert {} == Bench(files).tree()


def test_log_takes_a_small_reserve_where_a_large_one_cannot_be_had() -> None:
    files = MemoryFileSystem()
    files.room = RESERVE_BYTES // 2
    bench = Bench(files)
    session = bench.session()
    assert ["/a"] == bench.do(session, Create("/a"))
    taken = files.room
    assert RESERVE_BYTES // 4 < taken < RESERVE_BYTES // 2
    files.room = 0
    assert ["/b"] == bench.do(session, Create("/b", bytes(10_000)))
    files.crash(lambda size: 0)
    assert {"/a", "/b"} == Bench(files).tree().keys()


def test_full_disk_refuses_changes_serves_reads_and_recovers() -> None:
    """No acknowledged change is lost, and when there is room again the same server goes on."""
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    bench.do(session, Create("/a", b"kept"))
    use_up_the_reserve(bench, session)
    files.room = 30
    refused = [bench.submit(session, Create(f"/b{n}", bytes(50))) for n in range(3)]
    dependent = bench.submit(session, Create("/b0/child"))
    read = bench.submit(session, Read(lambda tree, watches: tree.nodes["/a"].data))
    bench.settle()
    assert all(isinstance(outcome[0], StorageError) for outcome in [*refused, dependent])
    assert [b"kept"] == read
    assert {"/a": b"kept"} == bench.tree()
    files.room = None
    assert ["/c"] == bench.do(session, Create("/c", b"after"))
    files.crash(lambda size: 0)
    assert {"/a": b"kept", "/c": b"after"} == Bench(files).tree()


@pytest.mark.parametrize("kind", ["sync", "write"])
def test_failing_device_refuses_changes_until_the_log_can_be_cleared(kind: str) -> None:
    """Nothing may be written behind a record that may be torn, so none happens before that is cleared."""
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    bench.do(session, Create("/a"))
    files.failures = {kind: OSError(5, "input/output error")}
    assert isinstance(bench.do(session, Create("/b")), StorageError)
    assert isinstance(bench.do(session, Create("/c")), StorageError)
    files.failures.clear()
    assert ["/d"] == bench.do(session, Create("/d"))
    files.crash(lambda size: size)
    assert {"/a": b"", "/d": b""} == Bench(files).tree()


def test_inconsistent_tree_stops_the_server_for_good(bench: Bench) -> None:
    """When tree and log disagree only a restart can tell what holds; going on would corrupt more."""
    session = bench.session()
    broken: list[BaseException] = []
    bench.server.add_broken_listener(broken.append)
    bench.do(session, Create("/a"))
    tree = bench.do(session, Read(lambda tree, watches: tree))
    assert isinstance(tree, DataTree)
    waiting = [bench.submit(session, Create(f"/a/{name}")) for name in "bc"]
    del tree.nodes["/a"]
    bench.settle()
    later = bench.do(session, Create("/c"))
    assert all(isinstance(outcome[0], StorageError) for outcome in waiting)
    assert isinstance(later, StorageError)
    assert 1 == len(broken)
