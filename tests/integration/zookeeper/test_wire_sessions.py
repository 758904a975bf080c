"""Sessions over the wire: negotiation, taking up, expiry, the end."""

from pathlib import Path

from kalda.zookeeper.protocol.op_codes import OK, OpCode
from kalda.zookeeper.protocol.requests import (
    WORLD_ALL,
    ConnectRequest,
    CreateRequest,
    PathWatchRequest,
)
from kalda.zookeeper.server.session_tracker import session_password
from tests.integration.zookeeper.wire import Client, running
from tests.zookeeper_requests import frame, write_connect_request

EPHEMERAL = 1


async def test_time_out_is_negotiated(tmp_path: Path) -> None:
    async with running(tmp_path, tickTime="2000") as bench:
        for asked, granted in ((1, 1000), (2000, 2000), (10**6, 40_000)):
            assert granted == (await bench.connect(asked)).session.timeout_ms


async def test_clients_from_before_read_only_get_the_answer_they_know(tmp_path: Path) -> None:
    """A client before 3.4 would take the extra byte for the start of the next frame."""
    async with running(tmp_path) as bench:
        old = await bench.dial()
        assert not (await old.open(read_only=None)).has_read_only
        assert "/a" == await old.create("/a")
        assert (await bench.connect()).session.has_read_only


async def test_session_is_taken_up_on_another_connection(tmp_path: Path) -> None:
    """The old connection is closed: a client must not believe that it is still on it."""
    async with running(tmp_path) as bench:
        first = await bench.connect()
        await first.create("/mine", flags=EPHEMERAL)
        await first.exists("/watched", watch=True)
        second = await bench.dial()
        assert await second.open(session=first.session) == first.session
        assert await first.at_end()
        assert await second.exists("/mine")
        # The watches belonged to the old connection; the client sets them again.
        assert "/watched" == await second.create("/watched")
        assert 0 == len(bench.server.server.watches)


async def test_session_cannot_be_taken_up_without_its_password(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        owner = await bench.connect()
        thief = await bench.dial()
        # What ZooKeeper derives from the id, which every client can read.
        refused = await thief.open(session=owner.session, password=session_password(owner.session.id))
        assert (0, 0, bytes(16)) == (refused.timeout_ms, refused.id, refused.password)
        assert await thief.at_end()
        assert "/a" == await owner.create("/a")


async def test_session_in_the_servers_own_process_cannot_be_taken_up(tmp_path: Path) -> None:
    """Its id can be read from its ephemerals, and the password be computed from the id."""
    async with running(tmp_path) as bench:
        inside = await bench.server.connect()
        client = await bench.connect()
        thief = await bench.dial()
        session = client.session._replace(id=inside.session_id)
        refused = await thief.open(
            session=session, password=bench.server.server.passwords.of(inside.session_id)
        )
        assert 0 == refused.id
        await inside.close()


async def test_client_that_has_seen_more_than_the_server_is_sent_away(tmp_path: Path) -> None:
    """Its server lost its directory, or this is another cluster's: old data would look new to it."""
    async with running(tmp_path) as bench:
        newest = (await (await bench.connect()).ask(OpCode.GET_DATA, PathWatchRequest("/", False))).zxid
        ahead, level = await bench.dial(), await bench.dial()
        ahead.writer.write(
            frame(write_connect_request(ConnectRequest(0, newest + 1, 4000, 0, bytes(16), False)))
        )
        assert await ahead.at_end()
        assert (await level.open(zxid=newest)).id


async def test_silent_session_expires_and_takes_its_ephemerals(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        silent = await bench.connect(2000)
        other = await bench.connect(40_000)
        await silent.create("/mine", flags=EPHEMERAL)
        assert await other.exists("/mine", watch=True)
        bench.pass_time(1.9)
        assert await other.exists("/mine")
        bench.pass_time(1.0)
        event = await other.next_event()
        assert (2, "/mine") == (event.kind, event.path)
        assert await silent.at_end()
        back = await bench.dial()
        assert 0 == (await back.open(session=silent.session)).id
        assert await back.at_end()


async def test_heartbeats_keep_a_session(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect(2000)
        for _ in range(5):
            bench.pass_time(1.5)
            assert OK == (await client.ask(OpCode.PING, xid=-2)).error
        assert "/a" == await client.create("/a")


async def test_closed_session_is_answered_before_the_connection_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client, other = await bench.connect(), await bench.connect()
        await client.create("/mine", flags=EPHEMERAL)
        client.send(OpCode.PING, xid=-2)
        closing = client.send(OpCode.CLOSE_SESSION)
        client.send(OpCode.PING, xid=-2)
        assert -2 == (await client.next_reply()).xid
        reply = await client.next_reply()
        assert (closing, OK) == (reply.xid, reply.error)
        assert await client.at_end()
        assert not await other.exists("/mine")
        back = await bench.dial()
        assert 0 == (await back.open(session=client.session)).id


async def test_sessions_outlive_the_server_and_get_all_their_time(tmp_path: Path) -> None:
    """Brokers must not lose their registrations because the coordination server is restarted."""
    async with running(tmp_path) as bench:
        client = await bench.connect(2000)
        other = await bench.connect(40_000)
        await client.create("/mine", flags=EPHEMERAL)
        bench.pass_time(1.9)
    async with running(tmp_path) as bench:
        bench.pass_time(1.9)
        again = await bench.dial()
        assert await again.open(2000, session=client.session) == client.session
        assert await again.exists("/mine")
        bench.pass_time(3)
        assert await again.at_end()
        assert (await (await bench.dial()).open(40_000, session=other.session)).id == other.session.id


async def test_connection_that_breaks_leaves_its_session(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client, other = await bench.connect(), await bench.connect(40_000)
        await client.create("/mine", flags=EPHEMERAL)
        client.close()
        assert await other.exists("/mine")
        again = await bench.dial()
        assert (await again.open(session=client.session)).id == client.session.id


async def test_connection_that_leaves_while_it_takes_up_a_session_changes_nothing(tmp_path: Path) -> None:
    """The one that has the session must still be ended when the session is."""
    async with running(tmp_path) as bench:
        client = await bench.connect(2000)
        # A write under way makes the other wait for its turn; it is gone when that comes.
        client.send(OpCode.CREATE, CreateRequest("/a", b"", WORLD_ALL, 0))
        hasty = await bench.dial()
        request = ConnectRequest(0, 0, 2000, client.session.id, client.session.password, False)
        hasty.writer.write(frame(write_connect_request(request)))
        hasty.close()
        assert OK == (await client.next_reply()).error
        bench.pass_time(3)
        assert await client.at_end()


async def test_thousands_of_sessions(tmp_path: Path) -> None:
    """All expire in one go, each with an ephemeral of its own."""
    count = 2000
    async with running(tmp_path, maxClientCnxns="0") as bench:
        await (await bench.connect(40_000)).create("/s")
        clients: list[Client] = []
        for _ in range(0, count, 200):
            opened = [await bench.dial() for _ in range(200)]
            for client in opened:
                await client.open(2000)
                client.send(OpCode.PING, xid=-2)
            clients += opened
        assert count + 1 == bench.server.server.statistics().session_count
        assert count + 1 == len(bench.server.server.sessions)
        for number, client in enumerate(clients):
            await client.next_reply()
            await client.create(f"/s/{number}", flags=EPHEMERAL)
        watcher = await bench.connect(40_000)
        assert count == len(await watcher.children("/s"))
        bench.pass_time(3)
        for client in clients:
            assert await client.at_end()
        assert [] == await watcher.children("/s")
