"""Watches: one-shot, told once, after the change is durable and before its answer."""

from kalda.zookeeper.port import Create, Delete, EventType, SetData, WatchEvent
from kalda.zookeeper.server.data_tree import DataTree
from kalda.zookeeper.server.processor_requests import Read
from kalda.zookeeper.server.watches import WatchKind, WatchTable
from tests.unit.zookeeper.bench import Bench
from tests.unit.zookeeper.memory_files import MemoryFileSystem


class Recorder:
    """A watcher that notes what it is told."""

    def __init__(self, notes: list[object], session_id: int = 1) -> None:
        self._notes = notes
        self._session_id = session_id

    @property
    def session_id(self) -> int:
        return self._session_id

    def process(self, event: WatchEvent) -> None:
        self._notes.append((event.type, event.path))


def test_data_watch_reports_creation_change_and_deletion_once_each() -> None:
    table, notes = WatchTable(), list[object]()
    watcher = Recorder(notes)
    for event_type in (EventType.CREATED, EventType.DATA_CHANGED, EventType.DELETED):
        table.add_data("/a", watcher)
        fired = table.fire([WatchEvent(event_type, "/a"), WatchEvent(event_type, "/a")])
        assert [(watcher, WatchEvent(event_type, "/a"))] == fired
    assert 0 == len(table)


def test_child_watch_ignores_the_data_of_its_znode() -> None:
    table = WatchTable()
    watcher = Recorder([])
    table.add_children("/a", watcher)
    assert [] == table.fire([WatchEvent(EventType.DATA_CHANGED, "/a"), WatchEvent(EventType.CREATED, "/a")])
    changed = WatchEvent(EventType.CHILDREN_CHANGED, "/a")
    assert [(watcher, changed)] == table.fire([changed])


def test_watcher_with_both_kinds_hears_of_a_deletion_once() -> None:
    """ZooKeeper suppresses the second event; a client that got two would re-arm twice."""
    table = WatchTable()
    watcher = Recorder([])
    table.add_data("/a", watcher)
    table.add_children("/a", watcher)
    deleted = WatchEvent(EventType.DELETED, "/a")
    assert [(watcher, deleted)] == table.fire([deleted])
    assert 0 == len(table)


def test_same_watcher_set_twice_fires_once_and_others_in_order() -> None:
    table = WatchTable()
    first, second = Recorder([]), Recorder([])
    for watcher in (first, second, first):
        table.add_data("/a", watcher)
    assert [first, second] == [w for w, _ in table.fire([WatchEvent(EventType.CREATED, "/a")])]


def test_end_of_a_session_drops_its_watches_and_no_others() -> None:
    table = WatchTable()
    mine, theirs = Recorder([], session_id=1), Recorder([], session_id=2)
    for watcher in (mine, theirs):
        table.add_data("/a", watcher)
        table.add_children("/a", watcher)
        table.add_data("/b", watcher)
    table.remove_session(1)
    assert 3 == len(table)
    assert [theirs] == [w for w, _ in table.fire([WatchEvent(EventType.DELETED, "/a")])]


def test_watch_fires_after_the_change_is_durable_and_before_its_answer() -> None:
    """Who is told of a change must find it when reading, and a crash must not take it back."""
    files = MemoryFileSystem()
    bench = Bench(files)
    session = bench.session()
    notes: list[object] = []

    def arm(tree: DataTree, watches: WatchTable) -> None:
        watches.add_data("/a", Recorder(notes))
        watches.add_children("/", Recorder(notes))

    bench.do(session, Read(arm))
    outcomes = bench.submit(session, Create("/a"))
    assert [] == notes
    outcomes_seen: list[object] = []
    bench.submit(session, Read(lambda tree, watches: outcomes_seen.extend(outcomes)))
    bench.settle()
    assert [(EventType.CREATED, "/a"), (EventType.CHILDREN_CHANGED, "/")] == notes
    files.crash(lambda size: 0)
    assert {"/a": b""} == Bench(files).tree()


def test_events_of_a_multi_come_in_the_order_of_its_operations() -> None:
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    bench.do(session, Create("/a"))
    notes: list[object] = []

    def arm(tree: DataTree, watches: WatchTable) -> None:
        for path in ("/a", "/b"):
            watches.add_data(path, Recorder(notes))

    bench.do(session, Read(arm))
    bench.multi(session, Create("/b"), SetData("/a", b"x"), Delete("/b"))
    assert [(EventType.CREATED, "/b"), (EventType.DATA_CHANGED, "/a")] == notes


def told(table: WatchTable, event_type: EventType, path: str) -> list[object]:
    return [watcher for watcher, _ in table.fire([WatchEvent(event_type, path)])]


def test_persistent_watch_stays_and_hears_of_data_and_children() -> None:
    table = WatchTable()
    watcher = Recorder([])
    table.add_persistent("/a", watcher, recursive=False)
    for _ in range(2):
        for event_type in (
            EventType.CREATED,
            EventType.DATA_CHANGED,
            EventType.CHILDREN_CHANGED,
            EventType.DELETED,
        ):
            assert [watcher] == told(table, event_type, "/a")
        assert [] == told(table, EventType.CREATED, "/a/b")


def test_recursive_watch_hears_of_all_below_and_never_of_lists_of_children() -> None:
    """Each child speaks for itself; the parent's list would tell the same change twice."""
    table = WatchTable()
    watcher = Recorder([])
    table.add_persistent("/a", watcher, recursive=True)
    for path in ("/a", "/a/b", "/a/b/c"):
        for event_type in (EventType.CREATED, EventType.DATA_CHANGED, EventType.DELETED):
            assert [watcher] == told(table, event_type, path)
        assert [] == told(table, EventType.CHILDREN_CHANGED, path)
    for path in ("/", "/ab", "/b", "/b/a"):
        assert [] == told(table, EventType.DATA_CHANGED, path)


def test_recursive_watch_of_the_root_hears_of_everything() -> None:
    table = WatchTable()
    watcher = Recorder([])
    table.add_persistent("/", watcher, recursive=True)
    assert [watcher] == told(table, EventType.CREATED, "/a")
    assert [watcher] == told(table, EventType.DELETED, "/a/b/c")
    assert [watcher] == told(table, EventType.DATA_CHANGED, "/")


def test_watcher_with_all_modes_hears_of_an_event_once() -> None:
    table = WatchTable()
    watcher = Recorder([])
    table.add_data("/a", watcher)
    table.add_children("/a", watcher)
    table.add_persistent("/a", watcher, recursive=False)
    table.add_persistent("/", watcher, recursive=True)
    assert [watcher] == told(table, EventType.DELETED, "/a")
    kinds = [kind for kind in WatchKind if table.has("/a", watcher, kind)]
    assert [WatchKind.ANY, WatchKind.PERSISTENT] == kinds, "only the standard ones are gone"


def test_removal_takes_the_named_kind_only() -> None:
    table = WatchTable()
    watcher, other = Recorder([]), Recorder([])
    for each in (watcher, other):
        table.add_data("/a", each)
        table.add_children("/a", each)
        table.add_persistent("/a", each, recursive=False)
        table.add_persistent("/a", each, recursive=True)
    kinds = [WatchKind.DATA, WatchKind.CHILDREN, WatchKind.PERSISTENT, WatchKind.PERSISTENT_RECURSIVE]
    for index, kind in enumerate(kinds):
        assert table.remove_watch("/a", watcher, kind)
        assert not table.remove_watch("/a", watcher, kind)
        assert [left for left in kinds if table.has("/a", watcher, left)] == kinds[index + 1 :]
    assert not table.has("/a", watcher, WatchKind.ANY)
    assert not table.remove_watch("/a", watcher, WatchKind.ANY)
    assert table.remove_watch("/a", other, WatchKind.ANY)
    assert (0, {}) == (len(table), table.paths_by_session())
    assert [] == told(table, EventType.DELETED, "/a")


def test_deletion_that_a_data_watch_told_uses_up_the_child_watch_too() -> None:
    table = WatchTable()
    watcher = Recorder([])
    table.add_persistent("/a", watcher, recursive=True)
    table.add_children("/a", watcher)
    assert [watcher] == told(table, EventType.DELETED, "/a")
    assert not table.has("/a", watcher, WatchKind.CHILDREN)
    assert table.has("/a", watcher, WatchKind.PERSISTENT_RECURSIVE)


def test_end_of_a_session_drops_persistent_watches_too() -> None:
    table = WatchTable()
    mine, theirs = Recorder([], session_id=1), Recorder([], session_id=2)
    for watcher in (mine, theirs):
        table.add_persistent("/a", watcher, recursive=True)
        table.add_persistent("/b", watcher, recursive=False)
    assert {1: {"/a", "/b"}, 2: {"/a", "/b"}} == table.paths_by_session()
    table.remove_session(1)
    assert [theirs] == told(table, EventType.CREATED, "/a/x")
    table.remove_session(2)
    table.remove_session(3)
    assert (0, {}) == (len(table), table.paths_by_session())


def test_failing_watcher_keeps_neither_the_others_nor_the_answer_from_coming() -> None:
    bench = Bench(MemoryFileSystem())
    session = bench.session()
    notes: list[object] = []

    class Failing(Recorder):
        def process(self, event: WatchEvent) -> None:
            raise RuntimeError("gone")

    def arm(tree: DataTree, watches: WatchTable) -> None:
        watches.add_data("/a", Failing([]))
        watches.add_data("/a", Recorder(notes))

    bench.do(session, Read(arm))
    assert ["/a"] == bench.do(session, Create("/a"))
    assert [(EventType.CREATED, "/a")] == notes
