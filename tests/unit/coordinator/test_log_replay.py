"""Loading a shard: every kind of log that compaction, transactions and crashes leave behind."""

from kalda.common.errors import ErrorCode
from kalda.coordinator.runtime.coordinator_runtime import (
    RELOAD_MS,
    CoordinatorRuntime,
    PartitionState,
    RuntimeConfig,
)
from kalda.coordinator.runtime.load_scheduler import SLICE_SECONDS, SLICE_SECONDS_MAX
from kalda.coordinator.runtime.log_replay import RECORDS_PER_STEP
from kalda.runtime.clock import ManualClock
from tests.unit.coordinator.fakes import FakeLog, FakeLoop, TableShard, record

P = 0


class TickingClock(ManualClock):
    """A clock that moves whenever it is looked at: work takes time."""

    tick_seconds = 0.0

    def monotonic(self) -> float:
        self.advance(self.tick_seconds)
        return super().monotonic()


class Bench:
    def __init__(self, buffer_bytes: int = 1 << 20) -> None:
        self.clock = TickingClock()
        self.loop = FakeLoop(self.clock)
        self.log = FakeLog()
        self.shards: list[TableShard] = []
        self.runtime: CoordinatorRuntime[TableShard] = CoordinatorRuntime(
            self.log,
            self.make_shard,
            self.clock,
            self.loop,
            RuntimeConfig("__topic", load_buffer_bytes=buffer_bytes),
        )

    def make_shard(self, partition: int) -> TableShard:
        shard = TableShard(partition)
        self.shards.append(shard)
        return shard

    def load(self, epoch: int = 1) -> TableShard:
        self.runtime.become_leader(P, epoch)
        self.loop.settle()
        return self.shards[-1]


def test_the_last_value_of_each_key_counts_and_tombstones_delete() -> None:
    bench = Bench()
    bench.log.add(P, record("a", "1"), record("b", "1"))
    bench.log.add(P, record("a", "2"), record("b", None), record("c", "3"))
    shard = bench.load()
    assert {b"a": b"2", b"c": b"3"} == shard.table
    assert ["loaded"] == shard.events
    assert (1, 5) == (bench.runtime.statistics.loads, bench.runtime.statistics.records_loaded)


def test_compacted_logs_have_holes_in_and_between_batches() -> None:
    bench = Bench()
    bench.log.starts[P] = 5
    bench.log.add(P, record("a", "1"), record("b", "2"), base_offset=10, offsets=(12, 17), last_offset=20)
    bench.log.add(P, record("c", "3"), base_offset=40)
    shard = bench.load()
    assert [12, 17, 40] == shard.offsets
    assert {b"a", b"b", b"c"} == shard.table.keys()


def test_a_log_that_begins_in_the_middle_of_a_batch_is_read_from_its_batch() -> None:
    bench = Bench()
    bench.log.add(P, record("a", "1"), record("b", "2"))
    bench.log.starts[P] = 1
    assert {b"a", b"b"} == bench.load().table.keys()


def test_an_end_that_is_not_there_ends_the_load() -> None:
    """Compaction may have taken the last batches; the end offset stays where it was."""
    bench = Bench()
    bench.log.add(P, record("a", "1"))
    bench.log.ends[P] = 9
    shard = bench.load()
    assert PartitionState.ACTIVE is bench.runtime.states()[P]
    bench.log.high_watermarks[P] = 9
    assert bench.runtime.read(P, lambda each: dict(each.table)).is_done
    assert {b"a": b"1"} == shard.table


def test_committed_transactions_count_and_aborted_ones_do_not() -> None:
    bench = Bench()
    bench.log.add(P, record("kept", "1"), producer=(1, 0))
    bench.log.add(P, record("dropped", "1"), producer=(2, 5))
    bench.log.add(P, record("open", "1"), producer=(3, 0))
    bench.log.add(P, record("plain", "1"))
    bench.log.add_marker(P, 2, 5, committed=False)
    bench.log.add_marker(P, 1, 0, committed=True)
    shard = bench.load()
    assert {b"kept", b"plain"} == shard.table.keys()
    assert [3] == list(shard.pending)
    assert ["abort 2/5", "commit 1/0", "loaded"] == shard.events


def test_large_logs_are_read_piece_by_piece() -> None:
    """The last batch of a piece may be cut off; the next piece begins with it."""
    bench = Bench(buffer_bytes=400)
    for number in range(50):
        bench.log.add(P, record(f"key-{number}", "x" * 50))
    shard = bench.load()
    assert 50 == len(shard.table)
    assert list(range(50)) == shard.offsets
    assert bench.log.reads > 10


def test_a_batch_larger_than_the_buffer_is_read_whole() -> None:
    bench = Bench(buffer_bytes=10)
    bench.log.add(P, record("a", "x" * 1000))
    assert 1 == len(bench.load().table)


def test_loading_gives_way_to_other_work() -> None:
    """The loop may not be held; 10,000 records are many slices."""
    bench = Bench()
    for _ in range(20):
        bench.log.add(P, *(record(f"key-{number}", "v") for number in range(RECORDS_PER_STEP * 4)))
    bench.clock.tick_seconds = SLICE_SECONDS / 4
    bench.runtime.become_leader(P, 1)
    turns = 0
    while bench.runtime.states()[P] is PartitionState.LOADING:
        before = len(bench.shards[0].offsets)
        assert 1 == bench.loop.turn()
        turns += 1
        assert len(bench.shards[0].offsets) - before <= RECORDS_PER_STEP * 5
    assert turns > 10
    assert 20 * RECORDS_PER_STEP * 4 == len(bench.shards[0].offsets)


def test_on_a_busy_loop_loading_takes_longer_turns() -> None:
    """Else a coordinator that takes over from a dead one would need seconds for what is 50 ms of work."""
    bench = Bench()
    for _ in range(20):
        bench.log.add(P, *(record(f"key-{number}", "v") for number in range(RECORDS_PER_STEP * 4)))
    bench.clock.tick_seconds = SLICE_SECONDS / 4
    bench.runtime.become_leader(P, 1)
    bench.loop.turn()
    first = len(bench.shards[0].offsets)
    bench.clock.advance(SLICE_SECONDS * 4)
    bench.loop.turn()
    second = len(bench.shards[0].offsets) - first
    bench.clock.advance(SLICE_SECONDS * 1000)
    bench.loop.turn()
    third = len(bench.shards[0].offsets) - second - first
    assert first < second < third <= RECORDS_PER_STEP * 4 * SLICE_SECONDS_MAX / SLICE_SECONDS
    bench.clock.tick_seconds = 0.0
    bench.loop.settle()
    assert 20 * RECORDS_PER_STEP * 4 == len(bench.shards[0].offsets)


def test_many_small_batches_give_way_too() -> None:
    bench = Bench()
    for number in range(RECORDS_PER_STEP * 20):
        if number % 3:
            bench.log.add(P, record(f"key-{number}", "v"))
        else:
            bench.log.add_marker(P, number, 0, committed=True)
    bench.clock.tick_seconds = SLICE_SECONDS / 4
    bench.runtime.become_leader(P, 1)
    turns = 0
    while bench.runtime.states()[P] is PartitionState.LOADING:
        bench.loop.turn()
        turns += 1
    assert turns > 5


def test_partitions_are_loaded_one_after_the_other() -> None:
    bench = Bench()
    for partition in range(3):
        bench.log.add(partition, *(record(f"key-{n}", "v") for n in range(RECORDS_PER_STEP * 4)))
        bench.runtime.become_leader(partition, 1)
    bench.clock.tick_seconds = SLICE_SECONDS / 3
    states = []
    while PartitionState.LOADING in bench.runtime.states().values():
        bench.loop.turn()
        states.append(tuple(bench.runtime.states().values()))
    loading, active = PartitionState.LOADING, PartitionState.ACTIVE
    assert {(loading,) * 3, (active, loading, loading), (active, active, loading), (active,) * 3} >= set(
        states
    )
    assert all(len(shard.table) == RECORDS_PER_STEP * 4 for shard in bench.shards)


def test_what_is_written_while_loading_is_loaded_too() -> None:
    bench = Bench()
    bench.log.add(P, *(record(f"key-{number}", "v") for number in range(RECORDS_PER_STEP * 8)))
    bench.clock.tick_seconds = SLICE_SECONDS / 2
    bench.runtime.become_leader(P, 1)
    bench.loop.turn()
    bench.log.add(P, record("late", "1"))
    bench.clock.tick_seconds = 0.0
    bench.loop.settle()
    assert b"late" in bench.shards[0].table


def test_answers_after_a_failover_wait_until_the_rest_is_replicated() -> None:
    bench = Bench()
    bench.log.add(P, record("a", "1"))
    bench.log.high_watermarks[P] = 0
    shard = bench.load()
    read = bench.runtime.read(P, lambda each: dict(each.table))
    assert {b"a": b"1"} == shard.table
    assert not read.is_done
    bench.log.commit(P)
    bench.runtime.on_high_watermark(P)
    assert {b"a": b"1"} == read.value


def test_a_log_that_cannot_be_read_is_tried_again() -> None:
    bench = Bench()
    bench.log.add(P, record("a", "1"))
    bench.log.read_error = ErrorCode.KAFKA_STORAGE_ERROR
    first = bench.load()
    assert PartitionState.FAILED is bench.runtime.states()[P]
    assert 1 == bench.runtime.statistics.load_failures
    bench.log.read_error = None
    bench.loop.advance(RELOAD_MS + 10)
    assert PartitionState.ACTIVE is bench.runtime.states()[P]
    assert ["unloaded"] == first.events
    assert {b"a": b"1"} == bench.shards[-1].table


def test_a_shard_that_cannot_begin_is_made_anew_and_holds_up_no_other() -> None:
    bench = Bench()
    bench.log.add(P, record("a", "1"))
    bench.log.add(P + 1, record("b", "1"))
    bench.runtime.become_leader(P, 1)
    bench.runtime.become_leader(P + 1, 1)
    bench.shards[0].begin_error = ValueError("a fault of ours")
    bench.loop.settle()
    assert {P: PartitionState.FAILED, P + 1: PartitionState.ACTIVE} == bench.runtime.states()
    bench.loop.advance(RELOAD_MS + 10)
    assert PartitionState.ACTIVE is bench.runtime.states()[P]
    assert {b"a": b"1"} == bench.shards[-1].table


def test_a_new_election_is_a_reason_to_try_again_at_once() -> None:
    bench = Bench()
    bench.log.add(P, record("a", "1"))
    bench.log.read_error = ErrorCode.KAFKA_STORAGE_ERROR
    bench.load()
    bench.log.read_error = None
    assert {b"a": b"1"} == bench.load(epoch=2).table
    bench.loop.advance(RELOAD_MS + 10)
    assert 2 == len(bench.shards)


def test_a_corrupt_batch_fails_the_load_of_its_partition_alone() -> None:
    bench = Bench()
    bench.log.add(P, record("a", "1"))
    first, next_offset, batch = bench.log.batches[P][0]
    bench.log.batches[P] = [(first, next_offset, batch[:61] + b"\xff" * (len(batch) - 61))]
    bench.log.add(P + 1, record("b", "1"))
    bench.runtime.become_leader(P + 1, 1)
    bench.load()
    states = bench.runtime.states()
    assert (PartitionState.FAILED, PartitionState.ACTIVE) == (states[P], states[P + 1])


def test_a_shard_that_cannot_take_a_record_fails_its_load() -> None:
    bench = Bench()
    bench.log.add(P, record("a", "1"))
    bench.runtime.become_leader(P, 1)
    bench.shards[0].replay_error = RuntimeError("a bug")
    bench.loop.settle()
    assert PartitionState.FAILED is bench.runtime.states()[P]
