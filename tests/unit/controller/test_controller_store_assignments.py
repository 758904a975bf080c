"""The controller's writes of assignments, and of what older tools leave behind."""

import uuid
from dataclasses import replace

import pytest

from kalda.cluster import paths, schema
from kalda.cluster.cluster_store import ClusterStore, NewTopic
from kalda.cluster.controller_store import ControllerMovedError, ControllerStore, elect
from kalda.cluster.schema import ReplicaAssignment, TopicAssignment
from kalda.common.types import ZERO_UUID, TopicPartition
from tests.unit.cluster.in_memory import InMemoryZooKeeper
from tests.unit.controller.stage import Stage, until

P0 = TopicPartition("t", 0)
MOVING = ReplicaAssignment((2, 1), (2,), (1,))


async def office() -> tuple[ClusterStore, ControllerStore]:
    zookeeper = InMemoryZooKeeper()
    cluster = await zookeeper.cluster()
    partitions = {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((1,))}
    await cluster.create_topics([NewTopic("t", partitions, {}, uuid.uuid4())])
    store = await elect(cluster.zookeeper, zookeeper.clock, 1)
    assert store is not None
    return cluster, store


async def read(cluster: ClusterStore, topic: str = "t") -> TopicAssignment:
    return (await cluster.topic_assignments([topic]))[topic]


async def test_one_partition_changes_and_the_others_stay() -> None:
    cluster, store = await office()
    before = await read(cluster)
    assert {P0: MOVING} == await store.write_assignments({P0: MOVING})
    after = await read(cluster)
    assert after.topic_id == before.topic_id
    assert {0: MOVING, 1: ReplicaAssignment((1,))} == after.partitions


async def test_partitions_and_topics_that_are_gone_are_left_out() -> None:
    cluster, store = await office()
    ghosts = {TopicPartition("t", 9): MOVING, TopicPartition("ghost", 0): MOVING}
    assert {P0: MOVING} == await store.write_assignments({P0: MOVING, **ghosts})
    assert {0, 1} == (await read(cluster)).partitions.keys()
    assert {} == await store.write_assignments({})


async def test_a_topic_that_grows_at_the_same_time_keeps_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another broker adds partitions between our read and our write: we read again."""
    cluster, store = await office()
    plain_read, conflicts = ControllerStore._read_assignments, [2, 3]

    async def read_and_be_overtaken(self: ControllerStore, topics: list[str]) -> dict[str, TopicAssignment]:
        found = await plain_read(self, topics)
        if conflicts:
            number = conflicts.pop(0)
            known = await read(cluster)
            partitions = {**known.partitions, number: ReplicaAssignment((3,))}
            await cluster.set_assignment(replace(known, partitions=partitions))
        return found

    monkeypatch.setattr(ControllerStore, "_read_assignments", read_and_be_overtaken)
    assert {P0: MOVING} == await store.write_assignments({P0: MOVING})
    partitions = (await read(cluster)).partitions
    assert (MOVING, *[ReplicaAssignment((3,))] * 2) == (partitions[0], partitions[2], partitions[3])


async def test_every_write_is_fenced() -> None:
    cluster, store = await office()
    await cluster.zookeeper.set(paths.CONTROLLER_EPOCH, b"2")
    older = {"t": TopicAssignment("t", ZERO_UUID, {0: MOVING}, 0)}
    for write in (
        store.write_assignments({P0: MOVING}),
        store.give_topic_ids(older, {}),
        store.set_legacy_reassignment({}),
        store.delete_messages([paths.PREFERRED_REPLICA_ELECTION]),
    ):
        with pytest.raises(ControllerMovedError):
            await write
    assert ReplicaAssignment((1,)) == (await read(cluster)).partitions[0]


async def test_topics_of_older_tools_get_an_id_once() -> None:
    cluster, store = await office()
    data = b'{"version":1,"partitions":{"0":[1]}}'
    await cluster.zookeeper.create(paths.topic("old"), data)
    given = await store.give_topic_ids(await cluster.topic_assignments(["t", "old"]), {})
    assert given["t"] == await read(cluster)
    assert given["old"].topic_id != ZERO_UUID
    assert (await read(cluster, "old")).topic_id == given["old"].topic_id
    overtaken = replace(await read(cluster, "old"), topic_id=ZERO_UUID, version=0)
    assert ZERO_UUID == (await store.give_topic_ids({"old": overtaken}, {}))["old"].topic_id


async def test_a_topic_that_an_older_tool_wrote_again_keeps_its_id() -> None:
    """Kafka's tools before 2.8 write a topic without its id when they add partitions."""
    cluster, store = await office()
    known = await read(cluster)
    await cluster.zookeeper.set(paths.topic("t"), b'{"version":1,"partitions":{"0":[1],"1":[1]}}')

    given = await store.give_topic_ids(await cluster.topic_assignments(["t"]), {"t": known})

    assert known.topic_id == given["t"].topic_id == (await read(cluster)).topic_id
    assert {0, 1} == given["t"].partitions.keys()


async def test_a_topic_without_an_id_that_is_written_again_gets_one() -> None:
    """It was written between the read and the write of its id."""
    cluster, store = await office()
    await cluster.zookeeper.create(paths.topic("old"), b'{"version":1,"partitions":{"0":[1]}}')
    known = await read(cluster, "old")
    await cluster.zookeeper.set(paths.topic("old"), b'{"version":1,"partitions":{"0":[1],"1":[1]}}')

    given = await store.give_topic_ids(await cluster.topic_assignments(["old"]), {"old": known})

    assert given["old"].topic_id != ZERO_UUID


async def test_a_topic_whose_id_is_lost_gets_the_same_one_again() -> None:
    """Brokers have logs under the id; they would take them for those of another topic."""
    cluster, store = await office()
    data = b'{"version":1,"partitions":{"0":[1]}}'
    ids = []
    for _ in range(2):
        await cluster.zookeeper.create(paths.topic("old"), data)
        for _ in range(2):
            # A controller of Kafka before 2.8 reassigns the topic, and does not know the id.
            await cluster.zookeeper.set(paths.topic("old"), data)
            given = await store.give_topic_ids(await cluster.topic_assignments(["old"]), {})
            ids.append(given["old"].topic_id)
        await cluster.zookeeper.delete(paths.topic("old"))
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert ZERO_UUID not in ids


async def test_a_topic_that_was_created_again_gets_another_id() -> None:
    cluster, store = await office()
    known = await read(cluster)
    await cluster.zookeeper.delete(paths.topic("t"))
    await cluster.zookeeper.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]}}')

    given = await store.give_topic_ids(await cluster.topic_assignments(["t"]), {"t": known})

    assert given["t"].topic_id not in (known.topic_id, ZERO_UUID)


async def test_legacy_reassignment_shrinks_and_goes() -> None:
    cluster, store = await office()
    path = paths.REASSIGN_PARTITIONS
    await cluster.zookeeper.create(path, schema.encode_reassignment({P0: (2,)}))
    await store.set_legacy_reassignment({P0: (3,)})
    data, _ = await cluster.zookeeper.get(path)
    assert {P0: (3,)} == schema.decode_reassignment(data)
    for _ in range(2):
        await store.set_legacy_reassignment({})
        await store.delete_messages([path])
    assert await cluster.zookeeper.exists(path) is None


@pytest.mark.parametrize(
    ("before", "target", "after"),
    [
        (((1, 2, 3),), (3, 4), ((3, 4, 1, 2), (4,), (1, 2))),
        (((1, 2),), (2, 1), ((2, 1),)),
        (((3, 4, 1, 2), (4,), (1, 2)), (3, 1, 2), ((3, 1, 2),)),
        (((3, 4, 1, 2), (3, 4), (1, 2)), (1, 5), ((1, 5, 2), (5,), (2,))),
        (((1, 2),), (1,), ((1, 2), (), (2,))),
    ],
)
def test_assignment_while_moving(
    before: tuple[tuple[int, ...], ...], target: tuple[int, ...], after: tuple[tuple[int, ...], ...]
) -> None:
    """Targets come first, in their order; what was only on its way is dropped."""
    assignment = ReplicaAssignment(*before)
    moving = assignment.reassigned_to(target)
    assert ReplicaAssignment(*after) == moving
    assert target == moving.target
    assert set(moving.original) == set(assignment.original)


async def test_controller_gives_ids_to_topics_it_finds(stage: Stage) -> None:
    """The whole way: what the store writes, brokers are told."""
    node = await stage.start(1)
    await node.session.create(paths.topic("old"), b'{"version":1,"partitions":{"0":[1]}}')
    await until(lambda: stage.brokers.leader(1, TopicPartition("old", 0)) == 1)
    assert (await read(node.cluster, "old")).topic_id != ZERO_UUID
