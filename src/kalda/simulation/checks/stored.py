"""Compares brokers with the tree of the coordination server while a simulation runs: `StoredState`.

What it checks:

- a leader's in-sync replicas are those that its version of the partition's znode holds;
- every in-sync replica has what is committed, unless its machine has lost power;
- nothing is committed while fewer replicas than ``min.insync.replicas`` are in sync;
- the session of a broker that has ended expires;
- a transaction that is complete has its markers (`OpenTransactions`).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kalda.broker.replicas.partition import Partition
from kalda.cluster import paths
from kalda.cluster.schema import PartitionState, SchemaError, decode_partition_state, decode_topic
from kalda.common.types import TopicPartition, is_other_topic
from kalda.simulation.checks.transactions import OpenTransactions
from kalda.simulation.cluster import SESSION_TIMEOUT_MS, SimulatedCluster, StoredTree
from kalda.simulation.history import History

EXPIRY_SECONDS: Final = SESSION_TIMEOUT_MS / 1000 + 5
"""A session expires at the next bucket behind its time-out, and its end is a write like others."""

_NONE: Final[Mapping[TopicPartition, Partition]] = {}


class _Commits(NamedTuple):
    """What a leader had committed, and with which in-sync replicas."""

    leader: int
    version: int
    """Of the partition's znode."""
    isr: tuple[int, ...]
    high_watermark: int


class _Stored:
    """A partition's znode at the last look, since most looks find the same."""

    __slots__ = ("data", "path", "state")

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.data: bytes | None = None
        self.state: PartitionState | None = None


class StoredState:
    """Looks at the coordination server's tree beside the brokers' state."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self._cluster: Final = cluster
        self._history: Final = history
        self._committed: Final[dict[tuple[TopicPartition, int], _Commits]] = {}
        """What was committed at the last look, by partition and topic id."""
        self._commits: Final[dict[Partition, tuple[tuple[TopicPartition, int], _Commits]]] = {}
        """The key and the value that each leader had there at its last look: most looks find the same."""
        self._down_since: Final[dict[int, float]] = {}
        """When each broker's process was seen as ended, while the coordination server ran all the time."""
        self._transactions: Final = OpenTransactions(cluster, history)
        self._stored: Final[dict[TopicPartition, _Stored]] = {}

    def look(self, hosted: Mapping[int, Mapping[TopicPartition, Partition]]) -> None:
        """Compare once.

        Args:
            hosted: The partitions of each serving broker.
        """
        tree = self._cluster.tree
        self._look_at_sessions(tree)
        leaders: list[tuple[int, Partition]] = []
        for broker_id, partitions in hosted.items():
            for partition in partitions.values():
                if partition.is_leader and not partition.is_offline:
                    committed = partition.log.high_watermark
                    self._look_at_commits(broker_id, partition, committed)
                    name = partition.topic_partition
                    for replica_id in partition.isr:
                        replica = hosted.get(replica_id, _NONE).get(name)
                        if replica is not None and replica.log.log_end_offset < committed:
                            self._look_at_replica(broker_id, partition, committed, replica_id, replica)
                    if tree is not None and self._compare(tree, broker_id, partition):
                        leaders.append((broker_id, partition))
        self._transactions.look(leaders)

    def _compare(self, tree: StoredTree, broker_id: int, partition: Partition) -> bool:
        """Compare a leader with the znode; return whether it is the one that the znode names."""
        name = partition.topic_partition
        seen = self._stored.get(name)
        if seen is None:
            seen = self._stored[name] = _Stored(paths.partition_state(name))
        node = tree.nodes.get(seen.path)
        if node is None:
            return False
        if seen.state is None or seen.data is not node.data:
            seen.data = node.data
            try:
                seen.state = decode_partition_state(name, node.data or b"", -1)
            except SchemaError:
                seen.state = None
        stored = seen.state
        if stored is None or stored.leader != broker_id or stored.leader_epoch != partition.leader_epoch:
            return False
        if node.version != partition.partition_epoch or stored.isr == partition.isr:
            return True
        if set(stored.isr) != set(partition.isr) and _is_same_topic(tree, partition):
            self._history.violate(
                "a leader uses the stored in-sync replicas",
                f"{name} has {sorted(partition.isr)} on its leader {broker_id} and {sorted(stored.isr)} in "
                f"version {node.version} of its znode",
            )
        return True

    def _look_at_commits(self, broker_id: int, partition: Partition, committed: int) -> None:
        isr, version = partition.isr, partition.partition_epoch
        seen = self._commits.get(partition)
        if seen is not None:
            key, last = seen
            # Another broker that takes itself for the leader may have been looked at in between.
            if (
                last.high_watermark == committed
                and last.version == version
                and last.isr is isr
                and self._committed.get(key) is last
            ):
                return
        name, log = partition.topic_partition, partition.log
        wanted = min(log.config.min_insync_replicas, len(partition.replicas))
        now = _Commits(broker_id, version, isr, committed)
        key = (name, partition.topic_id.int)
        before = self._committed.get(key)
        self._committed[key] = now
        self._commits[partition] = (key, now)
        if before is None or committed <= before.high_watermark or len(isr) >= wanted:
            return
        # In one version of the znode, so that the replicas were the same all the time.
        if (before.leader, before.version, len(before.isr)) == (broker_id, version, len(isr)):
            self._history.violate(
                "nothing is committed with fewer replicas than min.insync.replicas",
                f"{name} on {broker_id}: from {before.high_watermark} to {committed} with "
                f"{list(isr)} in sync, {wanted} are needed",
            )

    def _look_at_replica(
        self, leader_id: int, partition: Partition, committed: int, broker_id: int, replica: Partition
    ) -> None:
        """Look at a replica in sync whose log ends before what its leader has committed."""
        if broker_id == leader_id:
            return
        if is_other_topic(replica.topic_id, partition.topic_id) or replica.is_offline:
            return
        # A leader that was replaced does not know yet who is in sync.
        if replica.leader_epoch != partition.leader_epoch:
            return
        if not self._cluster.machine(broker_id).disk.power_losses:
            self._history.violate(
                "in-sync replicas have what is committed",
                f"{partition.topic_partition} is committed to {committed} on {leader_id}, and ends at "
                f"{replica.log.log_end_offset} on {broker_id}",
            )

    def _look_at_sessions(self, tree: StoredTree | None) -> None:
        zookeeper = self._cluster.zookeeper
        is_up = tree is not None and zookeeper is not None and not zookeeper.has_ended
        for broker_id, process in self._cluster.brokers.items():
            if not is_up or not process.has_ended or (zookeeper is not None and zookeeper.loop.is_held):
                self._down_since.pop(broker_id, None)
                continue
            since = self._down_since.setdefault(broker_id, self._history.now)
            if self._history.now - since > EXPIRY_SECONDS:
                assert tree is not None, "looked at above"
                if paths.broker(broker_id) in tree.nodes:
                    self._history.violate(
                        "sessions expire",
                        f"broker {broker_id} ended at {since:.1f} and is registered still",
                    )


def _is_same_topic(tree: StoredTree, partition: Partition) -> bool:
    """Whether the topic is the one that the leader has, and not one created again under its name."""
    topic = partition.topic_partition.topic
    node = tree.nodes.get(paths.topic(topic))
    if node is None:
        return False
    try:
        return not is_other_topic(decode_topic(topic, node.data or b"").topic_id, partition.topic_id)
    except SchemaError:
        return False
