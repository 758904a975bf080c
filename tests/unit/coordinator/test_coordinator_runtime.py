"""The runtime: what is decided is written, replayed and answered in order, and lost with the leadership."""

from collections.abc import Callable
from typing import Any

import pytest

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.commit_queue import CommitQueue
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, PartitionState, RuntimeConfig
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.runtime.shard_context import RETRY_MS
from kalda.records.batch import iter_headers
from kalda.runtime.clock import ManualClock
from tests.unit.coordinator.fakes import FakeLog, FakeLoop, TableShard, record

P = 7
TIMEOUT_MS = 1000


class Bench:
    """A runtime over a log in memory, and short words for what tests do to it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = FakeLoop(self.clock)
        self.log = FakeLog()
        self.shards: list[TableShard] = []
        self.runtime: CoordinatorRuntime[TableShard] = CoordinatorRuntime(
            self.log, self.make_shard, self.clock, self.loop, RuntimeConfig("__topic")
        )

    def make_shard(self, partition: int) -> TableShard:
        shard = TableShard(partition)
        self.shards.append(shard)
        return shard

    def lead(self, epoch: int = 1) -> TableShard:
        """Lead the partition and load it."""
        self.runtime.become_leader(P, epoch)
        self.loop.settle()
        return self.shards[-1]

    def put(self, key: str, value: str | None, response: Any = "done", **options: Any) -> Pending[Any]:
        return self.write(lambda _: Result((record(key, value),), response), **options)

    def write(self, operation: Callable[[TableShard], Result[Any]], **options: Any) -> Pending[Any]:
        return self.runtime.write(P, operation, **{"timeout_ms": TIMEOUT_MS} | options)

    def table(self) -> Pending[dict[bytes, bytes]]:
        return self.runtime.read(P, lambda shard: dict(shard.table))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def code(pending: Pending[Any]) -> ErrorCode:
    assert pending.is_done
    assert isinstance(pending.error, ApiError)
    return pending.error.code


# Writing and reading.


def test_records_are_replayed_before_the_write_returns_and_answered_when_committed(bench: Bench) -> None:
    shard = bench.lead()
    bench.log.lag = True
    first = bench.put("a", "1", "first")
    assert {b"a": b"1"} == shard.table
    assert not first.is_done
    bench.log.commit(P)
    bench.runtime.on_high_watermark(P)
    assert "first" == first.value


def test_the_outcome_of_a_write_is_reported_before_its_response_is_given(bench: Bench) -> None:
    bench.lead()
    bench.log.lag = True
    seen: list[str] = []

    def put(key: str) -> None:
        result = Result((record(key, "1"),), key, lambda code: seen.append(code.name))
        bench.write(lambda _: result).add_done(
            lambda done: seen.append("failed" if done.error else done.value)
        )

    put("a")
    bench.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    put("b")
    assert ["COORDINATOR_NOT_AVAILABLE", "failed"] == seen
    bench.log.commit(P)
    bench.runtime.on_high_watermark(P)
    assert ["NONE", "a"] == seen[2:]


def test_an_operation_is_written_as_one_batch(bench: Bench) -> None:
    shard = bench.lead()
    bench.write(lambda _: Result((record("a", "1"), record("b", "2"), record("a", None)), None))
    ((first, next_offset, batch),) = bench.log.batches[P]
    ((_, header),) = iter_headers(batch)
    assert (0, 3, 3, False) == (first, next_offset, header.record_count, header.is_transactional)
    assert [0, 1, 2] == shard.offsets
    assert {b"b": b"2"} == shard.table


def test_answers_come_in_the_order_of_the_requests(bench: Bench) -> None:
    """A read behind a write must not be told what could be lost, nor be overtaken by it."""
    bench.lead()
    bench.log.lag = True
    order: list[str] = []
    for name, pending in (
        ("write a", bench.put("a", "1")),
        ("read", bench.table()),
        ("nothing written", bench.write(lambda _: Result((), None))),
        ("write b", bench.put("b", "2")),
    ):
        pending.add_done(lambda _, name=name: order.append(name))  # type: ignore[misc]
    bench.log.high_watermarks[P] = 1
    bench.runtime.on_high_watermark(P)
    assert ["write a", "read", "nothing written"] == order
    bench.log.commit(P)
    bench.runtime.on_high_watermark(P)
    assert "write b" == order[-1]


def test_a_read_of_what_is_committed_is_answered_at_once(bench: Bench) -> None:
    bench.lead()
    bench.put("a", "1")
    assert {b"a": b"1"} == bench.table().value


def test_a_pending_response_is_given_when_the_shard_completes_it(bench: Bench) -> None:
    """Its records are reported apart: a group answers a join whether or not its record is committed."""
    bench.lead()
    bench.log.lag = True
    written: list[ErrorCode] = []

    def put(value: str, response: Pending[str]) -> Pending[str]:
        return bench.write(lambda _: Result([record("a", value)], response, written.append))

    inner: Pending[str] = Pending()
    outer = put("1", inner)
    inner.complete("joined")
    assert "joined" == outer.value
    assert [] == written
    later: Pending[str] = Pending()
    waits = put("2", later)
    bench.log.commit(P)
    bench.runtime.on_high_watermark(P)
    assert [ErrorCode.NONE] * 2 == written
    assert not waits.is_done
    later.fail(ApiError(ErrorCode.UNKNOWN_MEMBER_ID))
    assert code(waits) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_failed_write_is_reported_to_the_owner_of_a_pending_response(bench: Bench) -> None:
    bench.lead()
    bench.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    written: list[ErrorCode] = []
    inner: Pending[str] = Pending()
    outer = bench.write(lambda _: Result([record("a", "1")], inner, written.append))
    assert [ErrorCode.COORDINATOR_NOT_AVAILABLE] == written
    assert not outer.is_done
    inner.complete("refused")
    assert "refused" == outer.value


def test_who_waits_for_a_pending_response_may_give_up(bench: Bench) -> None:
    bench.lead()
    inner: Pending[str] = Pending()
    gone: list[bool] = []
    inner.on_abandoned = lambda: gone.append(True)
    bench.put("a", "1", inner).abandon()
    assert [True] == gone


def test_an_operation_that_fails_writes_nothing(bench: Bench) -> None:
    shard = bench.lead()

    def refuse(_: TableShard) -> Result[None]:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    assert code(bench.write(refuse)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert ({}, 0) == (shard.table, bench.log.end_offset(P))
    assert bench.put("a", "1").is_done


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_an_append_that_fails_changes_nothing(bench: Bench, refused: ErrorCode, expected: ErrorCode) -> None:
    shard = bench.lead()
    bench.log.append_error = refused
    assert code(bench.put("a", "1")) is expected
    assert {} == shard.table
    assert 1 == bench.runtime.statistics.append_failures
    bench.log.append_error = None
    assert "done" == bench.put("a", "1").value


def test_a_shard_that_cannot_replay_is_made_anew(bench: Bench) -> None:
    """It is not what the log says any more."""
    shard = bench.lead()
    shard.replay_error = RuntimeError("a bug")
    failed = bench.put("a", "1")
    assert isinstance(failed.error, RuntimeError)
    assert "unloaded" == shard.events[-1]
    bench.loop.settle()
    assert {b"a": b"1"} == bench.shards[-1].table
    assert bench.shards[-1] is not shard


def test_what_an_operation_asks_for_comes_after_it(bench: Bench) -> None:
    shard = bench.lead()
    inner: list[Pending[Any]] = []

    def operation(_: TableShard) -> Result[None]:
        inner.append(bench.put("b", "2"))
        assert {} == shard.table
        return Result((record("a", "1"),), None)

    bench.write(operation)
    assert [b"a", b"b"] == list(shard.table)
    assert "done" == inner[0].value


def test_whoever_fails_when_told_does_not_keep_others_waiting(bench: Bench) -> None:
    bench.lead()
    bench.log.lag = True

    def fail(_: Pending[Any]) -> None:
        raise RuntimeError("a bug")

    bench.put("a", "1").add_done(fail)
    second = bench.put("b", "2")
    bench.log.commit(P)
    bench.runtime.on_high_watermark(P)
    assert second.is_done


# Time.


def test_what_is_not_replicated_in_time_fails_and_may_be_committed_yet(bench: Bench) -> None:
    shard = bench.lead()
    bench.log.lag = True
    short = bench.put("a", "1", timeout_ms=100)
    long = bench.put("b", "2", timeout_ms=5000)
    bench.loop.advance(150)
    assert code(short) is ErrorCode.REQUEST_TIMED_OUT
    assert not long.is_done
    assert {b"a": b"1", b"b": b"2"} == shard.table
    bench.log.commit(P)
    bench.runtime.on_high_watermark(P)
    assert "done" == long.value


def test_a_shorter_time_behind_a_longer_one_ends_first(bench: Bench) -> None:
    bench.lead()
    bench.log.lag = True
    long, short = bench.put("a", "1", timeout_ms=5000), bench.put("b", "2", timeout_ms=100)
    bench.loop.advance(150)
    assert (False, True) == (long.is_done, short.is_done)
    bench.loop.advance(5000)
    assert code(long) is ErrorCode.REQUEST_TIMED_OUT


def test_reads_do_not_wait_for_ever(bench: Bench) -> None:
    bench.lead()
    bench.log.lag = True
    bench.put("a", "1")
    read = bench.table()
    bench.loop.advance(5100)
    assert code(read) is ErrorCode.REQUEST_TIMED_OUT


def test_timers_write_and_can_be_replaced_and_cancelled(bench: Bench) -> None:
    shard = bench.lead()
    assert shard.context is not None
    context = shard.context
    context.schedule("session", 1000, lambda: Result((record("expired", "too early"),), None))
    context.schedule("session", 2000, lambda: Result((record("expired", "1"),), None))
    context.schedule("other", 2000, lambda: Result((record("other", "1"),), None))
    context.cancel("other")
    context.cancel("unknown")
    bench.loop.advance(1500)
    assert {} == shard.table
    bench.loop.advance(600)
    assert {b"expired": b"1"} == shard.table


def test_timers_of_one_tick_may_cancel_and_replace_each_other(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The wheel gives all that is due at once; what the first one takes back must not run all the same."""
    shard = bench.lead()
    assert shard.context is not None
    context = shard.context

    def first() -> Result[None]:
        context.cancel("cancelled")
        context.schedule("replaced", 500, lambda: Result((record("replaced", "later"),), None))
        return Result((record("first", "1"),), None)

    context.schedule("first", 1000, first)
    context.schedule("cancelled", 1000, lambda: Result((record("cancelled", "1"),), None))
    context.schedule("replaced", 1000, lambda: Result((record("replaced", "too early"),), None))
    bench.loop.advance(1020)
    assert {b"first": b"1"} == shard.table
    bench.loop.advance(500)
    assert {b"first": b"1", b"replaced": b"later"} == shard.table
    assert "" == caplog.text


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_timer_whose_append_is_refused_tries_again(bench: Bench, code: ErrorCode) -> None:
    """Also when the disk was full for a while: a member whose session ended then must not stay for ever."""
    shard = bench.lead()
    assert shard.context is not None
    bench.log.append_error = code
    shard.context.schedule("t", 10, lambda: Result((record("a", "1"),), None))
    bench.loop.advance(20)
    assert {} == shard.table
    bench.log.append_error = None
    bench.loop.advance(RETRY_MS + 20)
    assert {b"a": b"1"} == shard.table


def test_a_timer_that_fails_is_told_and_others_go_on(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    shard = bench.lead()
    assert shard.context is not None

    def fail() -> Result[None]:
        raise RuntimeError("a bug")

    shard.context.schedule("bad", 10, fail)
    shard.context.schedule("good", 10, lambda: Result((record("a", "1"),), None))
    bench.loop.advance(20)
    assert {b"a": b"1"} == shard.table
    assert "bad" in caplog.text


def test_timers_end_with_the_leadership(bench: Bench) -> None:
    shard = bench.lead()
    assert shard.context is not None
    context = shard.context
    context.schedule("t", 10, lambda: Result((record("a", "1"),), None))
    bench.runtime.resign(P, 2)
    context.schedule("late", 10, lambda: Result((record("a", "1"),), None))
    bench.loop.advance(1000)
    assert 0 == bench.log.end_offset(P)


def test_a_shard_writes_for_its_own_sake(bench: Bench) -> None:
    shard = bench.lead()
    assert shard.context is not None
    written = shard.context.write(lambda: Result((record("a", "1"),), "mine"))
    assert "mine" == written.value
    assert (bench.clock.time_ms(), int(bench.clock.monotonic() * 1000)) == (
        shard.context.time_ms(),
        shard.context.monotonic_ms(),
    )


# Leadership.


def test_a_partition_that_is_not_led_here_has_another_coordinator(bench: Bench) -> None:
    assert code(bench.put("a", "1")) is ErrorCode.NOT_COORDINATOR
    assert code(bench.table()) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError, match="does not coordinate __topic-7"):
        bench.runtime.shard(P)


def test_requests_during_a_load_are_refused(bench: Bench) -> None:
    bench.runtime.become_leader(P, 1)
    assert code(bench.put("a", "1")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.loop.settle()
    assert bench.put("a", "1").is_done


def test_losing_the_leadership_fails_what_waits_and_throws_the_state_away(bench: Bench) -> None:
    shard = bench.lead()
    bench.log.lag = True
    waiting, read = bench.put("a", "1"), bench.table()
    bench.runtime.resign(P, 2)
    assert {ErrorCode.NOT_COORDINATOR} == {code(waiting), code(read)}
    assert "unloaded" == shard.events[-1]
    assert code(bench.put("a", "1")) is ErrorCode.NOT_COORDINATOR
    bench.runtime.on_high_watermark(P)
    assert {} == bench.runtime.states()


def test_losing_the_leadership_while_loading_stops_it(bench: Bench) -> None:
    bench.log.add(P, record("a", "1"))
    bench.runtime.become_leader(P, 1)
    bench.runtime.resign(P, 2)
    bench.loop.settle()
    assert ["unloaded"] == bench.shards[0].events
    assert {} == bench.shards[0].table


def test_a_change_of_many_roles_is_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """An election moves dozens of partitions; an operator wants to know that it did, and how long it took."""
    caplog.set_level("INFO")
    for partition in (1, 2, 3):
        bench.log.add(partition, record("a", "1"))
        bench.runtime.become_leader(partition, 1)
    bench.loop.settle()
    for partition in (3, 1):
        bench.runtime.resign(partition, 2)
    bench.runtime.resign(9, 2)
    bench.loop.settle()
    loaded, resigned = [each.getMessage() for each in caplog.records]
    assert loaded.startswith("coordinating 3 partitions of __topic (1, 2, 3): 3 records of ")
    assert "no longer coordinating 2 partitions of __topic (1, 3)" == resigned


def test_epochs_that_go_back_are_ignored(bench: Bench) -> None:
    shard = bench.lead(epoch=5)
    bench.runtime.resign(P, 4)
    assert PartitionState.ACTIVE is bench.runtime.states()[P]
    bench.runtime.resign(P, 6)
    bench.lead(epoch=5)
    assert {} == bench.runtime.states()
    assert [shard] == bench.shards


def test_a_partition_led_on_in_a_new_epoch_keeps_its_state(bench: Bench) -> None:
    shard = bench.lead(epoch=5)
    bench.put("a", "1")
    bench.lead(epoch=7)
    assert shard is bench.runtime.shard(P)
    assert 7 == bench.runtime.leader_epoch(P)
    bench.runtime.resign(P, 6)
    assert 7 == bench.runtime.leader_epoch(P)


def test_a_topic_made_anew_begins_with_the_first_epoch(bench: Bench) -> None:
    bench.lead(epoch=5)
    bench.runtime.resign(P)
    bench.lead(epoch=0)
    assert 0 == bench.runtime.leader_epoch(P)
    assert -1 == bench.runtime.leader_epoch(P + 1)


def test_closing_gives_everything_up(bench: Bench) -> None:
    bench.lead()
    bench.log.lag = True
    waiting = bench.put("a", "1")
    bench.runtime.close()
    assert code(waiting) is ErrorCode.NOT_COORDINATOR
    assert "unloaded" == bench.shards[0].events[-1]


def test_giving_up_in_the_middle_of_a_write_fails_what_was_put_behind_it(bench: Bench) -> None:
    """The log directory may fail in the very append that an operation makes."""
    bench.lead()
    behind: list[Pending[Any]] = []

    def operation(_: TableShard) -> Result[None]:
        behind.append(bench.put("b", "2"))
        bench.runtime.resign(P, 2)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    assert code(bench.write(operation)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code(behind[0]) is ErrorCode.NOT_COORDINATOR


# Transactions.


def test_records_of_a_transaction_carry_its_producer(bench: Bench) -> None:
    shard = bench.lead()
    bench.put("a", "1", producer=(9, 2))
    ((_, _, batch),) = bench.log.batches[P]
    ((_, header),) = iter_headers(batch)
    assert (9, 2, True, -1) == (
        header.producer_id,
        header.producer_epoch,
        header.is_transactional,
        header.base_sequence,
    )
    assert {} == shard.table
    bench.log.add_marker(P, 9, 2, committed=True)
    done = bench.runtime.complete_transaction(P, 9, 2, committed=True)
    assert done.is_done
    assert {b"a": b"1"} == shard.table


def test_the_end_of_a_transaction_waits_for_its_marker(bench: Bench) -> None:
    bench.lead()
    bench.log.lag = True
    bench.put("a", "1", producer=(9, 2))
    bench.log.put(P, b"marker", 2)
    done = bench.runtime.complete_transaction(P, 9, 2, committed=False)
    assert not done.is_done
    bench.log.commit(P)
    bench.runtime.on_high_watermark(P)
    assert done.is_done


def test_a_marker_during_a_load_is_found_by_it(bench: Bench) -> None:
    bench.log.add(P, record("a", "1"), producer=(9, 2))
    bench.runtime.become_leader(P, 1)
    bench.log.add_marker(P, 9, 2, committed=True)
    assert bench.runtime.complete_transaction(P, 9, 2, committed=True).is_done
    bench.loop.settle()
    assert {b"a": b"1"} == bench.runtime.shard(P).table
    assert code(bench.runtime.complete_transaction(P + 1, 9, 2, committed=True)) is ErrorCode.NOT_COORDINATOR


def test_records_are_equal_by_value() -> None:
    assert CoordinatorRecord(b"a", None) == record("a", None)


def test_a_response_cannot_be_queued_before_one_that_waits(bench: Bench) -> None:
    queue = CommitQueue(bench.runtime._timers, bench.clock.monotonic)
    queue.add(5, 1000, Pending(), lambda: None)
    with pytest.raises(AssertionError, match="is queued behind offset 5"):
        queue.add(4, 1000, Pending(), lambda: None)
