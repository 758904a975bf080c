"""kazoo's recipes as an application uses them: several clients at once, one of them dying."""

import subprocess
import sys
import threading
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.recipe.cache import TreeCache

from tests.integration.zookeeper.coordination_server import running_server
from tests.integration.zookeeper.test_kazoo_faults import WAIT_SECONDS_MAX, client_of, wait_until

HOLDER = """
import sys, time
from kazoo.client import KazooClient

client = KazooClient(sys.argv[1], timeout=1.0)
client.start()
client.Lock("/lock", "first").acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_lock_passes_on_from_a_killed_holder(tmp_path: Path) -> None:
    """It dies without a word: the lock is free when its session ends."""
    with running_server(tmp_path / "data") as server, client_of(server) as client:
        arguments = [sys.executable, "-c", HOLDER, server.address]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert "held\n" == holder.stdout.readline()
            lock = client.Lock("/lock", "second")
            assert not lock.acquire(blocking=False)
            holder.kill()
        assert lock.acquire(timeout=WAIT_SECONDS_MAX)
        lock.release()


def test_many_threads_count_under_a_lock(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, client_of(server) as client:
        client.create("/count", b"0")

        def add() -> None:
            for _ in range(10):
                with client.Lock("/lock"):
                    client.set("/count", str(int(client.get("/count")[0]) + 1).encode())

        threads = [threading.Thread(target=add) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert b"50" == client.get("/count")[0]


def test_election_has_one_winner_after_another(tmp_path: Path) -> None:
    winners: list[str] = []

    def lead(name: str) -> None:
        winners.append(name)

    with running_server(tmp_path / "data") as server, client_of(server) as one, client_of(server) as two:
        elections = [(client.Election("/election", name), name) for client, name in ((one, "a"), (two, "b"))]
        threads = [threading.Thread(target=election.run, args=(lead, name)) for election, name in elections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ["a", "b"] == sorted(winners)


def test_queue_hands_each_item_to_one(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, client_of(server) as one, client_of(server) as two:
        queue = one.LockingQueue("/queue")
        queue.put_all([str(number).encode() for number in range(40)])
        taken: list[bytes] = []

        def take(client: KazooClient) -> None:
            mine = client.LockingQueue("/queue")
            while (item := mine.get(timeout=1)) is not None:
                taken.append(item)
                mine.consume()

        threads = [threading.Thread(target=take, args=(client,)) for client in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(range(40)) == sorted(map(int, taken))


def test_tree_cache_follows_a_tree(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server, client_of(server) as one, client_of(server) as two:
        one.ensure_path("/t/a/b")
        follower = TreeCache(two, "/t")
        follower.start()
        one.set("/t/a/b", b"1")
        one.create("/t/c", b"2")
        one.delete("/t/a/b")
        wait_until(lambda: sorted(follower.get_children("/t") or ()) == ["a", "c"], "the new child")
        wait_until(lambda: not follower.get_children("/t/a"), "the deletion")
        # It knows of a child before it has read its data.
        wait_until(lambda: follower.get_data("/t/c") is not None, "the child's data")
        found = follower.get_data("/t/c")
        assert found is not None
        assert b"2" == found.data
        follower.close()
