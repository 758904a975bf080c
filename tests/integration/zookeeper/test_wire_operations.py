"""Every operation of the wire, its answer's record, its errors, and the order of answers and events."""

from pathlib import Path

import pytest

from kalda.zookeeper.port import EventType
from kalda.zookeeper.protocol.jute import Reader, write_int
from kalda.zookeeper.protocol.op_codes import (
    AUTH_FAILED,
    MARSHALLING_ERROR,
    NO_WATCHER,
    OK,
    RECONFIG_DISABLED,
    RUNTIME_INCONSISTENCY,
    UNIMPLEMENTED,
    OpCode,
)
from kalda.zookeeper.protocol.requests import (
    WORLD_ALL,
    AclEntry,
    AuthRequest,
    CreateRequest,
    MultiRequest,
    PathNumberRequest,
    PathRequest,
    PathVersionRequest,
    PathWatchRequest,
    ReconfigRequest,
    SaslRequest,
    SetAclRequest,
    SetDataRequest,
    SetWatchesRequest,
)
from kalda.zookeeper.protocol.responses import STAT
from tests.integration.zookeeper.wire import Client, Event, read_texts, running
from tests.zookeeper_requests import frame

NO_NODE, NO_AUTH, BAD_VERSION, BAD_ARGUMENTS, NODE_EXISTS = -101, -102, -103, -8, -110
CREATED, DELETED, CHANGED, CHILD = (
    EventType.CREATED,
    EventType.DELETED,
    EventType.DATA_CHANGED,
    EventType.CHILDREN_CHANGED,
)


def stat_version(body: bytes) -> int:
    return int(STAT.unpack(body)[4])


async def error_of(client: Client, op_code: OpCode, *fields: object) -> int:
    """Ask with the record that the operation has; return the error code."""
    record = {
        OpCode.EXISTS: PathWatchRequest,
        OpCode.GET_DATA: PathWatchRequest,
        OpCode.GET_CHILDREN: PathWatchRequest,
        OpCode.DELETE: PathVersionRequest,
        OpCode.CHECK: PathVersionRequest,
        OpCode.GET_ACL: PathRequest,
        OpCode.CHECK_WATCHES: PathNumberRequest,
        OpCode.REMOVE_WATCHES: PathNumberRequest,
        OpCode.ADD_WATCH: PathNumberRequest,
    }[op_code](*fields)
    return (await client.ask(op_code, record)).error


async def test_reads_and_writes_have_zookeepers_records(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect()
        assert "/a" == await client.create("/a", b"one")
        reply = await client.ask(OpCode.CREATE2, CreateRequest("/a/b", None, WORLD_ALL, 0))
        body = Reader(reply.body)
        assert "/a/b" == body.text()
        assert STAT.size == body.remaining
        reply = await client.ask(OpCode.GET_DATA, PathWatchRequest("/a", False))
        body = Reader(reply.body)
        assert b"one" == body.buffer()
        czxid, mzxid, _, _, version, cversion, aversion, owner, length, children, pzxid = body.unpack(STAT)
        assert (0, 1, 0, 0, 3, 1) == (version, cversion, aversion, owner, length, children)
        assert czxid == mzxid == pzxid - 1 == reply.zxid - 1
        # No data is not the same as empty data.
        reply = await client.ask(OpCode.GET_DATA, PathWatchRequest("/a/b", False))
        assert Reader(reply.body).buffer() is None
        assert 1 == stat_version((await client.ask(OpCode.SET_DATA, SetDataRequest("/a", b"2", 0))).body)
        assert 1 == stat_version((await client.ask(OpCode.EXISTS, PathWatchRequest("/a", False))).body)
        reply = await client.ask(OpCode.GET_CHILDREN2, PathWatchRequest("/a", False))
        body = Reader(reply.body)
        assert ["b"] == read_texts(body)
        assert STAT.size == body.remaining
        reply = await client.ask(OpCode.SYNC, PathRequest("/a"))
        assert ("/a", OK) == (Reader(reply.body).text(), reply.error)
        reply = await client.ask(OpCode.CHECK, PathVersionRequest("/a", 1))
        assert OK == reply.error
        reply = await client.ask(OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest("/a"))
        assert 1 == Reader(reply.body).int32()
        await client.create("/a/e", flags=1)
        await client.create("/f", flags=1)
        for prefix, found in (("/", ["/a/e", "/f"]), ("", ["/a/e", "/f"]), ("/a", ["/a/e"])):
            reply = await client.ask(OpCode.GET_EPHEMERALS, PathRequest(prefix))
            assert read_texts(Reader(reply.body)) == found
        reply = await client.ask(OpCode.DELETE, PathVersionRequest("/f", -1))
        assert (OK, b"") == (reply.error, reply.body)


async def test_errors_have_zookeepers_codes(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect()
        await client.create("/a")
        assert NO_NODE == await error_of(client, OpCode.GET_DATA, "/x", False)
        assert NO_NODE == await error_of(client, OpCode.EXISTS, "/x", False)
        assert NO_NODE == await error_of(client, OpCode.GET_CHILDREN, "/x", False)
        assert NO_NODE == await error_of(client, OpCode.GET_ACL, "/x")
        assert BAD_VERSION == await error_of(client, OpCode.DELETE, "/a", 7)
        assert BAD_ARGUMENTS == await error_of(client, OpCode.DELETE, "a", -1)
        assert BAD_VERSION == await error_of(client, OpCode.CHECK, "/a", 7)
        reply = await client.ask(OpCode.CREATE, CreateRequest("/a", b"", WORLD_ALL, 0))
        assert (NODE_EXISTS, b"") == (reply.error, reply.body)
        reply = await client.ask(OpCode.CREATE, CreateRequest("/b", b"", WORLD_ALL, 99))
        assert BAD_ARGUMENTS == reply.error
        assert NO_WATCHER == await error_of(client, OpCode.CHECK_WATCHES, "/a", 3)
        assert NO_WATCHER == await error_of(client, OpCode.REMOVE_WATCHES, "/a", 3)
        assert MARSHALLING_ERROR == await error_of(client, OpCode.REMOVE_WATCHES, "/a", 9)
        assert BAD_ARGUMENTS == await error_of(client, OpCode.ADD_WATCH, "/a", 5)
        reply = await client.ask(OpCode.RECONFIG, ReconfigRequest("", "", "", -1))
        assert RECONFIG_DISABLED == reply.error
        # Nothing of this cost the connection.
        assert await client.exists("/a")


async def test_multi_is_all_or_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect()
        create = (OpCode.CREATE, CreateRequest("/a", b"", WORLD_ALL, 0))
        ttl = (OpCode.CREATE_TTL, CreateRequest("/t", b"", WORLD_ALL, 5, 1000))
        set_data = (OpCode.SET_DATA, SetDataRequest("/a", b"1", 0))
        delete = (OpCode.DELETE, PathVersionRequest("/a", 1))
        check = (OpCode.CHECK, PathVersionRequest("/", -1))
        reply = await client.ask(OpCode.MULTI, MultiRequest((create, ttl, set_data, delete, check)))
        assert OK == reply.error
        body = Reader(reply.body)
        heads = []
        for size in (6, 6 + STAT.size, STAT.size, 0, 0, 0):
            heads.append((body.int32(), body.boolean(), body.int32()))
            body.position += size
        assert [
            (1, False, 0),
            (15, False, 0),
            (5, False, 0),
            (2, False, 0),
            (13, False, 0),
            (-1, True, -1),
        ] == heads
        assert 0 == body.remaining
        bad = (OpCode.CHECK, PathVersionRequest("/t", 9))
        reply = await client.ask(OpCode.MULTI, MultiRequest((create, bad, check)))
        assert OK == reply.error
        body = Reader(reply.body)
        codes = []
        for _ in range(3):
            head = (body.int32(), body.boolean(), body.int32())
            assert head == (-1, False, head[2])
            codes.append(body.int32())
        assert [OK, BAD_VERSION, RUNTIME_INCONSISTENCY] == codes
        assert not await client.exists("/a")
        assert OK == (await client.ask(OpCode.MULTI, MultiRequest(()))).error


async def test_multi_of_reads_answers_each(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect()
        await client.create("/a", b"x")
        reads = (
            (OpCode.GET_DATA, PathWatchRequest("/a", False)),
            (OpCode.GET_DATA, PathWatchRequest("/none", False)),
            (OpCode.GET_CHILDREN, PathWatchRequest("/a", False)),
        )
        body = Reader((await client.ask(OpCode.MULTI_READ, MultiRequest(reads))).body)
        assert (4, False, 0) == (body.int32(), body.boolean(), body.int32())
        assert b"x" == body.buffer()
        body.position += STAT.size
        assert (-1, False, NO_NODE, NO_NODE) == (body.int32(), body.boolean(), body.int32(), body.int32())
        assert (8, False, 0) == (body.int32(), body.boolean(), body.int32())
        assert [] == read_texts(body)


async def test_bad_records_are_answered_and_unknown_operations_end_the_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect()
        header = bytearray()
        write_int(header, 7)
        write_int(header, OpCode.CREATE)
        client.writer.write(frame(bytes(header) + b"\0\0"))
        reply = await client.next_reply()
        assert (7, MARSHALLING_ERROR) == (reply.xid, reply.error)
        await client.create("/a")
        header = bytearray()
        write_int(header, 8)
        write_int(header, 4711)
        client.writer.write(frame(bytes(header)))
        reply = await client.next_reply()
        assert (8, UNIMPLEMENTED) == (reply.xid, reply.error)
        assert await client.at_end()
        sasl = await bench.connect()
        assert AUTH_FAILED == (await sasl.ask(OpCode.SASL, SaslRequest(b"x"))).error
        assert await sasl.at_end()
        short = await bench.connect()
        short.writer.write(frame(b"\0\0"))
        assert await short.at_end()


async def test_answers_keep_the_order_of_the_requests(tmp_path: Path) -> None:
    """A client matches them by order; a read must not overtake the write before it."""
    async with running(tmp_path) as bench:
        client = await bench.connect()
        sent = []
        for number in range(300):
            sent.append(client.send(OpCode.CREATE, CreateRequest(f"/n{number}", b"", WORLD_ALL, 0)))
            sent.append(client.send(OpCode.EXISTS, PathWatchRequest(f"/n{number}", False)))
            sent.append(client.send(OpCode.GET_DATA, PathWatchRequest(f"/none{number}", False)))
        replies = [await client.next_reply() for _ in sent]
        assert [reply.xid for reply in replies] == sent
        assert {OK} == {reply.error for reply in replies[0::3] + replies[1::3]}
        assert {NO_NODE} == {reply.error for reply in replies[2::3]}
        assert [reply.zxid for reply in replies] == sorted(reply.zxid for reply in replies)


async def test_events_come_before_the_answer_that_shows_the_change(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client, other = await bench.connect(), await bench.connect()
        await client.create("/a")
        assert b"" == await client.get("/a", watch=True)
        assert b"" == await other.get("/a", watch=True)
        client.send(OpCode.SET_DATA, SetDataRequest("/a", b"1", -1))
        event = await client.next_event()
        reply = await client.next_reply()
        assert event == Event(CHANGED, "/a", reply.zxid)
        other.send(OpCode.GET_DATA, PathWatchRequest("/a", False))
        assert event == await other.next_event()
        assert b"1" == Reader((await other.next_reply()).body).buffer()


async def test_client_that_is_back_is_told_what_it_missed(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client, other = await bench.connect(), await bench.connect()
        for name in ("same", "changed", "gone", "parent", "quiet"):
            await client.create(f"/{name}")
        seen = (await client.ask(OpCode.PING, xid=-2)).zxid
        client.close()
        await other.set("/changed", b"1")
        await other.ask(OpCode.DELETE, PathVersionRequest("/gone", -1))
        await other.create("/parent/child")
        await other.create("/born")
        back = await bench.dial()
        await back.open(session=client.session, zxid=seen)
        back.send(
            OpCode.SET_WATCHES,
            SetWatchesRequest(
                seen, ("/same", "/changed", "/gone"), ("/born", "/unborn"), ("/parent", "/quiet", "/gone")
            ),
            xid=-8,
        )
        missed = [await back.next_event() for _ in range(5)]
        assert [
            (CHANGED, "/changed"),
            (DELETED, "/gone"),
            (CREATED, "/born"),
            (CHILD, "/parent"),
            (DELETED, "/gone"),
        ] == [(event.kind, event.path) for event in missed]
        assert -8 == (await back.next_reply()).xid
        await other.set("/same")
        await other.create("/unborn")
        await other.create("/quiet/child")
        armed = [await back.next_event() for _ in range(3)]
        assert [
            (CHANGED, "/same"),
            (CREATED, "/unborn"),
            (CHILD, "/quiet"),
        ] == [(event.kind, event.path) for event in armed]


async def test_persistent_watches_stay_and_can_be_removed(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client, other = await bench.connect(), await bench.connect()
        await other.create("/p")
        reply = await client.ask(OpCode.ADD_WATCH, PathNumberRequest("/p", 1))
        assert (OK, OK) == (reply.error, Reader(reply.body).int32())
        for number in range(2):
            await other.create(f"/p/{number}")
            event = await client.next_event()
            assert (CREATED, f"/p/{number}") == (event.kind, event.path)
        assert OK == await error_of(client, OpCode.CHECK_WATCHES, "/p", 5)
        assert OK == await error_of(client, OpCode.REMOVE_WATCHES, "/p", 5)
        assert NO_WATCHER == await error_of(client, OpCode.REMOVE_WATCHES, "/p", 5)
        back = SetWatchesRequest(0, (), (), (), ("/p",), ("/p/0",))
        assert OK == (await client.ask(OpCode.SET_WATCHES2, back, xid=-8)).error
        await other.set("/p")
        await other.set("/p")
        await other.create("/p/0/x")
        found = [await client.next_event() for _ in range(3)]
        assert [
            (CHANGED, "/p"),
            (CHANGED, "/p"),
            (CREATED, "/p/0/x"),
        ] == [(event.kind, event.path) for event in found]


async def test_access_lists_bind_who_is_not_named(tmp_path: Path) -> None:
    async with running(
        tmp_path, DigestAuthenticationProvider_superDigest="super:D/InIHSb7yEEbrWz8b9l71RjZJU="
    ) as bench:
        owner, other, root = await bench.connect(), await bench.connect(), await bench.connect()
        login = AuthRequest(0, "digest", b"alice:secret")
        assert OK == (await owner.ask(OpCode.AUTH, login, xid=-4)).error
        assert "/secret" == await owner.create("/secret", b"s", acl=(AclEntry(31, "auth", ""),))
        for op_code in (OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.EXISTS):
            assert NO_AUTH == await error_of(other, op_code, "/secret", False)
        assert NO_AUTH == (await other.ask(OpCode.SET_DATA, SetDataRequest("/secret", b"", -1))).error
        assert b"s" == await owner.get("/secret")
        assert OK == (await root.ask(OpCode.AUTH, AuthRequest(0, "digest", b"super:test"), xid=-4)).error
        assert b"s" == await root.get("/secret")
        body = Reader((await owner.ask(OpCode.WHO_AM_I)).body)
        assert [
            ("ip", "127.0.0.1"),
            ("digest", "alice"),
        ] == [(body.text(), body.text()) for _ in range(body.int32())]
        readable = (AclEntry(1, "world", "anyone"), AclEntry(31, "digest", "alice:x"))
        assert OK == (await owner.ask(OpCode.SET_ACL, SetAclRequest("/secret", readable, 0))).error
        body = Reader((await other.ask(OpCode.GET_ACL, PathRequest("/secret"))).body)
        entries = [(body.int32(), body.text(), body.text()) for _ in range(body.int32())]
        assert [(1, "world", "anyone"), (31, "digest", "alice:x")] == entries


async def test_failed_authentication_ends_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        client = await bench.connect()
        assert AUTH_FAILED == (await client.ask(OpCode.AUTH, AuthRequest(0, "nobody", b""), xid=-4)).error
        assert await client.at_end()


async def test_recursive_watch_tells_nothing_of_what_may_not_be_read(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        owner, spy = await bench.connect(), await bench.connect()
        await owner.ask(OpCode.AUTH, AuthRequest(0, "digest", b"alice:secret"), xid=-4)
        await owner.create("/p")
        await spy.ask(OpCode.ADD_WATCH, PathNumberRequest("/p", 1))
        await owner.create("/p/hidden", acl=(AclEntry(31, "auth", ""),))
        await owner.set("/p/hidden", b"1")
        await owner.ask(OpCode.DELETE, PathVersionRequest("/p/hidden", -1))
        await owner.create("/p/open")
        assert "/p/open" == (await spy.next_event()).path


async def test_containers_and_times_to_live_are_reaped_by_the_servers_clock(tmp_path: Path) -> None:
    async with running(tmp_path, tickTime="2000", znode_container_checkIntervalMs="1000") as bench:
        client = await bench.connect(40_000)
        reply = await client.ask(OpCode.CREATE_CONTAINER, CreateRequest("/c", b"", WORLD_ALL, 4))
        assert OK == reply.error
        reply = await client.ask(OpCode.CREATE_TTL, CreateRequest("/t", b"", WORLD_ALL, 5, 3000))
        assert OK == reply.error
        await client.create("/c/x")
        await client.ask(OpCode.DELETE, PathVersionRequest("/c/x", -1))
        assert await client.exists("/c", watch=True)
        assert await client.exists("/t", watch=True)
        bench.pass_time(2.2)
        assert await client.next_event() is not None
        assert await client.exists("/t")
        bench.pass_time(3)
        assert "/t" == (await client.next_event()).path
        assert not await client.exists("/c")


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 900_000])
async def test_data_of_any_size_arrives_whole(tmp_path: Path, size: int) -> None:
    """From 64 KiB on it is sent in pieces, straight from the tree."""
    data = bytes(range(256)) * (size // 256 + 1)
    async with running(tmp_path) as bench:
        client = await bench.connect()
        await client.create("/a", data[:size])
        assert await client.get("/a") == data[:size]
        assert await client.get("/a") == data[:size]
