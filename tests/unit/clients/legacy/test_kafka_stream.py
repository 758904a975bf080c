"""What a program's thread sees of a stream, and what counts as consumed."""

import threading

import pytest

from kalda.clients.errors import ClientError
from kalda.clients.legacy.consumer.decoder import decoder_of
from kalda.clients.legacy.consumer.kafka_stream import ConsumerTimeoutError, KafkaStream
from kalda.clients.legacy.consumer.topic_count import ThreadId
from kalda.clients.values import ConsumerRecord
from kalda.common.types import TopicPartition
from kalda.records.batch import TimestampType

T0 = TopicPartition("t", 0)


def chunk(first: int, count: int, partition: int = 0) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    return [
        ConsumerRecord(
            "t", partition, first + n, 1, TimestampType.CREATE_TIME, None, b"%d" % (first + n), (), -1, 1, 0
        )
        for n in range(count)
    ]


class Stream(KafkaStream[bytes, bytes]):
    def __init__(self, timeout_s: float | None = 0.0) -> None:
        self.rooms = 0
        self.is_halted = False
        decode = decoder_of("d", None)
        super().__init__(
            ThreadId("c", 0),
            decode,
            decode,
            chunks_max=2,
            timeout_s=timeout_s,
            on_room=self._count,
            is_paused=lambda: self.is_halted,
        )

    def _count(self, _: object) -> None:
        self.rooms += 1


def test_a_message_is_consumed_when_the_next_is_asked_for() -> None:
    stream = Stream()
    stream.put(chunk(5, 2))

    assert {} == stream.consumed()
    assert b"5" == next(stream).message()
    assert {} == stream.consumed()
    assert stream.has_message_in_hand
    next(stream)
    assert {T0: 6} == stream.consumed()
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert {T0: 7} == stream.consumed()
    assert not stream.has_message_in_hand


def test_a_paused_consumer_delivers_nothing_until_it_knows_that_it_goes_on() -> None:
    """Its partitions may be another's; what waits in the queue would be read twice at the same time."""
    stream = Stream()
    stream.is_halted = True
    stream.put(chunk(5, 2))
    with pytest.raises(ConsumerTimeoutError, match="the process was paused"):
        next(stream)
    stream.is_halted = False
    assert b"5" == next(stream).message()
    stream.is_halted = True
    stream.clear()
    stream.shut()
    with pytest.raises(StopIteration):
        next(stream)


def test_the_thread_that_asks_for_a_commit_has_finished_its_message() -> None:
    stream = Stream()
    stream.put(chunk(0, 1))
    taker = threading.Thread(target=next, args=[stream])
    taker.start()
    taker.join()

    stream.settle()
    assert {} == stream.consumed()

    stream.put(chunk(1, 1))
    next(stream)
    stream.settle()
    assert {T0: 2} == stream.consumed()


def test_a_full_queue_has_room_again_when_a_chunk_is_begun() -> None:
    stream = Stream()
    fills = []
    for partition in range(2):
        stream.put(chunk(0, 2, partition))
        fills.append(stream.is_full)
    next(stream)
    fills.append(stream.is_full)
    next(stream)

    assert ([False, True, False], 1) == (fills, stream.rooms)


def test_what_was_not_taken_is_dropped_and_what_is_in_hand_still_counts() -> None:
    stream = Stream()
    stream.put(chunk(0, 3))
    stream.put(chunk(3, 1))
    next(stream)

    stream.clear()

    assert stream.has_message_in_hand
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    assert {T0: 1} == stream.consumed()


def test_after_forget_a_message_in_hand_counts_for_nothing() -> None:
    """Its partition may be another's by now, which gets the message again."""
    stream = Stream()
    stream.put(chunk(0, 2))
    next(stream)
    next(stream)

    stream.forget()
    with pytest.raises(ConsumerTimeoutError):
        next(stream)

    assert {} == stream.consumed()


def test_shut_ends_the_iteration_and_frees_a_waiting_thread() -> None:
    stream = Stream(timeout_s=None)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(len(list(stream))))
    waiting.start()
    stream.put(chunk(0, 1))

    stream.shut()
    waiting.join(60)

    assert not waiting.is_alive()
    assert [] == list(stream)


def test_a_failure_is_raised_once_behind_the_messages_before_it() -> None:
    stream = Stream()
    stream.put(chunk(0, 1))
    stream.fail(ClientError("lost"))

    assert b"0" == next(stream).message()
    with pytest.raises(ClientError, match="lost"):
        next(stream)
    stream.put(chunk(1, 1))
    assert b"1" == next(stream).message()


def test_a_failure_of_partitions_that_are_gone_is_forgotten() -> None:
    stream = Stream()
    stream.fail(ClientError("lost"))

    stream.forget()

    with pytest.raises(ConsumerTimeoutError):
        next(stream)
