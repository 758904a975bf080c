"""Limits and faults of the wire: slow and silent clients, floods, full disks, four-letter words."""

import asyncio
import re
import socket
from pathlib import Path

import pytest

from kalda.net import connection
from kalda.net.connection import COALESCE_BYTES_MAX
from kalda.runtime.background import InlineExecutor
from kalda.zookeeper.protocol.op_codes import AUTH_FAILED, OK, SYSTEM_ERROR, OpCode
from kalda.zookeeper.protocol.requests import (
    WORLD_ALL,
    AuthRequest,
    CreateRequest,
    MultiRequest,
    PathNumberRequest,
    PathVersionRequest,
    PathWatchRequest,
    SetDataRequest,
    SetWatchesRequest,
)
from kalda.zookeeper.server import connection_registry, server_connection, wire_operations
from kalda.zookeeper.server.server_connection import IDENTITY_CHARACTERS_MAX, OUTSTANDING_MAX
from kalda.zookeeper.server.watches import WATCH_BYTES
from kalda.zookeeper.server.wire_operations import (
    MULTI_READ_BYTES_MAX,
    MULTI_READ_OPERATIONS_MAX,
    SET_WATCHES_PATHS_MAX,
)
from tests.integration.zookeeper.wire import Bench, Client, Reply, running
from tests.unit.zookeeper.memory_files import MemoryFileSystem
from tests.zookeeper_requests import frame, write_request


async def until(bench: Bench, connections: int) -> None:
    async with asyncio.timeout(60):
        # Nothing tells of it but the count itself.
        while len(bench.listener.registry.connections) != connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_connections_per_host_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, maxClientCnxns="2") as bench:
        first, second = await bench.connect(), await bench.connect()
        third = await bench.dial()
        assert await third.at_end()
        first.close()
        await until(bench, 1)
        assert "/a" == await (await bench.connect()).create("/a")
        assert await second.exists("/a")
        assert 1 == bench.listener.registry.rejected


async def test_connections_altogether_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, maxCnxns="1") as bench:
        await bench.connect()
        assert await (await bench.dial()).at_end()


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x2d" + b"\0" * 20])
async def test_connections_that_ask_for_no_session_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Half-open or half-said: they hold one of a host's places."""
    monkeypatch.setattr(connection_registry, "NEW_CONNECTION_SECONDS_MAX", 0.05)
    async with running(tmp_path) as bench:
        client = await bench.dial()
        client.writer.write(sent)
        assert await client.at_end()
        await until(bench, 0)


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x08\x01", b"GET "])
async def test_frames_above_the_limit_end_the_connection(tmp_path: Path, length: bytes) -> None:
    async with running(tmp_path, jute_maxbuffer="2048") as bench:
        other, client = await bench.connect(), await bench.connect()
        client.writer.write(length)
        assert await client.at_end()
        new = await bench.dial()
        new.writer.write(length)
        assert await new.at_end()
        assert "/a" == await other.create("/a")


async def test_client_that_does_not_read_is_not_read_from(tmp_path: Path) -> None:
    """Its answers are bounded, and all there when it reads on."""
    data, count = b"x" * 60_000, 1000
    async with running(tmp_path) as bench:
        slow, other = await bench.connect(40_000), await bench.connect(40_000)
        await slow.create("/a", data)
        slow.reader._limit = 1024  # type: ignore[attr-defined]  # so that the client's side takes little
        for _ in range(count):
            slow.send(OpCode.GET_DATA, PathWatchRequest("/a", False))
        for number in range(50):
            await other.create(f"/n{number}")
            held = max(one.link.queued_bytes() for one in bench.listener.registry.connections)
            # One piece may come on top of what is held when writing stops; headers and stats are small.
            assert held <= COALESCE_BYTES_MAX + len(data) + 100 * OUTSTANDING_MAX
        replies = [await slow.next_reply() for _ in range(count)]
        assert {(reply.error, len(reply.body)) for reply in replies} == {(OK, 4 + len(data) + 68)}
        assert [reply.xid for reply in replies] == list(range(2, count + 2))
        # It was paused for as long as it did not read, and serves again.
        assert await slow.exists("/n49")


async def test_client_that_never_reads_its_events_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events cannot be refused, so their sender must be; the session lives on for who reads again."""
    monkeypatch.setattr(connection, "UNREAD_BYTES_MAX", 1_000_000)
    async with running(tmp_path) as bench:
        deaf, other = await bench.connect(40_000), await bench.connect(40_000)
        await other.create("/" + "p" * 1000)
        await deaf.ask(OpCode.ADD_WATCH, PathNumberRequest("/" + "p" * 1000, 0))
        deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]  # nothing is taken from the socket
        path = "/" + "p" * 1000
        async with asyncio.timeout(60):
            while len(bench.listener.registry.connections) == 2:
                for _ in range(200):
                    other.send(OpCode.SET_DATA, SetDataRequest(path, b"", -1))
                for _ in range(200):
                    await other.next_reply()
        assert 0 == len(bench.server.server.watches)
        again = await bench.dial()
        assert (await again.open(session=deaf.session)).id == deaf.session.id


async def test_requests_under_way_are_bounded(tmp_path: Path) -> None:
    """A connection that has some is not read from while the server has as many as it may."""
    async with running(tmp_path, globalOutstandingLimit="20") as bench:
        clients = [await bench.connect(40_000) for _ in range(3)]
        await clients[0].create("/n")
        seen = 0
        count = 400
        for number in range(count):
            for index, client in enumerate(clients):
                client.send(OpCode.CREATE, CreateRequest(f"/n/{index}-{number}", b"", WORLD_ALL, 0))
        replies: list[Reply] = []
        for client in clients:
            for _ in range(count):
                replies.append(await client.next_reply())
                seen = max(seen, bench.listener.registry.outstanding)
        assert {OK} == {reply.error for reply in replies}
        # Each may have one more than the limit lets in.
        assert 0 < seen <= 20 + len(clients)
        assert len(await clients[0].children("/n")) == count * len(clients)


async def test_one_connections_flood_does_not_starve_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        flood, other = await bench.connect(40_000), await bench.connect(40_000)
        count = 5000
        for _ in range(count):
            flood.send(OpCode.EXISTS, PathWatchRequest("/", False))
        assert "/a" == await other.create("/a")
        for _ in range(count):
            assert OK == (await flood.next_reply()).error


_BAD_ARGUMENTS = -8


def _set_watches(count: int, prefix: str = "/") -> SetWatchesRequest:
    return SetWatchesRequest(0, (), tuple(f"{prefix}{number}" for number in range(count)), ())


async def test_set_watches_names_a_bounded_number_of_paths(tmp_path: Path) -> None:
    """A frame of 1 MB has 100,000, and the loop serves nobody else meanwhile."""
    async with running(tmp_path) as bench:
        client = await bench.connect()
        reply = await client.ask(OpCode.SET_WATCHES, _set_watches(SET_WATCHES_PATHS_MAX + 1))
        assert _BAD_ARGUMENTS == reply.error
        assert 0 == len(bench.server.server.watches)
        assert OK == (await client.ask(OpCode.SET_WATCHES, _set_watches(SET_WATCHES_PATHS_MAX))).error
        assert SET_WATCHES_PATHS_MAX == len(bench.server.server.watches)


async def test_watches_of_a_connection_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a login could set watches on paths that do not exist until memory ended."""
    monkeypatch.setattr(wire_operations, "WATCH_BYTES_MAX", 10 * WATCH_BYTES)
    async with running(tmp_path) as bench:
        client, other = await bench.connect(), await bench.connect()
        for number in range(9):
            assert not await client.exists(f"/{number}", watch=True)
        for op_code, record in (
            (OpCode.EXISTS, PathWatchRequest("/" + "x" * 2 * WATCH_BYTES, True)),
            (OpCode.SET_WATCHES, _set_watches(20, "/x")),
            (OpCode.ADD_WATCH, PathNumberRequest("/" + "y" * 2 * WATCH_BYTES, 0)),
        ):
            assert _BAD_ARGUMENTS == (await client.ask(op_code, record)).error
        assert not await other.exists("/a", watch=True)
        bench.server.server.watches.check_invariants()


async def test_watches_of_all_connections_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the bound a client gets an equal share: those that hold most get no more."""
    monkeypatch.setattr(wire_operations, "WATCH_BYTES_TOTAL_MAX", 100 * WATCH_BYTES)
    async with running(tmp_path) as bench:
        flood, other = await bench.connect(), await bench.connect()
        assert OK == (await flood.ask(OpCode.SET_WATCHES, _set_watches(100))).error
        assert not await other.exists("/a", watch=True)
        reply = await flood.ask(OpCode.EXISTS, PathWatchRequest("/b", True))
        assert _BAD_ARGUMENTS == reply.error
        assert not await other.exists("/b", watch=True)


async def test_many_watches_of_a_closed_connection_are_removed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million watches held the loop for 3 s."""
    monkeypatch.setattr(server_connection, "WATCHES_PER_TURN", 10)
    async with running(tmp_path) as bench:
        client, other = await bench.connect(), await bench.connect()
        await client.ask(OpCode.SET_WATCHES, _set_watches(100))
        client.close()
        await until(bench, 1)
        assert "/1" == await other.create("/1")
        async with asyncio.timeout(60):
            while len(bench.server.server.watches):
                bench.server.server.watches.check_invariants()
                await asyncio.sleep(0)


async def test_multi_read_is_bounded(tmp_path: Path) -> None:
    """A frame of 1 MB has 50,000 reads, each of which may return 1 MB."""
    async with running(tmp_path) as bench:
        client = await bench.connect()
        await client.create("/large", bytes(500_000))
        read = (OpCode.GET_DATA, PathWatchRequest("/large", False))
        count = MULTI_READ_BYTES_MAX // 500_000 + 1
        assert _BAD_ARGUMENTS == (await client.ask(OpCode.MULTI_READ, MultiRequest((read,) * count))).error
        reply = await client.ask(OpCode.MULTI_READ, MultiRequest((read,) * 3))
        assert 1_500_000 < len(reply.body)
        small = (OpCode.GET_CHILDREN, PathWatchRequest("/large", False))
        many = MultiRequest((small,) * (MULTI_READ_OPERATIONS_MAX + 1))
        assert _BAD_ARGUMENTS == (await client.ask(OpCode.MULTI_READ, many)).error


async def test_identities_have_a_bounded_length(tmp_path: Path) -> None:
    """A connection kept 64 of them, each of up to 1 MB."""
    async with running(tmp_path) as bench:
        client = await bench.connect()
        name = b"x" * (IDENTITY_CHARACTERS_MAX // 2)
        assert OK == (await client.ask(OpCode.AUTH, AuthRequest(0, "digest", name + b":secret"), -4)).error
        reply = await client.ask(OpCode.AUTH, AuthRequest(0, "digest", 2 * name + b":secret"), -4)
        assert AUTH_FAILED == reply.error
        assert await client.at_end()


async def test_full_disk_refuses_changes_and_keeps_the_rest() -> None:
    """Clients get SYSTEMERROR for what was not made durable; reads, heartbeats and sessions go on."""
    files = MemoryFileSystem()
    async with running("/data", filesystem=files, executor=InlineExecutor()) as bench:
        client = await bench.connect(4000)
        await client.create("/a", b"1")
        files.room = 0
        sent = [
            client.send(OpCode.CREATE, CreateRequest(f"/n{number}", b"x" * 100_000, WORLD_ALL, 0))
            for number in range(5)
        ]
        errors = [(await client.next_reply()).error for _ in sent]
        # The log has put some room by; when that is used up, all is refused.
        fitted = errors.count(OK)
        assert errors == [OK] * fitted + [SYSTEM_ERROR] * (len(sent) - fitted)
        assert fitted < len(sent)
        assert b"1" == await client.get("/a")
        assert OK == (await client.ask(OpCode.PING, xid=-2)).error
        files.room = None
        await client.create("/late", b"x" * 100_000)
        assert ["a", "late", *(f"n{i}" for i in range(fitted)), "zookeeper"] == await client.children("/")


async def test_session_whose_end_finds_no_room_ends_later() -> None:
    """Its ephemerals must go in the end; it is judged again after another time-out."""
    files = MemoryFileSystem()
    async with running("/data", filesystem=files, executor=InlineExecutor()) as bench:
        silent, other = await bench.connect(2000), await bench.connect(60_000)
        await silent.create("/mine", flags=1)

        def fail(_: str) -> None:
            raise OSError(28, "No space left on device")

        files.on_change = fail  # type: ignore[assignment,method-assign]  # not even the reserve can be written
        bench.pass_time(3)
        assert await other.exists("/mine")
        del files.on_change
        bench.pass_time(3)
        assert not await other.exists("/mine")


async def test_closing_the_server_answers_what_is_under_way(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect()
        sent = client.send(OpCode.CREATE, CreateRequest("/a", b"", WORLD_ALL, 0))
        while not bench.listener.registry.outstanding:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await bench.listener.close()
        reply = await client.next_reply()
        assert (sent, OK) == (reply.xid, reply.error)
        assert await client.at_end()
    async with running(tmp_path) as bench:
        assert await (await bench.connect()).exists("/a")


async def test_four_letter_words_have_zookeepers_texts(tmp_path: Path) -> None:
    async with running(tmp_path, words="*") as bench:
        client = await bench.connect()
        await client.create("/mine", flags=1)
        await client.get("/mine", watch=True)
        number = f"{client.session.id:#x}"
        assert "imok" == await bench.word(b"ruok")
        assert "imok" == await bench.word(b"ruok\n")
        assert "rw" == await bench.word(b"isro")
        srvr = await bench.word(b"srvr")
        assert re.fullmatch(
            r"Zookeeper version: 3\.\d+\.\d+-\S+, built on .*\n"
            r"Latency min/avg/max: \d+/\d+\.\d+/\d+\n"
            r"Received: \d+\nSent: \d+\nConnections: 2\nOutstanding: 0\nZxid: 0x[0-9a-f]+\n"
            r"Mode: standalone\nNode count: \d+\n",
            srvr,
        )
        stat = (await bench.word(b"stat")).split("\n")
        assert "Clients:" == stat[1]
        assert re.fullmatch(r" /127\.0\.0\.1:\d+\[1\]\(queued=0,recved=\d+,sent=\d+\)", stat[2])
        cons = await bench.word(b"cons")
        assert re.search(rf"sid={number},lop=GETD,est=\d+,to=4000,lcxid=0x2,lzxid=0x\w+,lresp=\d+", cons)
        mntr = dict(line.split("\t") for line in (await bench.word(b"mntr")).splitlines())
        assert "standalone" == mntr["zk_server_state"]
        assert ("1", "1") == (mntr["zk_ephemerals_count"], mntr["zk_watch_count"])
        assert len(bench.server.server.tree.nodes) == int(mntr["zk_znode_count"])
        conf = dict(line.split("=") for line in (await bench.word(b"conf")).splitlines())
        assert (conf["clientPort"], conf["maxSessionTimeout"]) == (str(bench.port), "60000")
        assert "1 connections watching 1 paths\nTotal watches:1\n" == await bench.word(b"wchs")
        assert f"{number}\n\t/mine\n\n" == await bench.word(b"wchc")
        assert f"/mine\n\t{number}\n\n" == await bench.word(b"wchp")
        assert f"{number}:\n\t/mine\n" in await bench.word(b"dump")
        assert (await bench.word(b"envi")).startswith("Environment:\nzookeeper.version=3.")
        assert (await bench.word(b"dirs")).startswith("datadir_size: ")
        assert "Server stats reset.\n" == await bench.word(b"srst")
        assert "Connection stats reset.\n" == await bench.word(b"crst")


async def test_words_that_are_not_whitelisted_say_so(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        assert "imok" == await bench.word(b"ruok")
        assert "wchp is not executed because it is not in the whitelist.\n" == await bench.word(b"wchp")


async def test_words_may_come_in_pieces_and_mean_nothing_later(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.dial()
        client.writer.write(b"ru")
        await asyncio.sleep(0.01)
        client.writer.write(b"ok")
        assert b"imok" == await client.reader.read()
        late = await bench.connect()
        late.writer.write(b"ruok")
        assert await late.at_end()


async def test_requests_of_a_client_that_left_take_effect_and_hurt_nobody(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        other = await bench.connect()
        for number in range(20):
            client = await bench.connect()
            client.send(OpCode.CREATE, CreateRequest(f"/n{number}", b"", WORLD_ALL, 0))
            client.send(OpCode.GET_DATA, PathWatchRequest(f"/n{number}", True))
            await client.writer.drain()
            client.close()
        await until(bench, 1)
        await bench.server.connect()
        assert 0 == bench.listener.registry.outstanding
        assert 0 == len(bench.server.server.watches)
        assert await other.exists("/")


async def test_frames_cut_at_every_byte_are_put_together(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect()
        record = CreateRequest("/a", b"data", WORLD_ALL, 0)
        for byte in frame(write_request(5, OpCode.CREATE, record)):
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (5, OK) == (await client.next_reply())[::2]
        assert OK == (await client.ask(OpCode.DELETE, PathVersionRequest("/a", 0))).error


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no socket for both families")
async def test_client_of_a_dual_listener_has_its_plain_address(tmp_path: Path) -> None:
    """Its address is a principal of access lists and is counted for maxClientCnxns, whatever the listener."""
    async with running(tmp_path, maxClientCnxns="1") as bench:
        dual = await Client.dial(await bench.listener.listen("::", 0))
        bench.clients.append(dual)
        await dual.open()
        reply = await dual.ask(OpCode.WHO_AM_I)
        assert b"127.0.0.1" in reply.body
        assert b"ffff" not in reply.body
        assert await (await bench.dial()).at_end()
