"""Reads ZooKeeper for the controller, and watches for changes.

A watch only marks a `Signal`; the owner task then reads what changed, and the read arms the next watch. So no
change is missed, and a burst of changes is read once. All terms of a broker share the callbacks, and a
`ZooKeeperClient` keeps one watch per callback and path; so watches do not pile up over many terms.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Final, TypeVar

from kalda.cluster import paths, schema
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import BrokerInfo, LogDirEvent, PartitionState, SchemaError, TopicAssignment
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import NoNodeError
from kalda.zookeeper.port import WatchEvent

_UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

Message = TypeVar("Message")

logger: Final = logging.getLogger(__name__)


class Signal(Enum):
    """The parts of the cluster that may have changed. Pending signals are processed in this order."""

    SESSION = auto()
    ELIGIBILITY = auto()
    """Whether this broker may be elected."""
    CONTROLLER = auto()
    BROKERS = auto()
    TOPICS = auto()
    DELETIONS = auto()
    ASSIGNMENTS = auto()
    """The assignments of the topics in `ZnodeWatches.changed_topics`."""
    STATES = auto()
    """The states of the partitions in `ZnodeWatches.changed_partitions`."""
    ISR_CHANGES = auto()
    LOG_DIRS = auto()
    UNCLEAN_ELECTION = auto()
    """The configurations of the topics in `ZnodeWatches.changed_configs`."""
    LEGACY_REASSIGNMENT = auto()
    LEGACY_ELECTION = auto()
    BALANCE = auto()


ACTIVE_SIGNALS: Final = tuple(Signal)[3:-1]
"""What the active controller reads again when it may have missed events."""


class ZnodeWatches:
    """The reads of one broker's driver. The methods raise what those of `ClusterStore` raise."""

    def __init__(
        self, cluster: ClusterStore, mark: Callable[[Signal], None], is_unclean_default: Callable[[], bool]
    ) -> None:
        self._cluster: Final = cluster
        self._zookeeper: Final = cluster.zookeeper
        self._mark: Final = mark
        self._is_unclean_default: Final = is_unclean_default
        # One object per signal, because equal callbacks on a path are one watch.
        self._callbacks: Final = {signal: partial(self._on_change, signal) for signal in Signal}
        self.changed_topics: set[str] = set()
        self.changed_partitions: set[TopicPartition] = set()
        self.changed_configs: set[str] = set()
        self.watched_partitions: set[TopicPartition] = set()
        """Partitions whose state has a watch. Invariant: a partition is removed when its watch fires."""

    def forget(self) -> None:
        """Reset after the end of the session, which has dropped its watches."""
        self.forget_changes()
        self.watched_partitions.clear()

    def forget_changes(self) -> None:
        """Drop the recorded changes: a new term reads everything."""
        self.changed_topics.clear()
        self.changed_partitions.clear()
        self.changed_configs.clear()

    async def controller_id(self) -> int | None:
        """Return the broker id of the active controller, or None if there is none."""
        return await self._cluster.controller_id(self._callbacks[Signal.CONTROLLER])

    async def brokers(self) -> dict[int, BrokerInfo]:
        """Return the live brokers; watches them too, because endpoints can change in place (KAFKA-8380)."""
        watch = self._callbacks[Signal.BROKERS]
        ids = paths.numbers(await self._zookeeper.children(paths.BROKER_IDS, watch))
        found = await self._zookeeper.get_many([paths.broker(each) for each in ids], watch)
        return schema.decode_each(
            ids, found, lambda broker_id, entry: schema.decode_broker(broker_id, entry[0], entry[1].czxid)
        )

    async def topics(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(await self._cluster.topics(self._callbacks[Signal.TOPICS]))

    async def assignments(self, topics: Iterable[str]) -> dict[str, TopicAssignment]:
        """Return the assignments of these topics."""
        return await self._cluster.topic_assignments(sorted(topics), self._on_assignment)

    async def topics_to_delete(self) -> frozenset[str]:
        """Return the topics marked for deletion."""
        return frozenset(await self._cluster.topics_to_delete(self._callbacks[Signal.DELETIONS]))

    async def states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Return the states of those partitions that have one, without a watch."""
        return await self._cluster.partition_states(partitions)

    async def watched_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        """Return states as `states` does, and watch them.

        A change of the ISR completes a reassignment; the leader's own notification comes seconds later.
        """
        wanted = list(partitions)
        found = await self._zookeeper.get_many([paths.partition_state(p) for p in wanted], self._on_state)
        self.watched_partitions |= {p for p, entry in zip(wanted, found, strict=True) if entry is not None}
        return schema.decode_partition_states(wanted, found)

    async def unclean_topics(self, topics: Iterable[str]) -> dict[str, bool]:
        """Return for each topic whether it allows unclean elections."""
        wanted = list(topics)
        found = await self._zookeeper.get_many([paths.config("topics", topic) for topic in wanted])
        configs = schema.decode_configs("topics", wanted, found)
        default = "true" if self._is_unclean_default() else "false"
        return {topic: configs.get(topic, {}).get(_UNCLEAN_ELECTION, default) == "true" for topic in wanted}

    async def isr_changes(self) -> tuple[list[str], list[TopicPartition]]:
        """Return the paths of the ISR change notifications, and the partitions that they name."""
        messages = await self._messages(
            paths.ISR_CHANGES, paths.ISR_CHANGE_PREFIX, schema.decode_isr_change, Signal.ISR_CHANGES
        )
        return list(messages), sorted({p for named in messages.values() if named for p in named})

    async def log_dir_events(self) -> tuple[list[str], list[LogDirEvent]]:
        """Return the paths of the log directory notifications, and what is in them."""
        messages = await self._messages(
            paths.LOG_DIR_EVENTS, paths.LOG_DIR_EVENT_PREFIX, schema.decode_log_dir_event, Signal.LOG_DIRS
        )
        return list(messages), [event for event in messages.values() if event is not None]

    async def legacy_reassignment(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """Return the targets in the znode of a legacy tool; None if there is no such znode."""
        return await self._legacy(
            paths.REASSIGN_PARTITIONS, schema.decode_reassignment, Signal.LEGACY_REASSIGNMENT, {}
        )

    async def legacy_election(self) -> frozenset[TopicPartition] | None:
        """Return the partitions in the preferred-election znode of a legacy tool; None without a znode."""
        nothing: frozenset[TopicPartition] = frozenset()
        return await self._legacy(
            paths.PREFERRED_REPLICA_ELECTION,
            schema.decode_preferred_election,
            Signal.LEGACY_ELECTION,
            nothing,
        )

    async def _messages(
        self,
        parent: str,
        prefix: str,
        decode: Callable[[bytes], Message],
        signal: Signal,
    ) -> Mapping[str, Message | None]:
        children = await self._zookeeper.children(parent, self._callbacks[signal])
        names = [f"{parent}/{child}" for child in children if child.startswith(prefix)]
        found = await self._zookeeper.get_many(names)
        decoded = schema.decode_each(names, found, lambda _, entry: decode(entry[0]))
        return {name: decoded.get(name) for name in names}

    async def _legacy(
        self,
        path: str,
        decode: Callable[[bytes], Message],
        signal: Signal,
        nothing: Message,
    ) -> Message | None:
        if await self._zookeeper.exists(path, self._callbacks[signal]) is None:
            return None
        try:
            data, _ = await self._zookeeper.get(path)
            return decode(data)
        except NoNodeError:
            return None
        except SchemaError as error:
            logger.error("the request in %s is ignored: %s", path, error)
            return nothing

    # Watch callbacks, on the loop; they only mark a signal.

    def _on_change(self, signal: Signal, event: WatchEvent) -> None:
        self._mark(signal)

    def _on_assignment(self, event: WatchEvent) -> None:
        self.changed_topics.add(event.path.rpartition("/")[2])
        self._mark(Signal.ASSIGNMENTS)

    def _on_state(self, event: WatchEvent) -> None:
        topic, _, number, _ = event.path.removeprefix(f"{paths.TOPICS}/").split("/")
        partition = TopicPartition(topic, int(number))
        self.watched_partitions.discard(partition)
        self.changed_partitions.add(partition)
        self._mark(Signal.STATES)
