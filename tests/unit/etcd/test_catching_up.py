"""Watched znodes are read where changes of them were compacted; what has changed is reported once."""

from kalda.etcd.keys import Keys
from kalda.simulation.etcd import wire
from kalda.zookeeper.port import EventType, WatchEvent
from tests.unit.etcd.store_link import StoreServer


async def test_changes_found_before_the_connection_is_lost_again_are_reported() -> None:
    """They are not found a second time: their watches are gone."""
    server = StoreServer()
    client, other = await server.session(), await server.session()
    for path in ("/a", "/b", "/c"):
        await client.create(path)
    events: list[WatchEvent] = []
    await client.get("/a", events.append)
    await client.get("/b", events.append)
    server.is_reporting.clear()
    await other.set("/a", b"1")
    await other.set("/b", b"1")
    lost: list[wire.Txn] = []

    def loses(txn: wire.Txn) -> bool:
        reads = [each for each in txn.success if isinstance(each, wire.Range)]
        if lost or not reads or (reads[0].key, bool(reads[0].revision)) != (Keys("/kalda").znode("/b"), True):
            return False
        lost.append(txn)
        return True

    server.loses = loses
    server.before_start = lambda: server.store.compact(server.store.revision)
    server.fates.append("lost")
    await client.set("/c", b"1")
    assert 1 == len(lost)
    assert [WatchEvent(EventType.DATA_CHANGED, path) for path in ("/a", "/b")] == events
    await client.close()
    await other.close()
