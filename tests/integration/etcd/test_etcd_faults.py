"""The etcd engine while etcd fails: no change is lost or reported twice, and sessions end when they must."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kalda.etcd.client import EtcdClient
from kalda.etcd.security import EtcdSecurity
from kalda.zookeeper.errors import (
    AuthFailedError,
    BadArgumentsError,
    ConnectionLossError,
    NodeExistsError,
    SessionExpiredError,
    StorageError,
)
from kalda.zookeeper.port import Create, EventType, SessionState, WatchEvent
from tests.integration.etcd_servers import EtcdCluster, missing
from tests.integration.zookeeper.client.engines import WAIT_SECONDS, eventually, states_of


@pytest.fixture(autouse=True)
def _needs_etcd() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path / "one") as cluster:
        yield cluster


@pytest.fixture
def three(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path / "three", servers=3) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def session(hosts: str, timeout_ms: int = 20_000) -> AsyncIterator[EtcdClient]:
    client = await EtcdClient.connect(
        f"{hosts}/faults", session_timeout_ms=timeout_ms, connection_timeout_ms=30_000
    )
    try:
        yield client
    finally:
        await client.close()


async def wait_for(client: EtcdClient, state: SessionState) -> None:
    await eventually(lambda: client.state is state)


async def test_changes_that_were_compacted_while_disconnected_are_noticed(one: EtcdCluster) -> None:
    async with session(one.hosts, 60_000) as reader, session(one.hosts, 60_000) as writer:
        await writer.create("/same", b"1")
        for name in ("/changed", "/gone", "/parent", "/parent/old", "/quiet"):
            await writer.create(name, b"1")
        events: list[WatchEvent] = []
        for name in ("/same", "/changed", "/gone"):
            await reader.get(name, events.append)
        assert await reader.exists("/new", events.append) is None
        await reader.children("/parent", events.append)
        await reader.children("/quiet", events.append)
        connection_lost = asyncio.Event()
        real = reader._session._start
        allowed = asyncio.Event()

        async def held(connection: object) -> None:
            connection_lost.set()
            await allowed.wait()
            await real(connection)  # type: ignore[arg-type]  # a connection

        reader._session._start = held  # type: ignore[method-assign]  # a reconnect that waits
        server = one.servers[0]
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(one.restart, server)
        await wait_for(writer, SessionState.CONNECTED)
        await connection_lost.wait()
        await writer.set("/changed", b"2")
        await writer.delete("/gone")
        await writer.create("/new")
        await writer.delete("/parent/old")
        await writer.create("/parent/newer")
        await asyncio.to_thread(one.compact)
        allowed.set()
        await reader.exists("/")
        assert {
            (EventType.DATA_CHANGED, "/changed"),
            (EventType.DELETED, "/gone"),
            (EventType.CREATED, "/new"),
            (EventType.CHILDREN_CHANGED, "/parent"),
        } == {(event.type, event.path) for event in events}
        assert 4 == len(events)
        await writer.set("/same", b"2")
        await eventually(lambda: len(events) == 5)


async def test_writes_through_killed_leaders_happen_once(three: EtcdCluster) -> None:
    """A counter that is only raised conditionally shows lost and doubled writes."""
    async with session(three.hosts) as client:
        await client.create("/counter", b"0")
        await client.create("/queue")
        unknown = confirmed = 0

        async def write() -> None:
            nonlocal unknown, confirmed
            while not done.is_set():
                try:
                    await client.create("/queue/n-", b"", sequential=True)
                    confirmed += 1
                except ConnectionLossError:
                    unknown += 1

        done = asyncio.Event()
        writing = asyncio.create_task(write())
        for _ in range(3):
            before = confirmed
            leader = await asyncio.to_thread(three.leader)
            await asyncio.to_thread(leader.kill)
            await eventually(lambda before=before: confirmed > before + 20)  # type: ignore[misc]
            await asyncio.to_thread(three.restart, leader)
        done.set()
        await writing
        names = await client.children("/queue")
        assert confirmed <= len(names) <= confirmed + unknown
        assert [f"n-{number:010d}" for number in range(len(names))] == names


async def test_paused_leader_delays_and_loses_nothing(three: EtcdCluster) -> None:
    async with session(three.hosts) as client, session(three.hosts) as other:
        await client.create("/a", b"0")
        seen: list[bytes] = []

        def watch(_: WatchEvent) -> None:
            reads.append(asyncio.ensure_future(read()))

        async def read() -> None:
            while True:
                with contextlib.suppress(ConnectionLossError):
                    seen.append((await other.get("/a", watch))[0])
                    return

        reads: list[asyncio.Future[None]] = []
        await read()
        leader = await asyncio.to_thread(three.leader)
        leader.pause()
        try:
            for number in range(1, 6):
                while True:
                    try:
                        await client.set("/a", str(number).encode())
                        break
                    except ConnectionLossError:
                        continue
        finally:
            leader.resume()
        await eventually(lambda: seen[-1] == b"5")
        assert sorted(seen) == seen
        await asyncio.gather(*reads)


async def test_session_of_a_paused_client_ends_and_cannot_write(one: EtcdCluster) -> None:
    """The client's side of a pause: nothing of its connection runs, so the lease ends."""
    async with session(one.hosts) as client, session(one.hosts) as other:
        await client.create("/e", b"", ephemeral=True)
        key = client.session_key
        assert key is not None
        states = states_of(client)
        events: list[WatchEvent] = []
        await other.get("/e", events.append)
        # The lease ends before this client can notice, and its next write finds that out.
        writing = asyncio.gather(other.end_session(key), client.create("/after", b""), return_exceptions=True)
        _, outcome = await writing
        # The end may be reported while the request is on its way.
        assert outcome == "/after" or isinstance(outcome, SessionExpiredError | ConnectionLossError)
        await eventually(lambda: SessionState.CONNECTED in states)
        assert [SessionState.EXPIRED, SessionState.CONNECTED] == states
        assert [WatchEvent(EventType.DELETED, "/e")] == events


async def test_lease_of_a_vanished_client_expires(one: EtcdCluster) -> None:
    client = await EtcdClient.connect(
        f"{one.hosts}/faults", session_timeout_ms=2_000, connection_timeout_ms=30_000
    )
    async with session(one.hosts) as other:
        await client.create("/e", b"", ephemeral=True)
        events: list[WatchEvent] = []
        await other.get("/e", events.append)
        client.abandon()
        await eventually(lambda: bool(events))
        assert [WatchEvent(EventType.DELETED, "/e")] == events


async def test_full_database_refuses_writes_and_serves_reads(tmp_path: Path) -> None:
    options = ("--quota-backend-bytes", str(2 * 1024 * 1024))
    with EtcdCluster(tmp_path / "small", options=options) as etcd:
        async with session(etcd.hosts, 10_000) as client:
            await client.create("/a", b"0")

            async def fill() -> None:
                for number in range(100):
                    await client.create(f"/big-{number}", b"x" * 100_000)

            with pytest.raises((StorageError, ConnectionLossError)) as reached:
                await fill()
            # etcd may apply the request that reaches the quota, and refuse it all the same.
            if isinstance(reached.value, ConnectionLossError):
                assert await client.exists(str(reached.value.path)) is not None
            with pytest.raises(StorageError) as caught:
                await client.create("/big-refused", b"x" * 100_000)
            assert "--quota-backend-bytes" in str(caught.value)
            refused = str(caught.value.path)
            assert await client.exists(refused) is None
            assert b"0" == (await client.get("/a"))[0]
            assert client.state is SessionState.CONNECTED
            # As an operator would: compact, defragment, disarm.
            etcd.compact()
            etcd.ctl("del", "--prefix", "/faults/tree/1/big", check=False)
            etcd.ctl("defrag")
            etcd.ctl("alarm", "disarm")
            etcd.ctl("del", "--prefix", "/faults/tree/1/big")
            etcd.compact()
            etcd.ctl("defrag")
            etcd.ctl("alarm", "disarm")

            async def write() -> None:
                while True:
                    try:
                        await client.create(refused, b"")
                        return
                    except (StorageError, ConnectionLossError):
                        await asyncio.sleep(0.05)
                    except NodeExistsError:
                        return

            async with asyncio.timeout(WAIT_SECONDS):
                await write()


async def test_too_large_requests_are_refused_with_the_limit(one: EtcdCluster) -> None:
    async with session(one.hosts) as client:
        with pytest.raises(BadArgumentsError, match="--max-request-bytes"):
            await client.create("/large", b"x" * 2_000_000)
        with pytest.raises(BadArgumentsError, match="--max-txn-ops"):
            await client.multi([Create(f"/n{number}") for number in range(200)])
        assert "/fine" == await client.create("/fine", b"x" * 1_000_000)


async def test_reads_are_in_order_while_another_program_writes(one: EtcdCluster) -> None:
    """Revisions of other programs never come through the stream of changes; reads must not wait for them."""
    async with session(one.hosts) as client:
        await client.create("/a", b"0")
        events: list[WatchEvent] = []
        await client.get("/a", events.append)
        for number in range(5):
            etcd_key = f"/elsewhere/{number}"
            await asyncio.to_thread(one.ctl, "put", etcd_key, "x")
            async with asyncio.timeout(WAIT_SECONDS):
                assert await client.exists("/none") is None
        assert [] == events


async def test_login_and_permissions(one: EtcdCluster) -> None:
    for arguments in (
        ("role", "add", "brokers"),
        ("role", "grant-permission", "brokers", "readwrite", "--prefix=true", "/faults/"),
        ("user", "add", "root:secret"),
        ("user", "grant-role", "root", "root"),
        ("user", "add", "kalda:pass"),
        ("user", "grant-role", "kalda", "brokers"),
        ("auth", "enable"),
    ):
        await asyncio.to_thread(one.ctl, *arguments)
    with pytest.raises(ConnectionLossError, match="user name is empty"):
        await EtcdClient.connect(f"{one.hosts}/faults", session_timeout_ms=4000, connection_timeout_ms=3000)
    with pytest.raises(AuthFailedError, match=r"`etcd\.user`=kalda"):
        await EtcdClient.connect(
            f"{one.hosts}/faults",
            session_timeout_ms=4000,
            connection_timeout_ms=30_000,
            security=EtcdSecurity(user="kalda", password="wrong"),
        )
    client = await EtcdClient.connect(
        f"{one.hosts}/faults",
        session_timeout_ms=4000,
        connection_timeout_ms=30_000,
        security=EtcdSecurity(user="kalda", password="pass"),
    )
    await client.create("/a", b"1", ephemeral=True)
    assert ["a"] == await client.children("/")
    await client.close()
