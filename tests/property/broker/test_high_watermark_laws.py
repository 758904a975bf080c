"""Whatever happens in whatever order: the high watermark stays where acks=all can rely on it.

The leader's side of one partition against a model of its coordination: appends, fetches, time, changes of the
ISR whose outcome is a success, a lost answer or a conflict, and new leader epochs.
"""

import tempfile
import uuid
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kalda.broker.replicas.in_sync import IsrChange, ReplicationRules
from kalda.broker.replicas.partition import Partition
from kalda.cluster.schema import PartitionState
from kalda.common.types import TopicPartition
from kalda.controller.effects import PartitionLeadership
from kalda.runtime.clock import ManualClock
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from tests.unit.storage.log_fixtures import batch

NAME = TopicPartition("orders", 0)
REPLICAS = (1, 2, 3, 4)
FOLLOWERS = st.sampled_from(REPLICAS[1:])
LAG_SECONDS = 30.0


class LeadingAPartition(RuleBasedStateMachine):
    """Broker 1 leads; the truth is what coordination holds."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.alive = set(REPLICAS)
        self.logs = LogManager([self.directory.name], lambda _: LogConfig(min_insync_replicas=2), self.clock)
        self.logs.load()
        rules = ReplicationRules(self.clock, LAG_SECONDS, lambda broker: broker in self.alive)
        log = self.logs.get_or_create(NAME, uuid.UUID(int=1))
        self.partition = Partition(NAME, uuid.UUID(int=1), 1, log, rules)
        self.truth = PartitionState(1, 0, (1, 2), 1, 0)
        self.end_offsets = dict.fromkeys(REPLICAS[1:], 0)
        self.under_way: IsrChange | None = None
        self.high_watermark = 0
        self.lead()

    def lead(self) -> None:
        truth = self.truth
        self.partition.become_leader(
            PartitionLeadership(
                NAME.topic,
                self.partition.topic_id,
                0,
                truth.controller_epoch,
                truth.leader,
                truth.leader_epoch,
                truth.isr,
                truth.version,
                REPLICAS,
            )
        )

    def teardown(self) -> None:
        self.logs.close()
        self.directory.cleanup()

    @rule()
    def append(self) -> None:
        self.partition.append_as_leader(memoryview(batch(b"a")), 1)

    @rule(replica=FOLLOWERS, behind=st.sampled_from([0, 0, 0, 1, 3]))
    def fetch(self, replica: int, behind: int) -> None:
        """A follower asks for more: it has everything below, and never less than before."""
        end = self.partition.log.log_end_offset
        offset = max(self.end_offsets[replica], end - behind)
        self.end_offsets[replica] = offset
        self.partition.update_follower(replica, offset, 0, self.clock.monotonic())
        if self.under_way is None:
            self.under_way = self.partition.propose_expansion(replica)

    @rule(seconds=st.sampled_from([1, 31]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(replica=FOLLOWERS)
    def die_or_come_back(self, replica: int) -> None:
        self.alive ^= {replica}

    @rule()
    def check_lag(self) -> None:
        if self.under_way is None:
            self.under_way = self.partition.propose_shrink(self.clock.monotonic())
        self.partition.maybe_advance_high_watermark(self.clock.monotonic())

    @precondition(lambda self: self.under_way is not None)
    @rule(is_answered=st.booleans())
    def write(self, is_answered: bool) -> None:
        """Coordination does the write if nobody wrote before; the leader may not hear of it."""
        change = self.under_way
        assert change is not None
        if change.wanted.version == self.truth.version:
            self.truth = replace(change.wanted, version=self.truth.version + 1)
        if not is_answered:
            return
        self.under_way = None
        if self.partition.pending_isr is not change:
            return
        if replace(self.truth, version=change.wanted.version) == change.wanted:
            self.partition.commit_isr(change, self.truth.version)
        elif self.truth.leader_epoch == self.partition.leader_epoch:
            self.partition.adopt_state(self.truth)

    @rule(is_told=st.booleans())
    def elect_again(self, is_told: bool) -> None:
        """The controller raises the epoch; its request may come only with the next one."""
        self.truth = replace(
            self.truth, leader_epoch=self.truth.leader_epoch + 1, version=self.truth.version + 1
        )
        if is_told:
            self.lead()

    @invariant()
    def the_high_watermark_never_goes_back(self) -> None:
        now = self.partition.log.high_watermark
        assert now >= self.high_watermark, (now, self.high_watermark)
        self.high_watermark = now

    @invariant()
    def every_member_of_the_isr_has_all_below_it(self) -> None:
        """Of the true ISR: whoever the controller elects from it has what was acknowledged."""
        for replica in self.truth.isr:
            if replica != 1:
                assert self.end_offsets[replica] >= self.partition.log.high_watermark, (
                    replica,
                    self.partition,
                    self.truth,
                )

    @invariant()
    def what_is_known_of_the_isr_covers_the_truth(self) -> None:
        """Unless somebody else elected meanwhile, whose word has not come."""
        if self.truth.leader_epoch == self.partition.leader_epoch:
            assert set(self.truth.isr) <= set(self.partition.maximal_isr), (self.truth, self.partition)


TestLeadingAPartition = LeadingAPartition.TestCase
TestLeadingAPartition.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
