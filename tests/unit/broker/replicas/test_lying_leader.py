"""A leader that answers fetches with lies: what a follower believes, and how often it asks."""

import random
from collections.abc import Callable

import pytest

from kalda.broker.replicas.follower.truncation import LeaderOffsets
from kalda.common import invariants
from kalda.common.errors import ErrorCode
from kalda.protocol.fast.fetch_response import FetchedPartition
from kalda.records.record import RecordBatchBuilder
from tests.unit.broker.replicas.follower_fixtures import EPOCH, Follower, at, fetched

OFFSET_MAX = 2**63 - 1
ROUND_TRIP_SECONDS = 0.0005
SECONDS = 20.0
REQUESTS_MAX = 600
"""In `SECONDS`: a first burst, then some ten a second."""

Lie = Callable[[int, int], FetchedPartition | ErrorCode]
"""The answer to a request, by its number and the offset that it names; or the error of the whole answer."""


def requests_to(lie: Lie, follower: Follower) -> int:
    """Run a follower against a leader that answers at once; return how many requests it sends."""
    clock, core = follower.clock, follower.core
    end = clock.monotonic() + SECONDS
    count = 0
    while (now := clock.monotonic()) < end:
        for state in core.resolving:
            count += 3
            start = count * 1000
            core.on_bounds(state, LeaderOffsets(start, start + 10), now)
        fields = follower.request()
        if fields is None:
            due = core.next_due(now)
            clock.advance(ROUND_TRIP_SECONDS if due is None else max(due - now, ROUND_TRIP_SECONDS))
            continue
        offsets = [part.fetch_offset for _, parts in fields.topics for part in parts]
        count += 1
        clock.advance(ROUND_TRIP_SECONDS)
        told = lie(count, offsets[0] if offsets else follower.replica().log.log_end_offset)
        try:
            if isinstance(told, ErrorCode):
                follower.answer(error=int(told))
            else:
                follower.answer(told)
        except ConnectionError:
            core.connection_lost()
            clock.advance(0.05)
    return count


def in_turn(*lies: Lie) -> Lie:
    return lambda count, offset: lies[count % len(lies)](count, offset)


def silence(_count: int, _offset: int) -> FetchedPartition:
    return fetched()


def corrupt(_count: int, offset: int) -> FetchedPartition:
    return fetched(records=at(offset, b"a")[:-1] + b"\xff")


def record(_count: int, offset: int) -> FetchedPartition:
    return fetched(records=at(offset, b"a"))


def session_error(_count: int, _offset: int) -> ErrorCode:
    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND


LIES = {
    "silence": silence,
    "a stranger's partition": lambda _, offset: fetched(9, at(offset, b"a")),
    "watermarks beyond the end": lambda count, _: fetched(high_watermark=OFFSET_MAX - count),
    "negative offsets": lambda count, _: fetched(high_watermark=-count, log_start_offset=-count),
    "starts beyond the end": lambda count, _: fetched(log_start_offset=count * 1000),
    "corrupt records, then none": in_turn(corrupt, silence),
    "errors, then none": in_turn(lambda _, __: fetched(error=ErrorCode.KAFKA_STORAGE_ERROR), silence),
    "sessions that end": in_turn(session_error, silence),
    "out of range, ever elsewhere": lambda _, __: fetched(error=ErrorCode.OFFSET_OUT_OF_RANGE),
    "a record, then none of it": in_turn(record, lambda _, __: fetched(diverging=(EPOCH, 0))),
    "an overlapping batch": in_turn(record, lambda _, offset: fetched(records=at(max(0, offset - 1), b"a"))),
    "epochs that nobody has": lambda count, _: fetched(diverging=(count, count)),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lying_leader_is_asked_some_ten_times_a_second(lie: Lie) -> None:
    follower = Follower()
    follower.follow()
    assert requests_to(lie, follower) <= REQUESTS_MAX


def test_a_leader_with_records_is_asked_without_a_pause() -> None:
    follower = Follower()
    follower.follow()
    assert requests_to(record, follower) > 10 * REQUESTS_MAX


@pytest.mark.parametrize(("base", "count"), [(OFFSET_MAX, 1), (OFFSET_MAX - 1, 2)])
def test_a_batch_at_the_end_of_all_offsets_is_refused(base: int, count: int) -> None:
    """The offset behind it does not exist: no later request could name it."""
    follower = Follower()
    state = follower.follow()
    follower.asked()
    follower.answer(fetched(records=at(base, *[b"a"] * count)))
    assert 0 == state.partition.log.log_end_offset
    follower.clock.advance(1)
    assert [(0, 0)] == follower.asked()


def marker_without_value(offset: int) -> bytearray:
    builder = RecordBatchBuilder(
        base_offset=offset,
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=EPOCH,
    )
    builder.append(b"\x00\x00\x00\x01", b"\x00", timestamp=0)
    return builder.build()


def test_a_marker_without_its_value_is_refused_before_it_is_written() -> None:
    """A log that has it could not be loaded."""
    follower = Follower()
    state = follower.follow()
    log = state.partition.log
    follower.asked()
    follower.answer(fetched(records=at(0, b"a") + marker_without_value(1)))
    assert (0, 0) == (log.log_end_offset, log.size)


def test_random_lies_leave_a_log_that_keeps_its_invariants(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is below the high watermark goes only where the leader says that its own log is shorter."""
    monkeypatch.setattr(invariants, "enabled", True)
    for seed in range(40):
        chance = random.Random(seed)
        follower = Follower()
        state = follower.follow()
        numbers = (-OFFSET_MAX - 1, -1, 0, 1, 3, 7, OFFSET_MAX - 1, OFFSET_MAX)
        for _ in range(60):
            end = state.partition.log.log_end_offset
            records = chance.choice(
                (
                    None,
                    at(end, b"a", b"b"),
                    at(chance.choice((end, *numbers)), b"a", epoch=chance.choice((-5, 0, EPOCH, EPOCH + 1))),
                    chance.randbytes(chance.randrange(100)),
                    at(end, b"a")[: chance.randrange(70)],
                )
            )
            diverging = (chance.choice((-1, 0, EPOCH, 99)), chance.choice(numbers))
            follower.answer(
                fetched(
                    records=records,
                    high_watermark=chance.choice(numbers),
                    log_start_offset=chance.choice(numbers),
                    error=chance.choice((ErrorCode.NONE,) * 5 + (ErrorCode.OFFSET_OUT_OF_RANGE,)),
                    diverging=diverging if chance.random() < 0.1 else None,
                )
            )
            for resolving in follower.core.resolving:
                start = chance.choice(numbers[2:])
                bounds = LeaderOffsets(start, max(start, chance.choice(numbers)), *diverging)
                follower.core.on_bounds(resolving, bounds, follower.clock.monotonic())
            follower.clock.advance(chance.choice((0.01, 2)))
            follower.request()
        assert "FAILED" not in repr(state.status), f"seed {seed}: {state}"
