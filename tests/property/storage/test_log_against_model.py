"""The log against the simplest model of one: random operations, restarts, crashes and full disks."""

from dataclasses import dataclass, field
from typing import Final

import hypothesis.strategies as st
from hypothesis import HealthCheck, assume, given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kalda.records.batch import iter_headers
from kalda.records.record import iter_records
from kalda.storage.errors import LogStorageError, OutOfOrderSequenceError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.offsets_for_times import offset_for_timestamp
from tests.unit.storage.log_fixtures import DIRECTORY, NOW_MS, Broker, batch, read_all

VALUE: Final = st.binary(max_size=60)


@dataclass
class Model:
    """What the log should hold: one list of records, and who wrote what."""

    start: int = 0
    base: int = 0
    records: list[tuple[bytes, int]] = field(default_factory=list)
    high_watermark: int = 0
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.base + len(self.records)

    def visible(self, first: int, last: int) -> list[tuple[int, bytes | None]]:
        return [(offset, self.records[offset - self.base][0]) for offset in range(first, last)]


class LogMachine(RuleBasedStateMachine):
    """Each rule does the same to the log and to the model; the invariants compare them."""

    @initialize(segment_bytes=st.sampled_from([200, 500, 2000]), interval=st.sampled_from([0, 100, 4096]))
    def start(self, segment_bytes: int, interval: int) -> None:
        self.broker = Broker(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval))
        self.model = Model()

    @rule(values=st.lists(VALUE, min_size=1, max_size=3), later=st.integers(-5, 5))
    def append(self, values: list[bytes], later: int) -> None:
        timestamp = NOW_MS + len(self.model.records) + later
        records = batch(*values, timestamp=timestamp)
        assume(len(records) <= self.broker.config.segment_bytes)
        info = self.broker.log.append_as_leader(records, 0)
        assert (info.first_offset, info.duplicate) == (self.model.end, False)
        self.model.records += [(value, timestamp) for value in values]

    @rule(producer=st.integers(1, 2), value=VALUE, back=st.integers(0, 2))
    def produce(self, producer: int, value: bytes, back: int) -> None:
        """Write the next sequence number, or one that was written before."""
        following = self.model.sequences.get(producer, 0)
        sequence = max(0, following - back)
        before = self.model.end
        records = batch(value, producer_id=producer, epoch=0, sequence=sequence)
        try:
            info = self.broker.log.append_as_leader(records, 0)
        except OutOfOrderSequenceError:
            # Older than what is remembered; the next in order is never refused.
            assert sequence < following
            return
        if sequence < following:
            assert info.duplicate or producer not in self.model.sequences
        if info.duplicate:
            assert info.last_offset < before
        else:
            assert before == info.first_offset
            self.model.records.append((value, NOW_MS))
            self.model.sequences[producer] = sequence + 1

    @rule(data=st.data())
    def advance_high_watermark(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.model.high_watermark, self.model.end))
        self.broker.log.advance_high_watermark(offset)
        self.model.high_watermark = offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.model.start, self.model.high_watermark))
        self.broker.log.delete_records_before(offset)
        self.broker.log.delete_old_segments()
        self.broker.manager.checkpoint_log_start_offsets()
        self.model.start = offset

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """Cut at a batch's start, as followers do."""
        log = self.broker.log
        starts = [log.log_end_offset]
        for segment in log.segments:
            starts += [found.base_offset for found in segment.records.iter_positions(0)]
        offset = data.draw(st.sampled_from([start for start in starts if start >= self.model.start]))
        log.truncate_to(offset)
        del self.model.records[offset - self.model.base :]
        self.model.high_watermark = min(self.model.high_watermark, offset)
        self.model.sequences = {
            producer: entry.last_sequence + 1 for producer, entry in log.producer_state.producers.items()
        }

    @rule()
    def roll(self) -> None:
        self.broker.log.roll()

    @rule()
    def flush(self) -> None:
        self.broker.log.flush()
        self.broker.manager.checkpoint_recovery_points()

    @rule(space=st.integers(0, 300))
    def append_on_a_full_disk(self, space: int) -> None:
        self.broker.file_system.space_left = space
        try:
            self.broker.log.append_as_leader(batch(b"x" * 100), 0)
        except LogStorageError:
            pass
        else:
            self.model.records.append((b"x" * 100, NOW_MS))
        self.broker.file_system.space_left = None

    @rule()
    def stop(self) -> None:
        self.broker = self.broker.stop()

    @rule(junk=st.binary(max_size=200))
    def kill(self, junk: bytes) -> None:
        """Die with nonsense behind the last batch."""
        self.broker.manager.checkpoint_high_watermarks()
        after = self.broker.file_system.crash()
        active = f"{DIRECTORY}/orders-0/{self.broker.log.segments[-1].base_offset:020d}.log"
        after.nodes[active].content += junk
        self.broker = Broker(self.broker.config, after, self.broker.clock)

    def batch_end(self, offset: int) -> int:
        """Return the offset after the batch that holds `offset`; past the log's end, more than any offset."""
        for segment in self.broker.log.segments:
            for found in segment.records.iter_positions(0):
                if found.last_offset >= offset:
                    return found.last_offset + 1
        return self.model.end + 1

    @precondition(lambda self: self.model.end > self.model.start)
    @rule(data=st.data(), max_bytes=st.sampled_from([1, 100, 300, 10_000]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.model.start, self.model.end))
        log = self.broker.log
        answer = log.read(offset, max_bytes, FetchIsolation.HIGH_WATERMARK)
        content = answer.records.read()
        assert len(content) == answer.records.size
        headers = list(iter_headers(content))
        if not headers:
            # Only the batch that the high watermark lies in may be held back.
            assert not content
            assert self.batch_end(offset) > self.model.high_watermark
            return
        assert headers[0][1].base_offset <= offset <= headers[0][1].last_offset
        assert len(content) <= max(max_bytes, headers[0][1].size)
        assert headers[-1][1].last_offset < self.model.high_watermark

    @precondition(lambda self: self.model.records)
    @rule(data=st.data())
    def find_timestamp(self, data: st.DataObject) -> None:
        timestamp = NOW_MS + data.draw(st.integers(-10, len(self.model.records) + 10))
        found = offset_for_timestamp(self.broker.log, timestamp)
        expected = next(
            (
                offset
                for offset in range(self.model.start, self.model.end)
                if self.model.records[offset - self.model.base][1] >= timestamp
            ),
            None,
        )
        assert expected == (None if found is None else found.offset)

    @invariant()
    def offsets_agree(self) -> None:
        log = self.broker.log
        assert (log.log_start_offset, log.log_end_offset) == (self.model.start, self.model.end)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset

    @invariant()
    def records_agree(self) -> None:
        assert self.model.visible(self.model.start, self.model.end) == read_all(self.broker.log)


TestLogAgainstModel = LogMachine.TestCase
TestLogAgainstModel.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    cut=st.integers(0, 2000),
    junk=st.binary(max_size=300),
    segment_bytes=st.sampled_from([250, 10_000]),
)
@settings(max_examples=150, deadline=None)
def test_any_tail_can_be_started_from(counts: list[int], cut: int, junk: bytes, segment_bytes: int) -> None:
    """Whatever the last segment ends with, the start succeeds and what it keeps is a prefix."""
    broker = Broker(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=0))
    for count in counts:
        broker.log.append_as_leader(batch(*[b"v"] * count), 0)
    written = read_all(broker.log)
    after = broker.file_system.crash()
    active = after.nodes[f"{DIRECTORY}/orders-0/{broker.log.segments[-1].base_offset:020d}.log"]
    del active.content[max(0, len(active.content) - cut) :]
    active.content += junk
    restarted = Broker(broker.config, after)
    kept = read_all(restarted.log)
    assert kept == written[: len(kept)]
    if cut == 0:
        assert kept == written
    info = restarted.log.append_as_leader(batch(b"next"), 0)
    assert len(kept) == info.first_offset
    again = read_all(restarted.kill().log)
    assert again == [*kept, (len(kept), b"next")]
    for data in (restarted.log.read(0, 10**6, FetchIsolation.LOG_END).records.read(),):
        assert all(list(iter_records(data, position, header)) for position, header in iter_headers(data))
