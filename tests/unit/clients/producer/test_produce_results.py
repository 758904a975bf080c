"""What the answer to a batch means for its records."""

import pytest

from kalda.clients.errors import BrokerConnectionError, ClientError, UnsupportedApiError
from kalda.clients.metadata import Metadata
from kalda.clients.producer.produce_results import PartitionResult, ProduceResults
from kalda.clients.producer.producer_batch import ProducerBatch
from kalda.clients.producer.record_accumulator import RecordAccumulator
from kalda.clients.producer.record_future import RecordFuture
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.unit.clients.producer.producer_fixtures import accumulator, send, snapshot


def idempotent() -> tuple[ProduceResults, RecordAccumulator, list[RecordFuture]]:
    """Return three batches of one record each, of a producer whose first batch is acknowledged."""
    manager = TransactionManager()
    manager.bump_idempotent_epoch_and_reset_id_if_needed()
    request = manager.next_request(True)
    assert request is not None
    manager.handle_response(request, InitProducerIdResponse(producer_id=1, producer_epoch=0))
    records = accumulator(batch_size=80, transactions=manager)
    futures = [send(records, b"x" * 60) for _ in range(3)]
    results = ProduceResults(records, Metadata(), manager, retries=10, keeps_order=False)
    results.apply(drained(records, 2.0), PartitionResult(ErrorCode.NONE, 0), 2.0)
    return results, records, futures


OUT_OF_ORDER = PartitionResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_a_batch_is_not_renumbered_while_a_later_one_may_show_that_it_is_written() -> None:
    """A broker that starts again knows the last batch of a producer only, and refuses those before it."""
    results, records, futures = idempotent()
    lost = [drained(records, 2.0), drained(records, 2.0)]
    for batch in lost:
        results.apply(batch, PartitionResult(ErrorCode.NETWORK_EXCEPTION), 2.0)
    results.apply(drained(records, 4.0), OUT_OF_ORDER, 4.0)
    later = drained(records, 8.0)
    assert lost[1] is later
    assert 0 == later.producer_epoch
    results.apply(later, PartitionResult(ErrorCode.DUPLICATE_SEQUENCE_NUMBER), 8.0)
    results.apply(drained(records, 12.0), OUT_OF_ORDER, 12.0)
    assert [True, True, True] == [future.done() and future.exception(0) is None for future in futures]


def test_batches_are_renumbered_where_the_broker_has_none_of_them() -> None:
    """A broker that lost acknowledged records refuses each batch; with the next epoch it takes them."""
    results, records, _ = idempotent()
    lost = [drained(records, 2.0), drained(records, 2.0)]
    for batch in lost:
        results.apply(batch, PartitionResult(ErrorCode.NETWORK_EXCEPTION), 2.0)
    for now in (4.0, 8.0, 12.0):
        results.apply(drained(records, now), OUT_OF_ORDER, now)
    manager = results._transactions
    assert manager is not None
    manager.bump_idempotent_epoch_and_reset_id_if_needed()
    assert [(1, 0), (1, 1)] == [(batch.producer_epoch, batch.base_sequence) for batch in lost]


@pytest.mark.parametrize(
    ("first_result", "is_done"), [(ErrorCode.NOT_ENOUGH_REPLICAS, False), (ErrorCode.NETWORK_EXCEPTION, True)]
)
def test_a_batch_passes_for_a_duplicate_only_if_an_attempt_can_have_written_it(
    first_result: ErrorCode, is_done: bool
) -> None:
    """A broker that lost the producer's state accepts a later batch although it refused this one."""
    results, records, futures = idempotent()
    refused, accepted = drained(records, 2.0), drained(records, 2.0)

    results.apply(refused, PartitionResult(first_result), 2.0)
    results.apply(accepted, PartitionResult(ErrorCode.NONE, 0), 2.0)
    results.apply(drained(records, 4.0), PartitionResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 4.0)

    assert [True, is_done, True] == [future.done() for future in futures]


def failing(leaders: tuple[int, ...] = (0,)) -> tuple[ProduceResults, ProducerBatch, RecordFuture]:
    """Return a batch of one record that was sent to broker 0, and what judges the answer."""
    records = accumulator()
    future = send(records, b"x")
    metadata = Metadata()
    metadata.snapshot = snapshot(leaders)
    results = ProduceResults(records, metadata, None, retries=10, keeps_order=False)
    return results, drained(records, 2.0), future


def test_a_refused_record_names_partition_broker_and_remedy() -> None:
    """Apache Kafka's brokers send the code only; one line must be enough to act on."""
    results, batch, future = failing()

    results.apply(batch, PartitionResult(ErrorCode.MESSAGE_TOO_LARGE), 2.0, 0)

    expected = (
        "records for t-0 at broker 0 (localhost:9092): MESSAGE_TOO_LARGE: The message is larger than the "
        "broker accepts. Send smaller records, or raise `max.message.bytes` of the topic "
        "(`message.max.bytes` of "
        "brokers)."
    )
    assert expected == str(future.exception(0))


def test_a_brokers_own_words_replace_the_general_ones() -> None:
    """It knows the limit and the size; the broker's name stays."""
    results, batch, future = failing()

    results.apply(batch, PartitionResult(ErrorCode.INVALID_RECORD, message="no key"), 2.0, 0)

    assert "records for t-0 at broker 0 (localhost:9092): INVALID_RECORD: no key" == str(future.exception(0))


def test_a_failed_request_names_the_partition_too() -> None:
    """The failure of the connection is shared by all batches of the request."""
    results, batch, future = failing()
    cause = UnsupportedApiError("no shared version of Produce")

    results.apply(batch, PartitionResult(ErrorCode.UNSUPPORTED_VERSION, cause=cause), 2.0, 0)

    error = future.exception(0)
    assert isinstance(error, UnsupportedApiError)
    assert "records for t-0 at broker 0 (localhost:9092): no shared version of Produce" == str(error)
    assert error.__cause__ is cause


@pytest.mark.parametrize(
    ("leader", "refusal", "unreachable", "expected"),
    [
        (-1, None, {}, "the partition has no leader now: look whether its brokers run"),
        (
            0,
            None,
            {0: BrokerConnectionError("refused")},
            "its leader, broker 0 (localhost:9092), cannot be reached: refused",
        ),
        (
            0,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            {},
            "last: NOT_ENOUGH_REPLICAS from broker 0 (localhost:9092): Too few",
        ),
        (
            0,
            None,
            {},
            "broker 0 (localhost:9092), is slower than the records come, or does not answer: raise",
        ),
    ],
)
def test_an_expired_batch_says_what_held_it_up(
    leader: int, refusal: ErrorCode | None, unreachable: dict[int, ClientError], expected: str
) -> None:
    """The time alone does not say whether to look at brokers, replicas or settings."""
    results, batch, future = failing((leader,))
    if refusal is not None:
        results.apply(batch, PartitionResult(refusal), 2.0, 0)

    results.expire(batch, 61.0, unreachable)

    assert expected in str(future.exception(0))


def drained(records: RecordAccumulator, now: float) -> ProducerBatch:
    """Drain the next batch of the one partition."""
    check = records.ready(snapshot(), now)
    [[batch]] = records.drain(check, check.nodes, snapshot(), now).values()
    return batch
