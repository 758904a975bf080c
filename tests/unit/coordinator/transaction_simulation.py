"""A transaction coordinator over a log in memory: producers ask, tests write markers, crash it, replicate."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, RuntimeConfig
from kalda.coordinator.transaction import transaction_log
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_coordinator import (
    MarkerWork,
    TransactionConfig,
    TransactionCoordinator,
)
from kalda.coordinator.transaction.transaction_metadata import Identity, TransactionMetadata
from kalda.coordinator.transaction.transaction_shard import TransactionShard
from kalda.records.batch import iter_headers
from kalda.records.record import iter_records
from kalda.runtime.clock import ManualClock
from tests.unit.coordinator.fakes import FakeLog, FakeLoop

T = TypeVar("T")
PARTITION = 0
CONFIG = TransactionConfig(two_phase_commit_enable=True)
A, B, OFFSETS = TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("__consumer_offsets", 3)


@dataclass
class FakeMarkers:
    """Markers that are written when the test says so."""

    works: list[MarkerWork] = field(default_factory=list)
    sent: list[tuple[Identity, bool, int, TopicPartition]] = field(default_factory=list)
    """Producer, whether committed, coordinator's epoch and partition of every marker that was asked for."""

    def send(self, work: MarkerWork) -> None:
        self.works.append(work)
        metadata = work.metadata
        for each in sorted(metadata.partitions):
            self.sent.append((metadata.identity, metadata.is_commit, work.coordinator_epoch, each))

    def drop(self, state_partition: int) -> None:
        self.works = [work for work in self.works if work.state_partition != state_partition]

    def write(self, partition: TopicPartition) -> None:
        """Have the markers of one partition written."""
        for work in tuple(self.works):
            work.remaining.discard(partition)
            if not work.remaining:
                self.works.remove(work)
                work.on_done(work)

    def write_all(self) -> None:
        for work in tuple(self.works):
            for each in tuple(work.remaining):
                self.write(each)


@dataclass
class FakeIds:
    """Producer ids from 1000 on, unless there are none."""

    next_id: int = 1000
    is_out: bool = False

    def take(self, on_done: Callable[[int | None], None]) -> None:
        if self.is_out:
            on_done(None)
            return
        self.next_id += 1
        on_done(self.next_id - 1)


class Simulation:
    """One coordinator, which can be replaced by another over the same log."""

    def __init__(
        self,
        *,
        version: int = 0,
        config: TransactionConfig = CONFIG,
        is_loaded: bool = True,
    ) -> None:
        self.clock = ManualClock(1_000_000)
        self.loop = FakeLoop(self.clock)
        self.log = FakeLog()
        self.ids = FakeIds()
        self.version = version
        self.config = config
        self.leader_epoch = 0
        self.start()
        if is_loaded:
            self.load()

    def start(self) -> None:
        """Make a coordinator that knows nothing."""
        self.markers = FakeMarkers()
        self.coordinator = TransactionCoordinator(
            self.config,
            self.clock,
            self.markers,
            self.ids,
            self._make_runtime,
            partition_for=lambda _: PARTITION,
            transaction_version=lambda: self.version,
        )

    def _make_runtime(
        self, make_shard: Callable[[int], TransactionShard]
    ) -> CoordinatorRuntime[TransactionShard]:
        self.runtime = CoordinatorRuntime(
            self.log, make_shard, self.clock, self.loop, RuntimeConfig(name="__transaction_state")
        )
        return self.runtime

    def load(self) -> None:
        """Become the leader and load."""
        self.runtime.become_leader(PARTITION, self.leader_epoch)
        self.loop.settle()

    def fail_over(self) -> None:
        """Replace the coordinator by another one, which has only the log."""
        self.runtime.close()
        self.leader_epoch += 1
        self.start()
        self.load()

    def replicate(self) -> None:
        """Replicate all that is in the log."""
        self.log.commit(PARTITION)
        self.runtime.on_high_watermark(PARTITION)
        self.loop.settle()

    # Requests; each returns the answer, which must have come.

    def begin(
        self,
        name: str = "t",
        timeout_ms: int = 60_000,
        expected: Identity | None = None,
        *,
        two_phase: bool = False,
        keep: bool = False,
    ) -> Decision:
        return self.now(
            self.coordinator.begin(
                name, timeout_ms, expected=expected, enables_two_phase_commit=two_phase, keeps_prepared=keep
            )
        )

    def add(self, producer: Identity, *partitions: TopicPartition, name: str = "t") -> ErrorCode:
        return self.now(
            self.coordinator.add_partitions(name, producer, partitions, client_version=self.version)
        ).code

    def verify(
        self, producer: Identity, *partitions: TopicPartition, name: str = "t"
    ) -> dict[TopicPartition, ErrorCode]:
        return self.now(self.coordinator.verify_partitions(name, producer, partitions))

    def end(self, producer: Identity, *, commit: bool, name: str = "t") -> Decision:
        return self.now(self.coordinator.end(name, producer, is_commit=commit, client_version=self.version))

    def state(self, name: str = "t") -> TransactionMetadata | None:
        return self.runtime.shard(PARTITION).get(name)

    def title(self, name: str = "t") -> str:
        metadata = self.state(name)
        return "-" if metadata is None else metadata.state.title

    def now(self, pending: Pending[T]) -> T:
        """The answer, which must be there."""
        self.loop.settle()
        assert pending.is_done, "the answer still waits"
        return pending.value

    def written(self, since: int = 0) -> list[tuple[str, TransactionMetadata | None]]:
        """What the log says, from an offset on."""
        found = []
        for first, _, batch in self.log.batches.get(PARTITION, ()):
            if first < since:
                continue
            for position, header in iter_headers(batch):
                for record in iter_records(batch, position, header):
                    assert record.key is not None
                    value = None if record.value is None else bytes(record.value)
                    decoded = transaction_log.decode(CoordinatorRecord(bytes(record.key), value))
                    assert decoded is not None
                    found.append(decoded)
        return found


def open_transaction(
    simulation: Simulation,
    partitions: Collection[TopicPartition] = (A, B),
    *,
    name: str = "t",
    timeout_ms: int = 60_000,
    two_phase: bool = False,
) -> Identity:
    """Begin a transaction with some partitions; return its producer."""
    producer = simulation.begin(name, timeout_ms, two_phase=two_phase).identity
    assert ErrorCode.NONE is simulation.add(producer, *partitions, name=name)
    return producer
