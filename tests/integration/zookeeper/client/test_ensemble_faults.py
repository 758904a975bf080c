"""What a session over the wire does when the wire, the server or the caller misbehaves."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest

from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.errors import (
    BadArgumentsError,
    ConnectionLossError,
    SessionExpiredError,
    ZooKeeperError,
)
from kalda.zookeeper.port import Create, EventType, SessionState, WatchEvent
from kalda.zookeeper.protocol.responses import connect_response
from tests.integration.zookeeper.client.engines import EnsembleEngine, eventually, states_of
from tests.integration.zookeeper.client.faulty_link import FaultyLink, abort

SHORT_SESSION_MS = 1_000


@pytest.fixture
async def link(ensemble_engine: EnsembleEngine) -> AsyncIterator[FaultyLink]:
    async with FaultyLink(ensemble_engine.hosts) as link:
        yield link


async def test_session_survives_a_cut_connection(ensemble_engine: EnsembleEngine) -> None:
    session = await ensemble_engine.connect()
    await session.create("/e", ephemeral=True)
    before = session.session_id
    states = states_of(session)
    ensemble_engine.cut(session)
    await eventually(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])
    assert before == session.session_id
    stat = await session.exists("/e")
    assert stat is not None
    assert before == stat.ephemeral_owner


async def test_watches_survive_a_cut_and_tell_what_was_missed(
    ensemble_engine: EnsembleEngine, link: FaultyLink
) -> None:
    """A server forgets all watches of a connection that breaks."""
    session, other = await ensemble_engine.connect(through=link.hosts), await ensemble_engine.connect()
    for path in ("/changed", "/deleted", "/recreated", "/parent", "/quiet", "/quiet/child"):
        await other.create(path)
    events: dict[str, list[WatchEvent]] = {}

    def watch(name: str):  # type: ignore[no-untyped-def]  # a callback's factory
        return events.setdefault(name, []).append

    await session.get("/changed", watch("changed"))
    await session.get("/deleted", watch("deleted"))
    await session.children("/deleted", watch("deleted children"))
    await session.get("/recreated", watch("recreated"))
    await session.exists("/created", watch("created"))
    await session.children("/parent", watch("parent"))
    await session.get("/quiet", watch("quiet"))
    await session.children("/quiet", watch("quiet children"))
    await session.exists("/never", watch("never"))
    states = states_of(session)
    link.refuse()
    await eventually(lambda: SessionState.SUSPENDED in states)
    await other.set("/changed", b"1")
    await other.delete("/deleted")
    await other.delete("/recreated")
    await other.create("/recreated")
    await other.create("/created")
    await other.create("/parent/child")
    read = asyncio.create_task(session.get("/changed"))
    await asyncio.sleep(0)
    link.mend()
    assert b"1" == (await read)[0]
    assert [SessionState.SUSPENDED, SessionState.CONNECTED] == states
    assert {
        "changed": [WatchEvent(EventType.DATA_CHANGED, "/changed")],
        "deleted": [WatchEvent(EventType.DELETED, "/deleted")],
        "deleted children": [WatchEvent(EventType.DELETED, "/deleted")],
        "recreated": [WatchEvent(EventType.DATA_CHANGED, "/recreated")],
        "created": [WatchEvent(EventType.CREATED, "/created")],
        "parent": [WatchEvent(EventType.CHILDREN_CHANGED, "/parent")],
        "quiet": [],
        "quiet children": [],
        "never": [],
    } == events
    # Those that missed nothing wait on.
    await other.set("/quiet", b"1")
    await other.delete("/quiet/child")
    await other.create("/never")
    await session.exists("/never")
    await eventually(lambda: all(len(seen) == 1 for seen in events.values()))


async def test_calls_wait_for_a_connection_that_comes_back(
    ensemble_engine: EnsembleEngine, link: FaultyLink
) -> None:
    session = await ensemble_engine.connect(through=link.hosts)
    states = states_of(session)
    link.refuse()
    await eventually(lambda: SessionState.SUSPENDED in states)
    calls = [asyncio.create_task(session.create(f"/n{number}")) for number in range(30)]
    await asyncio.sleep(0.1)
    assert not any(call.done() for call in calls)
    link.mend()
    assert [f"/n{number}" for number in range(30)] == await asyncio.gather(*calls)


async def test_calls_fail_where_the_connection_stays_away(
    ensemble_engine: EnsembleEngine, link: FaultyLink
) -> None:
    """Nothing hangs for ever, and nothing fails so fast that a loop of retries would spin."""
    session = await ensemble_engine.connect(through=link.hosts, session_timeout_ms=SHORT_SESSION_MS)
    states = states_of(session)
    link.refuse()
    await eventually(lambda: SessionState.SUSPENDED in states)
    for _ in range(2):
        with pytest.raises(ConnectionLossError, match="cannot be reached"):
            await session.create("/a")
    assert session.state is SessionState.SUSPENDED
    link.mend()
    await eventually(lambda: session.state is SessionState.CONNECTED)
    assert await session.exists("/a") is None


async def test_a_read_under_way_when_the_connection_breaks_is_sent_again(
    ensemble_engine: EnsembleEngine, link: FaultyLink
) -> None:
    """A read has no effect, so that its outcome is not in doubt; a broker that starts must not end by it."""
    session = await ensemble_engine.connect(through=link.hosts)
    await session.create("/a", b"1")
    link.silence()
    data = asyncio.create_task(session.get("/a"))
    absent = asyncio.create_task(session.exists("/b"))
    names = asyncio.create_task(session.children("/"))
    many = asyncio.create_task(session.get_many(["/a", "/b"]))
    await asyncio.sleep(0.05)
    link.refuse()
    await eventually(lambda: session.state is SessionState.SUSPENDED)
    link.mend()
    assert b"1" == (await data)[0]
    assert await absent is None
    assert "a" in await names
    assert [b"1", None] == [each and each[0] for each in await many]


async def test_operation_under_way_when_the_connection_breaks_may_have_been_done(
    ensemble_engine: EnsembleEngine, link: FaultyLink
) -> None:
    session = await ensemble_engine.connect(through=link.hosts)
    link.silence()
    write = asyncio.create_task(session.create("/a"))
    await asyncio.sleep(0.05)
    link.refuse()
    with pytest.raises(ConnectionLossError, match="it may have taken effect"):
        await write
    link.mend()
    await session.exists("/a")


async def test_server_that_says_nothing_is_left(ensemble_engine: EnsembleEngine, link: FaultyLink) -> None:
    """Also while requests keep being sent, so that no heartbeat is due."""
    session = await ensemble_engine.connect(through=link.hosts, session_timeout_ms=SHORT_SESSION_MS)
    states = states_of(session)
    link.silence()
    failures = 0
    while SessionState.SUSPENDED not in states:
        # Requests keep coming, each shorter than a heartbeat's interval.
        try:
            async with asyncio.timeout(0.05):
                await session.get("/")
        except (TimeoutError, ZooKeeperError):
            failures += 1
    assert failures
    link.mend()
    await eventually(lambda: session.state is SessionState.CONNECTED)


async def test_nothing_called_in_one_session_runs_in_the_next(ensemble_engine: EnsembleEngine) -> None:
    """An ephemeral znode of a session that its maker believes to be over would stay for ever."""
    session = await ensemble_engine.connect()
    states = states_of(session)
    await ensemble_engine.kill_session(session)
    # The loop has not heard of it, and does not for a while.
    time.sleep(0.5)  # noqa: ASYNC251
    calls = [asyncio.create_task(session.create(f"/e{number}", ephemeral=True)) for number in range(20)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, SessionExpiredError | ConnectionLossError) for outcome in outcomes)
    await eventually(lambda: SessionState.EXPIRED in states and session.state is SessionState.CONNECTED)
    assert not [name for name in await session.children("/") if name.startswith("e")]


async def test_request_that_is_too_large_is_told_and_the_session_goes_on(
    ensemble_engine: EnsembleEngine,
) -> None:
    session = await ensemble_engine.connect()
    states = states_of(session)
    large = bytes(1_100_000)
    for operation in (
        session.create("/a", large),
        session.set("/a", large),
        session.multi([Create(f"/n{number}", large[:300_000]) for number in range(4)]),
    ):
        with pytest.raises(BadArgumentsError, match=r"jute\.maxbuffer"):
            await operation
    assert "/a" == await session.create("/a", large[:1_000_000])
    assert [] == states


async def test_chroot_is_made_and_hidden(ensemble_engine: EnsembleEngine) -> None:
    session = await ensemble_engine.connect()
    events: list[WatchEvent] = []
    assert [] == await session.children("/", events.append)
    assert "/a" == await session.create("/a")
    assert "/b-0000000001" == (await session.multi([Create("/b-", sequential=True)]))[0]
    await session.exists("/a")
    assert [WatchEvent(EventType.CHILDREN_CHANGED, "/")] == events
    outside = await EnsembleClient.connect(
        ensemble_engine.hosts, session_timeout_ms=4_000, connection_timeout_ms=30_000
    )
    assert ["a", "b-0000000001"] == await outside.children(ensemble_engine.chroot)
    await outside.close()


def session_tasks() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if "ZooKeeper session" in name]


async def test_connection_that_cannot_be_made_says_where_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(
            ConnectionLossError, match=rf"127\.0\.0\.1:{port}/kafka took a session within 300 ms.*refused"
        ):
            await EnsembleClient.connect(
                f"127.0.0.1:{port}/kafka", session_timeout_ms=1_000, connection_timeout_ms=300
            )
    # Long enough for a connection that is wrongly made anew.
    await asyncio.sleep(1.2)
    await eventually(lambda: not session_tasks())
    assert "" == caplog.text


@pytest.mark.parametrize("hosts", ["", "/kafka", "host:port", "host:1/a//b"])
async def test_bad_addresses_are_refused(hosts: str) -> None:
    with pytest.raises(BadArgumentsError):
        await EnsembleClient.connect(hosts, session_timeout_ms=1_000, connection_timeout_ms=300)


@pytest.mark.parametrize("answer", [b"\x00\x00\x00\x04junk", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xffxx", b""])
async def test_peer_that_is_no_zookeeper_is_no_session(answer: bytes) -> None:
    async def talk_nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.write_eof()
        await asyncio.sleep(0.1)
        await abort(writer)

    server = await asyncio.start_server(talk_nonsense, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionLossError):
        await EnsembleClient.connect(f"127.0.0.1:{port}", session_timeout_ms=1_000, connection_timeout_ms=500)
    server.close()
    await asyncio.sleep(0.2)


async def test_answer_that_makes_no_sense_costs_the_connection_not_the_session(
    ensemble_engine: EnsembleEngine, link: FaultyLink
) -> None:
    session = await ensemble_engine.connect(through=link.hosts)
    before = session.session_id
    states = states_of(session)
    link.inject(b"\x00\x00\x00\x10" + b"\x7f" * 16)
    assert await session.get("/"), "the read is sent again"
    await eventually(lambda: states[-2:] == [SessionState.SUSPENDED, SessionState.CONNECTED])
    assert before == session.session_id
    assert await session.exists("/") is not None


async def test_close_ends_in_time_where_nobody_answers(
    ensemble_engine: EnsembleEngine, link: FaultyLink
) -> None:
    session = await ensemble_engine.connect(through=link.hosts, session_timeout_ms=SHORT_SESSION_MS)
    link.silence()
    waiting = asyncio.create_task(session.get("/"))
    await asyncio.sleep(0)
    await session.close()
    assert session.state is SessionState.CLOSED
    with pytest.raises(ZooKeeperError):
        await waiting


async def test_closed_sessions_leave_no_task(ensemble_engine: EnsembleEngine) -> None:
    session = await ensemble_engine.connect()
    await ensemble_engine.expire(session)
    await session.close()
    await eventually(lambda: not session_tasks())


async def test_other_servers_are_tried_where_one_is_dead(ensemble_engine: EnsembleEngine) -> None:
    with socket.socket() as dead, socket.socket() as mute:
        dead.bind(("127.0.0.1", 0))
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        hosts = [f"127.0.0.1:{each.getsockname()[1]}" for each in (dead, mute)]
        session = await ensemble_engine.connect(
            through=",".join(["no.such.host.invalid:2181", *hosts, ensemble_engine.hosts])
        )
        assert await session.exists("/") is not None
        states = states_of(session)
        ensemble_engine.cut(session)
        await eventually(lambda: SessionState.SUSPENDED in states)
        # The servers come in any order; one session's time may not be enough for those that are no good.
        await eventually(lambda: session.state is SessionState.CONNECTED)
        assert "/a" == await session.create("/a")


async def test_bounded_number_of_requests_is_in_flight(ensemble_engine: EnsembleEngine) -> None:
    session = await ensemble_engine.connect(max_in_flight=3)
    seen: list[int] = []
    send = session._link.send

    def counting(call: object) -> None:
        send(call)  # type: ignore[arg-type]  # passed on as it comes
        seen.append(len(session._in_flight))

    session._link.send = counting  # type: ignore[method-assign]
    await session.multi_many([[Create(f"/n{number}")] for number in range(100)])
    assert 3 == max(seen)
    assert 100 == len(await session.children("/"))


async def test_callbacks_that_raise_harm_nobody_else(
    ensemble_engine: EnsembleEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """They must not; but a session that stopped there would never be made anew."""

    def bad_watch(_: WatchEvent) -> None:
        raise RuntimeError("a watch's mistake")

    def bad_listener(_: SessionState) -> None:
        raise RuntimeError("a listener's mistake")

    session = await ensemble_engine.connect()
    await session.create("/a")
    events: list[WatchEvent] = []
    await session.get("/a", bad_watch)
    await session.get("/a", events.append)
    await session.set("/a", b"1")
    assert b"1" == (await session.get("/a"))[0]
    assert [WatchEvent(EventType.DATA_CHANGED, "/a")] == events
    session.add_state_listener(bad_listener)
    states = states_of(session)
    await ensemble_engine.expire(session)
    assert [SessionState.EXPIRED, SessionState.CONNECTED] == states[-2:]
    assert b"1" == (await session.get("/a"))[0]
    assert "a watch's mistake" in caplog.text
    assert "a listener's mistake" in caplog.text


async def test_a_server_that_ends_every_session_is_asked_with_pauses() -> None:
    """It had more than a thousand connections in three seconds, and a warning for each."""
    connections: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append("")
        await reader.readexactly(4)
        writer.write(connect_response(0, 0, bytes(16), with_read_only=True))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionLossError, match="it says that the session is over"):
            await EnsembleClient.connect(
                f"127.0.0.1:{port}", session_timeout_ms=6_000, connection_timeout_ms=1_500
            )
    assert len(connections) < 20
