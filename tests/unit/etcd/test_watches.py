"""Watches of the etcd engine: each change triggers each callback that waits for it, once."""

from kalda.etcd.keys import Keys
from kalda.etcd.messages import Event, KeyValue
from kalda.etcd.protobuf import bytes_field, fields, integer_field
from kalda.etcd.watches import EtcdWatches
from kalda.zookeeper.port import EventType, WatchEvent

KEYS = Keys("/kalda")


def put(path: str, revision: int, created: int) -> Event:
    return Event(is_deletion=False, kv=KeyValue(KEYS.znode(path), created, revision))


def deletion(path: str, revision: int) -> Event:
    return Event(is_deletion=True, kv=KeyValue(KEYS.znode(path), 0, revision))


def report(watches: EtcdWatches, *events: Event) -> list[WatchEvent]:
    found = [watches.report(change) for change in watches.changes(events)]
    return [event for each in found if each is not None for event in [each[0]] * len(each[1])]


def ignore(_: WatchEvent) -> None:
    pass


def test_a_change_before_the_read_does_not_trigger() -> None:
    watches = EtcdWatches(KEYS)
    watches.add_data("/a", KeyValue(mod_revision=5), 7, ignore)
    assert [] == report(watches, put("/a", 7, 3))
    assert [WatchEvent(EventType.DATA_CHANGED, "/a")] == report(watches, put("/a", 8, 3))
    assert [] == report(watches, put("/a", 9, 3))


def test_a_change_reported_before_the_response_of_the_read_triggers() -> None:
    watches = EtcdWatches(KEYS)
    watches.keep_recent(True)
    assert [] == report(watches, put("/a", 7, 3), put("/a", 8, 3))
    watches.seen = 8
    ((event, callbacks),) = watches.add_data("/a", KeyValue(mod_revision=7), 7, ignore)
    assert (WatchEvent(EventType.DATA_CHANGED, "/a"), [ignore]) == (event, callbacks)
    assert 0 == len(watches)


def test_a_watch_that_is_set_again_before_the_change_was_reported_is_not_lost() -> None:
    """The response of the second read arrives before the change, and is handed out behind it."""
    watches = EtcdWatches(KEYS)
    changed = WatchEvent(EventType.DATA_CHANGED, "/a")
    assert [] == watches.add_data("/a", KeyValue(mod_revision=5), 6, ignore)
    assert [(changed, [ignore])] == watches.add_data("/a", KeyValue(mod_revision=7), 8, ignore)
    assert [] == report(watches, put("/a", 7, 3))
    assert [changed] == report(watches, put("/a", 9, 3))
    assert [] == report(watches, put("/a", 10, 3))


def test_a_watch_that_is_set_again_is_called_for_changes_that_cancel_out() -> None:
    watches = EtcdWatches(KEYS)
    assert [] == watches.add_data("/a", None, 5, ignore)
    assert [] == watches.add_data("/a", None, 8, ignore)
    assert [WatchEvent(EventType.CREATED, "/a")] == report(watches, put("/a", 6, 6), deletion("/a", 7))
    assert [WatchEvent(EventType.CREATED, "/a")] == report(watches, put("/a", 9, 9), deletion("/a", 10))
    watches.add_children("/p", [], 20, ignore)
    (missed,) = watches.add_children("/p", [KeyValue(b"x", 21)], 22, ignore)
    assert (WatchEvent(EventType.CHILDREN_CHANGED, "/p"), [ignore]) == missed


def test_creations_and_deletions_trigger_the_watches_of_the_parent() -> None:
    watches = EtcdWatches(KEYS)
    watches.add_children("/a", [], 1, ignore)
    assert [WatchEvent(EventType.CHILDREN_CHANGED, "/a")] == report(watches, put("/a/b", 2, 2))
    watches.add_children("/a", [], 2, ignore)
    assert [] == report(watches, put("/a/b", 3, 2), put("/a/b/c", 4, 4))
    assert [WatchEvent(EventType.CHILDREN_CHANGED, "/a")] == report(watches, deletion("/a/b", 5))


def test_missed_changes_are_found_by_state() -> None:
    watches = EtcdWatches(KEYS)
    watches.add_data("/a", None, 1, ignore)
    watches.add_children("/p", [KeyValue(b"x", 1)], 1, ignore)
    assert watches.missed_data("/a", None) is None
    assert watches.missed_children("/p", KeyValue(), [KeyValue(b"x", 1)]) is None
    # The same name, created again.
    found = watches.missed_children("/p", KeyValue(), [KeyValue(b"x", 9)])
    assert found is not None
    assert WatchEvent(EventType.CHILDREN_CHANGED, "/p") == found[0]
    created = watches.missed_data("/a", KeyValue(mod_revision=9))
    assert created is not None
    assert WatchEvent(EventType.CREATED, "/a") == created[0]


def test_fields_survive_encoding() -> None:
    encoded = integer_field(1, -5) + bytes_field(64, b"end") + integer_field(3, 300) + integer_field(4, 0)
    assert [(1, -5), (64, b"end"), (3, 300)] == list(fields(encoded))
