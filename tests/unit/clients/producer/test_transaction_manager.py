from kalda.clients.errors import error_for
from kalda.clients.producer.producer_identity import ProducerIdAndEpoch
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.producer.transaction_requests import EndTxn
from kalda.clients.values import ConsumerGroupMetadata, OffsetAndMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kalda.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kalda.protocol.messages.end_txn import EndTxnResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
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


def test_an_epoch_that_has_to_be_raised_during_an_abort_is_raised_before_the_next_transaction() -> None:
    """Records that expire during an abort are fenced off by the next epoch, which must be asked for."""
    manager = ready_manager()
    batch = in_transaction(manager)
    aborted = manager.begin_abort()
    manager.sequences.mark_unresolved(batch)
    manager.sequences.remove_in_flight(batch)
    manager.maybe_resolve_sequences()

    for answer in (EndTxnResponse(), InitProducerIdResponse(producer_id=1, producer_epoch=1)):
        assert not aborted.is_completed
        request = manager.next_request(False)
        assert request is not None
        manager.handle_response(request, answer)

    assert aborted.is_completed
    aborted.is_acked = True
    manager.begin_transaction()
    assert 1 == manager.identity.epoch


def test_a_late_acknowledgement_of_an_earlier_epoch_says_nothing_about_the_present_one() -> None:
    """Else a batch that came too early would pass for one that the broker has, and its records be lost."""
    partition = TopicPartition("a", 0)
    manager = TransactionManager()
    late = Batch(partition, 10, producer_id=1, producer_epoch=0, base_sequence=0)
    entry = manager.sequences.entry(partition)
    entry.start_sequences_at_beginning(ProducerIdAndEpoch(1, 1))
    batches = [Batch(partition, 5, 1, 1, base_sequence=sequence) for sequence in (0, 5)]
    for batch in batches:
        entry.increment_sequence(batch.record_count)
        entry.add_in_flight(batch)

    manager.handle_completed_batch(late, 100)

    assert [False, False] == [manager.sequences.is_surely_written(batch) for batch in batches]


def test_offsets_that_a_response_leaves_out_are_sent_again() -> None:
    """A transaction that is committed without them would repeat what was processed."""
    manager = ready_manager()
    manager.begin_transaction()
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    result = manager.send_offsets_to_transaction(
        {first: OffsetAndMetadata(1), second: OffsetAndMetadata(2)}, ConsumerGroupMetadata("g")
    )
    added = manager.next_request(False)
    assert added is not None
    manager.handle_response(added, AddOffsetsToTxnResponse())

    for number, is_done in ((0, False), (1, True)):
        request = manager.next_request(False)
        assert request is not None
        manager.handle_response(request, committed("a", number))
        assert is_done is result.is_completed


def test_a_close_aborts_a_transaction_whose_commit_failed_after_its_time_out() -> None:
    """No one will call commit again to see the failure, and the open transaction would block readers."""
    manager = ready_manager()
    in_transaction(manager)
    manager.begin_commit()
    manager.maybe_transition_to_error_state(error_for(ErrorCode.MESSAGE_TOO_LARGE, "records"))
    assert manager.next_request(False) is None

    manager.abort_for_close()

    request = manager.next_request(False)
    assert isinstance(request, EndTxn)
    assert not request.is_commit


def test_a_commit_that_waits_behind_another_request_is_not_sent_after_the_abort_has_begun() -> None:
    """Else the transaction would be committed without the records that failed."""
    manager = ready_manager()
    in_transaction(manager)
    manager.maybe_add_partition(TopicPartition("a", 1))
    under_way = manager.next_request(True)
    commit = manager.begin_commit()
    manager.maybe_transition_to_error_state(error_for(ErrorCode.REQUEST_TIMED_OUT, "records"))
    manager.abort_for_close()
    assert under_way is not None
    manager.handle_response(under_way, AddPartitionsToTxnResponse())

    request = manager.next_request(False)
    assert isinstance(request, EndTxn)
    assert not request.is_commit
    manager.handle_response(request, EndTxnResponse())
    assert manager.next_request(False) is None
    assert commit.error is not None


def ready_manager() -> TransactionManager:
    """Return a manager outside a transaction, of a coordinator that lets producers raise their epoch."""
    manager = TransactionManager("t")
    manager.initialize_transactions().is_acked = True
    request = manager.next_request(False)
    assert request is not None
    manager.handle_response(request, InitProducerIdResponse(producer_id=1, producer_epoch=0))
    manager.note_node_versions(coordinator_bumps_epochs=True, features_epoch=0, transaction_version=1)
    return manager


def in_transaction(manager: TransactionManager) -> Batch:
    """Begin a transaction; return its first batch, which is in flight."""
    partition = TopicPartition("a", 0)
    manager.begin_transaction()
    manager.maybe_add_partition(partition)
    request = manager.next_request(True)
    assert request is not None
    manager._succeeded(request, AddPartitionsToTxnResponse())
    manager.maybe_update_identity(partition)
    batch = Batch(partition, 3, *manager.identity, base_sequence=0)
    entry = manager.sequences.entry(partition)
    entry.increment_sequence(batch.record_count)
    entry.add_in_flight(batch)
    return batch


def committed(topic: str, number: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic,
                partitions=[TxnOffsetCommitResponsePartition(partition_index=number, error_code=0)],
            )
        ]
    )


def test_an_abortable_error_keeps_its_first_cause() -> None:
    """After a refused record the outcome of its batch was reported as unknown, which hid the refusal."""
    manager = transactional_manager()

    manager.maybe_transition_to_error_state(error_for(ErrorCode.MESSAGE_TOO_LARGE, "records for a-0"))
    manager.maybe_transition_to_error_state(error_for(ErrorCode.REQUEST_TIMED_OUT, "records for a-1"))

    assert "records for a-0: MESSAGE_TOO_LARGE" in str(manager.last_error)


def test_a_refused_two_phase_commit_names_the_setting_of_the_broker() -> None:
    """KIP-939 has brokers answer with an authorization error, also where the setting is the reason."""
    manager = TransactionManager("t", enables_two_phase_commit=True)
    result = manager.initialize_transactions()
    request = manager.next_request(False)
    assert request is not None

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    manager.handle_response(request, InitProducerIdResponse(error_code=code))

    assert "`transaction.two.phase.commit.enable`" in str(result.error)


def transactional_manager() -> TransactionManager:
    """Return a manager in a transaction."""
    manager = TransactionManager("t")
    manager.initialize_transactions().is_acked = True
    request = manager.next_request(False)
    assert request is not None
    manager.handle_response(request, InitProducerIdResponse(producer_id=1, producer_epoch=0))
    manager.begin_transaction()
    return manager
