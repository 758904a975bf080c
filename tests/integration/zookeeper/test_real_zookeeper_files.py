"""The files are ZooKeeper's: one takes over a directory from the other, in both directions."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from kalda.runtime.background import InlineExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.port import Create, Delete, SetData
from kalda.zookeeper.server.ephemeral_owner import CONTAINER_OWNER, ttl_owner
from kalda.zookeeper.server.processor_requests import (
    CreateMode,
    CreateNode,
    Multi,
    NodeOperation,
    Request,
    SetAcl,
    Write,
)
from kalda.zookeeper.server.zookeeper_server import ZooKeeperServer
from tests.integration.real_zookeeper import RealZooKeeper, missing
from tests.integration.zookeeper_client import zookeeper_client

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

DIGEST = Acl(31, "digest", "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E=")
READ_ONLY = (Acl(1, "world", "anyone"), DIGEST)
DAY_MS = 24 * 3600 * 1000


@contextmanager
def our_server(directory: Path) -> Iterator[ZooKeeperServer]:
    directory.mkdir(parents=True, exist_ok=True)
    server = ZooKeeperServer(
        str(directory),
        filesystem=OsFileSystem(),
        executor=InlineExecutor(),
        clock=SystemClock(),
        schedule=lambda callback: callback(),
    )
    server.start()
    try:
        yield server
    finally:
        server.close(lambda error: None)


def do(server: ZooKeeperServer, session_id: int, operation: Write) -> list[object]:
    outcomes: list[object] = []
    server.submit(Request(session_id, operation, outcomes.append))
    (outcome,) = outcomes
    assert isinstance(outcome, list), outcome
    return outcome


def fill(server: ZooKeeperServer) -> int:
    """Make every kind of record that we write, and return the session that owns the ephemeral."""
    session = server.open_session(60_000, lambda: None, lambda outcome: None)
    operations: list[NodeOperation] = [
        Create("/plain", b"one"),
        SetData("/plain", b"two"),
        CreateNode("/null", None),
        CreateNode("/guarded", b"secret", READ_ONLY),
        CreateNode("/container", b"", mode=CreateMode.CONTAINER),
        CreateNode("/ttl", b"t", mode=CreateMode.PERSISTENT_WITH_TTL, ttl_ms=DAY_MS),
        Create("/gone"),
        Delete("/gone"),
        Create("/plain/n-", b"", sequential=True),
    ]
    for operation in operations:
        do(server, session, operation)
    do(server, session, Create("/ephemeral", b"e", ephemeral=True))
    do(server, session, SetAcl("/plain/n-0000000000", (Acl(31, "ip", "127.0.0.0/8"),)))
    do(server, session, Multi([Create("/m"), Create("/m/ü", b"x"), SetData("/plain", b"three", 1)]))
    ended = server.open_session(10_000, lambda: None, lambda outcome: None)
    do(server, ended, Create("/ended", ephemeral=True))
    server.close_session(ended, lambda outcome: None)
    return session


@pytest.mark.parametrize("with_snapshot", [False, True], ids=["log", "snapshot"])
def test_zookeeper_reads_what_we_wrote(tmp_path: Path, with_snapshot: bool) -> None:
    """Whoever outgrows one machine moves the directory to an ensemble's first member."""
    with our_server(tmp_path / "data") as server:
        session = fill(server)
        if with_snapshot:
            server.snapshot()
            do(server, session, Create("/after"))
        expected = server.freeze().nodes["/plain"]
        zxid = server.statistics().last_zxid
    with RealZooKeeper(tmp_path) as zookeeper, zookeeper_client(zookeeper.hosts) as client:
        names = ["container", "ephemeral", "guarded", "m", "null", "plain", "ttl", "zookeeper"]
        assert sorted(client.get_children("/")) == sorted(names + ["after"] * with_snapshot)
        data, stat = client.get("/plain")
        assert (b"three", 2, 1, 1) == (data, stat.version, stat.cversion, stat.numChildren)
        assert (
            expected.czxid,
            expected.mzxid,
            expected.mtime,
            expected.pzxid,
        ) == (stat.czxid, stat.mzxid, stat.mtime, stat.pzxid)
        assert b"x" == client.get("/m/ü")[0]
        assert session == client.exists("/ephemeral").ephemeralOwner
        acls, stat = client.get_acls("/plain/n-0000000000")
        assert (
            [(31, "ip", "127.0.0.0/8")],
            1,
        ) == ([(acl.perms, acl.id.scheme, acl.id.id) for acl in acls], stat.aversion)
        client.add_auth("digest", "alice:secret")
        assert 1 == client.set("/guarded", b"known").version
        assert "/next" == client.create("/next")
        assert client.exists("/next").czxid > zxid
    with our_server(tmp_path / "data") as server:
        # A client is not told the kind of a znode, but the snapshot that ZooKeeper took at its start has it.
        nodes = server.freeze().nodes
        assert nodes["/ttl"].ephemeral_owner == ttl_owner(DAY_MS)
        assert CONTAINER_OWNER == nodes["/container"].ephemeral_owner
        assert b"known" == nodes["/guarded"].data


def live(client: KazooClient, life: int) -> dict[str, tuple[int, int, int, int]]:
    """Do something of each kind; return what some znodes must be like."""
    client.add_auth("digest", "alice:secret")
    base = f"/life{life}"
    client.create(base, b"base")
    client.create(f"{base}/guarded", b"", acl=[make_digest_acl("alice", "secret", all=True)])
    client.create(f"{base}/gone")
    client.delete(f"{base}/gone")
    client.create(f"/ephemeral{life}", ephemeral=True)
    client.create(f"{base}/n-", sequence=True, include_data=True)
    for number in range(20):
        client.set(base, b"%d" % number)
    assert client.exists(f"{base}/missing") is None
    transaction = client.transaction()
    transaction.check(base, 20)
    transaction.create(f"{base}/m")
    transaction.set_data(f"{base}/m", b"multi")
    assert not any(isinstance(result, Exception) for result in transaction.commit())
    failing = client.transaction()
    failing.create(f"{base}/never")
    failing.check(base, 7)
    failing.commit()
    expected: dict[str, tuple[int, int, int, int]] = {}
    for name in ("", "/guarded", "/m", "/n-0000000002"):
        stat = client.exists(base + name)
        expected[base + name] = (stat.czxid, stat.mzxid, stat.version, stat.cversion)
    return expected


def test_we_read_what_zookeeper_wrote(tmp_path: Path) -> None:
    """Twice killed and once stopped in order, so that there are snapshots, logs and their padding."""
    expected: dict[str, tuple[int, int, int, int]] = {}
    zookeeper = RealZooKeeper(tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(zookeeper.kill)
        for life in range(3):
            zookeeper.start()
            with zookeeper_client(zookeeper.hosts) as client:
                expected |= live(client, life)
            zookeeper.stop() if life == 1 else zookeeper.kill()
    with our_server(tmp_path / "data") as server:
        tree = server.freeze()
        found = {path for path in tree.nodes if path.startswith("/life")}
        assert found == expected.keys()
        for path, (czxid, mzxid, version, cversion) in expected.items():
            node = tree.nodes[path]
            children = sum(1 for other in found if other.rpartition("/")[0] == path)
            assert (
                czxid,
                mzxid,
                version,
                cversion,
            ) == (node.czxid, node.mzxid, node.version, node.created_count * 2 - children)
        assert b"19" == tree.nodes["/life2"].data
        assert b"multi" == tree.nodes["/life2/m"].data
        assert (DIGEST,) == tree.nodes["/life0/guarded"].acl
        session = server.open_session(1000, lambda: None, lambda outcome: None)
        assert ["/ours"] == do(server, session, Create("/ours"))
    with our_server(tmp_path / "data") as server:
        assert "/ours" in server.freeze().nodes
    with zookeeper, zookeeper_client(zookeeper.hosts) as client:
        assert client.exists("/ours") is not None
