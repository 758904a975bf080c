from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.common.types import TopicPartition
from kalda.protocol.messages.end_txn import EndTxnResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.golden.clients.transaction_player import Batch


def test_an_upgrade_waits_for_the_end_of_the_transaction() -> None:
    """What is left of a V1 transaction must not be produced as a part of a V2 one (KIP-890)."""
    manager = TransactionManager("t")
    manager.initialize_transactions().is_acked = True
    request = manager.next_request(False)
    assert request is not None
    manager.handle_response(request, InitProducerIdResponse(producer_id=1, producer_epoch=0))
    manager.begin_transaction()
    manager.maybe_add_partition(TopicPartition("a", 0))
    manager.note_node_versions(coordinator_bumps_epochs=True, features_epoch=1, transaction_version=2)

    manager.begin_commit()
    while_committing = manager.is_transaction_v2
    manager.begin_commit().is_acked = True
    for answer in (None, EndTxnResponse(), InitProducerIdResponse(producer_id=1, producer_epoch=1)):
        request = manager.next_request(False)
        assert request is not None
        if answer is None:
            manager._succeeded(request, EndTxnResponse())
        else:
            manager.handle_response(request, answer)

    assert not while_committing
    assert manager.is_transaction_v2


def test_a_split_batch_keeps_its_place() -> None:
    """Batches in flight stay in order around the end of the number range."""
    manager = TransactionManager()
    entry = manager.sequences.entry(TopicPartition("a", 0))
    entry.next_sequence = 2**31 - 2
    batches = []
    for count in (1, 3, 2):
        batch = Batch(TopicPartition("a", 0), count, base_sequence=entry.next_sequence)
        entry.increment_sequence(count)
        batches.append(batch)
    for batch in reversed(batches):
        entry.add_in_flight(batch)

    assert [2**31 - 2, 2**31 - 1, 2] == [batch.base_sequence for batch in batches]
    assert batches[0] is entry.first_in_flight
    manager.sequences.remove_in_flight(batches[0])
    assert batches[1] is entry.first_in_flight
    assert 4 == entry.next_sequence
