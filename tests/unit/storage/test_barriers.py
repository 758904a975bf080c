"""Barriers: control batches with which a client holds the last stable offset back; readers skip them."""

import pytest

from kalda.records.batch import BatchHeader, iter_headers, read_header
from kalda.records.control import ControlRecordType, build_barrier
from kalda.records.errors import InvalidRecordError
from kalda.records.record import RecordBatchBuilder
from kalda.storage.errors import StorageError
from kalda.storage.log_types import FetchIsolation
from kalda.storage.producer_state_manager import AppendOrigin
from tests.unit.storage.cleaning_fixtures import CompactedBroker
from tests.unit.storage.log_fixtures import NOW_MS, Broker, batch, marker, read_all

BARRIER, FIRST, SECOND = 1, 2, 3


def barrier(epoch: int = 0) -> bytearray:
    return build_barrier(producer_id=BARRIER, producer_epoch=epoch, timestamp=NOW_MS)


def committed(broker: Broker) -> list[bytes | None]:
    broker.log.advance_high_watermark(broker.log.log_end_offset)
    return [value for _, value in read_all(broker.log, isolation=FetchIsolation.TXN_COMMITTED)]


def end(broker: Broker, control_type: ControlRecordType, producer_id: int, epoch: int = 0) -> None:
    broker.log.append_as_leader(marker(control_type, producer_id, epoch), 0, origin=AppendOrigin.COORDINATOR)


def headers_of(broker: Broker) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    at = broker.log.log_start_offset
    while at < broker.log.log_end_offset:
        data = broker.log.read(at, 10_000).records.read()
        found += [header for _, header in iter_headers(data)]
        at = found[-1].next_offset
    return found


def test_transactions_behind_a_barrier_become_visible_together() -> None:
    """The first one is committed, but not shown before the second; a restart in between changes nothing."""
    broker = Broker()
    broker.log.append_as_leader(barrier(), 0)
    for producer_id, value in ((FIRST, b"a"), (SECOND, b"b")):
        rows = batch(value, producer_id=producer_id, epoch=0, sequence=0, transactional=True)
        broker.log.append_as_leader(rows, 0)
    end(broker, ControlRecordType.COMMIT, FIRST)
    assert [] == committed(broker)
    broker = broker.kill()
    end(broker, ControlRecordType.COMMIT, SECOND)
    assert [] == committed(broker)
    end(broker, ControlRecordType.ABORT, BARRIER)
    assert [b"a", b"b"] == committed(broker)


def test_the_second_copy_of_a_barrier_is_a_duplicate() -> None:
    """Each task of a batch writes it; the log keeps one."""
    broker = Broker()
    assert not broker.log.append_as_leader(barrier(), 0).duplicate
    again = broker.log.append_as_leader(barrier(), 0)
    assert (True, 0) == (again.duplicate, again.first_offset)
    assert 1 == broker.log.log_end_offset


def test_a_barrier_of_an_ended_epoch_is_refused() -> None:
    """A task of an earlier attempt cannot hide a partition again."""
    broker = Broker()
    broker.log.append_as_leader(barrier(), 0)
    end(broker, ControlRecordType.ABORT, BARRIER, epoch=1)
    with pytest.raises(StorageError, match="epoch"):
        broker.log.append_as_leader(barrier(epoch=0), 0)


def test_compaction_drops_a_barrier_and_then_its_marker() -> None:
    """A barrier without its marker would hold the last stable offset for ever after a restart."""
    broker = CompactedBroker()
    for epoch in (0, 1):
        broker.log.append_as_leader(barrier(epoch), 0)
        broker.put((b"k", b"%d" % epoch), producer_id=FIRST, epoch=epoch, sequence=0, transactional=True)
        broker.mark(ControlRecordType.COMMIT, FIRST, epoch)
        end(broker, ControlRecordType.ABORT, BARRIER, epoch=epoch)
    broker.log.advance_high_watermark(broker.log.log_end_offset)
    for _ in range(3):
        broker.put((b"tick", b"x"))
        broker.roll()
        assert broker.clean()
        broker.clock.advance(2.0)
    assert 0 == sum(header.is_barrier and header.record_count > 0 for header in headers_of(broker))
    again = broker.kill()
    again.log.advance_high_watermark(again.log.log_end_offset)
    assert again.log.log_end_offset == again.log.last_stable_offset


@pytest.mark.parametrize("kind", ["marker", "plain", "two"])
def test_other_control_records_of_clients_are_refused(kind: str) -> None:
    """A client that could write markers could end transactions of others."""
    builder = RecordBatchBuilder(
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=kind != "plain",
        is_control=True,
    )
    key = b"\x00\x00\x00\x01" if kind == "marker" else b"\x00\x00\x4b\x42"
    for _ in range(2 if kind == "two" else 1):
        builder.append(key, b"", NOW_MS)
    with pytest.raises(InvalidRecordError, match="clients may not write control records"):
        Broker().log.append_as_leader(builder.build(), 0)


def test_a_marker_is_no_barrier() -> None:
    """They differ by the sequence number, which the header has."""
    assert not read_header(marker(ControlRecordType.COMMIT, 1)).is_barrier
    ((_, header),) = iter_headers(barrier())
    assert header.is_barrier
