"""The coordination port over the server in the same process: order, watches, the end of sessions."""

import asyncio

import pytest

from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kalda.zookeeper.port import (
    Create,
    Delete,
    EventType,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    ZooKeeperClient,
)
from tests.unit.cluster.in_memory import InMemoryZooKeeper


async def test_session_fills_the_port() -> None:
    """Broker code knows the port only; the checker compares every signature here."""
    session: ZooKeeperClient = await InMemoryZooKeeper().connect()
    assert session.state is SessionState.CONNECTED
    assert "/a" == await session.create("/a", b"1")
    assert "/a/n-0000000000" == await session.create("/a/n-", sequential=True)
    data, stat = await session.get("/a")
    assert (b"1", 0, 1) == (data, stat.version, stat.num_children)
    assert 1 == (await session.set("/a", b"2", 0)).version
    assert ["n-0000000000"] == await session.children("/a")
    assert await session.get_many(["/a", "/b"]) == [(b"2", await session.exists("/a")), None]
    await session.delete("/a/n-0000000000")
    results = await session.multi([SetData("/a", b"3"), Delete("/a"), Create("/b")])
    assert isinstance(results[0], Stat)
    assert [None, "/b"] == results[1:]
    with pytest.raises(NoNodeError):
        await session.get("/a")
    with pytest.raises(NoNodeError):
        await session.children("/a")
    with pytest.raises(BadArgumentsError):
        await session.exists("a")


async def test_transactions_sent_together_have_their_own_outcomes() -> None:
    session = await InMemoryZooKeeper().connect()
    outcomes = await session.multi_many(
        [[Create("/a"), Create("/a/b")], [Create("/c"), Create("/a")], [SetData("/a", b"x", 0)]]
    )
    assert ["/a", "/a/b"] == outcomes[0]
    assert isinstance(outcomes[1], NodeExistsError)
    assert 1 == outcomes[1].operation_index
    assert isinstance(outcomes[2], list)
    assert [] == await session.multi_many([])


async def test_session_reads_its_own_writes_without_waiting_for_them() -> None:
    session = await InMemoryZooKeeper().connect()
    _, (data, _), stat = await asyncio.gather(
        session.create("/a", b"1"), session.get("/a"), session.set("/a", b"2", 0)
    )
    assert (b"1", 1) == (data, stat.version)
    results = await asyncio.gather(*(session.set("/a", b"", 1) for _ in range(3)), return_exceptions=True)
    assert [Stat, BadVersionError, BadVersionError] == [type(result) for result in results]


async def test_watch_tells_once_and_finds_the_new_data() -> None:
    zookeeper = InMemoryZooKeeper()
    reader, writer = await zookeeper.connect(), await zookeeper.connect()
    events: list[WatchEvent] = []
    await reader.exists("/a", events.append)
    await reader.children("/", events.append)
    await writer.create("/a", b"1")
    assert [
        WatchEvent(EventType.CREATED, "/a"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/"),
    ] == events
    await reader.get("/a", events.append)
    await reader.get_many(["/a", "/missing"], events.append)
    await writer.set("/a", b"2")
    await writer.set("/a", b"3")
    assert [WatchEvent(EventType.DATA_CHANGED, "/a")] == events[2:]


async def test_failed_read_leaves_no_watch() -> None:
    zookeeper = InMemoryZooKeeper()
    session = await zookeeper.connect()
    with pytest.raises(NoNodeError):
        await session.get("/a", lambda event: None)
    with pytest.raises(NoNodeError):
        await session.children("/a", lambda event: None)
    await session.get_many(["/a"], lambda event: None)
    assert 0 == zookeeper.server.server.statistics().watch_count


async def test_callback_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    session = await InMemoryZooKeeper().connect()
    events: list[WatchEvent] = []

    def fail(event: WatchEvent) -> None:
        raise RuntimeError("a bug of the callback")

    await session.exists("/a", fail)
    await session.exists("/a", events.append)
    assert "/a" == await session.create("/a")
    assert 1 == len(events)
    assert "a watch on /a failed" in caplog.text


async def test_expired_session_loses_ephemerals_and_watches_and_can_be_opened_again() -> None:
    zookeeper = InMemoryZooKeeper()
    session, other = await zookeeper.connect(), await zookeeper.connect()
    states: list[SessionState] = []
    events: list[WatchEvent] = []
    session.add_state_listener(states.append)
    first_id = session.session_id
    await session.create("/e", ephemeral=True)
    await session.exists("/x", events.append)
    await session.expire()
    assert await other.exists("/e") is None
    await other.create("/x")
    assert [] == events
    with pytest.raises(SessionExpiredError):
        await session.exists("/")
    with pytest.raises(SessionExpiredError):
        await session.multi_many([[Create("/y")]])
    await session.reconnect()
    assert session.session_id != first_id
    assert "/e" == await session.create("/e", ephemeral=True)
    assert [SessionState.EXPIRED, SessionState.CONNECTED] == states


async def test_closed_server_lets_the_next_one_go_on() -> None:
    zookeeper = InMemoryZooKeeper()
    session = await zookeeper.connect()
    await session.create("/a", b"kept")
    await session.create("/e", ephemeral=True)
    await session.close()
    await session.close()
    assert session.state is SessionState.CLOSED
    await zookeeper.server.close()
    again = InMemoryZooKeeper(zookeeper.files)
    reader = await again.connect()
    assert await reader.get_many(["/a", "/e"]) == [(b"kept", await reader.exists("/a")), None]


async def test_cancelled_call_does_not_disturb_the_server() -> None:
    session = await InMemoryZooKeeper().connect()
    task = asyncio.create_task(session.create("/a"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "/b" == await session.create("/b")
    assert await session.exists("/a") is not None


async def test_many_transactions_leave_turns_to_others() -> None:
    """The controller creates the states of 10,000 partitions at once if a client asks for as many."""
    zookeeper = InMemoryZooKeeper()
    session = await zookeeper.connect()
    nodes = zookeeper.server.server.tree.nodes
    most = 0
    created = asyncio.Event()

    async def other() -> None:
        nonlocal most
        while not created.is_set():
            before = len(nodes)
            await asyncio.sleep(0)
            most = max(most, len(nodes) - before)

    beside = asyncio.ensure_future(other())
    outcomes = await session.multi_many([[Create(f"/{n}-{m}") for m in range(100)] for n in range(50)])
    created.set()
    await beside

    assert all(isinstance(each, list) for each in outcomes)
    assert 5000 <= len(nodes)
    assert 0 < most <= 1000
