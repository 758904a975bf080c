"""Bugs that are planted one at a time, to see whether and how soon the simulation finds them.

Each is a patch of the brokers, the coordinators or the coordination server in a child process. Run it as

    python -m tests.simulation.planted [--schedules 1000] [--starts 5] [--jobs 2] [NAME…]

to get, for each bug, the number of schedules until it was found from several first seeds, and its median.
`--first SEED --schedules 1 NAME` replays the seed that found one, and

    python -m tests.simulation.planted --plant NAME simulate --seed SEED --seconds 30 [--shrink]

runs `kalda` with the bug, with all options that `kalda simulate` has; those of etcd need
``--coordination etcd``.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kalda.broker.control_plane.requests import ControllerRequests
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.delayed_produce import ProduceWait
from kalda.broker.replicas.follower import fetcher_core
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.replicas.role_changes import RoleChanges
from kalda.broker.share.dead_letters import DeadLetters
from kalda.broker.share.led_share_partition import LedSharePartition
from kalda.broker.transactions.marker_appends import Marker, MarkerAppends
from kalda.cli import main as kalda
from kalda.cluster import isr_store
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.controller import partition_leadership, partition_state_machine
from kalda.coordinator.group.classic.classic_group import ClassicGroup
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.share.delivery_state import PartitionState
from kalda.coordinator.share.record_turns import RecordTurns
from kalda.coordinator.share.share_partition import SharePartition
from kalda.coordinator.share.share_shard import ShareShard
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.etcd import messages
from kalda.etcd.changes import Changes
from kalda.etcd.link import EtcdLink
from kalda.etcd.requests import Requests
from kalda.etcd.transaction import Transaction
from kalda.simulation.cluster import ETCD, ZOOKEEPER
from kalda.simulation.run import WORKLOADS, run, warm_up
from kalda.simulation.runner import processors, run_apart, run_many
from kalda.simulation.schedule import Outcome, Schedule, draw
from kalda.storage.log_types import FetchIsolation
from kalda.storage.producer_state_entry import ProducerStateEntry
from kalda.storage.producer_state_manager import ProducerStateManager
from kalda.storage.unified_log import UnifiedLog
from kalda.zookeeper.port import SetData
from kalda.zookeeper.server import txn_log
from kalda.zookeeper.server.session_tracker import SessionTracker
from kalda.zookeeper.server.watches import WatchTable

LOST_WATCH_EVERY: Final = 20
STARTS: Final = (1, 10_001, 20_001, 30_001, 40_001)
SCHEDULES_MAX: Final = 1000
SECONDS: Final = 30.0
"""Of faults in each schedule: a minute finds about as many bugs, in twice the time."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, how it is planted in this process, and the workloads that can meet it."""

    name: str
    plant: Callable[[], None]
    workloads: tuple[str, ...] = ()
    """All of them if it names none."""
    engine: str = ZOOKEEPER
    """What keeps the cluster's metadata: a bug of one engine is not met on another."""


BUGS: Final[dict[str, PlantedBug]] = {}


def _bug(
    name: str, *workloads: str, engine: str = ZOOKEEPER
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(plant: Callable[[], None]) -> Callable[[], None]:
        BUGS[name] = PlantedBug(name, plant, workloads, engine)
        return plant

    return add


def _patch(owner: Any, name: str, function: Any) -> None:
    setattr(owner, name, function)


def _nothing(*arguments: Any, **options: Any) -> None:
    """Do nothing, where something should be checked or done."""


# Replication.


@_bug("high watermark from the leader alone")
def _high_watermark_of_leader() -> None:
    def advance(self: Partition, now: float) -> bool:
        return self.log.advance_high_watermark(self.log.log_end_offset)

    _patch(Partition, "maybe_advance_high_watermark", advance)


@_bug("high watermark from the wrong replica")
def _high_watermark_of_fastest() -> None:
    def advance(self: Partition, now: float) -> bool:
        ends = [state.log_end_offset for state in self.followers.values()]
        target = min(max(ends, default=self.log.log_end_offset), self.log.log_end_offset)
        return target > self.log.high_watermark and self.log.advance_high_watermark(target)

    _patch(Partition, "maybe_advance_high_watermark", advance)


@_bug("acks=all acknowledged by the leader alone")
def _early_acknowledgement() -> None:
    _patch(ProduceWait, "outcome", lambda self: ErrorCode.NONE)


@_bug("epoch of a follower's log unchecked in fetch")
def _epoch_unchecked() -> None:
    _patch(ReplicaManager, "_diverging_epoch", _nothing)


@_bug("ISR shrunk without a write")
def _unwritten_shrink() -> None:
    def shrink(self: Partition, now: float) -> None:
        lagging = self.out_of_sync_replicas(now) if self.is_leader and self.pending_isr is None else ()
        if lagging:
            self._set_isr(tuple(each for each in self.isr if each not in lagging))

    _patch(Partition, "propose_shrink", shrink)


@_bug("ISR expanded too early")
def _early_expansion() -> None:
    def expand(self: Partition, replica: int) -> Any:
        if self.pending_isr is not None or replica in self.isr or replica not in self.followers:
            return None
        return self._propose((*self.isr, replica), is_expansion=True)

    _patch(Partition, "propose_expansion", expand)


@_bug("ISR written whatever its version")
def _unconditional_isr() -> None:
    def set_data(path: str, data: bytes, version: int) -> SetData:
        return SetData(path, data, -1)

    _patch(isr_store, "SetData", set_data)


@_bug("min.insync.replicas unchecked")
def _min_isr_unchecked() -> None:
    _patch(Partition, "min_in_sync_replicas", property(lambda self: 1))


@_bug("truncation to the high watermark")
def _truncation_to_high_watermark() -> None:
    become_follower = Partition.become_follower

    def follow(self: Partition, leadership: Any) -> bool:
        is_changed = become_follower(self, leadership)
        if self.log.high_watermark < self.log.log_end_offset:
            self.log.truncate_to(self.log.high_watermark)
        return is_changed

    def offset(log: Any, leader_epoch: int, leader_end_offset: int) -> int:
        return int(min(log.high_watermark, log.log_end_offset))

    _patch(Partition, "become_follower", follow)
    _patch(fetcher_core, "offset_to_truncate_to", offset)


@_bug("uncommitted records visible")
def _uncommitted_reads() -> None:
    read = UnifiedLog.read

    def read_all(self: UnifiedLog, offset: int, max_bytes: int, isolation: Any, *rest: Any) -> Any:
        if isolation is FetchIsolation.HIGH_WATERMARK:
            isolation = FetchIsolation.LOG_END
        return read(self, offset, max_bytes, isolation, *rest)

    _patch(UnifiedLog, "read", read_all)


# The controller and the coordination server.


@_bug("unclean election")
def _unclean_election() -> None:
    next_state = partition_state_machine.next_state

    def unclean(*arguments: Any, is_unclean_allowed: bool) -> Any:
        return next_state(*arguments, is_unclean_allowed=True)

    _patch(partition_leadership, "next_state", unclean)


@_bug("controller epoch unchecked")
def _controller_epoch_unchecked() -> None:
    roles = RoleChanges.apply_leader_and_isr

    def apply(self: RoleChanges, request: Any) -> Any:
        self._controller_epoch = -1
        return roles(self, request)

    brokers = MetadataCache.apply_brokers

    def apply_brokers(self: MetadataCache, update: Any) -> None:
        self.controller_epoch = -1
        brokers(self, update)

    _patch(ControllerRequests, "_check", _nothing)
    _patch(RoleChanges, "apply_leader_and_isr", apply)
    _patch(MetadataCache, "apply_brokers", apply_brokers)


@_bug("coordination server acknowledges before a sync")
def _unsynced_transactions() -> None:
    log = txn_log.TxnLog
    before = log.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        before(self, *arguments, **options)
        self._sync = False

    _patch(log, "__init__", init)


@_bug("lost watch")
def _lost_watch() -> None:
    fire = WatchTable.fire
    fired = 0

    def fire_most(self: WatchTable, events: Iterable[Any]) -> list[Any]:
        nonlocal fired
        kept = []
        for each in fire(self, events):
            fired += 1
            if fired % LOST_WATCH_EVERY:
                kept.append(each)
        return kept

    _patch(WatchTable, "fire", fire_most)


@_bug("session never expires")
def _endless_session() -> None:
    def advance(self: SessionTracker, reading_ms: float) -> list[Any]:
        return []

    _patch(SessionTracker, "advance", advance)


@_bug("two producer id blocks the same")
def _same_block() -> None:
    async def allocate(
        self: ClusterStore, broker_id: int, size: int = PRODUCER_ID_BLOCK_SIZE
    ) -> ProducerIdBlock:
        return ProducerIdBlock(broker_id, 0, size - 1)

    _patch(ClusterStore, "allocate_producer_ids", allocate)


# Producers and transactions.


@_bug("sequence unchecked")
def _sequence_unchecked() -> None:
    _patch(ProducerStateManager, "check_append", _nothing)


@_bug("gap in a sequence unchecked")
def _gap_unchecked() -> None:
    _patch(ProducerStateManager, "_check_sequence", _nothing)


@_bug("duplicates unknown after a failover")
def _duplicates_unknown() -> None:
    become_leader = Partition.become_leader

    def lead(self: Partition, leadership: Any) -> bool:
        if not self.is_leader:
            for entry in self.log.producer_state.producers.values():
                entry.batches.clear()
        return become_leader(self, leadership)

    def epoch_of(self: ProducerStateEntry) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    _patch(ProducerStateEntry, "last_sequence", property(epoch_of))
    _patch(Partition, "become_leader", lead)
    check = ProducerStateManager._check_sequence

    def check_known(self: ProducerStateManager, entry: Any, epoch: int, first_sequence: int) -> None:
        if entry.batches:
            check(self, entry, epoch, first_sequence)

    _patch(ProducerStateManager, "_check_sequence", check_known)


@_bug("commit before the marker", "transactions", "exactly-once")
def _commit_before_marker() -> None:
    def on_prepared(self: TransactionCoordinator, shard: Any, metadata: Any) -> None:
        from kalda.coordinator.transaction.transaction_coordinator import MarkerWork

        epoch = self._runtime.leader_epoch(shard.partition)
        work = MarkerWork(shard.partition, epoch, metadata, _nothing)
        self._works[metadata.transactional_id] = work
        if work.remaining:
            self._markers.send(work)
        done = MarkerWork(shard.partition, epoch, metadata, _nothing)
        done.remaining.clear()
        self._works[metadata.transactional_id] = done
        self._on_markers_written(done)

    _patch(TransactionCoordinator, "on_prepared", on_prepared)


@_bug("marker sent twice with another outcome", "transactions", "exactly-once")
def _other_marker() -> None:
    append = MarkerAppends._append
    sent = 0

    def append_both(self: MarkerAppends, marker: Marker, topic_partition: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent % 10 == 0:
            other = Marker(
                marker.producer_id,
                marker.producer_epoch,
                not marker.is_commit,
                marker.coordinator_epoch,
                marker.partitions,
                marker.transaction_version,
            )
            append(self, other, topic_partition)
        return append(self, marker, topic_partition)

    _patch(MarkerAppends, "_append", append_both)


@_bug("last stable offset ignored", "transactions", "exactly-once")
def _last_stable_offset_ignored() -> None:
    _patch(UnifiedLog, "last_stable_offset", property(lambda self: self.high_watermark))


# Coordinators.


@_bug("stale coordinator answers", "groups", "exactly-once", "transactions")
def _stale_coordinator() -> None:
    answer = CoordinatorRuntime._answer

    def answer_anyway(self: Any, partition: Any, pending: Any, response: object, timeout_ms: int) -> None:
        try:
            self._log.high_watermark(partition.number)
        except ApiError:
            pending.complete(response)
        else:
            answer(self, partition, pending, response, timeout_ms)

    _patch(CoordinatorRuntime, "resign", _nothing)
    _patch(CoordinatorRuntime, "_answer", answer_anyway)


@_bug("offset commit acknowledged before it is replicated", "groups", "exactly-once", "transactions")
def _early_commit() -> None:
    def answer(self: Any, partition: Any, pending: Any, response: object, timeout_ms: int) -> None:
        pending.complete(response)

    _patch(CoordinatorRuntime, "_answer", answer)


@_bug("generation unchecked at commit", "groups", "exactly-once")
def _generation_unchecked() -> None:
    for kind in (ClassicGroup, ConsumerGroup):
        _patch(kind, "validate_offset_commit", _nothing)


# Share groups.


@_bug("share: deliveries not stored", "share-groups")
def _deliveries_unstored() -> None:
    progress = SharePartition.progress

    def without_counts(self: SharePartition, transitions: Any) -> Any:
        found = progress(self, transitions)
        return found._replace(ranges=tuple(each._replace(deliveries=0) for each in found.ranges))

    _patch(SharePartition, "progress", without_counts)


@_bug("share: acknowledged although it was not stored", "share-groups")
def _acknowledged_unstored() -> None:
    on_written = LedSharePartition._on_written

    def confirm(self: Any, core: Any, batch: Any, done: Pending[None]) -> None:
        on_written(self, core, batch, Pending.of(None))

    _patch(LedSharePartition, "_on_written", confirm)


@_bug("share: leader epoch unchecked at a write of state", "share-groups")
def _share_epoch_unchecked() -> None:
    write = ShareShard.write

    def write_anyway(self: ShareShard, key: Any, change: Any) -> Any:
        state = self.state(key)
        return write(self, key, change if state is None else change._replace(leader_epoch=state.leader_epoch))

    _patch(ShareShard, "write", write_anyway)


@_bug("share: every tenth batch of letters dropped", "share-groups")
def _dropped_letters() -> None:
    write = DeadLetters.write
    written = 0

    def write_most(self: DeadLetters, group_id: str, name: Any, log: Any, dead: Any) -> Pending[Any]:
        nonlocal written
        written += 1
        return write(self, group_id, name, log, dead) if written % 10 else Pending.of(list(dead))

    _patch(DeadLetters, "write", write_most)


@_bug("share: the end of one session releases the records of all", "share-groups")
def _all_released() -> None:
    def acquired_by_anybody(self: SharePartition, member_id: str) -> list[Any]:
        return [each for each in self._ranges if each.member and each.transition is None]

    _patch(SharePartition, "_acquired_by", acquired_by_anybody)


@_bug("share: times and keys forgotten by the next leader", "share-groups")
def _forgotten_facts() -> None:
    _patch(RecordTurns, "forget", _nothing)


@_bug("share: creation resets what there is", "share-groups")
def _creation_resets() -> None:
    initialize = ShareShard.initialize

    def reset(self: ShareShard, key: Any, state_epoch: int, start_offset: int) -> Any:
        stored = self.state(key)
        if stored is None or state_epoch <= stored.state_epoch:
            return initialize(self, key, state_epoch, start_offset)
        state = PartitionState(state_epoch, start_offset, complete_count=0)
        return Result([self._snapshot(key, self._stored[key], state)], None)

    _patch(ShareShard, "initialize", reset)


# Finding them.


# etcd.


@_bug("etcd: results overtake changes", "coordination", engine=ETCD)
def _overtaking_results() -> None:
    async def wait_not(self: Changes, connection: EtcdLink, revision: int) -> None:
        del self, connection, revision

    _patch(Changes, "wait_reported", wait_not)


@_bug("etcd: write sent again although it took effect", "coordination", engine=ETCD)
def _repeated_write() -> None:
    settle = Requests.settle

    async def unsettled(self: Requests, connection: EtcdLink) -> None:
        fence = self._fence
        fence.version = fence.found(await connection.txn(messages.txn((), (fence.read(),)))).version
        await settle(self, connection)

    _patch(Requests, "settle", unsettled)


@_bug("etcd: lost request reported from a later moment", "coordination", engine=ETCD)
def _later_history() -> None:
    reads = Transaction._reads

    def later(self: Transaction, revision: int) -> list[bytes]:
        return reads(self, revision and revision + 1)

    _patch(Transaction, "_reads", later)


@_bug("etcd: compaction unnoticed", "coordination", engine=ETCD)
def _unnoticed_compaction() -> None:
    async def skip(self: Changes, connection: EtcdLink, why: str) -> None:
        read = messages.range_op(self._keys.znode("/"))
        self.watches.caught_up((await connection.txn(messages.txn((), (read,)))).revision)

    _patch(Changes, "_catch_up", skip)


def run_planted(name: str, schedule: Schedule) -> Outcome:
    """Plant a bug in this process and carry out a schedule."""
    BUGS[name].plant()
    return run(schedule)


def workloads_of(name: str) -> tuple[str, ...]:
    """Return the workloads that can meet a bug, of those that exist."""
    return tuple(each for each in BUGS[name].workloads or WORKLOADS if each in WORKLOADS)


def find(
    name: str, first: int, *, jobs: int = 1, schedules_max: int = SCHEDULES_MAX
) -> tuple[int, Outcome] | None:
    """Return how many schedules it took to find a bug, and the outcome; None if none of them found it."""
    drawn: Iterator[Schedule] = (
        draw(seed, workloads_of(name), SECONDS, engine=BUGS[name].engine)
        for seed in range(first, first + schedules_max)
    )
    with contextlib.closing(run_many(drawn, partial(run_planted, name), jobs=jobs)) as runs:
        for each in runs:
            # A schedule that fails without the bug as well has found something else.
            if each is not None and each[1].violations and not run_apart(each[0], run).violations:
                return each[0].seed - first + 1, each[1]
    return None


def main() -> None:
    """Print how soon each bug is found, or run `kalda` with one."""
    if sys.argv[1:2] == ["--plant"]:
        BUGS[sys.argv[2]].plant()
        del sys.argv[1:3]
        kalda()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--schedules", type=int, default=SCHEDULES_MAX)
    parser.add_argument("--starts", type=int, default=len(STARTS))
    parser.add_argument("--first", type=int, help="count from this seed only")
    parser.add_argument("--jobs", type=int, default=processors())
    arguments = parser.parse_args()
    starts = STARTS[: arguments.starts] if arguments.first is None else (arguments.first,)
    warm_up()
    is_any_missed = False
    for name in arguments.names or BUGS:
        if not workloads_of(name):
            print(f"{name}: no workload can meet it", flush=True)
            continue
        counts: list[float] = []
        for first in starts:
            found = find(name, first, jobs=arguments.jobs, schedules_max=arguments.schedules)
            counts.append(float("inf") if found is None else found[0])
            if found is not None:
                seed, rule = first + found[0] - 1, found[1].violations[0]
                print(f"{name}: seed {seed}, digest {found[1].digest}: {rule:.110}", flush=True)
        is_any_missed |= float("inf") in counts
        print(f"{name}: median {statistics.median(counts):g} of {counts}", flush=True)
    sys.exit(is_any_missed)


if __name__ == "__main__":
    main()
