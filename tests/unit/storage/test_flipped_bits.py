"""A disk that flips a bit at rest never makes a reader skip records, or see records above its bound."""

import pytest

from kalda.records.batch import iter_headers
from kalda.records.errors import CorruptRecordError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from tests.unit.storage.log_fixtures import Broker, append, read_all, values_of

BATCHES = 40
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


def filled() -> Broker:
    """Return a broker with two segments, some index entries in the first, after a clean stop."""
    broker = Broker(CONFIG)
    for number in range(BATCHES):
        append(broker.log, b"value of %3d" % number)
    broker = broker.stop()
    assert 2 == len(broker.log.segments)
    return broker


def flip(broker: Broker, path: str, byte: int, bit: int) -> None:
    file = broker.file_system.open(path)
    file.write_at(bytes([file.read_at(1, byte)[0] ^ 1 << bit]), byte)


def test_a_wrong_index_entry_hides_no_records() -> None:
    """Neither a position where no batch starts, nor one behind the records that are sought."""
    broker = filled()
    log = broker.log
    log.advance_high_watermark(log.log_end_offset)
    segment = log.segments[0]
    index = segment.offset_index
    end = log.segments[1].base_offset
    size = broker.file_system.open(index.path).size()
    assert size >= 5 * index.entry.size
    for byte in range(size):
        for bit in range(8):
            flip(broker, index.path, byte, bit)
            index.release()
            for offset in range(end):
                data = log.read(offset, 150, FetchIsolation.LOG_END).records.read()
                first = next(iter_headers(data))[1]
                assert first.base_offset <= offset <= first.last_offset, (byte, bit, offset)
            flip(broker, index.path, byte, bit)
    index.release()
    assert BATCHES == len(read_all(log))


def test_a_reader_does_not_go_on_behind_a_header_that_is_damaged() -> None:
    """The sizes of batches are outside of their CRC; without one, the rest of the segment cannot be found."""
    broker = filled()
    log = broker.log
    log.advance_high_watermark(log.log_end_offset)
    segment = log.segments[0]
    third = segment.find_batch(2)
    assert third is not None
    flip(broker, segment.records.path, third.position + 8, 0)

    with pytest.raises(CorruptRecordError, match=f"no batch starts at byte {third.position}"):
        log.read(2, 150, FetchIsolation.LOG_END)
    behind = log.segments[1].base_offset
    assert BATCHES - behind == len(read_all(log, behind))


def test_a_start_recovers_around_it() -> None:
    broker = filled()
    segment = broker.log.segments[0]
    third = segment.find_batch(2)
    assert third is not None
    flip(broker, segment.records.path, third.position + 8, 0)
    broker.manager.close()
    broker.file_system.remove("/data/recovery-point-offset-checkpoint")
    broker.file_system.remove("/data/.kafka_cleanshutdown")
    broker = Broker(CONFIG, broker.file_system.crash(), broker.clock)
    broker.log.advance_high_watermark(BATCHES)
    assert BATCHES == broker.log.log_end_offset
    assert b"value of  39" == values_of(read_all(broker.log, 25))[-1]
