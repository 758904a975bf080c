"""The bounded cache of fetch sessions: whose session gives way to whose (KIP-227)."""

import pytest

from kalda.broker.fetching.fetch_session import (
    EVICTION_MS,
    FetchSessionCache,
    FullContext,
    IncrementalContext,
    SessionErrorContext,
    SessionlessContext,
)
from kalda.protocol.fast.fetch import FetchPartitionFields, FetchRequestFields, PartitionFetchResult
from kalda.runtime.clock import ManualClock


class Sized:
    """Records of a size."""

    def __init__(self, size: int) -> None:
        self.size = size


class Sessions:
    """A cache of two sessions and the requests of its clients."""

    def __init__(self, slots: int = 2) -> None:
        self.clock = ManualClock()
        ids = iter(range(1, 100))
        self.cache = FetchSessionCache(slots, self.clock, lambda: next(ids))

    def request(
        self, session_id: int, epoch: int, partitions: int = 0, replica_id: int = -1
    ) -> FetchRequestFields:
        fields = FetchRequestFields()
        fields.session_id, fields.session_epoch, fields.replica_id = session_id, epoch, replica_id
        if partitions:
            fields.topics = [
                (b"t", [FetchPartitionFields(index, -1, 0, -1, -1, 100) for index in range(partitions)])
            ]
        return fields

    def open(self, partitions: int, replica_id: int = -1) -> int:
        """Ask for a session and return its id."""
        context = self.cache.context(11, self.request(0, 0, partitions, replica_id))
        assert isinstance(context, FullContext)
        _, session_id, _ = context.answer([(b"t", result(index)) for index in range(partitions)])
        return session_id

    def is_open(self, session_id: int, epoch: int = 1) -> bool:
        context = self.cache.context(11, self.request(session_id, epoch))
        return not isinstance(context, SessionErrorContext)


def result(index: int, *, size: int = 0, high_watermark: int = 0, error: int = 0) -> PartitionFetchResult:
    records = Sized(size) if size else None
    return PartitionFetchResult(index, error, high_watermark, high_watermark, 0, None, -1, records)


def test_a_full_cache_gives_no_session_while_all_are_fresh() -> None:
    sessions = Sessions()
    first, second = sessions.open(1), sessions.open(1)
    assert 0 == sessions.open(5)
    assert sessions.is_open(first)
    assert sessions.is_open(second)


def test_a_session_unused_for_long_gives_way_to_any() -> None:
    sessions = Sessions()
    stale, used = sessions.open(5), sessions.open(5)
    sessions.clock.advance(EVICTION_MS / 1000)
    assert sessions.is_open(used)
    sessions.clock.advance(0.001)

    assert sessions.open(1) != 0

    assert not sessions.is_open(stale)
    assert sessions.is_open(used, 2)
    assert 1 == sessions.cache.evictions


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_sessions_do_not_age_by_the_wall_clock(seconds: int) -> None:
    """Set back, no session would have given way for an hour; set forward, every fresh one would have."""
    sessions = Sessions()
    stale, _ = sessions.open(5), sessions.open(5)
    sessions.clock.jump(seconds)
    assert 0 == sessions.open(1)
    sessions.clock.advance(EVICTION_MS / 1000 + 0.001)
    assert sessions.open(1) != 0
    assert not sessions.is_open(stale)


def test_a_session_in_use_does_not_give_way_to_any() -> None:
    """The cache evicts by last use, not by the order in which sessions were opened."""
    sessions = Sessions()
    first, second = sessions.open(1), sessions.open(1)
    sessions.clock.advance(EVICTION_MS / 1000)
    assert sessions.is_open(first)
    sessions.clock.advance(1)
    assert 0 != sessions.open(1)
    assert not sessions.is_open(second)
    assert sessions.is_open(first, epoch=2)


def test_an_old_session_gives_way_to_a_larger_one_only() -> None:
    sessions = Sessions()
    small, large = sessions.open(2), sessions.open(5)
    for session in (small, large):
        sessions.clock.advance(EVICTION_MS / 1000 * 0.6)
        assert sessions.is_open(session)
    assert 0 == sessions.open(2)
    assert sessions.open(3) != 0
    assert not sessions.is_open(small, 2)


def test_a_follower_takes_the_place_of_a_fresh_client() -> None:
    sessions = Sessions(1)
    client = sessions.open(9)
    follower = sessions.open(1, replica_id=2)
    assert follower != 0
    assert not sessions.is_open(client)
    assert 0 == sessions.open(9)
    assert sessions.is_open(follower)


def test_a_full_request_ends_the_session_it_names_and_the_final_epoch_opens_none() -> None:
    sessions = Sessions()
    session = sessions.open(1)
    context = sessions.cache.context(11, sessions.request(session, -1, 1))
    assert isinstance(context, SessionlessContext)
    assert 0 == context.answer([(b"t", result(0))])[1]
    assert 0 == len(sessions.cache)


def test_a_session_without_partitions_ends() -> None:
    sessions = Sessions()
    session = sessions.open(1)
    request = sessions.request(session, 1)
    request.forgotten = [(b"t", [0])]
    assert isinstance(sessions.cache.context(11, request), SessionlessContext)
    assert 0 == len(sessions.cache)


def test_partitions_with_records_move_to_the_end() -> None:
    """Else the first partitions would use up every response's limit."""
    sessions = Sessions()
    session = sessions.open(3)
    context = sessions.cache.context(11, sessions.request(session, 1))
    context.answer([(b"t", result(0, size=10)), (b"t", result(1)), (b"t", result(2))])

    after = sessions.cache.context(11, sessions.request(session, 2))

    assert [1, 2, 0] == [fields.partition for _, fields in after.entries]


def test_an_error_is_told_each_time_and_so_is_its_end() -> None:
    sessions = Sessions()
    session = sessions.open(1)
    told = []
    for epoch, error in enumerate((0, 6, 6, 0, 0), start=1):
        context = sessions.cache.context(11, sessions.request(session, epoch))
        _, _, topics = context.answer([(b"t", result(0, error=error))])
        told.append(len(topics))
    assert [0, 1, 1, 1, 0] == told


def test_a_request_overtaken_while_it_waited_is_refused() -> None:
    sessions = Sessions()
    session = sessions.open(1)
    waiting = sessions.cache.context(11, sessions.request(session, 1))
    assert isinstance(waiting, IncrementalContext)
    sessions.cache.context(11, sessions.request(session, 2))
    assert (71, session, []) == waiting.answer([(b"t", result(0, size=10))])


def test_a_partition_named_twice_is_read_once() -> None:
    sessions = Sessions()
    request = sessions.request(0, -1, 1)
    request.topics *= 2
    assert 1 == len(sessions.cache.context(11, request).entries)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_follower_that_truncates_is_sent_the_high_watermark_afterwards(is_first: bool) -> None:
    """It does not look at the bounds of an answer with a diverging epoch, and they may not change again."""
    sessions = Sessions()
    diverging = result(0, high_watermark=2)._replace(diverging_epoch=(1, 2))
    context = sessions.cache.context(12, sessions.request(0, 0, 1, replica_id=1))
    assert isinstance(context, FullContext)
    _, session_id, _ = context.answer([(b"t", diverging if is_first else result(0))])
    answers = [result(0, high_watermark=2)] if is_first else [diverging, result(0, high_watermark=2)]
    for epoch, answer in enumerate(answers, start=1):
        following = sessions.cache.context(12, sessions.request(session_id, epoch, replica_id=1))
        assert isinstance(following, IncrementalContext)
        assert [(b"t", [answer])] == list(following.answer([(b"t", answer)])[2])
