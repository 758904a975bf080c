"""A migration between engines that is ended at every point: one engine is right, and the tool says which."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kalda.cluster import paths, schema
from kalda.cluster.cluster_store import NewTopic
from kalda.cluster.engine_migration.decision import MigrationError, Right, Side, Step
from kalda.cluster.engine_migration.marker import (
    CLOSED_ID,
    MARKER,
    EngineClosedError,
    decode_marker,
    require_open,
)
from kalda.cluster.engine_migration.migration import Engine, Migration
from kalda.cluster.engine_migration.tree import Tree, compare, copy_tree, read_tree
from kalda.cluster.history.subjects import NOTES
from kalda.cluster.layout import ensure_paths
from kalda.cluster.schema import BrokerInfo, ReplicaAssignment, TopicAssignment
from kalda.common.types import ZERO_UUID, random_uuid
from kalda.zookeeper.errors import BadVersionError, ConnectionLossError
from kalda.zookeeper.port import ZooKeeperClient
from kalda.zookeeper.server.embedded import EmbeddedClient
from tests.runtimes import seeded
from tests.unit.cluster.in_memory import InMemoryZooKeeper

WRITES = ("create", "set", "delete", "multi", "multi_many")
"""A process that is killed between two writes has done the same as one that is killed at either of them."""


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """Sessions whose process is killed at the n-th write, before or behind its effect."""

    def __init__(self, kill_at: float = float("inf"), *, after: bool = False) -> None:
        self.calls = 0
        self.kill_at = kill_at
        self._after = after

    def client(self, real: EmbeddedClient) -> "Any":
        return MortalClient(self, real)

    def run(self, work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            is_due = self.calls >= self.kill_at
            if is_due and not self._after:
                raise Killed
            try:
                return await work(*arguments, **options)
            finally:
                if is_due:
                    raise Killed

        return counted


class MortalClient:
    def __init__(self, owner: Mortal, real: EmbeddedClient) -> None:
        self._owner = owner
        self._real = real

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return self._owner.run(found) if name in WRITES else found


class Pair:
    """Two engines; the first has a cluster that is stopped."""

    def __init__(self, source: InMemoryZooKeeper, target: InMemoryZooKeeper) -> None:
        self.servers = (source, target)
        self.before: Tree
        self.cluster_id = ""

    @classmethod
    async def make(cls) -> "Pair":
        pair = cls(InMemoryZooKeeper(), InMemoryZooKeeper())
        cluster = await pair.servers[0].cluster()
        pair.cluster_id = await cluster.cluster_id()
        for name in ("a", "b"):
            replicas = {number: ReplicaAssignment((0,), (), ()) for number in range(2)}
            await cluster.create_topics([NewTopic(name, replicas, {}, random_uuid(seeded()))])
            for number in range(2):
                state = f"{paths.topic_partitions(name)}/{number}/state"
                await ensure_paths(cluster.zookeeper, [state])
        assert 1001 == await cluster.next_broker_id(1000)
        assert 1002 == await cluster.next_broker_id(1000)
        client = cluster.zookeeper
        await client.create(paths.CONTROLLER_EPOCH, b"7")
        await client.create(f"{paths.CONFIG_CHANGES}/config_change_", b"old", sequential=True)
        await client.create("/other", b"another program's")
        await client.close()
        pair.before = await read_tree(await pair.servers[0].connect())
        return pair

    async def migration(self, mortal: Mortal | None = None, *, reverse: bool = False) -> Migration:
        mortal = mortal or Mortal()
        engines = [
            Engine(name, mortal.client(await server.connect()))
            for name, server in zip(("one", "two"), self.servers, strict=True)
        ]
        source, target = reversed(engines) if reverse else engines
        return Migration(source, target, seeded())

    async def tree(self, name: str) -> Tree:
        return await read_tree(await self.servers[("one", "two").index(name)].connect())

    async def is_open(self, name: str) -> bool:
        """Whether a broker with data of the cluster would start."""
        client = await self.servers[("one", "two").index(name)].connect()
        if await client.exists(paths.CLUSTER_ID) is None:
            return False
        by_id = schema.decode_cluster_id((await client.get(paths.CLUSTER_ID))[0]) == self.cluster_id
        try:
            await require_open(client)
        except EngineClosedError:
            assert not by_id, "brokers that know no marker would start on a closed engine"
            return False
        assert by_id
        return True

    async def require_one_right(self) -> Right:
        """One engine is right, it has everything, and brokers start on no other."""
        found = await (await self.migration()).status()
        assert found.address in ("one", "two"), found
        assert self.before.znodes == (await self.tree(found.address)).znodes
        for name in ("one", "two"):
            if await self.is_open(name):
                assert found.address == name
        assert found == await (await self.migration(reverse=True)).status()
        return found


async def calls_of(
    run: Callable[[Migration], Awaitable[object]], prepare: Callable[[Pair], Awaitable[object]]
) -> int:
    pair = await Pair.make()
    await prepare(pair)
    mortal = Mortal()
    await run(await pair.migration(mortal))
    return mortal.calls


async def nothing(_: Pair) -> None:
    pass


async def migrated(pair: Pair) -> None:
    await (await pair.migration()).migrate()


async def copied(pair: Pair) -> None:
    await (await pair.migration()).copy()


async def half(pair: Pair) -> None:
    with pytest.raises(Killed):
        await (await pair.migration(Mortal(6))).migrate()
    assert "one" == (await pair.require_one_right()).address


RUNS: dict[str, tuple[Callable[[Migration], Awaitable[object]], Callable[[Pair], Awaitable[object]], str]] = {
    "migrate": (Migration.migrate, nothing, "two"),
    "migrate a copy": (Migration.migrate, copied, "two"),
    "copy": (Migration.copy, nothing, "one"),
    "undo": (Migration.back, half, "one"),
    "undo a copy": (Migration.back, copied, "one"),
    "go back": (Migration.back, migrated, "one"),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("name", RUNS)
async def test_one_engine_is_right_wherever_a_run_is_killed(name: str, after: bool) -> None:
    """And the same command, repeated, reaches the same end; so does going back."""
    run, prepare, end = RUNS[name]
    count = await calls_of(run, prepare)
    assert count >= 3
    for number in range(2 * count):
        kill_at, returns = number // 2 + 1, number % 2 == 1
        pair = await Pair.make()
        await prepare(pair)
        with pytest.raises(Killed):
            await run(await pair.migration(Mortal(kill_at, after=after)))
        await pair.require_one_right()
        expected = "one" if returns else end
        again = await pair.migration()
        await (again.back() if returns else run(again))
        assert expected == (await pair.require_one_right()).address
        assert await pair.is_open(expected)


async def test_generated_broker_ids_are_not_used_again() -> None:
    """They are versions of a znode, which a copy does not have by itself."""
    pair = await Pair.make()
    await migrated(pair)
    assert 1003 == await (await pair.servers[1].cluster()).next_broker_id(1000)


async def test_notifications_ephemerals_and_other_programs_stay_behind() -> None:
    pair = await Pair.make()
    await migrated(pair)
    client = await pair.servers[1].connect()
    assert [] == await client.children(paths.CONFIG_CHANGES)
    assert await client.exists("/other") is None
    assert 0 == (await client.get(paths.PRODUCER_ID_BLOCK))[1].data_length


@pytest.mark.parametrize("end", [1, 0], ids=["target", "source"])
async def test_other_clusters_in_the_same_ensemble_are_left_alone(end: int) -> None:
    """A chroot may have any name, and may be the very engine that the cluster is moved from."""
    pair = await Pair.make()
    client = await pair.servers[end].connect()
    theirs = ["/kalda/brokers/topics/theirs", "/kalda-prod/cluster/id"]
    await ensure_paths(client, theirs)
    migration = await pair.migration()
    await migration.copy()
    await migration.back()
    await migration.migrate()

    present = [
        await client.exists(each) for each in ("/kalda/brokers/topics/theirs", "/kalda-prod/cluster/id")
    ]
    assert None not in present
    other = await pair.servers[1 - end].connect()
    assert await other.exists("/kalda") is None


async def test_what_the_cluster_changed_at_the_target_comes_back() -> None:
    pair = await Pair.make()
    await migrated(pair)
    client = await pair.servers[1].connect()
    await client.set(paths.CONTROLLER_EPOCH, b"8")
    await client.delete(f"{paths.TOPICS}/a/partitions/0/state")
    pair.before = await pair.tree("two")
    await (await pair.migration()).back()
    assert "one" == (await pair.require_one_right()).address
    await migrated(pair)
    assert "two" == (await pair.require_one_right()).address


async def test_running_brokers_stop_a_migration_and_not_a_copy() -> None:
    pair = await Pair.make()
    broker = await pair.servers[0].cluster()
    await broker.register_broker(BrokerInfo(3, (), None))
    with pytest.raises(MigrationError, match="brokers 3 are registered at one"):
        await migrated(pair)
    assert await pair.is_open("one")
    await copied(pair)
    assert await pair.is_open("one")
    assert not await pair.is_open("two")
    await broker.zookeeper.close()
    await migrated(pair)
    assert await pair.is_open("two")


async def test_broker_that_registers_while_the_source_closes_is_noticed() -> None:
    """Its own check follows the registration, so it stops; the migration waits for that."""
    pair = await Pair.make()
    with pytest.raises(Killed):
        await (await pair.migration(Mortal(6))).migrate()
    broker = await pair.servers[0].cluster()
    await broker.register_broker(BrokerInfo(3, (), None))
    with pytest.raises(EngineClosedError, match="is being moved from here to two"):
        await require_open(broker.zookeeper)
    with pytest.raises(MigrationError, match="brokers 3 are registered at one"):
        await migrated(pair)
    await broker.zookeeper.close()
    await migrated(pair)
    assert "two" == (await pair.require_one_right()).address


async def test_election_between_verification_and_switch_repeats_both() -> None:
    """A broker that was suspended while the engine was closed may be elected before it looks."""
    pair = await Pair.make()
    migration = await pair.migration()
    client = await pair.servers[0].connect()
    steps: list[Step] = []
    switch = migration._switch

    async def late(source: Side) -> None:
        if Step.SWITCH not in steps[:-1]:
            await client.set(paths.CONTROLLER_EPOCH, b"8")
        await switch(source)

    migration._switch = late  # type: ignore[method-assign]  # something happens in between
    migration._on_step = steps.append  # type: ignore[misc]  # as the tool does
    await migration.migrate()
    assert 2 == steps.count(Step.SWITCH)
    target = await pair.servers[1].connect()
    assert b"8" == (await target.get(paths.CONTROLLER_EPOCH))[0]


async def test_target_with_a_cluster_is_refused() -> None:
    pair = await Pair.make()
    await (await pair.servers[1].cluster()).cluster_id()
    with pytest.raises(MigrationError, match="two has a cluster already"):
        await migrated(pair)
    assert await pair.is_open("one")


async def test_copy_of_another_cluster_is_left_alone() -> None:
    pair = await Pair.make()
    stranger = await Pair.make()
    stranger.servers = (stranger.servers[0], pair.servers[1])
    client = await stranger.servers[0].connect()
    await client.set(paths.CLUSTER_ID, schema.encode_cluster_id("another"))
    await copied(stranger)
    with pytest.raises(MigrationError, match="two belongs to another cluster, another"):
        await migrated(pair)
    with pytest.raises(MigrationError, match="two has a copy of another cluster"):
        await (await pair.migration()).back()


async def test_topics_without_ids_are_refused() -> None:
    """A controller derives their ids from what the engine says about their creation."""
    pair = await Pair.make()
    client = await pair.servers[0].connect()
    old = TopicAssignment("old", ZERO_UUID, {0: ReplicaAssignment((0,), (), ())})
    await client.create(paths.topic("old"), schema.encode_topic(old))
    with pytest.raises(MigrationError, match=r"1 topics have no id yet \(old\)"):
        await migrated(pair)
    assert await pair.is_open("one")


async def test_lost_connections_are_repeated() -> None:
    pair = await Pair.make()
    failures = iter(range(1_000))

    class Flaky(Mortal):
        def run(self, work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def call(*arguments: Any, **options: Any) -> Any:
                number = next(failures)
                if number % 29 == 3:
                    raise ConnectionLossError("lost")
                result = await work(*arguments, **options)
                if number % 5 == 4 and work.__name__ in ("multi", "multi_many"):
                    raise ConnectionLossError("lost, and done")
                return result

            return call

    await (await pair.migration(Flaky())).migrate()
    assert "two" == (await pair.require_one_right()).address


async def test_two_runs_at_once_do_no_harm() -> None:
    pair = await Pair.make()
    runs = [await pair.migration() for _ in range(3)]
    outcomes = await asyncio.gather(*(each.migrate() for each in runs), return_exceptions=True)
    assert any(not isinstance(each, BaseException) for each in outcomes), outcomes
    assert "two" == (await pair.require_one_right()).address


async def test_marker_of_a_later_release_closes_an_engine() -> None:
    pair = await Pair.make()
    client = await pair.servers[0].connect()
    await client.create(MARKER, b'{"version":2}')
    with pytest.raises(EngineClosedError, match="a later release"):
        await require_open(client)
    with pytest.raises(MigrationError, match="a later release"):
        await migrated(pair)


@pytest.mark.parametrize("data", [b"", b"[]", b"[" * 200_000, b'{"version":1e999}', b'{"version":"1"}'])
def test_marker_that_is_none_closes_an_engine(data: bytes) -> None:
    with pytest.raises(EngineClosedError):
        decode_marker(data)


async def test_copy_is_complete_whatever_was_there() -> None:
    pair = await Pair.make()
    source, target = await pair.servers[0].connect(), await pair.servers[1].connect()
    await target.create("/brokers", b"x")
    await target.create("/brokers/topics")
    await target.create("/brokers/topics/old")
    await target.create("/brokers/topics/old/partitions")
    tree, written = await copy_tree(source, target)
    assert written > 10
    assert 0 == compare(tree, await read_tree(target)).count
    assert (tree.digest, 0) == ((await read_tree(target)).digest, (await copy_tree(source, target))[1])


@pytest.mark.parametrize("kill_at", [None, 1, 2, 3, 4, 5, 6])
async def test_notes_of_changes_keep_their_order(kill_at: int | None) -> None:
    """The history records notes in the order of their transactions, and their names are random."""
    pair = await Pair.make()
    source, target = await pair.servers[0].connect(), await pair.servers[1].connect()
    await ensure_paths(source, [NOTES])
    names = ["c", "a", "d", "b"]
    for name in names:
        await source.create(f"{NOTES}/{name}", name.encode())
    if kill_at is not None:
        with contextlib.suppress(Killed):
            await copy_tree(source, Mortal(kill_at).client(target))
    await copy_tree(source, target)
    found = await target.get_many([f"{NOTES}/{name}" for name in names])
    order = sorted((entry[1].czxid, name) for entry, name in zip(found, names, strict=True) if entry)
    assert names == [name for _, name in order]


def test_closed_id_is_no_marker() -> None:
    with pytest.raises(EngineClosedError):
        decode_marker(CLOSED_ID.encode())


async def test_switch_names_the_version_that_was_seen() -> None:
    """A marker that was taken away meanwhile is not written."""
    pair = await Pair.make()
    mortal = Mortal(6)
    with pytest.raises(Killed):
        await (await pair.migration(mortal)).migrate()
    client: ZooKeeperClient = await pair.servers[0].connect()
    data, stat = await client.get(MARKER)
    with pytest.raises(BadVersionError):
        await client.set(MARKER, data, stat.version + 1)
