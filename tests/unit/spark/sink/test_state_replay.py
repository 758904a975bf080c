"""The replay of the sink's state topics, from real batches."""

from kalda.records.batch import set_base_offset_and_leader_epoch
from kalda.records.control import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from kalda.records.record import RecordBatchBuilder
from kalda.spark.sink.state_replay import StateReplay

ONE, TWO = 7, 8


class Log:
    """Batches with offsets, as a broker returns them."""

    def __init__(self) -> None:
        self.records = bytearray()
        self._offset = 0

    def put(self, key: bytes, value: bytes | None, producer_id: int = -1) -> "Log":
        builder = RecordBatchBuilder(
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
        builder.append(key, value, 1)
        return self._add(builder.build())

    def end(self, producer_id: int, control_type: ControlRecordType) -> "Log":
        marker = EndTransactionMarker(control_type, 0)
        return self._add(
            build_end_transaction_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=1)
        )

    def _add(self, batch: bytearray) -> "Log":
        set_base_offset_and_leader_epoch(batch, 0, self._offset, 0)
        self._offset += 1
        self.records += batch
        return self


def replayed(log: Log) -> StateReplay:
    replay = StateReplay()
    replay.replay(log.records)
    return replay


def test_a_value_counts_from_its_commit_on() -> None:
    """A foreign transaction that is open hides nothing, which read_committed would."""
    log = Log().put(b"b", b"5", TWO).put(b"a", b"1", ONE)
    assert {} == replayed(log).values
    assert {b"a": b"1"} == replayed(log.end(ONE, ControlRecordType.COMMIT)).values


def test_an_aborted_value_does_not_count() -> None:
    """The marker of an attempt that was fenced must not let the next attempt skip its rows."""
    log = Log().put(b"a", b"1", ONE).end(ONE, ControlRecordType.COMMIT)
    log.put(b"a", b"2", ONE).end(ONE, ControlRecordType.ABORT)
    assert {b"a": b"1"} == replayed(log).values


def test_the_order_is_that_of_the_commits() -> None:
    """Of two drivers, the one that committed last has decided last."""
    log = Log().put(b"a", b"late", ONE).put(b"a", b"early", TWO)
    log.end(TWO, ControlRecordType.COMMIT).end(ONE, ControlRecordType.COMMIT)
    assert {b"a": b"late"} == replayed(log).values


def test_a_tombstone_deletes_and_plain_records_count_at_once() -> None:
    """An operator may delete a key with any producer."""
    log = Log().put(b"a", b"1").put(b"b", b"2").put(b"a", None)
    assert {b"b": b"2"} == replayed(log).values


def test_a_replay_goes_on_where_it_ended() -> None:
    """Fetches overlap: the first batch may begin before the position."""
    log = Log().put(b"a", b"1", ONE)
    replay = replayed(log)
    assert 1 == replay.position
    replay.replay(log.end(ONE, ControlRecordType.COMMIT).records)
    assert ({b"a": b"1"}, 2) == (replay.values, replay.position)
