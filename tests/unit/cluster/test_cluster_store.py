"""What a broker asks of coordination, through the port and the in-process server."""

import asyncio
import uuid
from collections.abc import Sequence

import pytest

from kalda.cluster import notifications, paths, schema
from kalda.cluster.cluster_store import BrokerIdInUseError, ClusterStore, NewTopic
from kalda.cluster.config_changes import ConfigChange
from kalda.cluster.controller_store import ControllerMovedError, ControllerStore, elect
from kalda.cluster.layout import ATTEMPTS_MAX, ensure_paths
from kalda.cluster.schema import (
    BrokerInfo,
    ListenerEndpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from kalda.common.types import TopicPartition
from kalda.runtime.clock import ManualClock
from kalda.zookeeper.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    StorageError,
    ZooKeeperError,
)
from kalda.zookeeper.port import Create, Operation, OperationResult
from kalda.zookeeper.server.embedded import EmbeddedClient
from tests.runtimes import seeded
from tests.unit.cluster.in_memory import InMemoryZooKeeper

TOPIC_ID = uuid.UUID(int=5)


def broker(broker_id: int) -> BrokerInfo:
    return BrokerInfo(broker_id, (ListenerEndpoint("PLAINTEXT", "host", 9092),))


def topic(name: str, partitions: int = 1, config: dict[str, str] | None = None) -> NewTopic:
    assignment = {number: ReplicaAssignment((0,)) for number in range(partitions)}
    return NewTopic(name, assignment, config or {}, TOPIC_ID)


async def turn() -> None:
    """Let what waits on the loop go on; in memory nothing waits for anything else."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_layout_is_kafkas_and_making_it_twice_changes_nothing() -> None:
    zookeeper = InMemoryZooKeeper()
    cluster = await zookeeper.cluster()
    before = zookeeper.server.server.statistics()
    await cluster.ensure_layout()
    assert before == zookeeper.server.server.statistics()
    assert [
        "brokers",
        "changes",
        "client-metrics",
        "clients",
        "groups",
        "ips",
        "topics",
        "users",
    ] == await cluster.zookeeper.children("/config")
    assert [] == await cluster.topics()


@pytest.mark.parametrize("losses", [1, ATTEMPTS_MAX])
async def test_layout_is_made_although_connections_are_lost(
    losses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker starts on a busy machine, as Kafka's does; it does not start if the server stays down."""
    zookeeper = await InMemoryZooKeeper().connect()
    multi_many, left = zookeeper.multi_many, losses

    async def lossy(
        transactions: Sequence[Sequence[Operation]],
    ) -> list[list[OperationResult] | ZooKeeperError]:
        nonlocal left
        done = await multi_many(transactions)
        left -= 1
        return [ConnectionLossError("lost")] if left >= 0 else done

    monkeypatch.setattr(zookeeper, "multi_many", lossy)
    if losses < ATTEMPTS_MAX:
        await ensure_paths(zookeeper, ["/a/b"])
        assert ["b"] == await zookeeper.children("/a")
    else:
        with pytest.raises(ConnectionLossError):
            await ensure_paths(zookeeper, ["/a/b"])


async def test_cluster_id_is_made_once() -> None:
    zookeeper = InMemoryZooKeeper()
    first, second = await zookeeper.cluster(), await zookeeper.cluster()
    ids = await asyncio.gather(first.cluster_id(), second.cluster_id(), first.cluster_id())
    assert 1 == len(set(ids))
    assert 22 == len(ids[0])


async def test_broker_is_registered_for_as_long_as_its_session() -> None:
    zookeeper = InMemoryZooKeeper()
    first, second = await zookeeper.cluster(), await zookeeper.cluster()
    epoch = await first.register_broker(broker(1))
    assert epoch == await first.register_broker(broker(1))
    with pytest.raises(BrokerIdInUseError, match="broker id 1 is in use"):
        await second.register_broker(broker(1))
    (found,) = (await second.brokers()).values()
    assert (found.id, found.epoch, found.timestamp_ms) == (1, epoch, zookeeper.clock.time_ms())
    await first.zookeeper.close()
    assert {} == await second.brokers()
    assert await second.register_broker(broker(1)) > epoch


async def test_generated_broker_ids_are_above_the_reserved_and_never_repeat() -> None:
    cluster = await InMemoryZooKeeper().cluster()
    assert [1001, 1002, 1003] == [await cluster.next_broker_id(1000) for _ in range(3)]


async def test_topics_are_created_with_their_config_and_told_apart_from_those_that_exist() -> None:
    cluster = await InMemoryZooKeeper().cluster()
    await cluster.create_topics([topic("old")])
    outcome = await cluster.create_topics([topic("new", 2, {"retention.ms": "5"}), topic("old")])
    assert outcome["new"] is None
    assert isinstance(outcome["old"], NodeExistsError)
    assert ["new", "old"] == await cluster.topics()
    assignments = await cluster.topic_assignments(["new", "missing"])
    assert {
        "new": TopicAssignment("new", TOPIC_ID, {n: ReplicaAssignment((0,)) for n in range(2)}, version=0)
    } == assignments
    assert {"new": {"retention.ms": "5"}, "old": {}} == await cluster.configs("topics")


async def test_many_topics_share_few_waits_for_the_disk() -> None:
    """A wait per topic would make creating a thousand take seconds on a real disk."""
    zookeeper = InMemoryZooKeeper()
    cluster = await zookeeper.cluster()
    before = zookeeper.files.changes
    outcome = await cluster.create_topics([topic(f"t{n}") for n in range(1000)])
    assert {None} == set(outcome.values())
    assert zookeeper.files.changes - before <= 8


async def test_assignment_is_replaced_only_if_nobody_else_did() -> None:
    cluster = await InMemoryZooKeeper().cluster()
    await cluster.create_topics([topic("t")])
    (found,) = (await cluster.topic_assignments(["t"])).values()
    grown = TopicAssignment("t", TOPIC_ID, {n: ReplicaAssignment((0,)) for n in range(3)}, found.version)
    assert 1 == (await cluster.set_assignment(grown)).version
    with pytest.raises(BadVersionError):
        await cluster.set_assignment(grown)


async def test_kafka_finds_no_block_of_producer_ids_instead_of_an_empty_one() -> None:
    """Kafka's controller takes null for "no block yet", and fails on empty data for ever."""
    zookeeper = InMemoryZooKeeper()
    session = await zookeeper.connect()
    await session.create(paths.PRODUCER_ID_BLOCK)  # as an earlier release left it
    await zookeeper.cluster()
    node = zookeeper.server.server.tree.nodes[paths.PRODUCER_ID_BLOCK]
    assert node.data is None
    before = zookeeper.server.server.tree.last_zxid
    cluster = await zookeeper.cluster()
    assert before + 1 == zookeeper.server.server.tree.last_zxid, "only a session was opened"
    assert 0 == (await cluster.allocate_producer_ids(1)).first


async def test_producer_id_blocks_never_overlap() -> None:
    """Two producers with one id would take each other for duplicates."""
    zookeeper = InMemoryZooKeeper()
    clusters = [await zookeeper.cluster() for _ in range(3)]
    blocks = await asyncio.gather(*(c.allocate_producer_ids(n) for n, c in enumerate(clusters) for _ in "ab"))
    assert [(n * 1000, n * 1000 + 999) for n in range(6)] == sorted(
        (block.first, block.last) for block in blocks
    )


async def test_config_change_reaches_every_follower_once_and_in_order() -> None:
    zookeeper = InMemoryZooKeeper()
    writer, reader = await zookeeper.cluster(), await zookeeper.cluster()
    await writer.set_config("topics", "t", {"a": "before"})
    seen: list[ConfigChange] = []
    changes = await reader.watch_config_changes(seen.append)
    for value in "123":
        await writer.set_config("topics", "t", {"a": value})
    await writer.set_config("brokers", paths.DEFAULT_ENTITY, {"b": "x"})
    await turn()
    await writer.set_config("topics", "t", {})
    await turn()
    await changes.close()
    assert {} == [change.config for change in seen if change.entity_type == "topics"][-1]
    assert ConfigChange("brokers", "<default>", {"b": "x"}) in seen
    assert {"a": "before"} not in [change.config for change in seen]
    assert 5 == len(seen)
    await writer.set_config("topics", "t", {"late": "x"})
    await turn()
    assert 5 == len(seen)


async def test_malformed_configuration_is_replaced_but_not_changed() -> None:
    cluster = await InMemoryZooKeeper().cluster()
    await cluster.zookeeper.create("/config/topics/t", b"nonsense")
    with pytest.raises(schema.SchemaError, match="topics/t"):
        await cluster.update_config("topics", "t", lambda config: config | {"a": "1"})
    await cluster.set_config("topics", "t", {"a": "2"})
    assert {"a": "2"} == await cluster.config("topics", "t")


async def test_change_is_made_again_when_another_writer_was_faster() -> None:
    zookeeper = InMemoryZooKeeper()
    slow, fast = await zookeeper.cluster(), await zookeeper.cluster()
    await slow.set_config("users", "alice", {"a": "1"})
    seen: list[dict[str, str]] = []

    def change(config: dict[str, str]) -> dict[str, str]:
        seen.append(dict(config))
        return config | {"slow": "1"}

    await asyncio.gather(
        slow.update_config("users", "alice", change),
        fast.update_config("users", "alice", lambda config: config | {"fast": "1"}),
    )
    assert {"a": "1", "slow": "1", "fast": "1"} == await slow.config("users", "alice")
    assert {"a": "1"} == seen[0]


async def test_users_clients_and_addresses_without_settings_have_no_znode() -> None:
    """As with Kafka: anyone may name them, and they would never go."""
    cluster = await InMemoryZooKeeper().cluster()
    for name in ("alice", "alice/clients/app", "alice/clients/<default>", "bob/clients/app"):
        await cluster.set_config("users", name, {"a": "1"})
    await cluster.set_config("clients", "app", {"a": "1"})
    await cluster.set_config("ips", "127.0.0.1", {})
    await cluster.set_config("topics", "t", {})

    async def left(path: str) -> list[str]:
        return sorted(await cluster.zookeeper.children(path))

    assert ["alice", "bob"] == await left("/config/users")
    assert [] == await left("/config/ips")
    assert ["t"] == await left("/config/topics")
    for name in ("alice", "alice/clients/app", "bob/clients/app"):
        await cluster.set_config("users", name, {})
    await cluster.set_config("clients", "app", {})
    assert [] == await left("/config/clients")
    # The user has no settings of its own, but those of its clients.
    assert ["alice"] == await left("/config/users")
    assert ["<default>"] == await left("/config/users/alice/clients")
    await cluster.set_config("users", "alice/clients/<default>", {})
    assert [] == await left("/config/users")
    changes = await left("/config/changes")
    await cluster.set_config("users", "nobody/clients/app", {})
    assert [] == await left("/config/users")
    assert len(changes) + 1 == len(await left("/config/changes"))


async def test_a_user_that_gets_a_client_meanwhile_stays() -> None:
    zookeeper = InMemoryZooKeeper()
    slow, fast = await zookeeper.cluster(), await zookeeper.cluster()
    await slow.set_config("users", "alice", {"a": "1"})
    await asyncio.gather(
        slow.set_config("users", "alice", {}), fast.set_config("users", "alice/clients/app", {"b": "1"})
    )
    assert {"alice": {}, "alice/clients/app": {"b": "1"}} == await slow.configs("users")


async def test_client_ids_of_users_are_read_with_the_users() -> None:
    cluster = await InMemoryZooKeeper().cluster()
    await cluster.set_config("users", "alice/clients/app", {"a": "1"})
    await cluster.set_config("users", "alice/clients/<default>", {"a": "2"})
    await cluster.set_config("users", "bob", {"a": "3"})
    assert {
        "alice": {},
        "bob": {"a": "3"},
        "alice/clients/app": {"a": "1"},
        "alice/clients/<default>": {"a": "2"},
    } == await cluster.configs("users")


async def test_one_bad_notification_or_callback_does_not_stop_those_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = await InMemoryZooKeeper().cluster()
    seen: list[str] = []

    def apply(change: ConfigChange) -> None:
        seen.append(change.entity_name)
        if change.entity_name == "bad":
            raise RuntimeError("cannot apply")

    changes = await cluster.watch_config_changes(apply)
    await cluster.zookeeper.create("/config/changes/config_change_", b"nonsense", sequential=True)
    nowhere = b'{"version":2,"entity_path":"topics/../../x"}'
    await cluster.zookeeper.create("/config/changes/config_change_", nowhere, sequential=True)
    await cluster.set_config("topics", "bad", {})
    await cluster.zookeeper.create("/config/topics/broken", b"nonsense")
    broken = b'{"version":2,"entity_path":"topics/broken"}'
    await cluster.zookeeper.create("/config/changes/config_change_", broken, sequential=True)
    await cluster.set_config("topics", "good", {})
    await turn()
    await changes.close()
    assert ["bad", "good"] == seen
    assert ["ERROR"] * 4 == [record.levelname for record in caplog.records]
    assert "is skipped: the configuration of topics/broken is not JSON" in caplog.text


async def test_follower_goes_on_after_coordination_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Purging needs a write; a disk that is full for a while must not end the following."""
    monkeypatch.setattr(notifications, "_RETRY_SECONDS", 0)
    zookeeper = InMemoryZooKeeper()
    cluster = await zookeeper.cluster()
    seen: list[str] = []
    changes = await cluster.watch_config_changes(lambda change: seen.append(change.entity_name))
    await cluster.set_config("topics", "old", {})
    await turn()
    zookeeper.clock.advance(15 * 60 + 1)
    await cluster.set_config("topics", "a", {})
    zookeeper.files.failures["sync"] = OSError(28, "no space left on device")
    await turn()
    assert "reading changes of configurations failed" in caplog.text
    zookeeper.files.failures.clear()
    await turn()
    await cluster.set_config("topics", "b", {})
    await turn()
    await changes.close()
    assert ["old", "a", "b"] == seen


async def test_topics_that_do_not_exist_or_are_marked_for_deletion_are_found() -> None:
    cluster = await InMemoryZooKeeper().cluster()
    await cluster.create_topics([topic("t", 1), topic("marked", 1)])
    await cluster.request_topic_deletions(["marked"])
    assert {"gone", "marked"} == await cluster.deleted_topics(["gone", "t", "marked"])


async def test_old_config_notifications_are_purged() -> None:
    zookeeper = InMemoryZooKeeper()
    cluster = await zookeeper.cluster()
    changes = await cluster.watch_config_changes(lambda change: None)
    await cluster.set_config("topics", "a", {})
    zookeeper.clock.advance(15 * 60 + 1)
    await cluster.set_config("topics", "b", {})
    await turn()
    await changes.close()
    assert ["config_change_0000000001"] == await cluster.zookeeper.children(paths.CONFIG_CHANGES)


async def test_only_so_many_config_notifications_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are listed at each change: a client that changes something all the time would slow down all."""
    monkeypatch.setattr("kalda.cluster.notifications._NOTIFICATIONS_MAX", 2)
    cluster = await InMemoryZooKeeper().cluster()
    changes = await cluster.watch_config_changes(lambda change: None)
    for _ in range(5):
        await cluster.set_config("topics", "a", {})
        await turn()
    await changes.close()
    names = await cluster.zookeeper.children(paths.CONFIG_CHANGES)
    assert ["config_change_0000000003", "config_change_0000000004"] == sorted(names)


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
async def test_config_notifications_age_by_one_clock(ahead_ms: int) -> None:
    """A broker whose clock is ahead must not purge what others have yet to read, nor one behind keep all."""
    zookeeper = InMemoryZooKeeper()
    writer = await zookeeper.cluster()
    other = await zookeeper.cluster(ManualClock(zookeeper.clock.time_ms() + ahead_ms))
    changes = await other.watch_config_changes(lambda change: None)
    await writer.set_config("topics", "a", {})
    await turn()
    assert ["config_change_0000000000"] == await writer.zookeeper.children(paths.CONFIG_CHANGES)
    zookeeper.clock.advance(15 * 60 + 1)
    await writer.set_config("topics", "b", {})
    await turn()
    await changes.close()
    assert ["config_change_0000000001"] == await writer.zookeeper.children(paths.CONFIG_CHANGES)


async def test_follower_catches_up_after_its_session_expired() -> None:
    zookeeper = InMemoryZooKeeper()
    writer, reader = await zookeeper.cluster(), await zookeeper.cluster()
    session = reader.zookeeper
    assert isinstance(session, EmbeddedClient)
    seen: list[str] = []
    changes = await reader.watch_config_changes(lambda change: seen.append(change.entity_name))
    await writer.set_config("topics", "before", {})
    await turn()
    await session.expire()
    await writer.set_config("topics", "meanwhile", {})
    await turn()
    assert ["before"] == seen
    await session.reconnect()
    await turn()
    await writer.set_config("topics", "after", {})
    await turn()
    await changes.close()
    assert ["before", "meanwhile", "after"] == seen


async def test_follower_that_missed_notifications_reads_everything() -> None:
    """What it missed was purged by those who were there; its own clock may say that no time has passed."""
    zookeeper = InMemoryZooKeeper()
    writer, reader = await zookeeper.cluster(), await zookeeper.cluster()
    session = reader.zookeeper
    assert isinstance(session, EmbeddedClient)
    seen: list[tuple[str, dict[str, str]]] = []
    changes = await reader.watch_config_changes(
        lambda change: seen.append((change.entity_name, change.config))
    )
    await session.expire()
    await writer.set_config("topics", "missed", {"a": "1"})
    (name,) = await writer.zookeeper.children(paths.CONFIG_CHANGES)
    await writer.zookeeper.delete(f"{paths.CONFIG_CHANGES}/{name}")
    await session.reconnect()
    await turn()
    assert [("missed", {"a": "1"})] == seen
    await session.expire()
    for value in "23":
        await writer.set_config("topics", "missed", {"a": value})
    (name, _) = await writer.zookeeper.children(paths.CONFIG_CHANGES)
    await writer.zookeeper.delete(f"{paths.CONFIG_CHANGES}/{name}")
    await session.reconnect()
    await turn()
    await changes.close()
    assert [("missed", {"a": "1"}), ("missed", {"a": "3"})] == seen


async def test_foreign_znodes_among_the_notifications_are_no_obstacle() -> None:
    zookeeper = InMemoryZooKeeper()
    cluster = await zookeeper.cluster()
    seen: list[str] = []
    await cluster.zookeeper.create("/config/changes/config_change_by_hand")
    await cluster.zookeeper.create("/config/changes/a")
    await cluster.zookeeper.create("/config/changes/a/b")
    changes = await cluster.watch_config_changes(lambda change: seen.append(change.entity_name))
    zookeeper.clock.advance(15 * 60 + 1)
    await cluster.set_config("topics", "a", {})
    await turn()
    await cluster.set_config("topics", "b", {})
    await turn()
    await changes.close()
    assert ["a", "b"] == seen


async def elected(cluster: ClusterStore, broker_id: int = 1) -> ControllerStore:
    store = await elect(cluster.zookeeper, InMemoryZooKeeper().clock, broker_id)
    assert store is not None
    return store


async def test_one_controller_at_a_time_each_with_its_own_epoch() -> None:
    zookeeper = InMemoryZooKeeper()
    first, second = await zookeeper.cluster(), await zookeeper.cluster()
    assert await first.controller_id() is None
    store = await elected(first)
    assert await elect(second.zookeeper, zookeeper.clock, 2) is None
    assert 1 == await second.controller_id()
    await store.resign()
    successor = await elected(second, 2)
    assert (1, 2) == (store.epoch, successor.epoch)
    assert 2 == await first.controller_id()


async def test_replaced_controller_can_change_nothing() -> None:
    """A controller that paused while another was elected must not undo what that one did."""
    zookeeper = InMemoryZooKeeper()
    first, second = await zookeeper.cluster(), await zookeeper.cluster()
    await first.create_topics([topic("t")])
    old = await elected(first)
    partition = TopicPartition("t", 0)
    state = PartitionState(0, 0, (0,), 1)
    states = await old.create_partition_states({partition: state})
    await first.zookeeper.delete(paths.CONTROLLER)
    await elected(second, 2)
    before = await first.partition_states([partition])
    for write in (
        old.create_partition_states({TopicPartition("t", 1): state}),
        old.update_partition_states(states),
        old.delete_topics(["t"]),
        old.remove_deletion_marks(["t"]),
    ):
        with pytest.raises(ControllerMovedError, match="epoch 1 is over"):
            await write
    await old.resign()
    assert 2 == await first.controller_id()
    assert ["t"] == await first.topics()
    assert before == await first.partition_states([partition, TopicPartition("t", 1)])


async def test_states_are_created_once_and_updated_by_version() -> None:
    cluster = await InMemoryZooKeeper().cluster()
    await cluster.create_topics([topic("t", 1200)])
    store = await elected(cluster)
    partitions = [TopicPartition("t", number) for number in range(1200)]
    state = PartitionState(0, 0, (0,), 1)
    created = await store.create_partition_states(dict.fromkeys(partitions, state))
    assert set(created) == set(partitions)
    assert {0} == {found.version for found in created.values()}
    other = PartitionState(3, 9, (3,), 1)
    again = await store.create_partition_states({partitions[0]: other, TopicPartition("t", 1200): other})
    assert again == {
        partitions[0]: PartitionState(0, 0, (0,), 1, 0),
        TopicPartition("t", 1200): PartitionState(3, 9, (3,), 1, 0),
    }
    first, second, gone = partitions[0], partitions[1], TopicPartition("gone", 0)
    outcome = await store.update_partition_states(
        {first: PartitionState(0, 1, (0,), 1, 0), second: PartitionState(0, 1, (0,), 1, 7), gone: state}
    )
    assert {first: PartitionState(0, 1, (0,), 1, 1)} == outcome.updated
    assert {second: PartitionState(0, 0, (0,), 1, 0), gone: None} == outcome.conflicts
    # `first` has another version by now: of its transaction, only its own state is not replaced.
    outcome = await store.update_partition_states(
        {partition: PartitionState(0, 2, (0,), 1, 0) for partition in partitions}
    )
    assert dict.fromkeys(partitions[1:], PartitionState(0, 2, (0,), 1, 1)) == outcome.updated
    assert {first: PartitionState(0, 1, (0,), 1, 1)} == outcome.conflicts


async def test_deleted_topics_leave_nothing() -> None:
    zookeeper = InMemoryZooKeeper()
    cluster = await zookeeper.cluster()
    before = set(zookeeper.server.server.freeze().nodes)
    await cluster.create_topics([topic("t", 700), topic("u")])
    await cluster.request_topic_deletions(["t", "u", "ghost"])
    store = await elected(cluster)
    partitions = [TopicPartition("t", number) for number in range(700)]
    await store.create_partition_states(dict.fromkeys(partitions, PartitionState(0, 0, (0,), 1)))
    await store.delete_topics(["t", "u", "missing"])
    await store.remove_deletion_marks(["ghost", "ghost"])
    assert {
        paths.CONTROLLER,
        paths.CONTROLLER_EPOCH,
    } == zookeeper.server.server.freeze().nodes.keys() - before


async def test_full_disk_is_told_and_the_same_operation_succeeds_later() -> None:
    zookeeper = InMemoryZooKeeper()
    cluster = await zookeeper.cluster()
    zookeeper.files.failures["sync"] = OSError(28, "no space left on device")
    with pytest.raises(StorageError, match="no space left"):
        await cluster.allocate_producer_ids(1)
    assert [] == await cluster.topics()
    zookeeper.files.failures.clear()
    assert 0 == (await cluster.allocate_producer_ids(1)).first


async def test_znode_with_nonsense_is_named_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One topic that an operator broke by hand must not stop the cluster."""
    cluster = await InMemoryZooKeeper().cluster()
    await cluster.create_topics([topic("good")])
    await cluster.zookeeper.multi(
        [Create("/brokers/topics/bad", b"nonsense"), Create("/config/topics/bad", b"nonsense")]
    )
    assert ["good"] == list(await cluster.topic_assignments(["bad", "good"]))
    assert "the assignment of topic bad is not JSON" in caplog.text
    assert {"good": {}} == await cluster.configs("topics")
    assert "the configuration of topics/bad is not JSON" in caplog.text
    with pytest.raises(schema.SchemaError, match="the configuration of topics/bad is not JSON"):
        await cluster.config("topics", "bad")


async def test_a_registration_of_a_newer_release_is_refused_with_its_path() -> None:
    """A broker reads them before it starts: one that cannot would take a live broker for a dead one."""
    server = InMemoryZooKeeper()
    zookeeper = await server.connect()
    store = ClusterStore(zookeeper, ManualClock(), seeded())
    await store.ensure_layout()
    await zookeeper.create("/brokers/ids/1", b"nonsense")
    await store.check_registrations()
    await zookeeper.create("/brokers/ids/3", b'{"version":6,"endpoints":[]}')
    with pytest.raises(schema.NewerSchemaError, match=r"^/brokers/ids/3: .* version 6, .* up to version 5"):
        await store.check_registrations()
