"""kazoo clients while their server is killed, stopped and restarted: sessions and ephemerals survive."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.protocol.states import KazooState
from kazoo.recipe.watchers import ChildrenWatch, DataWatch

from tests.integration.zookeeper.coordination_server import CoordinationServer, running_server
from tests.integration.zookeeper_client import zookeeper_client

WAIT_SECONDS_MAX = 30.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def client_of(server: CoordinationServer, timeout: float = 6.0) -> Iterator[KazooClient]:
    retry = {"max_tries": -1, "delay": 0.05, "backoff": 1, "max_jitter": 0.0}
    with zookeeper_client(server.address, timeout=timeout, connection_retry=retry) as client:
        yield client


def test_sessions_survive_a_killed_server(tmp_path: Path) -> None:
    """Nothing was flushed for the occasion: what was acknowledged is there, and so are the ephemerals."""
    with running_server(tmp_path / "data") as server, client_of(server) as one, client_of(server) as two:
        one.create("/members", b"")
        one.create("/members/one", b"1", ephemeral=True)
        sessions = [client.client_id[0] for client in (one, two)]
        seen: list[list[str]] = []
        ChildrenWatch(two, "/members", func=lambda children: seen.append(sorted(children)))
        states: list[str] = []
        one.add_listener(states.append)
        for number in range(3):
            server.kill()
            server.start()
            wait_until(lambda: one.connected and two.connected, "the clients to be back")
            two.retry(two.create, f"/members/n{number}", b"")
        assert [client.client_id[0] for client in (one, two)] == sessions
        assert KazooState.LOST not in states
        data, stat = two.retry(two.get, "/members/one")
        assert (data, stat.ephemeralOwner) == (b"1", sessions[0])
        wait_until(lambda: bool(seen) and seen[-1] == ["n0", "n1", "n2", "one"], "the watch to see it all")


def test_acknowledged_writes_survive_kills_under_load(tmp_path: Path) -> None:
    """A writer counts upwards; after every kill -9 the znode holds the last count that was acknowledged, or
    the one that was on its way."""
    with running_server(tmp_path / "data") as server, client_of(server) as writer:
        writer.create("/count", b"0")
        acknowledged = 0
        stopping = threading.Event()
        faults: list[str] = []

        def write() -> None:
            nonlocal acknowledged
            while not stopping.is_set():
                try:
                    writer.set("/count", str(acknowledged + 1).encode())
                    acknowledged += 1
                except (ConnectionLoss, SessionExpiredError):
                    wait_until(lambda: writer.connected or stopping.is_set(), "the server")
                    if stopping.is_set():
                        return
                    found = int(writer.retry(writer.get, "/count")[0])
                    if found not in (acknowledged, acknowledged + 1):
                        faults.append(f"{found} after {acknowledged} was acknowledged")
                    acknowledged = found

        thread = threading.Thread(target=write, name="writer")
        thread.start()
        try:
            for _ in range(4):
                before = acknowledged
                wait_until(lambda before=before: acknowledged > before + 50, "writes")  # type: ignore[misc]
                server.kill()
                server.start()
        finally:
            stopping.set()
            thread.join()
        assert [] == faults
        wait_until(lambda: writer.connected, "the client to be back")
        assert int(writer.retry(writer.get, "/count")[0]) in (acknowledged, acknowledged + 1)


def test_stopped_server_does_not_expire_those_who_waited(tmp_path: Path) -> None:
    """SIGSTOP for longer than the time-out: time in which nobody could be heard is not held against them."""
    with running_server(tmp_path / "data") as server, client_of(server, timeout=6.0) as client:
        client.create("/mine", ephemeral=True)
        session = client.client_id[0]
        states: list[str] = []
        client.add_listener(states.append)
        server.signal(signal.SIGSTOP)
        time.sleep(6.5)
        server.signal(signal.SIGCONT)
        wait_until(lambda: client.connected, "the client to be back")
        assert session == client.retry(client.exists, "/mine").ephemeralOwner
        assert KazooState.LOST not in states


def test_orderly_restart_keeps_sessions_and_data_watches(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, client_of(server) as client:
        client.create("/a", b"0")
        seen: list[bytes] = []
        DataWatch(client, "/a", func=lambda data, stat: seen.append(data))
        session = client.client_id[0]
        assert 0 == server.stop()
        server.start()
        wait_until(lambda: client.connected, "the client to be back")
        client.retry(client.set, "/a", b"1")
        wait_until(lambda: seen[-1] == b"1", "the watch")
        assert session == client.client_id[0]
        client.stop()
        client.start()
        assert client.client_id[0] != session
