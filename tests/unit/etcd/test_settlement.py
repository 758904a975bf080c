"""A request whose response is lost has its results all the same, exactly, from etcd's history."""

import asyncio

import pytest

from kalda.etcd import messages
from kalda.simulation.etcd import wire
from kalda.zookeeper.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StorageError,
    ZooKeeperError,
)
from kalda.zookeeper.port import Check, Create, Delete, EventType, Operation, SetData, Stat, WatchEvent
from tests.unit.etcd.store_link import StoreServer

LOST = ("lost done", "lost")
"""With and without an effect."""


async def test_results_of_a_request_that_took_effect_are_found_in_history() -> None:
    """The caller of one such request would otherwise report a failure although everything was done."""
    server = StoreServer()
    client = await server.session()
    await client.multi([Create("/a", b"1"), Create("/a/b"), Create("/gone"), Create("/q")])
    await client.create("/q/n-", sequential=True)
    await client.set("/a", b"2")
    before = server.store.revision
    transactions: list[list[Operation]] = [
        [Create("/new", b"x"), Create("/new/child", ephemeral=True)],
        [SetData("/a", b"three", 1), Check("/q", 0)],
        [Delete("/gone", 0)],
        [Create("/q/n-", sequential=True), Create("/q/m-", sequential=True)],
    ]
    server.fates.append("lost done")
    created, changed, deleted, numbered = await client.multi_many(transactions)
    assert ["/new", "/new/child"] == created
    assert [None] == deleted
    assert ["/q/n-0000000001", "/q/m-0000000002"] == numbered
    assert before + 1 == server.store.revision, "it was done once"
    assert isinstance(changed, list)
    assert isinstance(changed[0], Stat)
    assert (await client.get("/a"))[1] == changed[0]
    assert "/q/n-0000000003" == await client.create("/q/n-", sequential=True)
    await client.close()


@pytest.mark.parametrize("fate", LOST)
async def test_errors_of_a_request_are_those_of_its_moment(fate: str) -> None:
    """What the same request or another session changed since must not make them others."""
    server = StoreServer()
    client, other = await server.session(), await server.session()
    await client.multi([Create("/a"), Create("/a/b"), Create("/c"), Create("/e")])
    pending: list[asyncio.Future[str]] = []

    def change() -> None:
        if fate == "lost done" and not pending:
            pending.append(asyncio.ensure_future(other.create("/late")))

    server.before_start = change
    transactions: list[list[Operation]] = [
        [Check("/c", 1), Create("/never")],
        [Delete("/a")],
        [Create("/e")],
        [SetData("/late", b"")],
        [Create("/c/d")],
        [SetData("/e", b"1"), Create("/f")],
    ]
    server.fates.append(fate)
    outcomes = await client.multi_many(transactions)
    assert [
        (BadVersionError, 0),
        (NotEmptyError, 0),
        (NodeExistsError, 0),
        (NoNodeError, 0),
    ] == [
        (type(each), each.operation_index if isinstance(each, ZooKeeperError) else None)
        for each in outcomes[:4]
    ]
    assert ["/c/d"] == outcomes[4]
    assert isinstance(outcomes[5], list)
    await asyncio.gather(*pending)
    assert await client.exists("/never") is None
    await client.close()
    await other.close()


@pytest.mark.parametrize("fate", LOST)
async def test_single_writes_return_as_if_nothing_had_happened(fate: str) -> None:
    server = StoreServer()
    client = await server.session()
    server.fates.append(fate)
    assert "/a" == await client.create("/a", b"1")
    server.fates.append(fate)
    assert 1 == (await client.set("/a", b"22")).version
    server.fates.append(fate)
    with pytest.raises(NodeExistsError):
        await client.create("/a")
    server.fates.append(fate)
    await client.delete("/a", 1)
    server.fates.append(fate)
    with pytest.raises(NoNodeError):
        await client.delete("/a")
    await client.close()


async def test_lost_settlement_of_a_request_without_effect_is_not_taken_for_the_request() -> None:
    server = StoreServer()
    client = await server.session()
    server.fates.extend(["lost", "lost done", "lost done"])
    assert "/a" == await client.create("/a", b"1")
    assert b"1" == (await client.get("/a"))[0]
    server.fates.extend(["lost done"] * 3)
    assert "/b" == await client.create("/b")
    assert await client.exists("/b") is not None
    await client.close()


async def test_reads_beside_lost_writes_are_sent_again() -> None:
    server = StoreServer()
    client = await server.session()
    for fate in LOST:
        server.fates.append(fate)
        created, found = await asyncio.gather(
            client.create(f"/{fate.replace(' ', '-')}"), client.children("/")
        )
        assert created[1:] in found
    await client.close()


async def test_outdated_number_is_asked_again() -> None:
    """Another session has counted since: the lost request did nothing, and the name is a free one."""
    server = StoreServer()
    client, other = await server.session(), await server.session()
    await client.create("/q")
    await client.create("/q/n-", sequential=True)
    await other.create("/q/n-", sequential=True)
    await other.create("/q/n-", sequential=True)
    server.fates.append("lost done")
    assert "/q/n-0000000003" == await client.create("/q/n-", sequential=True)
    await client.close()
    await other.close()


async def test_outdated_number_is_asked_again_although_the_connection_is_lost_meanwhile() -> None:
    """It is lost while the other results of the request wait for changes to be reported."""
    server = StoreServer()
    client, other = await server.session(), await server.session()
    await client.create("/q")
    await client.create("/q/n-", sequential=True)
    await other.create("/q/n-", sequential=True)
    await client.get("/q", lambda _: None)
    server.is_reporting.clear()
    # The request, the change that the results wait for, the settlement.
    server.fates.extend(["done", "lost", "reports"])
    assert "/q/n-0000000002" == await client.create("/q/n-", sequential=True)
    assert [] == server.fates
    await client.close()
    await other.close()


async def test_results_wait_until_the_changes_before_them_were_reported() -> None:
    server = StoreServer()
    client = await server.session()
    await client.create("/a")
    order: list[object] = []
    await client.get("/a", order.append)
    server.is_reporting.clear()
    # The settlement takes no write; the next one is made because the result waits for the changes.
    server.fates.extend(["lost done", "done", "reports"])
    setting = asyncio.ensure_future(client.set("/a", b"1"))
    setting.add_done_callback(lambda _: order.append("result"))
    await setting
    assert [WatchEvent(EventType.DATA_CHANGED, "/a"), "result"] == order
    await client.close()


async def test_effect_whose_history_is_compacted_stays_unknown() -> None:
    server = StoreServer()
    client = await server.session()
    await client.create("/a")
    server.before_start = lambda: server.store.compact(server.store.revision)
    server.fates.append("lost done")
    with pytest.raises(ConnectionLossError, match="may have taken effect"):
        await client.create("/b")
    assert ["a", "b"] == await client.children("/")
    await client.close()


@pytest.mark.parametrize("is_watched", [False, True])
async def test_write_that_reaches_the_quota_and_took_effect_is_a_success(is_watched: bool) -> None:
    server = StoreServer()
    client = await server.session()
    await client.create("/a")
    if is_watched:
        await client.get("/a", lambda _: None)
    server.store.fill()
    created, stat, found = await asyncio.gather(
        client.create("/b"), client.set("/a", b"1"), client.get("/a"), return_exceptions=False
    )
    assert ("/b", 1, b"1") == (created, stat.version, found[0])
    server.store.free()
    assert "/c" == await client.create("/c")
    await client.close()


async def test_barrier_that_found_no_space_is_not_taken_for_a_request() -> None:
    """It writes to the session's key, too, and etcd refused it although it took effect."""
    server = StoreServer()
    client = await server.session()
    await client.create("/a")
    await client.get("/a", lambda _: None)
    # Another program's change holds back the results of reads, until a write of the session's own.
    server.store.txn(wire.read_txn(messages.txn((), (messages.put_op(b"/elsewhere", b""),))))
    server.store.fill()
    await client.get("/a")
    server.store.free()
    server.fates.append("lost")
    assert "/b" == await client.create("/b")
    assert await client.exists("/b") is not None
    await client.close()


async def test_reads_beside_refused_writes_have_results() -> None:
    """A full database serves reads, whichever request they are in."""
    server = StoreServer()
    client = await server.session()
    await client.create("/a", b"1")
    server.store.fill()
    await client.create("/b")
    outcomes = await asyncio.gather(client.set("/a", b"2"), client.get("/a"), return_exceptions=True)
    assert isinstance(outcomes[0], StorageError)
    assert not isinstance(outcomes[1], BaseException)
    assert b"1" == outcomes[1][0]
    await client.close()
