"""Watches: one-shot, told once, after the change is durable and before its answer."""

from kalda.coordination.port import Create, Delete, EventType, SetData, WatchEvent
from kalda.zk.server.data_tree import DataTree
from kalda.zk.server.requests import Read
from kalda.zk.server.watches import WatchTable
from tests.unit.zk.bench import Bench
from tests.unit.zk.memory_files import MemoryFileSystem


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
        assert fired == [(watcher, WatchEvent(event_type, "/a"))]
    assert len(table) == 0


def test_child_watch_ignores_the_data_of_its_znode() -> None:
    table = WatchTable()
    watcher = Recorder([])
    table.add_children("/a", watcher)
    assert table.fire([WatchEvent(EventType.DATA_CHANGED, "/a"), WatchEvent(EventType.CREATED, "/a")]) == []
    changed = WatchEvent(EventType.CHILDREN_CHANGED, "/a")
    assert table.fire([changed]) == [(watcher, changed)]


def test_watcher_with_both_kinds_hears_of_a_deletion_once() -> None:
    """ZooKeeper suppresses the second event; a client that got two would re-arm twice."""
    table = WatchTable()
    watcher = Recorder([])
    table.add_data("/a", watcher)
    table.add_children("/a", watcher)
    deleted = WatchEvent(EventType.DELETED, "/a")
    assert table.fire([deleted]) == [(watcher, deleted)]
    assert len(table) == 0


def test_same_watcher_set_twice_fires_once_and_others_in_order() -> None:
    table = WatchTable()
    first, second = Recorder([]), Recorder([])
    for watcher in (first, second, first):
        table.add_data("/a", watcher)
    assert [w for w, _ in table.fire([WatchEvent(EventType.CREATED, "/a")])] == [first, second]


def test_end_of_a_session_drops_its_watches_and_no_others() -> None:
    table = WatchTable()
    mine, theirs = Recorder([], session_id=1), Recorder([], session_id=2)
    for watcher in (mine, theirs):
        table.add_data("/a", watcher)
        table.add_children("/a", watcher)
        table.add_data("/b", watcher)
    table.remove_session(1)
    assert len(table) == 3
    assert [w for w, _ in table.fire([WatchEvent(EventType.DELETED, "/a")])] == [theirs]


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
    assert notes == []
    outcomes_seen: list[object] = []
    bench.submit(session, Read(lambda tree, watches: outcomes_seen.extend(outcomes)))
    bench.settle()
    assert notes == [(EventType.CREATED, "/a"), (EventType.CHILDREN_CHANGED, "/")]
    files.crash(lambda size: 0)
    assert Bench(files).tree() == {"/a": b""}


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
    assert notes == [(EventType.CREATED, "/b"), (EventType.DATA_CHANGED, "/a")]
