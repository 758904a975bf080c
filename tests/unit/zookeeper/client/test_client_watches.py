"""What a client remembers of its watches, so that a lost connection costs no change."""

from dataclasses import replace

from kalda.zookeeper.client.client_watches import ClientWatches
from kalda.zookeeper.port import EventType, Stat, WatchEvent

STAT = Stat(5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 5)


def first(_: WatchEvent) -> None: ...


def second(_: WatchEvent) -> None: ...


def test_a_change_takes_out_who_watches_that_kind_each_once() -> None:
    watches = ClientWatches()
    for _ in range(2):
        watches.add_data("/a", STAT, first)
        watches.add_children("/a", STAT, first)
        watches.add_children("/a", STAT, second)
    assert 3 == len(watches)
    assert [first] == watches.fire(WatchEvent(EventType.DATA_CHANGED, "/a"))
    assert [] == watches.fire(WatchEvent(EventType.DATA_CHANGED, "/a"))
    assert [] == watches.fire(WatchEvent(EventType.DELETED, "/b"))
    assert [first, second] == watches.fire(WatchEvent(EventType.DELETED, "/a"))
    assert 0 == len(watches)


def test_deletion_tells_a_watcher_of_both_kinds_once() -> None:
    watches = ClientWatches()
    watches.add_data("/a", STAT, first)
    watches.add_children("/a", STAT, first)
    assert [first] == watches.fire(WatchEvent(EventType.DELETED, "/a"))


def test_what_was_missed_follows_from_what_was_seen() -> None:
    watches = ClientWatches()
    watches.add_data("/there", STAT, first)
    watches.add_data("/absent", None, first)
    watches.add_children("/there", STAT, first)
    later = replace(STAT, mzxid=9, pzxid=8)
    assert watches.missed_on_data("/there", STAT) is None
    assert watches.missed_on_data("/there", replace(STAT, pzxid=8)) is None
    assert watches.missed_on_data("/there", later) is EventType.DATA_CHANGED
    assert watches.missed_on_data("/there", None) is EventType.DELETED
    assert watches.missed_on_data("/absent", None) is None
    assert watches.missed_on_data("/absent", STAT) is EventType.CREATED
    assert watches.missed_on_data("/unwatched", STAT) is None
    assert watches.missed_on_children("/there", replace(STAT, mzxid=9)) is None
    assert watches.missed_on_children("/there", later) is EventType.CHILDREN_CHANGED
    assert watches.missed_on_children("/there", None) is EventType.DELETED
    assert watches.missed_on_children("/unwatched", STAT) is None


def test_an_expired_session_has_none() -> None:
    watches = ClientWatches()
    watches.add_data("/a", STAT, first)
    watches.add_children("/b", STAT, first)
    assert (["/a"], ["/b"]) == (list(watches.data_paths()), list(watches.child_paths()))
    watches.clear()
    assert (0, []) == (len(watches), list(watches.data_paths()))
