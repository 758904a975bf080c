"""Batches: when they begin, when they are full, in which order and when they may be sent."""

import threading
from itertools import pairwise
from uuid import UUID

import pytest

from kalda.clients.errors import IllegalStateError
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.producer.buffer_pool import MemoryWaiter
from kalda.clients.producer.producer_batch import ProducerBatch
from kalda.clients.producer.record_accumulator import Appended, RecordAccumulator
from kalda.clients.producer.record_metadata import RecordMetadata
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.common.types import TopicPartition
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.records.compression import Compression
from tests.unit.clients.producer.producer_fixtures import (
    TIME_MS,
    TOPIC,
    TOPIC_ID,
    accumulator,
    append,
    send,
    snapshot,
    values,
)

HALF = b"x" * 60
"""Two of these records fill a batch of 200 bytes."""


def drain(
    records: RecordAccumulator, now: float = 0.0, metadata: ClusterMetadata | None = None
) -> list[ProducerBatch]:
    """Drain all ready nodes once."""
    metadata = metadata or snapshot()
    check = records.ready(metadata, now)
    return [each for batches in records.drain(check, check.nodes, metadata, now).values() for each in batches]


def manager_with_id() -> TransactionManager:
    """Return the state of an idempotent producer that has its id."""
    manager = TransactionManager()
    manager.bump_idempotent_epoch_and_reset_id_if_needed()
    request = manager.next_request(True)
    assert request is not None
    manager.handle_response(request, InitProducerIdResponse(producer_id=1, producer_epoch=0))
    return manager


def test_records_of_a_partition_share_a_batch_until_it_is_full() -> None:
    records = accumulator()
    for number in range(5):
        send(records, HALF + b"%d" % number)
    batches = []
    while found := drain(records, 2.0):
        batches += found
    expected = [[HALF + b"0", HALF + b"1"], [HALF + b"2", HALF + b"3"], [HALF + b"4"]]
    assert expected == [values(batch.build()) for batch in batches]
    assert all(len(batch.build()) <= 200 for batch in batches)


def test_a_batch_waits_for_linger_unless_it_is_full() -> None:
    records = accumulator(linger_s=1.0)
    assert append(records, b"a", now=5.0).is_sendable
    check = records.ready(snapshot(), 5.5)
    assert set() == check.nodes
    assert 6.0 == check.next_send
    assert {0} == records.ready(snapshot(), 6.0).nodes
    send(records, HALF, now=5.5)
    send(records, HALF, now=5.5)
    assert {0} == records.ready(snapshot(), 5.5).nodes


def test_a_large_record_has_a_batch_of_its_own() -> None:
    records = accumulator()
    append(records, b"x" * 5_000)
    (batch,) = drain(records, 2.0)
    assert [b"x" * 5_000] == values(batch.build())
    assert batch.reserved > 5_000


def test_a_ready_node_takes_its_other_partitions_along() -> None:
    """One request for all is cheaper than a request for each when it has lingered."""
    records = accumulator()
    metadata = snapshot([0, 0, 1])
    for _ in range(3):
        send(records, HALF, partition=0, metadata=metadata)
    send(records, b"new", partition=1, metadata=metadata)
    send(records, b"other node", partition=2, metadata=metadata)
    drained = drain(records, 0.5, metadata)
    assert {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)} == {each.topic_partition for each in drained}


def test_partitions_without_a_leader_wait_and_are_reported() -> None:
    records = accumulator()
    send(records, b"a", partition=1, metadata=snapshot([0, -1]))
    check = records.ready(snapshot([0, -1]), 5.0)
    assert {TOPIC} == check.unknown_leader_topics
    assert set() == check.nodes
    assert 60.0 == check.next_expiry


def test_a_request_is_bounded_and_no_partition_starves() -> None:
    records = accumulator(max_request_size=250)
    metadata = snapshot([0, 0, 0])
    for partition in range(3):
        send(records, b"x" * 100, partition=partition, metadata=metadata)
    drained = [drain(records, 2.0, metadata) for _ in range(3)]
    assert [[0], [1], [2]] == [[each.topic_partition.partition for each in batches] for batches in drained]


def test_a_batch_above_the_request_size_goes_alone() -> None:
    records = accumulator(max_request_size=100)
    send(records, b"x" * 150)
    assert 1 == len(drain(records, 2.0))


def test_a_muted_partition_is_not_drained() -> None:
    records = accumulator()
    send(records, b"a")
    records.mute(TopicPartition(TOPIC, 0), is_muted=True)
    assert [] == drain(records, 5.0)
    records.mute(TopicPartition(TOPIC, 0), is_muted=False)
    assert 1 == len(drain(records, 5.0))


def test_a_retried_batch_goes_first_and_after_its_back_off() -> None:
    records = accumulator()
    send(records, b"a")
    (first,) = drain(records, 2.0)
    send(records, b"b", now=2.0)
    records.reenqueue(first, 3.0)
    assert 1 == first.attempts
    check = records.ready(snapshot(), 3.05)
    assert set() == check.nodes
    assert 3.1 == pytest.approx(check.next_send)
    assert [first] == drain(records, 3.1)


def test_the_back_off_grows_with_the_attempts() -> None:
    records = accumulator()
    send(records, b"a")
    waits = []
    for _ in range(5):
        (batch,) = drain(records, 10.0)
        records.reenqueue(batch, 1.0)
        waits.append(round(batch.retry_at - 1.0, 3))
    assert [0.1, 0.2, 0.4, 0.8, 1.0] == waits


def test_a_new_leader_ends_the_back_off() -> None:
    """KIP-951: the response has named the new leader, so there is nothing to wait for."""
    records = accumulator()
    send(records, b"a")
    (batch,) = drain(records, 2.0, snapshot(leader_epoch=4))
    records.reenqueue(batch, 2.0)
    assert [] == drain(records, 2.0, snapshot(leader_epoch=4))
    assert [batch] == drain(records, 2.0, snapshot(leader_epoch=5))


def test_batches_expire_after_the_delivery_timeout() -> None:
    records = accumulator()
    send(records, b"a", now=1.0)
    assert 61.0 == records.ready(snapshot(), 60.9).next_expiry
    check = records.ready(snapshot(), 61.0)
    assert 1 == len(check.expired)
    assert not records.has_undrained
    assert records.has_incomplete


def test_a_flush_makes_batches_ready() -> None:
    records = accumulator()
    future = send(records, b"a")
    assert [] == drain(records, 0.1)
    (result,) = records.begin_flush()
    (batch,) = drain(records, 0.1)
    assert batch.result is result
    batch.complete(7, -1)
    records.end_flush()
    assert 7 == future.result(0).offset
    send(records, b"b", now=0.1)
    assert [] == drain(records, 0.1)


def test_memory_is_given_back_with_the_result() -> None:
    records = accumulator(buffer_memory=200)
    send(records, b"a")
    woken: list[int] = []
    waiter = MemoryWaiter(200, lambda: woken.append(1))
    assert not records.reserve(waiter)
    (batch,) = drain(records, 0.1)
    assert [] == woken
    batch.complete(0, -1)
    records.completed(batch)
    assert [1] == woken
    assert records.stop_waiting(waiter)
    records.completed(batch)
    assert 0 == records.pool.available


def test_waiting_callers_make_all_batches_ready() -> None:
    """Else lingering batches hold the memory that the callers wait for."""
    records = accumulator(buffer_memory=200, linger_s=30.0)
    send(records, b"a")
    assert [] == drain(records, 0.1)
    waiter = MemoryWaiter(200, lambda: None)
    assert not records.reserve(waiter)
    assert 1 == len(drain(records, 0.1))
    records.cancel_reservation(waiter)


def test_memory_of_a_record_that_found_room_meanwhile_is_given_back() -> None:
    records = accumulator()
    append(records, b"a")
    available = records.pool.available
    assert not append(records, b"b").is_sendable
    assert available == records.pool.available


def test_compressed_batches_grow_to_the_batch_size() -> None:
    """`batch.size` is about what is sent, so records that shrink fill more memory first."""
    records = accumulator(compression=Compression.LZ4, batch_size=1_000, buffer_memory=100_000)
    sizes = []
    for _ in range(100):
        for _ in range(200):
            send(records, b"y" * 50)
        while drained := drain(records, 10.0):
            for batch in drained:
                sizes.append(batch.record_count)
                batch.complete(0, -1)
                records.completed(batch)
    assert max(sizes) > 3 * sizes[0]
    assert records.pool.available <= 100_000


def test_compression_gives_memory_back_before_the_result() -> None:
    records = accumulator(compression=Compression.ZSTD, batch_size=5_000)
    send(records, b"z" * 4_000)
    assert 5_000 == records.pool.available
    (batch,) = drain(records, 2.0)
    assert records.pool.available > 9_000
    batch.complete(0, -1)
    records.completed(batch)
    assert 10_000 == records.pool.available


def test_after_close_records_are_refused_and_batches_are_ready() -> None:
    records = accumulator()
    send(records, b"a")
    woken: list[int] = []
    waiter = MemoryWaiter(9_900, lambda: woken.append(1))
    assert not records.reserve(waiter)
    records.close()
    assert [1] == woken
    with pytest.raises(IllegalStateError, match="closed"):
        records.stop_waiting(waiter)
    with pytest.raises(IllegalStateError, match="closed"):
        send(records, b"b")
    with pytest.raises(IllegalStateError, match="closed"):
        records.reserve(MemoryWaiter(1, print))
    assert 1 == len(drain(records, 0.0))


def test_the_first_batch_of_a_producer_is_acknowledged_before_the_next_is_sent() -> None:
    """A broker takes any sequence from a producer that it does not know, so the second batch could be written
    although the first was refused."""
    manager = manager_with_id()
    records = accumulator(transactions=manager)
    for number in range(6):
        send(records, HALF + b"%d" % number)

    [first] = drain(records, 2.0)
    assert [] == drain(records, 2.0)
    manager.handle_completed_batch(first, 0)
    following = [drain(records, 2.0), drain(records, 2.0)]

    assert [[2], [4]] == [[batch.base_sequence for batch in batches] for batches in following]


def test_sequences_start_again_when_the_topic_was_created_again() -> None:
    """The new log knows none of them: a later one would be accepted as its first, and earlier ones lost."""
    transactions = TransactionManager()
    transactions.bump_idempotent_epoch_and_reset_id_if_needed()
    records = accumulator(transactions=transactions)
    request = transactions.next_request(has_incomplete_batches=True)
    assert request is not None
    transactions.handle_response(request, InitProducerIdResponse(producer_id=4, producer_epoch=0))
    send(records, b"1")
    (batch,) = drain(records, 2.0)
    transactions.handle_completed_batch(batch, 0)
    records.completed(batch)
    for number in range(2):
        send(records, b"%d" % number * 150, now=2.0)
    (first,), (second,) = drain(records, 4.0), drain(records, 4.0)
    assert (1, 2) == (first.base_sequence, second.base_sequence)
    again = snapshot(topic_id=UUID(int=2))
    first.is_in_request = False
    records.reenqueue(first, 4.0)
    assert [] == drain(records, 9.0, again), "the other batch of the deleted topic is still in a request"
    second.is_in_request = False
    records.reenqueue(second, 4.0)
    (retried,) = drain(records, 9.0, again)
    assert (first, 0) == (retried, retried.base_sequence)
    assert 1 == second.base_sequence


def test_records_without_a_key_leave_a_partition_that_the_new_topic_lacks() -> None:
    records = accumulator(random_below=lambda below: below - 1)
    before = snapshot([0, 0])
    assert [] == records.take_vanished(before)
    assert 1 == send(records, b"1", partition=None, metadata=before).topic_partition.partition
    assert [] == records.take_vanished(snapshot([0])), "the metadata of a broker that lags behind"
    again = snapshot([0], topic_id=UUID(int=2))
    assert 1 == len(records.take_vanished(again))
    assert 0 == send(records, b"2", partition=None, metadata=again).topic_partition.partition


def test_a_split_batch_keeps_order_callbacks_and_memory() -> None:
    records = accumulator(batch_size=1_000)
    delivered: list[int] = []
    futures = [
        send(
            records, b"%03d" % number * 10, on_delivery=lambda metadata, _: delivered.append(metadata.offset)
        )
        for number in range(20)
    ]
    before = records.pool.available
    (batch,) = drain(records, 2.0)
    send(records, b"later", now=2.0)
    parts = records.split_and_reenqueue(batch)
    assert len(parts) > 1
    assert [part.reserved for part in parts] != [0] * len(parts)
    offset = 0
    order = []
    while drained := drain(records, 5.0):
        for part in drained:
            order += values(part.build())
            part.complete(offset, -1)
            offset += part.record_count
            records.completed(part)
    assert [*(b"%03d" % number * 10 for number in range(20)), b"later"] == order
    assert list(range(20)) == [future.result(0).offset for future in futures]
    assert list(range(20)) == delivered
    assert 10_000 == records.pool.available > before


def test_a_batch_that_is_split_again_and_again_ends_with_single_records() -> None:
    records = accumulator(batch_size=2_000)
    for number in range(8):
        send(records, b"%d" % number)
    counts = []
    while drained := drain(records, 2.0):
        for batch in drained:
            if batch.record_count > 1:
                records.split_and_reenqueue(batch)
            else:
                counts.append(batch.record_count)
    assert [1] * 8 == counts


def test_records_without_a_key_stay_with_a_partition_for_about_two_batches() -> None:
    drawn = iter(range(100))
    records = accumulator(
        batch_size=1_000, buffer_memory=100_000, random_below=lambda below: next(drawn) % below
    )
    metadata = snapshot([0, 0, 0])
    partitions = [
        send(records, b"x" * 90, partition=None, metadata=metadata).topic_partition.partition
        for _ in range(60)
    ]
    changes = sum(left != right for left, right in pairwise(partitions))
    assert 0 < changes <= 6


def test_adaptive_partitioning_avoids_long_queues() -> None:
    """With all random numbers 0 the lightest queue's share comes first."""
    records = accumulator(batch_size=200, buffer_memory=100_000)
    metadata = snapshot([0, 0])
    for _ in range(20):
        send(records, HALF, partition=0, metadata=metadata)
    send(records, HALF, partition=1, metadata=metadata)
    chosen = send(records, HALF, partition=None, metadata=metadata)
    assert chosen.topic_partition.partition in (0, 1)
    queue_sizes = [len(records._topics[TOPIC].queue(number).batches) for number in (0, 1)]
    assert queue_sizes[0] > queue_sizes[1]


def test_a_broker_that_takes_no_requests_gets_no_records_without_a_key() -> None:
    records = accumulator(availability_timeout_s=1.0)
    metadata = snapshot([0, 1])
    records.node_is_stuck(0, 5.0, is_stuck=True)
    records.node_is_stuck(0, 5.5, is_stuck=True)
    assert 1 == send(records, b"a", partition=None, metadata=metadata, now=6.5).topic_partition.partition


def test_incomplete_batches_can_be_taken_for_a_forced_close() -> None:
    records = accumulator()
    send(records, b"a")
    (in_flight,) = drain(records, 2.0)
    send(records, b"b", now=2.0)
    taken = records.take_incomplete()
    assert 2 == len(taken)
    assert in_flight in taken
    assert not records.has_undrained


def to_new(records: RecordAccumulator, value: bytes) -> Appended | None:
    """Append a record by the short path."""
    return records.try_append_to_new(TOPIC, 0, None, value, TIME_MS, (), None, now=0.0, snapshot=snapshot())


def test_the_short_path_begins_a_batch_like_the_long_one() -> None:
    records = accumulator()
    first = to_new(records, HALF)
    assert first is not None
    assert first.is_sendable
    assert 200 == records.pool.total - records.pool.available
    (batch,) = drain(records, 2.0)
    assert [HALF] == values(batch.build())


def test_the_short_path_takes_an_open_batch_that_another_thread_began() -> None:
    records = accumulator()
    send(records, HALF)
    second = to_new(records, HALF)
    assert second is not None
    assert not second.is_sendable
    assert 200 == records.pool.total - records.pool.available


def test_the_short_path_leaves_waits_and_large_records_to_the_long_one() -> None:
    records = accumulator(buffer_memory=300)
    assert to_new(records, b"x" * 200) is None
    assert 300 == records.pool.available
    send(records, HALF)
    send(records, HALF)
    assert to_new(records, HALF) is None
    assert 100 == records.pool.available


def test_the_short_path_of_a_closed_producer_keeps_no_memory() -> None:
    records = accumulator()
    records.close()
    with pytest.raises(IllegalStateError, match="closed"):
        to_new(records, b"a")
    assert records.pool.total == records.pool.available


def test_a_batch_without_room_for_a_record_can_be_sent_at_once() -> None:
    """As in Java's client; while the record waits for memory, its sender must not linger."""
    records = accumulator(linger_s=1.0)
    send(records, HALF)
    assert records.try_append(TOPIC, 0, None, b"x" * 150, 0, (), None) is None
    assert {0} == records.ready(snapshot(), 0.1).nodes


def test_a_callback_that_exits_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """On the producer's thread it ended the sender, and all futures stayed open."""
    records = accumulator()
    delivered: list[int] = []

    def leave(metadata: RecordMetadata, error: Exception | None) -> None:
        raise SystemExit(9)

    send(records, b"a", on_delivery=leave)
    send(records, b"b", on_delivery=lambda metadata, _: delivered.append(metadata.offset))
    (batch,) = drain(records, 2.0)
    thread = threading.Thread(target=batch.complete, args=(7, -1))
    thread.start()
    thread.join()
    assert [8] == delivered
    assert "SystemExit" in caplog.text


def test_a_signal_handler_that_interrupts_an_append_is_refused_instead_of_waiting_for_itself() -> None:
    """Its own thread holds the lock, with a record that is half there."""
    records = accumulator()
    send(records, b"first")
    refused = []

    wanted = MemoryWaiter(1, print)

    class Interrupted(bytes):
        def __len__(self) -> int:
            for call in (records.begin_flush, lambda: send(records, b"x"), lambda: records.reserve(wanted)):
                with pytest.raises(IllegalStateError, match="a signal handler or a finalizer"):
                    call()
                refused.append(call)
            return super().__len__()

    assert records.try_append(TOPIC, 0, None, Interrupted(b"second"), TIME_MS, (), None) is not None
    assert len(refused) >= 3
    assert 1 == len(records.begin_flush())


def test_a_topic_that_the_metadata_names_again_keeps_its_sequences() -> None:
    """A broker that lags behind names the deleted topic for a while. A batch with the sequence of one that
    the new topic has would be acknowledged and not written."""
    manager = manager_with_id()
    records = accumulator(transactions=manager)
    old, new = snapshot(), snapshot(topic_id=UUID(int=2))
    sequences = []
    for metadata in (old, new, new, old, new, new):
        send(records, HALF)
        (batch,) = drain(records, 2.0, metadata)
        sequences.append(batch.base_sequence)
        manager.sequences.completed(batch, 0)
        records.completed(batch)
    assert [0, 0, 1, 1, 2, 3] == sequences


def test_a_batch_that_may_be_in_a_topic_named_again_makes_its_sequences_uncertain() -> None:
    """It has ended meanwhile. If the log has its sequence, the next batch must not carry it."""
    manager = manager_with_id()
    records = accumulator(transactions=manager)
    send(records, HALF)
    (first,) = drain(records, 2.0)
    manager.sequences.completed(first, 0)
    send(records, HALF)
    (lost,) = drain(records, 2.0)
    lost.is_in_request = False
    partition = lost.topic_partition
    assert manager.sequences.follow_topic(partition, UUID(int=2))
    manager.sequences.remove_in_flight(lost)
    assert manager.sequences.follow_topic(partition, TOPIC_ID)
    assert [partition] == manager.sequences.resolve()
