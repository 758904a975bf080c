"""Idempotence and transactions as a log enforces them."""

import pytest

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.records.batch import PRODUCER_EPOCH_MAX
from kalda.records.control import ControlRecordType
from kalda.storage import producer_state_manager
from kalda.storage.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
)
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation, LogAppendInfo
from kalda.storage.producer_state_entry import SEQUENCE_MAX, BatchMetadata
from kalda.storage.producer_state_manager import AppendOrigin
from kalda.storage.transaction_index import AbortedTransaction
from kalda.storage.unified_log import UnifiedLog
from tests.unit.storage.log_fixtures import Broker, append, batch, marker, read_all, values_of

COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT


def produce(
    log: UnifiedLog,
    sequence: int,
    *values: bytes,
    producer_id: int = 7,
    epoch: int = 0,
    transactional: bool = False,
) -> LogAppendInfo:
    records = batch(
        *values, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=transactional
    )
    return log.append_as_leader(records, 0)


def end_transaction(
    log: UnifiedLog,
    control_type: ControlRecordType,
    producer_id: int,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    origin: AppendOrigin = AppendOrigin.COORDINATOR,
) -> None:
    records = marker(control_type, producer_id, epoch, coordinator_epoch)
    log.append_as_leader(records, 0, origin=origin)


def test_each_of_the_last_five_batches_is_recognised_again() -> None:
    log = Broker().log
    first = [produce(log, sequence, b"a", b"b") for sequence in range(0, 14, 2)]
    for sequence in range(4, 14, 2):
        again = produce(log, sequence, b"a", b"b")
        original = first[sequence // 2]
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (original.first_offset, original.last_offset)
    assert 14 == log.log_end_offset


def test_a_duplicate_older_than_the_window_is_out_of_order() -> None:
    log = Broker().log
    for sequence in range(6):
        produce(log, sequence)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 0)
    assert 6 == log.log_end_offset


@pytest.mark.parametrize("restart", ["none", "kill", "stop"])
@pytest.mark.parametrize("control_type", [COMMIT, ABORT])
def test_batch_of_an_ended_transaction_is_not_taken_for_its_own_repetition(
    restart: str, control_type: ControlRecordType
) -> None:
    """A client that was told "not appended" of it numbers other records like it after an abort.

    It may end that and go on in a new epoch; told OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka fails for good.
    """
    broker = Broker()
    produce(broker.log, 0, b"a", producer_id=1, transactional=True)
    assert produce(broker.log, 0, b"a", producer_id=1, transactional=True).duplicate
    end_transaction(broker.log, control_type, 1)
    if restart != "none":
        broker = broker.kill() if restart == "kill" else broker.stop()
    with pytest.raises(UnknownProducerIdError):
        produce(broker.log, 0, b"b", producer_id=1, transactional=True)
    with pytest.raises(OutOfOrderSequenceError):
        produce(broker.log, 2, b"b", producer_id=1, transactional=True)
    produce(broker.log, 1, b"b", producer_id=1, transactional=True)
    assert produce(broker.log, 1, b"b", producer_id=1, transactional=True).duplicate
    produce(broker.log, 2, b"c", b"d", producer_id=1, transactional=True)
    with pytest.raises(OutOfOrderSequenceError):
        produce(broker.log, 2, b"c", producer_id=1, transactional=True)


def test_a_gap_in_the_sequence_is_refused() -> None:
    log = Broker().log
    produce(log, 0)
    with pytest.raises(OutOfOrderSequenceError) as raised:
        produce(log, 2)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert 1 == produce(log, 1).first_offset


def test_a_partly_repeated_batch_is_no_duplicate() -> None:
    log = Broker().log
    produce(log, 0, b"a", b"b")
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 0, b"a")
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 1, b"b", b"c")


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Its state may have expired or gone with the records; Kafka accepts it since KIP-360."""
    assert 0 == produce(Broker().log, 41).first_offset


def test_an_older_epoch_is_refused_and_a_newer_one_begins_at_zero() -> None:
    log = Broker().log
    produce(log, 0, epoch=3)
    with pytest.raises(InvalidProducerEpochError) as raised:
        produce(log, 1, epoch=2)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 1, epoch=4)
    produce(log, 0, epoch=4)
    with pytest.raises(InvalidProducerEpochError):
        produce(log, 1, epoch=3)


def test_sequences_wrap_to_zero() -> None:
    log = Broker().log
    produce(log, SEQUENCE_MAX - 1, b"a", b"b")
    after = produce(log, 0, b"c")
    across = produce(log, 1, b"d")
    assert (2, 3) == (after.first_offset, across.first_offset)
    assert produce(log, SEQUENCE_MAX - 1, b"a", b"b").duplicate


def test_a_batch_that_spans_the_wrap_is_recognised() -> None:
    log = Broker().log
    produce(log, SEQUENCE_MAX, b"a", b"b", b"c")
    assert produce(log, SEQUENCE_MAX, b"a", b"b", b"c").duplicate
    assert 3 == produce(log, 2, b"d").first_offset


def test_the_first_sequence_of_a_batch_may_lie_before_the_wrap() -> None:
    assert (SEQUENCE_MAX - 1) == BatchMetadata(
        last_sequence=1, last_offset=10, offset_delta=3, timestamp=0
    ).first_sequence


def test_state_survives_a_clean_stop_and_a_kill() -> None:
    broker = Broker(LogConfig(segment_bytes=400))
    for sequence in range(12):
        produce(broker.log, sequence)
    produce(broker.log, 5, producer_id=9, epoch=2)
    for restarted in (broker.kill(), broker.stop()):
        assert produce(restarted.log, 11).duplicate
        with pytest.raises(OutOfOrderSequenceError):
            produce(restarted.log, 13)
        with pytest.raises(InvalidProducerEpochError):
            produce(restarted.log, 6, producer_id=9, epoch=1)
        assert 13 == produce(restarted.log, 12).first_offset


def test_a_kill_keeps_the_whole_window_of_the_active_segment() -> None:
    """Replay sees every batch, a snapshot only the last: both must answer a retry right after a start."""
    broker = Broker()
    for sequence in range(5):
        produce(broker.log, sequence)
    killed = broker.kill()
    assert [0, 1, 2, 3, 4] == [produce(killed.log, sequence).first_offset for sequence in range(5)]


def test_a_corrupt_snapshot_is_replaced_by_the_log() -> None:
    broker = Broker(LogConfig(segment_bytes=400))
    for sequence in range(12):
        produce(broker.log, sequence)
    broker.manager.close()
    after = broker.file_system.crash()
    for path, node in after.nodes.items():
        if path.endswith(".snapshot"):
            node.content[-1] ^= 1
    restarted = Broker(broker.config, after)
    assert produce(restarted.log, 11).duplicate
    assert 12 == produce(restarted.log, 12).first_offset


def test_idle_producers_expire_and_may_begin_anywhere() -> None:
    broker = Broker(LogConfig(producer_id_expiration_ms=1000))
    produce(broker.log, 0)
    produce(broker.log, 0, producer_id=8, transactional=True)
    broker.clock.advance(1)
    broker.log.is_being_cleaned = True
    assert broker.manager.producer_expiration_step()
    assert [8] == list(broker.log.producer_state.producers)
    assert 2 == produce(broker.log, 99).first_offset


def test_producers_expire_over_all_logs_in_steps() -> None:
    broker = Broker(LogConfig(producer_id_expiration_ms=1000))
    for partition in range(120):
        produce(broker.manager.get_or_create(TopicPartition("many", partition)), 0)
    broker.clock.advance(1)
    assert [False, False, True] == [broker.manager.producer_expiration_step() for _ in range(3)]
    assert all(log.producer_state.is_empty for log in broker.manager.logs().values())
    assert not broker.manager.producer_expiration_step(), "the next pass begins anew"


def test_open_transactions_hold_the_last_stable_offset() -> None:
    log = Broker().log
    append(log, b"plain")
    produce(log, 0, b"one", producer_id=1, transactional=True)
    produce(log, 0, b"two", producer_id=2, transactional=True)
    log.advance_high_watermark(log.log_end_offset)
    assert (1, 3) == (log.last_stable_offset, log.high_watermark)
    assert [b"plain"] == values_of(read_all(log, isolation=FetchIsolation.TXN_COMMITTED))
    end_transaction(log, COMMIT, 1)
    assert 1 == log.last_stable_offset, "the marker is not replicated yet"
    log.advance_high_watermark(log.log_end_offset)
    assert 2 == log.last_stable_offset
    end_transaction(log, COMMIT, 2)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset == 5
    assert [b"plain", b"one", b"two"] == values_of(read_all(log, isolation=FetchIsolation.TXN_COMMITTED))


def test_aborted_transactions_come_with_a_committed_read() -> None:
    log = Broker().log
    produce(log, 0, b"one", producer_id=1, transactional=True)
    produce(log, 0, b"two", producer_id=2, transactional=True)
    produce(log, 1, b"one", producer_id=1, transactional=True)
    end_transaction(log, ABORT, 1)
    end_transaction(log, COMMIT, 2)
    append(log, b"after")
    read = log.read(0, 10_000, FetchIsolation.TXN_COMMITTED)
    assert [AbortedTransaction(1, 0, 3, 1)] == read.aborted_transactions
    assert [] == log.read(4, 10_000, FetchIsolation.TXN_COMMITTED).aborted_transactions
    assert log.read(0, 10_000, FetchIsolation.HIGH_WATERMARK).aborted_transactions is None


@pytest.mark.parametrize("restart", ["kill", "stop"])
def test_transactions_survive_a_restart(restart: str) -> None:
    broker = Broker(LogConfig(segment_bytes=600))
    for number in range(6):
        produce(broker.log, number, b"aborted", producer_id=1, transactional=True)
        append(broker.log, b"x" * 50)
    end_transaction(broker.log, ABORT, 1)
    produce(broker.log, 6, b"open", producer_id=1, transactional=True)
    broker.log.advance_high_watermark(broker.log.log_end_offset)
    expected = broker.log.read(0, 300, FetchIsolation.TXN_COMMITTED).aborted_transactions
    stable = broker.log.last_stable_offset
    assert expected == [AbortedTransaction(1, 0, 12, 13)]
    assert 13 == stable
    restarted = broker.kill() if restart == "kill" else broker.stop()
    restarted.log.advance_high_watermark(restarted.log.log_end_offset)
    assert stable == restarted.log.last_stable_offset
    assert expected == restarted.log.read(0, 300, FetchIsolation.TXN_COMMITTED).aborted_transactions
    end_transaction(restarted.log, COMMIT, 1)
    restarted.log.advance_high_watermark(restarted.log.log_end_offset)
    assert restarted.log.last_stable_offset == restarted.log.log_end_offset


def test_truncation_takes_transactions_back() -> None:
    log = Broker().log
    produce(log, 0, b"one", producer_id=1, transactional=True)
    end_transaction(log, ABORT, 1)
    append(log, b"after")
    log.truncate_to(1)
    assert 0 == log.last_stable_offset
    log.advance_high_watermark(1)
    assert 0 == log.last_stable_offset
    end_transaction(log, COMMIT, 1)
    append(log, b"after")
    assert [] == log.read(0, 1000, FetchIsolation.TXN_COMMITTED).aborted_transactions
    assert 3 == log.last_stable_offset


def test_writing_outside_an_open_transaction_is_refused() -> None:
    log = Broker().log
    produce(log, 0, transactional=True)
    with pytest.raises(InvalidTxnStateError):
        produce(log, 1)


def test_markers_of_an_old_coordinator_or_producer_are_refused() -> None:
    log = Broker().log
    produce(log, 0, transactional=True, epoch=1)
    end_transaction(log, COMMIT, 7, epoch=1, coordinator_epoch=5)
    with pytest.raises(TransactionCoordinatorFencedError):
        end_transaction(log, COMMIT, 7, epoch=1, coordinator_epoch=4)
    with pytest.raises(InvalidProducerEpochError):
        end_transaction(log, ABORT, 7, epoch=0, coordinator_epoch=6)


def test_a_marker_of_a_raised_epoch_does_not_end_the_next_transaction() -> None:
    """KIP-1228: the marker of the first transaction comes again after the second one has begun."""
    raised, late = AppendOrigin.RAISED_EPOCH, marker(COMMIT, 7, 1, 0)
    log = Broker().log
    produce(log, 0, transactional=True, epoch=0)
    end_transaction(log, COMMIT, 7, epoch=1, origin=raised)
    end_transaction(log, COMMIT, 7, epoch=1, origin=raised)
    produce(log, 0, transactional=True, epoch=1)
    with pytest.raises(InvalidProducerEpochError, match="epoch 1, which is that of the open transaction"):
        log.append_as_leader(late, 0, origin=raised)
    end_transaction(log, ABORT, 7, epoch=2, origin=raised)
    with pytest.raises(InvalidProducerEpochError):
        end_transaction(log, COMMIT, 7, epoch=1, origin=raised)


def test_the_highest_epoch_need_not_be_raised() -> None:
    log = Broker().log
    produce(log, 0, transactional=True, epoch=PRODUCER_EPOCH_MAX)
    end_transaction(log, COMMIT, 7, epoch=PRODUCER_EPOCH_MAX, origin=AppendOrigin.RAISED_EPOCH)


def test_a_marker_without_data_ends_nothing() -> None:
    log = Broker().log
    end_transaction(log, ABORT, 1)
    log.advance_high_watermark(1)
    assert 1 == log.last_stable_offset
    assert [] == log.read(0, 1000, FetchIsolation.TXN_COMMITTED).aborted_transactions


def test_followers_learn_producers_and_transactions() -> None:
    leader, follower = Broker().log, Broker().log
    produce(leader, 0, b"one", producer_id=1, transactional=True)
    end_transaction(leader, ABORT, 1)
    produce(leader, 4, b"plain")
    data = leader.read(0, 10_000, FetchIsolation.LOG_END).records.read()
    follower.append_as_follower(bytearray(data))
    follower.advance_high_watermark(3)
    assert produce(follower, 4, b"plain").duplicate
    aborted = follower.read(0, 1000, FetchIsolation.TXN_COMMITTED).aborted_transactions
    assert [AbortedTransaction(1, 0, 1, 2)] == aborted


def test_a_failed_write_does_not_count_the_sequence() -> None:
    broker = Broker()
    produce(broker.log, 0)
    broker.file_system.space_left = 10
    with pytest.raises(Exception, match="ENOSPC"):
        produce(broker.log, 1)
    broker.file_system.space_left = None
    retried = produce(broker.log, 1)
    assert (False, 1) == (retried.duplicate, retried.first_offset)


def test_snapshots_lie_at_segment_starts_and_go_with_their_segments() -> None:
    broker = Broker(LogConfig(segment_bytes=400))
    for sequence in range(20):
        produce(broker.log, sequence)
    bases = tuple(segment.base_offset for segment in broker.log.segments)
    assert broker.log.producer_state.snapshots == bases[1:]
    broker.log.advance_high_watermark(20)
    broker.log.delete_records_before(20)
    broker.log.delete_old_segments()
    assert broker.log.producer_state.snapshots == (bases[-1],)
    names = [name for name in broker.file_names() if name.endswith(".snapshot")]
    assert names == [f"{bases[-1]:020d}.snapshot"]


def test_a_log_forgets_the_longest_idle_of_too_many_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may use any producer id: a million of them took 1.2 GB, and each snapshot 0.4 s."""
    monkeypatch.setattr(producer_state_manager, "PRODUCERS_MAX", 6)
    monkeypatch.setattr(producer_state_manager, "_REMOVED_AT_ONCE", 2)
    broker = Broker()
    log = broker.log
    produce(log, 0, b"a", producer_id=1, transactional=True)
    for producer_id in (2, 3, 4, 5, 6):
        produce(log, 0, b"a", producer_id=producer_id)
    produce(log, 1, b"b", producer_id=2)
    produce(log, 0, b"a", producer_id=7)
    assert {1, 2, 5, 6, 7} == set(log.producer_state.producers)
    assert not produce(log, 41, b"c", producer_id=3).duplicate
    assert produce(log, 1, b"b", producer_id=2).duplicate
    assert {1, 2, 3, 5, 6, 7} == set(log.producer_state.producers)
