"""A log that moves between two log directories, against the simplest model of one.

Appends in growing leader epochs, truncations, deletions and restarts come in any order, with steps of the
move in between.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kalda.storage import future_log_copy
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from tests.unit.broker.replicas.log_dir_move_fixtures import A, B, MovingBroker
from tests.unit.storage.log_fixtures import batch, read_all


class MoveMachine(RuleBasedStateMachine):
    """`records` is what the log has from `base` on."""

    @initialize(segment_bytes=st.sampled_from([200, 500, 2000]))
    def start(self, segment_bytes: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(future_log_copy, "COPY_BYTES", 150)
        self.broker = MovingBroker(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=0))
        self.base = self.log_start = 0
        self.records: list[bytes] = []
        self.epoch = 0
        self.written = 0

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    @property
    def end(self) -> int:
        return self.base + len(self.records)

    @rule(count=st.integers(1, 3), is_new_epoch=st.booleans())
    def append(self, count: int, is_new_epoch: bool) -> None:
        self.epoch += is_new_epoch
        values = [b"%d" % (self.written + number) for number in range(count)]
        self.written += count
        info = self.broker.log.append_as_leader(batch(*values), self.epoch)
        assert self.end == info.first_offset
        self.records += values

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """As a follower does after an election: what comes next has a new epoch."""
        log = self.broker.log
        starts = [log.log_end_offset]
        for segment in log.segments:
            starts += [found.base_offset for found in segment.records.iter_positions(0)]
        offset = data.draw(st.sampled_from([start for start in starts if start >= self.log_start]))
        log.truncate_to(offset)
        del self.records[offset - self.base :]
        self.epoch += 1

    @rule(offset=st.integers(0, 200))
    def restart_log(self, offset: int) -> None:
        """As a follower whose log ends before its leader's begins."""
        offset += self.end
        self.broker.log.truncate_fully_and_start_at(offset)
        self.base = self.log_start = offset
        self.records = []
        self.epoch += 1

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        log = self.broker.log
        log.advance_high_watermark(data.draw(st.integers(log.high_watermark, self.end)))
        self.log_start = data.draw(st.integers(self.log_start, log.high_watermark))
        log.delete_records_before(self.log_start)
        log.delete_old_segments()
        self.broker.manager.checkpoint_log_start_offsets()

    @rule()
    def roll(self) -> None:
        self.broker.log.roll()

    @rule(directory=st.sampled_from([A, B]))
    def alter(self, directory: str) -> None:
        self.broker.alter(directory)

    @precondition(lambda self: self.broker.future is not None)
    @rule()
    def step(self) -> None:
        self.broker.step()

    @precondition(lambda self: self.broker.future is not None)
    @rule()
    def finish(self) -> None:
        future = self.broker.future
        assert future is not None
        directory = future.directory.rpartition("/")[0]
        self.broker.advance()
        assert (directory, None) == (self.broker.place, self.broker.future)

    @rule()
    def stop(self) -> None:
        self.broker = self.broker.stop()

    @rule()
    def kill(self) -> None:
        self.broker.manager.checkpoint_high_watermarks()
        self.broker.manager.checkpoint_log_start_offsets()
        self.broker = self.broker.kill()

    @rule()
    def cut_power(self) -> None:
        """The log itself is on the device; what is not synced of its copy, and which names, is lost."""
        self.broker.log.flush()
        self.broker.manager.checkpoint_log_start_offsets()
        files, directory = self.broker.file_system, self.broker.log.directory
        for path in [path for path in files.nodes if path.startswith(f"{directory}/")]:
            files.sync_file(path)
        files.sync_directory(directory)
        self.broker = self.broker.cut_power()
        self.epoch += 1

    @invariant()
    def the_log_is_the_model(self) -> None:
        log = self.broker.log
        assert (self.log_start, self.end) == (log.log_start_offset, log.log_end_offset)
        expected = [(offset, self.records[offset - self.base]) for offset in range(self.log_start, self.end)]
        assert expected == read_all(log)

    @invariant()
    def the_copy_is_valid(self) -> None:
        future = self.broker.future
        if future is not None:
            future.check_invariants()
            read_all(future, isolation=FetchIsolation.LOG_END)

    @invariant()
    def nothing_is_missing(self) -> None:
        assert 0 == self.broker.log.missing.count


TestLogDirMovesAgainstModel = MoveMachine.TestCase
TestLogDirMovesAgainstModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
