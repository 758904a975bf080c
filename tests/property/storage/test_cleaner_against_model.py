"""Compaction against a model: random writes, transactions, cleanings, rolls, time, kills.

What must hold for every reader: it sees a subsequence of what was written, in order, from any offset on; of
what is committed it sees the last record of each key, unless that is a tombstone whose time has passed.
"""

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.offset_map import ENTRY_BYTES
from kalda.storage.log_types import FetchIsolation
from tests.unit.storage.cleaning_fixtures import CompactedBroker, compacted, contents, records_of
from tests.unit.storage.log_fixtures import NOW_MS, PARTITION

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"a key that is longer than thirty bytes, so it is digested"])
VALUES = st.one_of(st.none(), st.binary(max_size=25))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=12)
PRODUCERS = st.integers(0, 2)
RETENTION_MS = 1000


@dataclass(frozen=True)
class Written:
    """A record as it was appended."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    number: int
    """Counts the producer's transactions; -1 outside of one."""


class CleanerMachine(RuleBasedStateMachine):
    """Every rule acts on the log and notes in the model what was written."""

    @initialize(
        segment_bytes=st.sampled_from([1300, 5000]),
        keys_max=st.sampled_from([3, 1000]),
        interval=st.sampled_from([0, 200]),
    )
    def start(self, segment_bytes: int, keys_max: int, interval: int) -> None:
        config = compacted(
            segment_bytes=segment_bytes, delete_retention_ms=RETENTION_MS, index_interval_bytes=interval
        )
        cleaner = CleanerConfig(dedupe_buffer_bytes=ENTRY_BYTES * keys_max * 2)
        self.broker = CompactedBroker(config, cleaner_config=cleaner)
        self.written: list[Written] = []
        self.open: dict[int, int] = {}
        self.outcomes: dict[tuple[int, int], bool] = {}
        self.sequences: dict[int, int] = {}
        self.numbers: dict[int, int] = {}

    @rule(pairs=PAIRS, codec=st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4]))
    def put(self, pairs: list[tuple[bytes, bytes | None]], codec: Compression) -> None:
        offset = self.broker.put(*pairs, timestamp=NOW_MS + len(self.written), compression=codec)
        self._note(offset, pairs, -1, -1)

    @rule(producer_id=PRODUCERS, pairs=PAIRS)
    def put_in_transaction(self, producer_id: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        if producer_id not in self.open:
            self.open[producer_id] = self.numbers.get(producer_id, 0)
            self.numbers[producer_id] = self.open[producer_id] + 1
        sequence = self.sequences.get(producer_id, 0)
        offset = self.broker.put(
            *pairs, producer_id=producer_id, epoch=0, sequence=sequence, transactional=True
        )
        self.sequences[producer_id] = sequence + len(pairs)
        self._note(offset, pairs, producer_id, self.open[producer_id])

    @precondition(lambda self: self.open)
    @rule(is_committed=st.booleans())
    def end_transaction(self, is_committed: bool) -> None:
        producer_id, number = self.open.popitem()
        kind = ControlRecordType.COMMIT if is_committed else ControlRecordType.ABORT
        self.broker.mark(kind, producer_id)
        self.outcomes[producer_id, number] = is_committed

    @rule()
    def roll(self) -> None:
        self.broker.roll()

    @rule()
    def clean(self) -> None:
        self.broker.clean()

    @rule()
    def clean_all(self) -> None:
        """Twice from the start: small tables need passes, and merged segments are merged again."""
        self.broker.roll()
        for _ in range(2):
            self.broker.cleaner.on_truncation(PARTITION, 0)
            for _ in range(50):
                if not self.broker.clean():
                    break
        assert not self.broker.cleaner.uncleanable

    @rule(seconds=st.sampled_from([0.5, 1.1]))
    def wait(self, seconds: float) -> None:
        self.broker.clock.advance(seconds)

    @rule()
    def kill(self) -> None:
        self.broker.log.flush()
        end = self.broker.log.log_end_offset
        self.broker = self.broker.restarted()
        assert end == self.broker.log.log_end_offset
        self.broker.log.advance_high_watermark(end)

    @invariant()
    def readers_see_what_they_should(self) -> None:
        if not hasattr(self, "broker"):
            return
        log = self.broker.log
        everything = contents(records_of(log))
        by_offset = {each.offset: (each.offset, each.key, each.value) for each in self.written}
        assert everything == sorted(everything)
        assert all(by_offset[each[0]] == each for each in everything)

        committed = contents(records_of(log, isolation=FetchIsolation.TXN_COMMITTED))
        bound = log.last_stable_offset
        legal = [each for each in self.written if each.offset < bound and self._counts(each)]
        assert set(committed) <= {(each.offset, each.key, each.value) for each in legal}
        last = {each.key: each for each in legal}
        seen = set(committed)
        for each in last.values():
            # A tombstone may be gone or not; what it deleted may not come back without it.
            if each.value is not None:
                assert (each.offset, each.key, each.value) in seen, each
        for key in {each[1] for each in committed}:
            newest = [each for each in committed if each[1] == key][-1]
            if last[key].value is None and newest[2] is not None:
                raise AssertionError(f"{newest} is back though {last[key]} deleted it")

    @invariant()
    def it_may_be_read_from_anywhere(self) -> None:
        if not hasattr(self, "broker"):
            return
        log = self.broker.log
        everything = contents(records_of(log))
        step = max(1, log.log_end_offset // 5)
        for offset in range(0, log.log_end_offset, step):
            assert [each for each in everything if each[0] >= offset] == contents(records_of(log, offset))

    def _note(
        self, offset: int, pairs: list[tuple[bytes, bytes | None]], producer_id: int, number: int
    ) -> None:
        for index, (key, value) in enumerate(pairs):
            self.written.append(Written(offset + index, key, value, producer_id, number))

    def _counts(self, record: Written) -> bool:
        return record.number < 0 or self.outcomes.get((record.producer_id, record.number), False)


CleanerMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCleanerAgainstModel = CleanerMachine.TestCase
