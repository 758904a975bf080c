"""The core of a consumer: what it delivers next, what acknowledgements change, and what is stored."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from kalda.nats.jetstream.consumer_config import ConsumerConfig
from kalda.nats.jetstream.consumer_state import (
    CHANGED_MAX,
    DONE,
    SETTLED_AT_ONCE,
    ConsumerState,
    StoredRange,
)
from kalda.nats.jetstream.shared_limits import SharedLimit
from kalda.nats.jetstream.stream_index import StreamIndex

EXPLICIT = ConsumerConfig(ack_policy="explicit", ack_wait=30_000_000_000, max_ack_pending=1000)


def made(
    config: ConsumerConfig, start: int, first: Iterable[int] = (), limit: SharedLimit | None = None
) -> ConsumerState:
    return ConsumerState(config, start, first, limit=limit or SharedLimit(1 << 30, 1))


def stream(*subjects: bytes) -> StreamIndex:
    index = StreamIndex()
    for sequence, subject in enumerate(subjects, 1):
        index.append(sequence, subject, 10, sequence)
    return index


def take(
    state: ConsumerState, index: StreamIndex, now: float = 0.0, count: int = 100
) -> list[tuple[int, int]]:
    """Deliver what there is; return sequences and how often each was delivered."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        delivery, again = state.find(index, index.next, now)
        if delivery is None:
            if again:
                continue
            break
        state.sent(delivery, now)
        found.append((delivery.sequence, delivery.deliveries))
    return found


def test_messages_are_delivered_once_and_again_after_the_wait() -> None:
    state, index = made(EXPLICIT, 1), stream(b"a", b"b")
    assert [(1, 1), (2, 1)] == take(state, index)
    assert [] == take(state, index, 29.9)
    assert [(1, 2), (2, 2)] == take(state, index, 30.0)
    assert 2 == state.redelivered_count


def test_a_filter_leaves_messages_out() -> None:
    state = made(replace(EXPLICIT, filter_subject="b.*"), 1)
    assert [(2, 1), (4, 1)] == take(state, stream(b"a", b"b.1", b"a", b"b.2"))


def test_the_floor_moves_with_acknowledgements() -> None:
    """As nats-server counts it: the floor is what lies before the first message that is not acknowledged."""
    state, index = made(EXPLICIT, 1), stream(*[b"a"] * 5)
    take(state, index)
    for sequence, expected in ((1, (1, 1)), (3, (1, 1)), (2, (3, 3)), (5, (3, 3)), (4, (5, 5))):
        state.acknowledge(sequence)
        assert expected == (state.floor, state.floor_delivery)
    assert 0 == state.pending_count


def test_an_acknowledgement_of_all_takes_those_before_it() -> None:
    state, index = made(replace(EXPLICIT, ack_policy="all"), 1), stream(*[b"a"] * 5)
    take(state, index)
    state.acknowledge(3)
    assert (3, 3, 2) == (state.floor, state.floor_delivery, state.pending_count)
    state.acknowledge(99)
    assert 2 == state.pending_count


def test_without_acknowledgements_nothing_waits() -> None:
    state, index = made(ConsumerConfig(ack_policy="none"), 1), stream(*[b"a"] * 3)
    take(state, index)
    assert (0, 3, 3) == (state.pending_count, state.floor, state.floor_delivery)


def test_a_released_message_comes_at_once_or_after_its_delay() -> None:
    state, index = made(EXPLICIT, 1), stream(b"a", b"b")
    take(state, index)
    state.release(2, 0, 1.0)
    state.release(1, 5.0, 1.0)
    assert [(2, 2)] == take(state, index, 1.0)
    assert 6.0 == state.next_due()
    assert [(1, 2)] == take(state, index, 6.0)


def test_progress_begins_the_wait_again() -> None:
    state, index = made(EXPLICIT, 1), stream(b"a")
    take(state, index)
    state.extend(1, 20.0)
    assert [] == take(state, index, 49.9)
    assert [(1, 2)] == take(state, index, 50.0)


def test_back_off_gives_each_delivery_its_wait() -> None:
    config = replace(EXPLICIT, backoff=(1_000_000_000, 5_000_000_000), max_deliver=4)
    state, index = made(config, 1), stream(b"a")
    assert [(1, 1)] == take(state, index, 0.0)
    assert [(1, 2)] == take(state, index, 1.0)
    assert [] == take(state, index, 5.9)
    assert [(1, 3)] == take(state, index, 6.0)
    assert [(1, 4)] == take(state, index, 11.0)
    assert [] == take(state, index, 100.0)
    assert 0 == state.pending_count


def test_no_more_messages_wait_than_are_allowed() -> None:
    state, index = made(replace(EXPLICIT, max_ack_pending=2), 1), stream(*[b"a"] * 4)
    assert [(1, 1), (2, 1)] == take(state, index)
    state.acknowledge(1)
    assert [(3, 1)] == take(state, index)


def test_removed_messages_are_not_delivered_again() -> None:
    state, index = made(EXPLICIT, 1), stream(b"a", b"b")
    take(state, index)
    index.remove(1)
    assert [(2, 2)] == take(state, index, 30.0)
    assert not state.is_pending(1)


def test_last_messages_of_subjects_come_first() -> None:
    state, index = made(EXPLICIT, 5, [4, 2]), stream(b"a", b"b", b"a", b"a")
    index.append(5, b"b", 1, 1)
    assert [(2, 1), (4, 1), (5, 1)] == take(state, index)


def test_what_is_stored_says_what_is_done() -> None:
    state, index = made(EXPLICIT, 1), stream(*[b"a"] * 5)
    take(state, index)
    state.acknowledge(2)
    change = state.take_change()
    assert (1, (StoredRange(1, 1, 1), StoredRange(2, 2, DONE), StoredRange(3, 5, 1))) == change
    assert not state.has_change
    state.acknowledge(1)
    assert (3, ()) == state.take_change()


MANY = 5_000
NO_LIMIT = replace(EXPLICIT, max_ack_pending=20_000)


def test_waits_that_end_together_are_taken_in_steps() -> None:
    state, index = made(NO_LIMIT, 1), stream(*[b"a"] * MANY)
    take(state, index, count=MANY)
    delivery, _ = state.find(index, index.next, 30.0)
    assert delivery is not None
    assert SETTLED_AT_ONCE >= state.again_count
    assert {(each, 2) for each in range(1, MANY + 1)} == set(take(state, index, 30.0, MANY))


def test_messages_that_are_not_delivered_again_are_settled_in_steps() -> None:
    state, index = made(replace(NO_LIMIT, max_deliver=1), 1), stream(*[b"a"] * MANY)
    take(state, index, count=MANY)
    assert (None, True) == state.find(index, index.next, 30.0)
    assert MANY - SETTLED_AT_ONCE == state.pending_count
    assert [] == take(state, index, 30.0)
    assert (0, 0) == (state.pending_count, state.again_count)


def test_last_messages_that_are_gone_are_left_out_in_steps() -> None:
    index = stream(*[b"%d" % each for each in range(MANY)])
    state = made(EXPLICIT, MANY + 1, range(1, MANY + 1))
    for sequence in range(1, MANY + 1):
        index.remove(sequence)
    assert (None, True) == state.find(index, index.next, 0.0)
    assert MANY - SETTLED_AT_ONCE == state.first_count


def test_nothing_is_delivered_while_too_many_changes_cannot_be_stored() -> None:
    """While the coordinator is away, what is delivered and acknowledged would fill the memory."""
    config = replace(NO_LIMIT, durable_name="d")
    state, index = made(config, 1), stream(*[b"a"] * (CHANGED_MAX + 100))
    for _ in range(2):
        for sequence, _ in take(state, index, count=CHANGED_MAX // 2):
            state.acknowledge(sequence)
    assert state.is_full
    assert (None, False) == state.find(index, index.next, 0.0)
    state.take_change()
    assert 100 == len(take(state, index, count=1_000))


def test_changes_of_a_consumer_that_is_not_stored_are_forgotten() -> None:
    """An ephemeral consumer kept a number for each message that it had ever delivered."""
    state, index = made(EXPLICIT, 1), stream(*[b"a"] * 100)
    take(state, index)
    state.forget_changes()
    assert not state.has_change
    assert not state._changed


def test_what_a_purge_removes_counts_as_acknowledged() -> None:
    state, index = made(EXPLICIT, 1), stream(*[b"a"] * 5)
    take(state, index, count=3)
    for sequence in range(1, 6):
        index.remove(sequence)
    state.forget_removed(index)
    assert (5, 3, 0) == (state.floor, state.floor_delivery, state.pending_count)


@pytest.mark.parametrize("policy", ["explicit", "all"])
def test_acknowledgements_in_any_order_move_the_floor_as_in_a_model(policy: str) -> None:
    choose = random.Random(policy)
    limit, index = SharedLimit(1 << 30, 1), stream(*[b"a"] * 300)
    state = made(replace(NO_LIMIT, ack_policy=policy), 1, limit=limit)
    take(state, index, count=300)
    pending = set(range(1, 301))
    for now in range(200):
        sequence = choose.randrange(1, 301)
        if choose.random() < 0.4:
            state.release(sequence, 0, now)
            state.find(index, index.next, now)
        else:
            state.acknowledge(sequence)
            pending -= set(range(sequence + 1)) if policy == "all" else {sequence}
        assert len(pending) == state.pending_count == limit.used
        assert 0 <= state.again_count <= len(pending)
        assert (min(pending) if pending else 301) == (state.take_change().start)
    assert pending == {each for each in range(1, 301) if state.is_pending(each)}


class Store:
    """Keeps changes as the share coordinator does."""

    def __init__(self) -> None:
        self.start = 1
        self.counts: dict[int, int] = {}

    def write(self, start: int, ranges: tuple[StoredRange, ...]) -> None:
        self.start = start
        for each in ranges:
            for sequence in range(each.first, each.last + 1):
                self.counts[sequence] = each.deliveries
        self.counts = {key: count for key, count in self.counts.items() if key >= start}

    def restored(self, config: ConsumerConfig, now: float) -> ConsumerState:
        state = made(config, 1)
        ranges = [StoredRange(key, key, count) for key, count in sorted(self.counts.items())]
        state.restore(self.start, ranges, now)
        return state


@pytest.mark.parametrize("seed", range(30))
def test_a_restored_consumer_delivers_what_is_not_acknowledged(seed: int) -> None:
    """Whenever the broker ends: what is acknowledged and stored never comes again, everything else does."""
    choose = random.Random(seed)
    filter_ = choose.choice(["", "b"])
    config = replace(EXPLICIT, max_ack_pending=choose.choice([3, 1000]), filter_subject=filter_)
    index, store = stream(*(choose.choice([b"a", b"b"]) for _ in range(60))), Store()
    wanted = [
        each for each in range(1, 61) if not filter_ or index.subjects[b"b"].number == index.number_at(each)
    ]
    first = [each.last for each in index.subjects.values()] if choose.random() < 0.3 and not filter_ else []
    state = made(config, 61 if first else 1, first)
    wanted = sorted(first) if first else wanted
    done: set[int] = set()
    now = 0.0
    for _ in range(200):
        now += choose.random() * 10
        action = choose.random()
        if action < 0.4:
            delivered = take(state, index, now, choose.randint(1, 5))
            assert not done.intersection(sequence for sequence, _ in delivered)
        elif action < 0.7:
            for sequence in wanted:
                if state.is_pending(sequence) and choose.random() < 0.5:
                    state.acknowledge(sequence)
        elif action < 0.8:
            state.release(choose.choice(wanted), choose.choice([0, 3]), now)
        elif action < 0.95:
            pending = {each for each in wanted if state.is_pending(each)}
            store.write(*state.take_change())
            done = {each for each in wanted if each not in pending and each < state.next} - set(state._first)
        elif store.counts or store.start > 1:
            state = store.restored(config, now)
    store.write(*state.take_change())
    state = store.restored(config, now)
    finished = {each for each in wanted if each < state.next and not state.is_pending(each)} - set(
        state._first
    )
    left: set[int] = set()
    while found := take(state, index, now, 3):
        left.update(sequence for sequence, _ in found)
        for sequence, _ in found:
            state.acknowledge(sequence)
    assert set(wanted) == finished | left


def test_consumers_share_what_may_wait_for_acknowledgements() -> None:
    """A thousand consumers with thousands of messages each took gigabytes."""
    limit, index = SharedLimit(100, 4), stream(*[b"a"] * 200)
    greedy, later, last = (made(EXPLICIT, 1, limit=limit) for _ in range(3))
    assert 20 == len(take(greedy, index, count=200))
    assert 16 == len(take(later, index, count=200))
    for sequence in range(1, 11):
        greedy.acknowledge(sequence)
    assert [(each, 1) for each in range(21, 28)] == take(greedy, index)
    greedy.close()
    assert 16 == limit.used
    assert 17 == len(take(last, index, count=200))


def test_each_consumer_delivers_a_message_where_all_have_too_many() -> None:
    """Nothing else would wake a consumer later whose messages wait for those of others."""
    limit, index = SharedLimit(10, 2), stream(*[b"a"] * 20)
    restored, other = (made(EXPLICIT, 1, limit=limit) for _ in range(2))
    restored.restore(1, [StoredRange(1, 20, 1)], 0.0)
    assert 20 == limit.used
    assert [(1, 1)] == take(other, index)
    other.acknowledge(1)
    assert [(2, 1)] == take(other, index)
