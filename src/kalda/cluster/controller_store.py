"""The writes of the active controller, each fenced by the controller epoch, and the controller's election.

Every transaction starts with a check of the version of ``/controller_epoch``, which changes with every
election. So a controller that was replaced while it was paused cannot write: it gets a `ControllerMovedError`
(KAFKA-6082).
"""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kalda.cluster import paths, schema
from kalda.cluster.cluster_store import READ_AT_ONCE, read_partition_states
from kalda.cluster.schema import PartitionState, ReplicaAssignment, TopicAssignment
from kalda.common.turns import between, between_many
from kalda.common.types import UUID, ZERO_UUID, TopicPartition, is_allowed_uuid
from kalda.runtime.clock import Clock
from kalda.zookeeper.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    ZooKeeperError,
)
from kalda.zookeeper.port import Check, Create, Delete, Operation, SetData, Stat, ZooKeeperClient

_STATES_PER_TRANSACTION: Final = 100
"""Partition states that one transaction replaces; a conflict costs a transaction for each of them."""

_DELETE_ATTEMPTS: Final = 5
"""A client may create a znode below a topic that is being deleted; more often than this is no accident."""

_CONFLICT_ATTEMPTS: Final = 100
"""A conflict means that a broker added partitions; a hundred in a few milliseconds do not happen."""

_FENCE_INDEX: Final = 0


class ControllerMovedError(Exception):
    """Another broker has been elected controller; this one must not act as controller any more."""


@dataclass(frozen=True, slots=True)
class StatesUpdated:
    """The outcome of conditional writes: the written states with their new versions, and the conflicts.

    A conflict is the stored state that another client wrote first, or None if the znode is gone.
    """

    updated: dict[TopicPartition, PartitionState]
    conflicts: dict[TopicPartition, PartitionState | None]


async def elect(zookeeper: ZooKeeperClient, clock: Clock, broker_id: int) -> "ControllerStore | None":
    """Try to become controller; return the new controller's store, or None if another broker is controller.

    One transaction creates `/controller` and increments the epoch, so each controller has its own epoch.
    """
    try:
        data, stat = await zookeeper.get(paths.CONTROLLER_EPOCH)
    except NoNodeError:
        with contextlib.suppress(NodeExistsError):
            await zookeeper.create(paths.CONTROLLER_EPOCH, schema.encode_controller_epoch(0))
        data, stat = await zookeeper.get(paths.CONTROLLER_EPOCH)
    epoch = schema.decode_controller_epoch(data) + 1
    try:
        results = await zookeeper.multi(
            [
                Create(
                    paths.CONTROLLER, schema.encode_controller(broker_id, clock.time_ms()), ephemeral=True
                ),
                SetData(paths.CONTROLLER_EPOCH, schema.encode_controller_epoch(epoch), stat.version),
            ]
        )
    except (NodeExistsError, BadVersionError):
        return None
    epoch_stat = results[1]
    assert isinstance(epoch_stat, Stat), f"the result of a set is a stat, not {epoch_stat!r}"
    return ControllerStore(zookeeper, epoch, epoch_stat.version)


def given_topic_id(cluster_id: str, assignment: TopicAssignment) -> UUID:
    """Return the id that a controller gives to a topic without one.

    It depends on when the topic was created, so that a topic whose id is lost gets the same one again, and
    a topic that was deleted and created again gets another: brokers have logs under the id. A controller of
    Kafka before 2.8 writes topics without the id that a controller of Kalda gave them.
    """
    text = f"{cluster_id} {assignment.topic} {assignment.created_at}"
    while True:
        digest = hashlib.sha256(text.encode())
        value = UUID(bytes=digest.digest()[:16])
        if is_allowed_uuid(value):
            return value
        text = digest.hexdigest()


class ControllerStore:
    """The writes of one controller's term. All raise `ControllerMovedError` once the term is over."""

    def __init__(self, zookeeper: ZooKeeperClient, epoch: int, epoch_version: int) -> None:
        self.epoch: Final = epoch
        self._zookeeper: Final = zookeeper
        self._operations_max: Final = zookeeper.operations_max
        self._fence: Final = Check(paths.CONTROLLER_EPOCH, epoch_version)

    async def create_partition_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState]:
        """Create partition states; return the stored state of every partition, with its version.

        If a partition had a state already, the stored state differs from the given one.
        """
        existing = await self._existing(
            {paths.topic_partitions(p.topic) for p in states}
            | {paths.partition(p) for p in states}
            | {paths.partition_state(p) for p in states}
        )
        missing = [p for p in states if paths.partition_state(p) not in existing]
        # The parents that a transaction of this call creates exist for those after it.
        transactions: list[list[Operation]] = []
        topic = ""
        for count, partition in enumerate(missing):
            await between_many(count)
            # Each partition may need three znodes, with that of all partitions.
            is_full = bool(transactions) and len(transactions[-1]) > self._operations_max - 3
            if partition.topic != topic or is_full:
                topic = partition.topic
                transactions.append([self._fence])
            for path in (paths.topic_partitions(topic), paths.partition(partition)):
                if path not in existing:
                    existing.add(path)
                    transactions[-1].append(Create(path))
            data = schema.encode_partition_state(states[partition])
            transactions[-1].append(Create(paths.partition_state(partition), data))
        self._raise_if_failed(await self._zookeeper.multi_many(transactions), NoNodeError)
        return await self._read(states)

    async def update_partition_states(self, states: Mapping[TopicPartition, PartitionState]) -> StatesUpdated:
        """Replace the states whose znodes still have the named version."""
        entries = list(states.items())
        updated: dict[TopicPartition, PartitionState] = {}
        failed: list[TopicPartition] = []
        size = min(_STATES_PER_TRANSACTION, self._operations_max - 1)
        groups = [entries[start : start + size] for start in range(0, len(entries), size)]
        while groups:
            transactions: list[list[Operation]] = []
            for index, group in enumerate(groups):
                await between(index)
                transactions.append([self._fence, *(_set_state(*entry) for entry in group)])
            outcomes = await self._zookeeper.multi_many(transactions)
            self._raise_if_failed(outcomes, BadVersionError, NoNodeError)
            singles: list[list[tuple[TopicPartition, PartitionState]]] = []
            for group, outcome in zip(groups, outcomes, strict=True):
                if not isinstance(outcome, ZooKeeperError):
                    for (partition, state), stat in zip(group, outcome[1:], strict=True):
                        assert isinstance(stat, Stat), f"the result of a set is a stat, not {stat!r}"
                        updated[partition] = replace(state, version=stat.version, written_at=stat.mzxid)
                elif len(group) > 1:
                    # One conflict undoes the whole transaction: now each state by itself.
                    singles += [[entry] for entry in group]
                else:
                    failed.append(group[0][0])
            groups = singles
        found = await self._read(failed)
        return StatesUpdated(updated, {partition: found.get(partition) for partition in failed})

    async def write_assignments(
        self, changes: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Replace the assignments of partitions; return the changes without those of missing partitions.

        Brokers may add partitions to the same znodes meanwhile, so each znode is read, written conditionally,
        and retried after a conflict.
        """
        waiting: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in changes.items():
            waiting.setdefault(partition.topic, {})[partition.partition] = assignment
        written: dict[TopicPartition, ReplicaAssignment] = {}
        for _ in range(_CONFLICT_ATTEMPTS):
            found = await self._read_assignments(list(waiting))
            wanted = {topic: _reassigned(each, waiting[topic]) for topic, each in found.items()}
            outcomes = await self._zookeeper.multi_many(
                [
                    [self._fence, SetData(paths.topic(topic), schema.encode_topic(each), each.version)]
                    for topic, each in wanted.items()
                ]
            )
            self._raise_if_failed(outcomes, BadVersionError, NoNodeError)
            lost = {t for t, o in zip(wanted, outcomes, strict=True) if isinstance(o, ZooKeeperError)}
            for topic in wanted.keys() - lost:
                for number, assignment in waiting[topic].items():
                    if number in wanted[topic].partitions:
                        written[TopicPartition(topic, number)] = assignment
            waiting = {topic: waiting[topic] for topic in wanted if topic in lost}
            if not waiting:
                return written
        raise BadVersionError(f"{list(waiting)} changed {_CONFLICT_ATTEMPTS} times in a row")

    async def give_topic_ids(
        self, assignments: Mapping[str, TopicAssignment], known: Mapping[str, TopicAssignment]
    ) -> dict[str, TopicAssignment]:
        """Give an id to topics that older software wrote without one; return all assignments.

        A topic that such a tool created gets a `given_topic_id`. One of the `known` topics that it wrote
        again, to add partitions, gets its own id back: brokers have logs under it. Its version is higher
        then; that of a topic that was deleted and created again is not. A topic that another client writes at
        the same time gets its id when the controller reads it again.
        """
        without = [each for each in assignments.values() if each.topic_id == ZERO_UUID]
        if not without:
            return dict(assignments)
        cluster_id = await self._cluster_id()

        def id_of(topic: str, found: TopicAssignment) -> UUID:
            before = known.get(topic)
            is_known = before is not None and before.topic_id != ZERO_UUID and found.version > before.version
            return before.topic_id if before is not None and is_known else given_topic_id(cluster_id, found)

        wanted = {each.topic: replace(each, topic_id=id_of(each.topic, each)) for each in without}
        outcomes = await self._zookeeper.multi_many(
            [
                [self._fence, SetData(paths.topic(topic), schema.encode_topic(each), each.version)]
                for topic, each in wanted.items()
            ]
        )
        self._raise_if_failed(outcomes, BadVersionError, NoNodeError)
        given = {
            topic: each
            for (topic, each), outcome in zip(wanted.items(), outcomes, strict=True)
            if not isinstance(outcome, ZooKeeperError)
        }
        return {topic: given.get(topic, each) for topic, each in assignments.items()}

    async def _cluster_id(self) -> str:
        try:
            return schema.decode_cluster_id((await self._zookeeper.get(paths.CLUSTER_ID))[0])
        except NoNodeError:
            return ""

    async def set_legacy_reassignment(self, remaining: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Keep only these reassignments in `/admin/reassign_partitions`; delete it if none remain."""
        operation: Operation = Delete(paths.REASSIGN_PARTITIONS)
        if remaining:
            operation = SetData(paths.REASSIGN_PARTITIONS, schema.encode_reassignment(remaining))
        outcomes = await self._zookeeper.multi_many([[self._fence, operation]])
        self._raise_if_failed(outcomes, NoNodeError)

    async def delete_messages(self, names: Sequence[str]) -> None:
        """Delete znodes of processed messages; missing ones are no error."""
        outcomes = await self._zookeeper.multi_many([[self._fence, Delete(name)] for name in names])
        self._raise_if_failed(outcomes, NoNodeError)

    async def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete all znodes of topics, the deletion mark last, so that deletion resumes after a crash."""
        remaining = list(topics)
        failures: dict[str, ZooKeeperError] = {}
        for _ in range(_DELETE_ATTEMPTS):
            owners: list[str] = []
            transactions: list[list[Operation]] = []
            for topic in remaining:
                znodes = await self._descendants(paths.topic(topic))
                for last in (paths.config("topics", topic), paths.delete_topic(topic)):
                    if await self._zookeeper.exists(last) is not None:
                        znodes.append(last)
                for start in range(0, len(znodes), self._operations_max - 1):
                    chunk = znodes[start : start + self._operations_max - 1]
                    transactions.append([self._fence, *map(Delete, chunk)])
                    owners.append(topic)
            outcomes = await self._zookeeper.multi_many(transactions)
            self._raise_if_fenced(outcomes)
            failures = {
                topic: outcome
                for topic, outcome in zip(owners, outcomes, strict=True)
                if isinstance(outcome, ZooKeeperError)
            }
            if not failures:
                return
            remaining = list(failures)
        raise next(iter(failures.values()))

    async def remove_deletion_marks(self, topics: Sequence[str]) -> None:
        """Remove deletion marks; missing ones are no error."""
        outcomes = await self._zookeeper.multi_many(
            [[self._fence, Delete(paths.delete_topic(topic))] for topic in topics]
        )
        self._raise_if_failed(outcomes, NoNodeError)

    async def resign(self) -> None:
        """Delete `/controller`, so that another broker is elected at once."""
        try:
            await self._zookeeper.multi([self._fence, Delete(paths.CONTROLLER)])
        except (NoNodeError, BadVersionError):
            return

    async def _existing(self, wanted: set[str]) -> set[str]:
        names = sorted(wanted)
        existing: set[str] = set()
        for start in range(0, len(names), READ_AT_ONCE):
            await between_many(start)
            some = names[start : start + READ_AT_ONCE]
            found = await self._zookeeper.get_many(some)
            existing.update(name for name, entry in zip(some, found, strict=True) if entry is not None)
        return existing

    async def _read(
        self, partitions: Mapping[TopicPartition, PartitionState] | Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        return await read_partition_states(self._zookeeper, partitions)

    async def _read_assignments(self, topics: Sequence[str]) -> dict[str, TopicAssignment]:
        found = await self._zookeeper.get_many([paths.topic(topic) for topic in topics])
        return schema.decode_each(
            topics, found, lambda topic, entry: schema.decode_topic(topic, entry[0], entry[1].version)
        )

    async def _descendants(self, path: str) -> list[str]:
        """Return the paths of a subtree, children before their parents."""
        if await self._zookeeper.exists(path) is None:
            return []
        order = [path]
        for index, parent in enumerate(order):
            await between_many(index)
            try:
                children = await self._zookeeper.children(parent)
            except NoNodeError:
                continue
            order.extend(f"{parent}/{child}" for child in children)
        order.reverse()
        return order

    def _raise_if_failed(self, outcomes: Sequence[object], *expected: type[ZooKeeperError]) -> None:
        self._raise_if_fenced(outcomes)
        for outcome in outcomes:
            if isinstance(outcome, ZooKeeperError) and not isinstance(outcome, expected):
                raise outcome

    def _raise_if_fenced(self, outcomes: Sequence[object]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, ZooKeeperError) and outcome.operation_index == _FENCE_INDEX:
                raise ControllerMovedError(f"epoch {self.epoch} is over: {outcome}")


def _set_state(partition: TopicPartition, state: PartitionState) -> SetData:
    return SetData(paths.partition_state(partition), schema.encode_partition_state(state), state.version)


def _reassigned(found: TopicAssignment, changes: Mapping[int, ReplicaAssignment]) -> TopicAssignment:
    known = {number: assignment for number, assignment in changes.items() if number in found.partitions}
    return replace(found, partitions={**found.partitions, **known})
