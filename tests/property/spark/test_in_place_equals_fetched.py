"""Reading in place returns the rows that fetches return, for any log: compressed, aborted, compacted."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.spark.source import mapped_segment
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.log_cleaner import LogCleaner
from kalda.storage.cleaner.runner import InlineRunner
from kalda.storage.log_config import CleanupPolicy
from kalda.storage.producer_state_manager import AppendOrigin
from tests.unit.spark.source.in_place_fixtures import InPlaceBroker, InPlaceRead, fetched_rows, options
from tests.unit.storage.cleaning_fixtures import no_pause
from tests.unit.storage.log_fixtures import marker

CODECS = st.sampled_from(list(Compression))
PLAIN = st.tuples(st.just("plain"), st.integers(1, 6), CODECS, st.integers(0, 3))
IN_TRANSACTION = st.tuples(st.just("open"), st.integers(1, 4), CODECS, st.integers(1, 2))
ENDED = st.tuples(st.just("end"), st.booleans(), st.none(), st.integers(1, 2))
STEPS = st.lists(st.one_of(PLAIN, PLAIN, IN_TRANSACTION, ENDED), min_size=1, max_size=40)


class Filled:
    """A log that is filled step by step."""

    def __init__(self, broker: InPlaceBroker) -> None:
        self.log = broker.log
        self._sequences = {1: 0, 2: 0}
        self._open: set[int] = set()

    def batch(self, kind: str, count: int, codec: Compression, number: int) -> None:
        fields: dict[str, Any] = {"compression": codec}
        if kind == "open":
            fields |= {"producer_id": number, "producer_epoch": 0, "is_transactional": True}
            fields["base_sequence"] = self._sequences[number]
            self._sequences[number] += count
            self._open.add(number)
        builder = RecordBatchBuilder(**fields)
        for index in range(count):
            value = b"%d.%d " % (self.log.log_end_offset, index) * 9
            builder.append(b"key %d" % ((number + index) % 5), value, 1_700_000_000_000)
        self.log.append_as_leader(builder.build(), 3)

    def end(self, is_commit: bool, number: int) -> None:
        if number in self._open:
            self._open.discard(number)
            kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
            self.log.append_as_leader(marker(kind, number), 3, origin=AppendOrigin.COORDINATOR)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=STEPS,
    window=st.sampled_from([200, 1000, 1 << 20]),
    is_compacted=st.booleans(),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_rows_are_equal(
    monkeypatch: pytest.MonkeyPatch,
    steps: list[Any],
    window: int,
    is_compacted: bool,
    cut: tuple[float, float],
) -> None:
    monkeypatch.setattr(mapped_segment, "WINDOW_BYTES", window)
    with tempfile.TemporaryDirectory() as directory:
        broker = InPlaceBroker(Path(directory))
        broker.configure(segment_bytes=1200, index_interval_bytes=200)
        filled = Filled(broker)
        for kind, amount, codec, number in steps:
            if kind == "end":
                filled.end(amount, number)
            else:
                filled.batch(kind, amount, codec, number)
        log = broker.log
        log.advance_high_watermark(log.log_end_offset)
        if is_compacted:
            compact(broker)
        start, end = sorted(int(each * log.log_end_offset) for each in cut)
        for level in ("read_committed", "read_uncommitted"):
            is_committed = level == "read_committed"
            bound = log.last_stable_offset if is_committed else log.high_watermark
            if start >= min(end, bound):
                continue
            read = InPlaceRead(broker, start, end, options("files", **{"kafka.isolation.level": level}))
            assert fetched_rows(broker, start, end, committed=is_committed) == read.all().rows
            # What is not stable yet is left to a fetch, which waits.
            assert set() == read.reasons.keys() - ({"refused"} if bound < end else set())
            assert read.position >= min(end, bound)
        assert 0 == broker.leases()
        broker.close()


def test_a_compacted_log_has_gaps_in_both(tmp_path: Path) -> None:
    """The law above is about compacted logs, too; this shows that its logs are."""
    broker = InPlaceBroker(tmp_path)
    filled = Filled(broker)
    for number in range(30):
        filled.batch("plain", 4, Compression.LZ4, number)
    broker.log.advance_high_watermark(120)

    assert compact(broker)

    rows = InPlaceRead(broker, 0, 120, options("files")).all().rows
    assert fetched_rows(broker, 0, 120, committed=False) == rows
    assert 5 == len(rows)
    broker.close()


def compact(broker: InPlaceBroker) -> bool:
    """Clean the log as the broker's cleaner does; return whether there was something to clean."""
    broker.configure(
        cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
        min_cleanable_dirty_ratio=0.0,
        min_compaction_lag_ms=0,
    )
    broker.log.roll()
    runner = InlineRunner(OsFileSystem())
    cleaner = LogCleaner(broker.logs, CleanerConfig, lambda: runner, pause=no_pause)
    return asyncio.run(cleaner.clean_filthiest(runner))
