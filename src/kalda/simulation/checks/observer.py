"""Looks at the brokers again and again while a simulation runs: `Observer`.

It reads the state of the brokers' own objects, which no client could see at one moment. What it checks:

- one leader for each epoch of a partition;
- the high watermark of a leader never goes back within its epoch, while it runs;
- what was below a high watermark stays: the same batches at the same offsets, on every later leader, and in
  the end on every replica.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kalda.broker.replicas.partition import Partition
from kalda.common.types import UUID, TopicPartition
from kalda.records.batch import iter_headers
from kalda.records.errors import RecordsError
from kalda.simulation.cluster import SimulatedCluster
from kalda.simulation.history import History
from kalda.storage.errors import StorageError
from kalda.storage.log_types import FetchIsolation
from kalda.storage.unified_log import UnifiedLog

_READ_BYTES: Final = 1024 * 1024


class _Incarnation(NamedTuple):
    """A partition of a topic; a topic that is created again under its name is another one."""

    topic_partition: TopicPartition
    topic_id: int

    def __str__(self) -> str:
        return str(self.topic_partition)


class Observer:
    """Remembers what it saw, and reports what contradicts it."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self._cluster: Final = cluster
        self._history: Final = history
        self._are_topics_named_by_id: Final = cluster.knows_topic_ids
        self._leaders: Final[dict[tuple[_Incarnation, int], int]] = {}
        self._watermarks: Final[dict[tuple[_Incarnation, int, int], int]] = {}
        """By epoch and start of the broker: one that restarts as leader has that of its last checkpoint, and
        readers beyond wait."""
        self._committed: Final[dict[_Incarnation, dict[int, tuple[int, int]]]] = {}
        """The CRC and last offset of each batch that was below a high watermark, by base offset."""
        self._read_to: Final[dict[_Incarnation, int]] = {}
        self._last: Final[dict[Partition, tuple[UUID, int, int]]] = {}
        """Topic id, epoch and high watermark of each leader at the last look: most looks find the same."""

    def look(self, hosted: Mapping[int, Mapping[TopicPartition, Partition]]) -> None:
        """Compare the present state of the leaders with what was seen before.

        Args:
            hosted: The partitions of each serving broker.
        """
        for broker_id, partitions in hosted.items():
            for partition in partitions.values():
                if partition.is_leader:
                    self._look_at(broker_id, partition)

    def read_committed(self) -> None:
        """Remember the batches that are below a high watermark now."""
        for _, partition in self._partitions():
            if partition.is_leader and not partition.is_offline:
                self._remember(partition)

    def check_replicas(self) -> None:
        """Compare all replicas with what was seen below high watermarks; the cluster must be at rest."""
        ends: dict[_Incarnation, set[tuple[int, int]]] = {}
        for broker_id, partition in self._partitions():
            name = self._incarnation(partition)
            log = partition.log
            ends.setdefault(name, set()).add((log.log_end_offset, log.high_watermark))
            if log.config.is_compacted:
                continue
            batches = _batches(log, log.log_start_offset, log.log_end_offset)
            for base_offset, seen in self._committed.get(name, {}).items():
                if base_offset < log.log_start_offset:
                    continue
                if batches.get(base_offset) != seen:
                    self._history.violate(
                        "what is committed stays",
                        f"{name} on broker {broker_id}: at {base_offset} is {batches.get(base_offset)}, "
                        f"was {seen}",
                    )
        for name, found in ends.items():
            if len(found) > 1:
                self._history.violate("replicas are equal", f"{name} ends at {sorted(found)}")

    def is_at_rest(self) -> bool:
        """Whether all brokers serve, all replicas are in sync and have everything, and one controls."""
        cluster = self._cluster
        if not all(map(cluster.is_serving, cluster.brokers)):
            return False
        active = [each for each in cluster.servers.values() if each.services.controller.is_active]
        if len(active) != 1:
            return False
        led: set[_Incarnation] = set()
        hosted: set[_Incarnation] = set()
        for _, partition in self._partitions():
            hosted.add(self._incarnation(partition))
            if partition.is_offline or partition.log.missing.is_withheld:
                return False
            if partition.is_leader:
                led.add(self._incarnation(partition))
                if set(partition.isr) != set(partition.replicas):
                    return False
                if partition.log.high_watermark != partition.log.log_end_offset:
                    return False
        return led == hosted and self._are_watermarks_known()

    def what_unrest(self) -> str:
        """Describe why the cluster is not at rest."""
        down = [each for each in self._cluster.brokers if not self._cluster.is_serving(each)]
        states = [
            f"{each} on {broker_id}: end {each.log.log_end_offset}, high watermark {each.log.high_watermark}"
            for broker_id, each in self._partitions()
            if each.is_offline
            or (each.is_leader and set(each.isr) != set(each.replicas))
            or each.log.high_watermark != each.log.log_end_offset
        ]
        return f"down: {down}; " + "; ".join(states[:6])

    def _are_watermarks_known(self) -> bool:
        return all(
            partition.log.high_watermark == partition.log.log_end_offset
            for _, partition in self._partitions()
        )

    def _partitions(self) -> Iterator[tuple[int, Partition]]:
        for broker_id, partitions in self._cluster.partitions().items():
            for partition in list(partitions.values()):
                yield broker_id, partition

    def _incarnation(self, partition: Partition) -> _Incarnation:
        # Where some brokers know no topic ids, no topic is created again under its name.
        topic_id = partition.topic_id.int if self._are_topics_named_by_id else 0
        return _Incarnation(partition.topic_partition, topic_id)

    def _look_at(self, broker_id: int, partition: Partition) -> None:
        epoch, watermark = partition.leader_epoch, partition.log.high_watermark
        now = (partition.topic_id, epoch, watermark)
        if self._last.get(partition) == now:
            return
        self._last[partition] = now
        name = self._incarnation(partition)
        leader = self._leaders.get((name, epoch))
        if leader is None:
            self._leaders[name, epoch] = broker_id
            self._history.note(f"broker-{broker_id} leads {name} in epoch {epoch}, isr {partition.isr}")
        elif leader != broker_id:
            self._history.violate(
                "one leader for each epoch", f"{name} in epoch {epoch}: {leader} and {broker_id}"
            )
        key = (name, epoch, self._cluster.machine(broker_id).starts)
        before = self._watermarks.get(key, -1)
        if watermark < before:
            self._history.violate(
                "the high watermark never goes back",
                f"{name} in epoch {epoch} on broker {broker_id}: from {before} to {watermark}",
            )
        self._watermarks[key] = watermark

    def _remember(self, partition: Partition) -> None:
        name, log = self._incarnation(partition), partition.log
        if log.config.is_compacted:
            return
        start = max(self._read_to.get(name, 0), log.log_start_offset)
        if start >= log.high_watermark:
            return
        known = self._committed.setdefault(name, {})
        for base_offset, seen in _batches(log, start, log.high_watermark).items():
            if known.setdefault(base_offset, seen) != seen:
                self._history.violate(
                    "what is committed stays",
                    f"{name}: at {base_offset} was {known[base_offset]}, is {seen} on {partition}",
                )
        self._read_to[name] = log.high_watermark


def _batches(log: UnifiedLog, start: int, end: int) -> dict[int, tuple[int, int]]:
    """Return the CRC and the last offset of each batch from an offset to before another."""
    found: dict[int, tuple[int, int]] = {}
    offset = start
    while offset < end:
        try:
            data = log.read(offset, _READ_BYTES, FetchIsolation.LOG_END).records.read()
        except (StorageError, OSError):
            break
        before = offset
        try:
            for _, header in iter_headers(data):
                if header.base_offset >= end:
                    return found
                found[header.base_offset] = (header.crc, header.last_offset)
                offset = header.last_offset + 1
        except RecordsError:
            break
        if offset == before:
            break
    return found
