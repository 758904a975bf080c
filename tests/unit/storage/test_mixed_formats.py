"""Logs that hold messages of format 0 and 1 beside batches: reading, lookups, recovery, compaction."""

import dataclasses
import random

import pytest

from kalda.records.batch import iter_headers
from kalda.records.compression import Compression
from kalda.records.format_conversion import iter_any_records
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import Record, RecordBatchBuilder
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.offsets_for_times import offset_for_timestamp
from kalda.storage.unified_log import UnifiedLog
from tests.unit.storage.cleaning_fixtures import CompactedBroker, compacted
from tests.unit.storage.log_fixtures import NOW_MS, Broker

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
MIXED = LogConfig(segment_bytes=600, index_interval_bytes=0)
Row = tuple[bytes, bytes | None, int]


def put(log: UnifiedLog, sent: int, stored: int, codec: Compression, rows: list[Row]) -> None:
    """Append records that a client sends in one format to a log that keeps them in another."""
    log.update_config(dataclasses.replace(log.config, message_magic=stored))
    builder = (
        RecordBatchBuilder(compression=codec) if sent == 2 else MessageSetBuilder(sent, compression=codec)
    )
    for key, value, timestamp in rows:
        builder.append(key, value, timestamp)
    log.append_as_leader(bytearray(builder.build()), 0)
    log.advance_high_watermark(log.log_end_offset)


def fill(log: UnifiedLog, seed: int, appends: int = 30, keys: int = 8) -> list[Row]:
    """Append at random; return every record in order, with the time that its format keeps."""
    rng = random.Random(seed)
    model: list[Row] = []
    for _ in range(appends):
        rows: list[Row] = [
            (
                b"k%d" % rng.randrange(keys),
                None if rng.random() < 0.15 else rng.randbytes(rng.randrange(30)),
                NOW_MS + len(model) + index,
            )
            for index in range(rng.randrange(1, 5))
        ]
        sent, stored = rng.randrange(3), rng.randrange(3)
        put(log, sent, stored, rng.choice(OLD_CODECS), rows)
        has_time = sent and stored
        model += [(key, value, time if has_time else -1) for key, value, time in rows]
    return model


def magics(log: UnifiedLog) -> set[int]:
    return {header.magic for segment in log.segments for _, header in segment.records.iter_headers()}


def read(log: UnifiedLog, offset: int = 0) -> list[Record]:
    found: list[Record] = []
    while offset < log.log_end_offset:
        data = log.read(offset, 300, FetchIsolation.LOG_END).records.read()
        headers = list(iter_headers(data))
        if not headers:
            break
        for position, header in headers:
            found += [each for each in iter_any_records(data, position, header) if each.offset >= offset]
        offset = headers[-1][1].next_offset
    return found


def rows_of(records: list[Record]) -> list[tuple[int, bytes | None, bytes | None, int]]:
    return [(record.offset, record.key, record.value, record.timestamp) for record in records]


def expected(model: list[Row]) -> list[tuple[int, bytes | None, bytes | None, int]]:
    return [(offset, *row) for offset, row in enumerate(model)]


@pytest.mark.parametrize("seed", range(10))
def test_every_offset_is_read_from_a_log_of_all_formats(seed: int) -> None:
    log = Broker(MIXED).log
    model = expected(fill(log, seed))
    assert {0, 1, 2} == {
        header.magic for segment in log.segments for _, header in segment.records.iter_headers()
    }
    for offset in range(len(model)):
        assert model[offset:] == rows_of(read(log, offset))


@pytest.mark.parametrize("seed", range(10))
def test_restart_and_recovery_find_the_same_log(seed: int) -> None:
    broker = Broker(MIXED)
    model = expected(fill(broker.log, seed))
    for after in (broker.kill(), broker.stop()):
        assert model == rows_of(read(after.log))
        assert len(model) == after.log.log_end_offset
        # Indexes that are gone are rebuilt from the log.
        for path in [path for path in after.file_system.nodes if path.endswith("index")]:
            after.file_system.remove(path)
        assert model == rows_of(read(after.kill().log))


@pytest.mark.parametrize("seed", range(5))
def test_torn_tail_is_cut_at_every_byte(seed: int) -> None:
    broker = Broker(LogConfig(index_interval_bytes=0))
    model = expected(fill(broker.log, seed, appends=12))
    segment = broker.log.segments[-1]
    ends = [0] + [at + header.size for at, header in segment.records.iter_headers()]
    offsets = [0] + [header.next_offset for _, header in segment.records.iter_headers()]
    for cut in range(segment.size):
        after = broker.file_system.crash()
        del after.nodes[segment.records.path].content[cut:]
        restarted = Broker(LogConfig(index_interval_bytes=0), after)
        kept = offsets[max(index for index, end in enumerate(ends) if end <= cut)]
        assert kept == restarted.log.log_end_offset
        assert model[:kept] == rows_of(read(restarted.log))


@pytest.mark.parametrize("seed", range(5))
def test_damage_costs_one_batch_or_message(seed: int) -> None:
    """Good batches behind a bad one stay, and a wrapper's first offset is that of its first message."""
    broker = Broker(LogConfig(index_interval_bytes=0))
    model = expected(fill(broker.log, seed, appends=12))
    segment = broker.log.segments[-1]
    rng = random.Random(seed)
    at, header = rng.choice(list(segment.records.iter_headers()))
    after = broker.file_system.crash()
    after.nodes[segment.records.path].content[at + header.size - 1] ^= 0xFF
    first = max(
        [0] + [each.next_offset for position, each in segment.records.iter_headers() if position < at]
    )
    log = Broker(LogConfig(index_interval_bytes=0), after).log
    assert model[:first] == [row for row in rows_of(read(log, 0)) if row[0] < first]
    assert model[header.next_offset :] == rows_of(read(log, header.next_offset))


@pytest.mark.parametrize("seed", range(5))
def test_lookup_by_time_finds_the_first_record_at_or_after_it(seed: int) -> None:
    log = Broker(MIXED).log
    model = expected(fill(log, seed))
    for wanted in range(NOW_MS, NOW_MS + len(model) + 1):
        first = next((row for row in model if row[3] >= wanted), None)
        found = offset_for_timestamp(log, wanted)
        assert (None if first is None else first[0]) == (None if found is None else found.offset)


@pytest.mark.parametrize("seed", range(5))
def test_follower_takes_the_same_bytes(seed: int) -> None:
    leader, follower = Broker(MIXED).log, Broker(MIXED).log
    model = expected(fill(leader, seed))
    while follower.log_end_offset < leader.log_end_offset:
        data = leader.read(follower.log_end_offset, 300, FetchIsolation.LOG_END).records.read()
        follower.append_as_follower(bytearray(data), 0)
    assert model == rows_of(read(follower))
    assert sum(each.size for each in leader.segments) == sum(each.size for each in follower.segments)


@pytest.mark.parametrize("seed", range(5))
def test_truncation_to_any_offset_keeps_what_lies_before(seed: int) -> None:
    broker = Broker(MIXED)
    model = expected(fill(broker.log, seed, appends=12))
    for offset in range(len(model), 0, -3):
        log = broker.kill().log
        log.truncate_to(offset)
        kept = rows_of(read(log))
        assert model[: len(kept)] == kept
        # A batch or wrapper is never split.
        assert len(kept) <= offset


@pytest.mark.parametrize("seed", range(20))
def test_compaction_keeps_the_last_record_of_each_key_and_the_format(seed: int) -> None:
    broker = CompactedBroker(compacted(segment_bytes=300))
    model = expected(fill(broker.log, seed, appends=40))
    broker.roll()
    before = magics(broker.log)
    for _ in range(3):
        broker.clean()
    last = {row[1]: row for row in model}
    found = rows_of(read(broker.log))
    assert sorted(row for row in last.values() if row[2] is not None) == [
        row for row in found if row[2] is not None
    ]
    assert {row[1] for row in found} <= set(last)
    assert all(last[row[1]] == row for row in found)
    assert magics(broker.log) <= before
    assert found == rows_of(read(broker.restarted().log))


def test_tombstones_of_old_formats_go_with_the_age_of_their_segment() -> None:
    """They go once the newest cleaned segment is younger than theirs by the time that tombstones are kept."""
    broker = CompactedBroker(compacted(segment_bytes=300, delete_retention_ms=1000))

    def segment(*rows: Row) -> None:
        for row in (*rows, (b"filler of %d" % broker.log.log_end_offset, b"x" * 200, 1)):
            put(broker.log, 1, 1, Compression.NONE, [row])
        broker.roll()

    segment((b"a", None, 1))
    broker.file_system.set_modified(broker.log.segments[0].records.path, NOW_MS - 1_500)
    segment()
    broker.file_system.set_modified(broker.log.segments[1].records.path, NOW_MS)
    broker.clean()
    assert (b"a", None) in [(each.key, each.value) for each in read(broker.log)]
    segment()
    broker.clean()
    assert b"a" not in [each.key for each in read(broker.log)]
    assert 3 == len(read(broker.log))
