"""Containers and times to live: what is deleted when, and how fast."""

from kalda.zookeeper.errors import BadArgumentsError, BadVersionError, NotEmptyError
from kalda.zookeeper.port import Create, Delete, SetData
from kalda.zookeeper.server.container_manager import ContainerManager
from kalda.zookeeper.server.data_tree import DataTree
from kalda.zookeeper.server.ephemeral_owner import TTL_MS_MAX
from kalda.zookeeper.server.processor_requests import CreateMode, CreateNode, DeleteContainer
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem

MINUTE_MS = 60_000


def container(path: str) -> CreateNode:
    return CreateNode(path, mode=CreateMode.CONTAINER)


def with_ttl(path: str, ttl_ms: int) -> CreateNode:
    return CreateNode(path, mode=CreateMode.PERSISTENT_WITH_TTL, ttl_ms=ttl_ms)


def tree_of(bench: Bench) -> DataTree:
    return DataTree.restore(bench.server.freeze())


def due_after_a_check(bench: Bench, reaper: ContainerManager) -> list[str]:
    """What is handed out at the first check, one interval after the first call."""
    tree, wall_ms = tree_of(bench), bench.clock.time_ms()
    assert [] == reaper.due(tree, 0, wall_ms)
    assert [] == reaper.due(tree, MINUTE_MS - 1, wall_ms)
    return reaper.due(tree, MINUTE_MS, wall_ms)


def test_container_is_due_only_when_it_had_children_and_has_none() -> None:
    """One just made must not be taken from under who is about to use it."""
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    for path in ("/unused", "/used", "/left"):
        bench.do(session, container(path))
    for path in ("/used/a", "/left/a"):
        bench.do(session, Create(path))
    bench.do(session, Delete("/left/a"))
    assert ["/left"] == due_after_a_check(bench, ContainerManager(deletes_per_minute_max=MINUTE_MS))


def test_container_never_used_is_due_after_its_time_if_one_is_set() -> None:
    bench = Bench(MemoryFileSystem())
    bench.do(bench.session(), container("/unused"))
    bench.clock.advance(11)
    assert ["/unused"] == due_after_a_check(bench, ContainerManager(never_used_ms_max=10_000))


def test_time_to_live_counts_from_the_last_change_of_data() -> None:
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    for path in ("/old", "/changed", "/parent", "/long"):
        bench.do(session, with_ttl(path, 10_000 if path != "/long" else 60_000))
    bench.do(session, Create("/parent/child"))
    bench.clock.advance(9)
    bench.do(session, SetData("/changed", b"alive"))
    bench.clock.advance(2)
    assert ["/old"] == due_after_a_check(bench, ContainerManager())


def test_deletions_are_paced() -> None:
    """Ten thousand a minute by default; here six, so one in ten seconds."""
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.multi(session, *(with_ttl(f"/t{n}", 1) for n in range(4)))
    bench.clock.advance(1)
    reaper = ContainerManager(deletes_per_minute_max=6)
    tree, wall_ms = tree_of(bench), bench.clock.time_ms()
    assert ["/t0"] == due_after_a_check(bench, reaper)
    assert [] == reaper.due(tree, MINUTE_MS + 9_999, wall_ms)
    assert ["/t1"] == reaper.due(tree, MINUTE_MS + 10_000, wall_ms)
    assert ["/t2", "/t3"] == reaper.due(tree, MINUTE_MS + 31_000, wall_ms)
    assert [] == reaper.due(tree, MINUTE_MS + 32_000, wall_ms)


def test_candidate_that_came_to_life_again_is_left_alone() -> None:
    """Between the look and its turn somebody may have used it."""
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.multi(session, *(with_ttl(f"/t{n}", 1) for n in range(2)))
    bench.clock.advance(1)
    reaper = ContainerManager(deletes_per_minute_max=6)
    assert ["/t0"] == due_after_a_check(bench, reaper)
    bench.do(session, Create("/t1/child"))
    assert [] == reaper.due(tree_of(bench), 2 * MINUTE_MS - 1, bench.clock.time_ms())
    assert isinstance(bench.do(0, DeleteContainer("/t1")), NotEmptyError)


def test_server_deletes_containers_without_a_session_but_nothing_else() -> None:
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.do(session, container("/c"))
    bench.do(session, with_ttl("/t", 5))
    bench.do(session, Create("/plain"))
    bench.do(session, Create("/ephemeral", ephemeral=True))
    assert [None] == bench.do(0, DeleteContainer("/c"))
    assert [None] == bench.do(0, DeleteContainer("/t"))
    assert isinstance(bench.do(0, DeleteContainer("/plain")), BadVersionError)
    assert isinstance(bench.do(0, DeleteContainer("/ephemeral")), BadVersionError)
    assert isinstance(bench.do(0, DeleteContainer("/zookeeper")), BadArgumentsError)
    tree = tree_of(bench)
    assert (set(), set()) == (tree.containers, tree.ttl_paths)


def test_kinds_survive_a_restart_from_the_log_and_from_a_snapshot() -> None:
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    bench.do(session, container("/c"))
    bench.do(session, with_ttl("/t", TTL_MS_MAX))
    for _ in range(2):
        files.crash(lambda size: 0)
        bench = Bench(files)
        tree = tree_of(bench)
        assert ({"/c"}, {"/t"}) == (tree.containers, tree.ttl_paths)
        bench.server.snapshot()


def test_every_due_znode_of_many_is_found() -> None:
    """The look is taken in slices, so that the event loop is not kept."""
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    for start in range(0, 12_000, 4_000):
        bench.multi(session, *(with_ttl(f"/t{n}", 1) for n in range(start, start + 4_000)))
    bench.clock.advance(1)
    reaper = ContainerManager(deletes_per_minute_max=60_000_000)
    found = due_after_a_check(bench, reaper)
    assert 0 < len(found) < 12_000
    tree, wall_ms = tree_of(bench), bench.clock.time_ms()
    for beat in range(1, 40):
        found += reaper.due(tree, MINUTE_MS + beat * 500, wall_ms)
    assert len(found) == len(set(found)) == 12_000
