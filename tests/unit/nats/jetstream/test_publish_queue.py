"""The messages on their way into a stream: how many there may be, and which become one batch."""

import pytest

from kalda.nats.jetstream import publish_queue
from kalda.nats.jetstream.publish_queue import BATCH_BYTES_MAX, PublishQueue
from kalda.nats.jetstream.shared_limits import SharedLimit
from kalda.nats.operations import Publish


def message(payload: bytes = b"a", *, headers: bytes = b"", reply: bytes = b"") -> Publish:
    return Publish(b"orders", reply, headers, payload)


@pytest.fixture
def limit() -> SharedLimit:
    return SharedLimit(1_000_000_000, 1)


@pytest.fixture
def queue(limit: SharedLimit) -> PublishQueue:
    return PublishQueue(limit)


def offer(queue: PublishQueue, *messages: Publish) -> list[bool]:
    return [queue.offer(each) for each in messages]


def payloads(taken: list[Publish]) -> list[bytes]:
    return [each.payload for each in taken]


def test_messages_become_one_batch(queue: PublishQueue) -> None:
    offer(queue, message(b"1"), message(b"2"), message(b"3"))
    assert [b"1", b"2"] == payloads(queue.take_batch(2))
    assert b"3" == queue.first.payload
    assert [b"3"] == payloads(queue.take_batch(2))
    assert [] == queue.take_batch(2)


def test_a_message_with_headers_comes_alone(queue: PublishQueue) -> None:
    offer(queue, message(b"1"), message(b"2", headers=b"NATS/1.0\r\n\r\n"), message(b"3"))
    assert [[b"1"], [b"2"], [b"3"]] == [payloads(queue.take_batch(10)) for _ in range(3)]


def test_a_batch_has_some_bytes_and_at_least_one_message(queue: PublishQueue) -> None:
    large = bytes(BATCH_BYTES_MAX // 2)
    offer(queue, message(large), message(large), message(bytes(BATCH_BYTES_MAX * 2)), message())
    assert [1, 1, 1, 1] == [len(queue.take_batch(10)) for _ in range(4)]


def test_answers_come_in_order_once_their_messages_are_replicated(queue: PublishQueue) -> None:
    for sequence in (4, 5, 7):
        queue.wait_replicated(sequence, b"_INBOX.%d" % sequence)
    assert [(4, b"_INBOX.4"), (5, b"_INBOX.5")] == list(queue.replicated(6))
    assert [] == list(queue.replicated(6))
    assert [(7, b"_INBOX.7")] == list(queue.replicated(7))


def test_messages_that_wait_for_replicas_count_among_the_most(
    queue: PublishQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_queue, "MESSAGES_MAX", 2)
    queue.wait_replicated(1, b"_INBOX.1")
    assert [True, False] == offer(queue, message(), message())
    list(queue.replicated(1))
    assert [True, False] == offer(queue, message(), message())


def test_bytes_are_bounded_for_one_stream_and_for_all(limit: SharedLimit) -> None:
    large = message(bytes(publish_queue.BYTES_MAX // 2))
    assert [True, False] == offer(PublishQueue(limit), large, large)
    shared = SharedLimit(publish_queue.BYTES_MAX * 3 // 2, 2)
    assert [True, False] == [PublishQueue(shared).offer(large) for _ in range(2)]


def test_nothing_is_counted_of_what_has_left(queue: PublishQueue, limit: SharedLimit) -> None:
    offer(queue, message(b"1", reply=b"a"), message(b"2", reply=b"b"))
    queue.take_batch(1)
    queue.wait_replicated(1, b"c")
    assert limit.used > 0
    assert [b"b", b"c"] == queue.clear()
    assert 0 == limit.used
    assert not queue
    offer(queue, message())
    queue.take_batch(1)
    queue.wait_replicated(1, b"c")
    list(queue.replicated(1))
    assert 0 == limit.used
