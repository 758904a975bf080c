"""What the answer to a batch means for its records."""

import pytest

from kalda.clients.metadata import Metadata
from kalda.clients.producer.produce_results import PartitionResult, ProduceResults
from kalda.clients.producer.producer_batch import ProducerBatch
from kalda.clients.producer.record_accumulator import RecordAccumulator
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.unit.clients.producer.producer_fixtures import accumulator, send, snapshot


@pytest.mark.parametrize(
    ("first_result", "is_done"), [(ErrorCode.NOT_ENOUGH_REPLICAS, False), (ErrorCode.NETWORK_EXCEPTION, True)]
)
def test_a_batch_passes_for_a_duplicate_only_if_an_attempt_can_have_written_it(
    first_result: ErrorCode, is_done: bool
) -> None:
    """A broker that lost the producer's state accepts a later batch although it refused this one."""
    manager = TransactionManager()
    manager.bump_idempotent_epoch_and_reset_id_if_needed()
    request = manager.next_request(True)
    assert request is not None
    manager.handle_response(request, InitProducerIdResponse(producer_id=1, producer_epoch=0))
    records = accumulator(batch_size=80, transactions=manager)
    futures = [send(records, b"x" * 60) for _ in range(3)]
    results = ProduceResults(records, Metadata(), manager, retries=10, keeps_order=False)
    results.apply(drained(records, 2.0), PartitionResult(ErrorCode.NONE, 0), 2.0)
    refused, accepted = drained(records, 2.0), drained(records, 2.0)

    results.apply(refused, PartitionResult(first_result), 2.0)
    results.apply(accepted, PartitionResult(ErrorCode.NONE, 0), 2.0)
    results.apply(drained(records, 4.0), PartitionResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), 4.0)

    assert [True, is_done, True] == [future.done() for future in futures]


def drained(records: RecordAccumulator, now: float) -> ProducerBatch:
    """Drain the next batch of the one partition."""
    check = records.ready(snapshot(), now)
    [[batch]] = records.drain(check, check.nodes, snapshot(), now).values()
    return batch
