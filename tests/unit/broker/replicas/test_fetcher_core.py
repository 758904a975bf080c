"""What a follower does with what its leader answers."""

import logging
import math
import uuid

import pytest

from kalda.broker.replicas.follower.fetch_state import FetchStatus
from kalda.broker.replicas.follower.truncation import LeaderOffsets
from kalda.common.errors import ErrorCode
from kalda.storage.log_config import CleanupPolicy, LogConfig
from tests.unit.broker.replicas.follower_fixtures import EPOCH, Follower, at, fetched


def test_records_are_appended_and_the_high_watermark_is_never_above_the_end() -> None:
    follower = Follower()
    state = follower.follow()
    assert [(0, 0)] == follower.asked()
    moved = follower.answer(fetched(0, at(0, b"a", b"b"), high_watermark=9))
    log = state.partition.log
    assert (2, 2, 7) == (log.log_end_offset, log.high_watermark, state.lag)
    assert [state.partition] == moved
    assert [(0, 2)] == follower.asked()


def test_an_incremental_request_names_only_what_changed() -> None:
    """Two thousand idle partitions must cost a request of a few dozen bytes."""
    follower = Follower()
    for index in range(50):
        follower.follow(index)
    assert 50 == len(follower.asked())
    follower.answer(*(fetched(index) for index in range(50)))
    assert [] == follower.asked()
    follower.answer(fetched(7, at(0, b"a")))
    assert [(7, 1)] == follower.asked()


def test_a_request_tells_who_asks_and_how_much_it_wants() -> None:
    follower = Follower()
    follower.follow()
    fields = follower.request()
    assert fields is not None
    assert (2, 40, 0, 1, 10_000, 0, 0) == (
        fields.replica_id,
        fields.replica_epoch,
        fields.max_wait_ms,
        fields.min_bytes,
        fields.max_bytes,
        fields.session_id,
        fields.session_epoch,
    )
    follower.answer(fetched(0))
    following = follower.request()
    assert following is not None
    assert 500 == following.max_wait_ms
    part = fields.topics[0][1][0]
    assert (EPOCH, -1, 0, 1_000) == (
        part.current_leader_epoch,
        part.last_fetched_epoch,
        part.log_start_offset,
        part.max_bytes,
    )


def test_session_epochs_count_up_and_a_lost_connection_begins_anew_under_the_old_id() -> None:
    follower = Follower()
    follower.follow()
    epochs = []
    for _ in range(3):
        fields = follower.request()
        assert fields is not None
        epochs.append((fields.session_id, fields.session_epoch))
        follower.answer()
    follower.core.connection_lost()
    fields = follower.request()
    assert fields is not None
    assert [(0, 0), (77, 1), (77, 2), (77, 0)] == [*epochs, (fields.session_id, fields.session_epoch)]
    assert 1 == len(fields.topics)


def test_a_leader_without_room_for_a_session_is_asked_in_full_each_time() -> None:
    follower = Follower()
    follower.follow()
    waits = []
    for _ in range(3):
        fields = follower.request()
        assert fields is not None
        assert [0] == [part.partition for _, parts in fields.topics for part in parts]
        waits.append(fields.max_wait_ms)
        follower.answer(fetched(0), session_id=0)
    assert [0, 500, 500] == waits


def test_a_session_that_is_gone_is_begun_anew_once_and_then_waited_for() -> None:
    follower = Follower()
    follower.follow()
    follower.asked()
    follower.answer(fetched(0))
    follower.asked()
    follower.answer(error=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert [(0, 0)] == follower.asked()
    with pytest.raises(ConnectionError, match="FETCH_SESSION_ID_NOT_FOUND"):
        follower.answer(error=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))


def test_an_unfollowed_partition_is_forgotten_and_its_answer_dropped() -> None:
    follower = Follower()
    state, other = follower.follow(0), follower.follow(1)
    follower.asked()
    follower.core.unfollow(state.topic_partition)
    follower.answer(fetched(0, at(0, b"a")), fetched(1, at(0, b"b")))
    assert (0, 1) == (state.partition.log.log_end_offset, other.partition.log.log_end_offset)
    fields = follower.request()
    assert fields is not None
    assert [0] == [index for _, indexes in fields.forgotten for index in indexes]


def test_an_answer_to_the_tenure_before_is_dropped() -> None:
    """The leader moved to a new epoch while its answer was under way: nothing of the old one counts."""
    follower = Follower()
    follower.follow()
    follower.asked()
    state = follower.follow(epoch=EPOCH + 1)
    follower.answer(fetched(0, at(0, b"a"), high_watermark=1))
    assert 0 == state.partition.log.log_end_offset
    assert [(0, 0)] == follower.asked()


def test_following_again_at_the_same_epoch_changes_nothing() -> None:
    follower = Follower()
    state = follower.follow()
    follower.asked()
    assert not follower.core.follow(state.partition)
    assert state is follower.core.states[state.topic_partition]


def test_a_diverging_epoch_cuts_the_log_there() -> None:
    follower = Follower()
    log = follower.replica().log
    log.append_as_follower(at(0, b"a", epoch=3))
    log.append_as_follower(at(1, b"b", epoch=4))
    state = follower.follow()
    assert [(0, 2)] == follower.asked()
    follower.answer(fetched(0, diverging=(3, 1), high_watermark=1))
    assert (1, 3) == (log.log_end_offset, log.leader_epochs.latest_epoch)
    assert FetchStatus.FETCHING is state.status
    assert [(0, 1)] == follower.asked()


def test_an_epoch_of_the_leader_that_is_not_known_here_takes_another_round() -> None:
    """KIP-279: cutting at the leader's end alone would keep records that it does not have."""
    follower = Follower()
    log = follower.replica().log
    log.append_as_follower(at(0, *[b"a"] * 20, epoch=3))
    log.append_as_follower(at(20, *[b"b"] * 10, epoch=5))
    follower.follow(epoch=9)
    follower.asked()
    follower.answer(fetched(0, diverging=(4, 40)))
    assert 20 == log.log_end_offset
    assert [(0, 20)] == follower.asked()


def test_a_leader_that_lets_us_diverge_where_nothing_can_be_cut_is_asked_later() -> None:
    follower = Follower()
    follower.replica().log.append_as_follower(at(0, b"a", epoch=3))
    state = follower.follow()
    follower.asked()
    follower.answer(fetched(0, diverging=(3, 50)))
    assert FetchStatus.DELAYED is state.status


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(at(0, b"again"), id="backwards"),
        pytest.param(at(1, b"later", epoch=EPOCH + 1), id="epoch-of-the-future"),
        pytest.param(at(1, b"earlier", epoch=3), id="epoch-of-the-past"),
        pytest.param(at(1, b"a")[:-1] + b"\xff", id="bad-crc"),
        pytest.param(at(1, b"a")[:-1], id="no-whole-batch"),
        pytest.param(at(1, b"a") + at(1, b"a"), id="twice"),
        pytest.param(b"\xff" * 80, id="junk"),
    ],
)
def test_what_does_not_continue_the_log_is_refused_and_told(
    records: bytearray, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower()
    log = follower.replica().log
    log.append_as_follower(at(0, b"a", epoch=4))
    state = follower.follow()
    follower.asked()
    with caplog.at_level(logging.WARNING):
        follower.answer(fetched(0, records, high_watermark=9))
    assert (1, 0) == (log.log_end_offset, log.high_watermark)
    assert FetchStatus.DELAYED is state.status
    assert ["orders-0"] == [record.getMessage().split(":")[0] for record in caplog.records]


@pytest.mark.parametrize(
    ("policy", "lines"), [(CleanupPolicy.COMPACT, 0), (CleanupPolicy.DELETE, 1)], ids=["compact", "delete"]
)
def test_a_leader_may_have_gaps(policy: CleanupPolicy, lines: int, caplog: pytest.LogCaptureFixture) -> None:
    """Compaction leaves them, and damage on the leader's disk; only the second is worth a line."""
    follower = Follower(LogConfig(cleanup_policy=frozenset({policy})))
    state = follower.follow()
    follower.asked()
    with caplog.at_level(logging.WARNING):
        follower.answer(fetched(0, at(5, b"a")))
    assert 6 == state.partition.log.log_end_offset
    assert lines == sum("offsets 0 to 4" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ],
)
def test_an_error_delays_a_partition_longer_each_time_and_no_other(error: ErrorCode) -> None:
    follower = Follower()
    state, other = follower.follow(0), follower.follow(1)
    follower.asked()
    follower.answer(fetched(0, error=error), fetched(1, at(0, b"a")))
    pauses = []
    for _ in range(8):
        assert FetchStatus.DELAYED is state.status
        pauses.append(round(state.retry_at - follower.clock.monotonic(), 3))
        assert 0 not in [index for index, _ in follower.asked()]
        follower.clock.advance(pauses[-1])
        follower.answer()
        assert (0, 0) in follower.asked()
        follower.answer(fetched(0, error=error))
    assert [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0] == pauses
    follower.clock.advance(1.0)
    follower.asked()
    follower.answer(fetched(0, at(0, b"a")))
    assert (0, 1) == (state.failures, other.partition.log.log_end_offset)


def test_a_fenced_epoch_stops_the_partition_until_it_is_followed_anew() -> None:
    follower = Follower()
    state = follower.follow()
    follower.asked()
    follower.answer(fetched(0, error=ErrorCode.FENCED_LEADER_EPOCH))
    follower.clock.advance(1e6)
    assert (FetchStatus.FAILED, math.inf) == (state.status, state.retry_at)
    assert follower.request() is None
    follower.follow(epoch=EPOCH + 1)
    assert [(0, 0)] == follower.asked()


def test_a_full_disk_fails_the_partition_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower()
    state = follower.follow()
    follower.asked()
    follower.files.space_left = 0
    follower.answer(fetched(0, at(0, b"a"), high_watermark=1))
    assert FetchStatus.FAILED is state.status
    assert 0 == state.partition.log.log_end_offset
    follower.files.space_left = None
    follower.clock.advance(30)
    assert [(0, 0)] == follower.asked()
    follower.answer(fetched(0, at(0, b"a"), high_watermark=1))
    assert 1 == state.partition.log.high_watermark
    assert "following leader 1 failed" in caplog.text


def test_a_leader_that_begins_after_our_end_makes_us_start_over_there() -> None:
    follower = Follower()
    log = follower.replica().log
    log.append_as_follower(at(0, b"a"))
    state = follower.follow()
    follower.asked()
    follower.answer(fetched(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert [state] == follower.core.resolving
    assert follower.request() is None
    follower.core.on_bounds(state, LeaderOffsets(100, 200, EPOCH, 200), 0.0)
    assert (100, 100) == (log.log_start_offset, log.log_end_offset)
    assert [(0, 100)] == follower.asked()


def test_a_leader_that_ends_before_ours_cuts_us_there_even_without_epochs() -> None:
    """After an unclean election, in a log whose epochs nobody knows."""
    follower = Follower()
    log = follower.replica().log
    log.append_as_follower(at(0, b"a", b"b", epoch=-1))
    log.append_as_follower(at(2, b"c", epoch=-1))
    state = follower.follow()
    assert [state] == follower.core.resolving
    follower.core.on_bounds(state, LeaderOffsets(0, 2), 0.0)
    assert 2 == log.log_end_offset
    assert [(0, 2)] == follower.asked()


def test_a_log_without_epochs_is_fetched_again_after_errors() -> None:
    """Its bounds are looked up before each attempt, and they never change."""
    follower = Follower()
    follower.replica().log.append_as_follower(at(0, b"a", b"b", epoch=-1))
    state = follower.follow()
    follower.core.on_bounds(state, LeaderOffsets(0, 9), 0.0)
    assert [(0, 2)] == follower.asked()
    follower.answer(fetched(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    follower.clock.advance(1)
    assert follower.request() is None
    assert [state] == follower.core.resolving
    follower.core.on_bounds(state, LeaderOffsets(0, 9), follower.clock.monotonic())
    assert [(0, 2)] == follower.asked()


def test_bounds_that_come_after_the_tenure_change_nothing() -> None:
    follower = Follower()
    log = follower.replica().log
    log.append_as_follower(at(0, b"a"))
    state = follower.follow()
    follower.asked()
    follower.answer(fetched(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    follower.core.unfollow(state.topic_partition)
    follower.core.on_bounds(state, LeaderOffsets(100, 200), 0.0)
    follower.core.on_bounds_error(state, 6, 0.0)
    assert 1 == log.log_end_offset


def test_the_log_start_follows_the_leaders_but_never_above_the_high_watermark() -> None:
    follower = Follower()
    state = follower.follow()
    log = state.partition.log
    follower.asked()
    follower.answer(fetched(0, at(0, *[b"a"] * 4), high_watermark=4, log_start_offset=3))
    assert 3 == log.log_start_offset
    fields = follower.request()
    assert fields is not None
    assert 3 == fields.topics[0][1][0].log_start_offset
    follower.answer(fetched(0, high_watermark=4, log_start_offset=90))
    assert 4 == log.log_start_offset


def test_a_log_start_inside_a_batch_lets_an_empty_log_begin_before_it() -> None:
    follower = Follower()
    state = follower.follow()
    state.partition.log.truncate_fully_and_start_at(2)
    state.refresh()
    assert [(0, 2)] == follower.asked()
    follower.answer(fetched(0, at(0, *[b"a"] * 4), high_watermark=4, log_start_offset=2))
    log = state.partition.log
    assert (2, 4, 4) == (log.log_start_offset, log.log_end_offset, log.high_watermark)


def test_partitions_nobody_asked_for_are_passed_over() -> None:
    follower = Follower()
    state = follower.follow()
    follower.asked()
    follower.answer(
        fetched(9, at(0, b"a")), fetched(0, at(0, b"a"), topic_id=uuid.UUID(int=8)), fetched(0, at(0, b"b"))
    )
    assert 1 == state.partition.log.log_end_offset


def test_a_throttled_replica_waits_while_the_rate_is_exceeded_and_one_in_sync_does_not() -> None:
    follower = Follower(throttled="*")
    follower.quota.set_rate(10)
    behind, in_sync = follower.follow(0), follower.follow(1)
    follower.asked()
    follower.answer(
        fetched(0, at(0, b"a" * 200), high_watermark=50), fetched(1, at(0, b"a" * 200), high_watermark=1)
    )
    assert [(1, 1)] == follower.asked()
    assert (FetchStatus.THROTTLED, FetchStatus.FETCHING) == (behind.status, in_sync.status)
    assert pytest.approx(0.1) == follower.core.next_due(0.0)
    follower.answer()
    follower.clock.advance(60)
    assert [(0, 1)] == follower.asked()


def test_errors_of_thousands_are_told_in_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower()
    for index in range(40):
        follower.follow(index)
    follower.asked()
    follower.answer(*(fetched(index, error=ErrorCode.KAFKA_STORAGE_ERROR) for index in range(40)))
    assert 10 == len(caplog.records)
    assert "suppressed for a while" in caplog.text
