"""Three replicas over real logs, with random leaders, epochs, crashes, lost answers and late news.

The model is the controller and the leaders' side; followers are the real `FetcherCore` over real logs. What
was committed must be in the log of every later leader, no replica may disagree below its high watermark, and
when everything works again all logs become equal.
"""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kalda.broker.fetching.fetch_session import FetchSessionCache
from kalda.broker.replicas.follower.fetcher_core import FetcherCore
from kalda.broker.replicas.follower.follower_fetch_session import FollowerFetchSession
from kalda.broker.replicas.follower.truncation import LeaderOffsets
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replication_quota import FOLLOWER_REPLICAS, ReplicationQuota
from kalda.common.errors import ErrorCode
from kalda.protocol.fast.fetch import (
    FetchAnswer,
    FetchPartitionFields,
    PartitionFetchResult,
    fetch_response,
    parse_fetch_request,
)
from kalda.protocol.fast.fetch_response import parse_fetch_response
from kalda.records.batch import iter_headers
from kalda.runtime.clock import ManualClock
from kalda.storage.file_records import FileSlice
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from tests.runtimes import rules_without_followers
from tests.unit.storage import log_fixtures
from tests.unit.storage.log_fixtures import NOW_MS, PARTITION, batch

IDS: Final = (0, 1, 2)
TOPIC_ID: Final = UUID(int=9)
VERSION: Final = 17
RESPONSE_HEADER: Final = 4 + 4 + 1
CONFIG: Final = LogConfig(segment_bytes=400, index_interval_bytes=0)


@dataclass
class Truth:
    """What coordination holds: the controller's decisions."""

    leader: int = 0
    epoch: int = 0
    isr: set[int] = field(default_factory=lambda: set(IDS))


class Replica:
    """One broker's replica: a follower with its fetcher, or a leader that the model plays."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.broker = log_fixtures.Broker(CONFIG, clock=ManualClock(NOW_MS))
        self.is_alive = True
        self._forget_roles()

    def _forget_roles(self) -> None:
        clock = self.broker.clock
        self.partition = Partition(PARTITION, TOPIC_ID, self.id, self.broker.log, rules_without_followers())
        self.is_leader = False
        self.epoch = -1
        self.isr: set[int] = set()
        self.ends: dict[int, int] = {}
        numbers = iter(range(1, 1 << 30))
        self.sessions = FetchSessionCache(100, clock, lambda: next(numbers))
        self.core: FetcherCore | None = None
        self.answer: bytes | None = None

    def crash(self) -> None:
        self.is_alive = False
        self.broker = self.broker.kill()
        self._forget_roles()

    def learn(self, truth: Truth) -> None:
        """Take the role that the controller gave."""
        if truth.epoch == self.epoch:
            if self.is_leader:
                self.isr = set(truth.isr)
            return
        self.epoch = self.partition.leader_epoch = truth.epoch
        self.partition.leader_id = truth.leader
        self.is_leader = truth.leader == self.id
        if not self.is_leader and self.core is not None and self.core.leader_id == truth.leader:
            # The same fetcher, in which an answer to the tenure before may still be under way.
            self.core.follow(self.partition)
            return
        self._stop_following()
        if self.is_leader:
            self.partition.log.assign_leader_epoch(truth.epoch)
            self.isr = set(truth.isr)
            self.ends = {}
            return
        clock = self.broker.clock
        session = FollowerFetchSession(
            self.id, max_wait_ms=500, min_bytes=1, max_bytes=300, partition_max_bytes=200
        )
        quota = ReplicationQuota(
            FOLLOWER_REPLICAS, self.id, lambda _: {}, clock, sample_count=11, sample_seconds=1
        )
        self.core = FetcherCore(truth.leader, session, quota, 1.0)
        self.core.follow(self.partition)

    def _stop_following(self) -> None:
        if self.core is not None:
            self.core.unfollow(PARTITION)
            assert not self.core.states
        self.core = self.answer = None

    # The leader's side.

    def serve(self, body: bytes, replica: int) -> bytes:
        fields = parse_fetch_request(memoryview(body), 0, VERSION)
        context = self.sessions.context(VERSION, fields)
        answers: list[FetchAnswer] = [(key, self._read(asked, replica)) for key, asked in context.entries]
        error, session_id, topics = context.answer(answers)
        chunks = fetch_response(1, VERSION, error, session_id, topics)
        joined = b"".join(
            chunk if isinstance(chunk, bytes) else chunk.read()
            for chunk in chunks
            if isinstance(chunk, bytes | FileSlice)
        )
        return joined[RESPONSE_HEADER:]

    def refusal(self, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _read(self, asked: FetchPartitionFields, replica: int) -> PartitionFetchResult:
        code = self.refusal(asked.current_leader_epoch)
        if code is not ErrorCode.NONE:
            return PartitionFetchResult(0, int(code))
        log = self.partition.log
        if not log.log_start_offset <= asked.fetch_offset:
            return PartitionFetchResult(0, int(ErrorCode.OFFSET_OUT_OF_RANGE))
        diverging = None
        if asked.last_fetched_epoch >= 0:
            epoch, end = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                diverging = (epoch, end)
        if diverging is None and asked.fetch_offset > log.log_end_offset:
            return PartitionFetchResult(0, int(ErrorCode.OFFSET_OUT_OF_RANGE))
        records = None
        if diverging is None:
            self.ends[replica] = asked.fetch_offset
            records = log.read(asked.fetch_offset, asked.max_bytes, FetchIsolation.LOG_END).records
        return PartitionFetchResult(
            0, 0, log.high_watermark, -1, log.log_start_offset, None, -1, records, diverging
        )

    @property
    def batches(self) -> dict[int, bytes]:
        log = self.partition.log
        found: dict[int, bytes] = {}
        at = log.log_start_offset
        while at < log.log_end_offset:
            data = log.read(at, 1 << 20, FetchIsolation.LOG_END).records.read()
            headers = list(iter_headers(data))
            found |= {
                header.base_offset: bytes(data[position : position + header.size])
                for position, header in headers
            }
            at = headers[-1][1].next_offset
        return found


class ClusterMachine(RuleBasedStateMachine):
    """Clean elections only, so nothing that was committed may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.truth = Truth()
        self.replicas = [Replica(broker_id) for broker_id in IDS]
        self.committed: dict[int, bytes] = {}
        self.written = 0

    @initialize()
    def begin(self) -> None:
        for replica in self.replicas:
            replica.learn(self.truth)

    # Clients.

    @rule(broker=st.sampled_from(IDS), count=st.integers(1, 3))
    def produce(self, broker: int, count: int) -> None:
        """Write to whoever believes it leads, be it so or not."""
        replica = self.replicas[broker]
        if replica.is_leader:
            self.written += 1
            values = [b"%d/%d" % (self.written, number) for number in range(count)]
            replica.partition.log.append_as_leader(batch(*values), replica.epoch)
            self.advance(replica)

    @rule(back=st.integers(0, 4))
    def delete_records(self, back: int) -> None:
        leader = self.replicas[self.truth.leader]
        log = leader.partition.log
        if leader.is_leader and leader.epoch == self.truth.epoch:
            log.delete_records_before(max(log.log_start_offset, log.high_watermark - back))

    # Replication.

    @rule(broker=st.sampled_from(IDS))
    def fetch(self, broker: int) -> None:
        """Have a request answered; the answer is under way until `deliver` or `lose`."""
        replica = self.replicas[broker]
        core = replica.core
        if core is None or replica.answer is not None:
            return
        leader = self.replicas[core.leader_id]
        clock = replica.broker.clock
        for state in core.resolving:
            code = leader.refusal(state.leader_epoch) if leader.is_alive else ErrorCode.NOT_LEADER_OR_FOLLOWER
            if code is not ErrorCode.NONE:
                core.on_bounds_error(state, int(code), clock.monotonic())
                continue
            log, mine = leader.partition.log, state.partition.log
            epoch, end = log.end_offset_for_epoch(mine.leader_epochs.latest_epoch)
            bounds = LeaderOffsets(log.log_start_offset, log.log_end_offset, epoch, end)
            core.on_bounds(state, bounds, clock.monotonic())
        body = core.request(VERSION, -1, clock.monotonic())
        if body is None:
            return
        if not leader.is_alive:
            core.connection_lost()
            return
        replica.answer = leader.serve(body, broker)
        if leader.is_leader:
            self.advance(leader)

    @rule(broker=st.sampled_from(IDS))
    def deliver(self, broker: int) -> None:
        replica = self.replicas[broker]
        if replica.core is not None and replica.answer is not None:
            answer, replica.answer = replica.answer, None
            now = replica.broker.clock.monotonic()
            try:
                replica.core.on_answer(parse_fetch_response(memoryview(bytearray(answer))), now)
            except ConnectionError:
                replica.core.connection_lost()

    @rule(broker=st.sampled_from(IDS))
    def lose(self, broker: int) -> None:
        replica = self.replicas[broker]
        if replica.core is not None and replica.answer is not None:
            replica.answer = None
            replica.core.connection_lost()

    @rule(seconds=st.sampled_from([0.01, 0.1, 20.0]))
    def wait(self, seconds: float) -> None:
        for replica in self.replicas:
            assert isinstance(replica.broker.clock, ManualClock)
            replica.broker.clock.advance(seconds)

    def advance(self, leader: Replica) -> None:
        """Move the leader's high watermark to what all that it takes for in sync have."""
        log = leader.partition.log
        ends = [leader.ends.get(each, -1) for each in leader.isr if each != leader.id]
        log.advance_high_watermark(min([log.log_end_offset, *ends]))
        for offset, data in leader.batches.items():
            if offset < log.high_watermark:
                assert data == self.committed.setdefault(offset, data), f"{offset} was committed otherwise"

    # The controller, and what the brokers hear of it.

    @rule()
    def elect(self) -> None:
        """Take the dead out of the ISR, and give what a dead one led to one that is in sync."""
        alive = [each.id for each in self.replicas if each.is_alive and each.id in self.truth.isr]
        if not alive:
            return
        truth = self.truth
        truth.isr = set(alive)
        if truth.leader not in alive:
            truth.leader = alive[0]
        truth.epoch += 1

    @precondition(lambda self: len(self.truth.isr) > 1)
    @rule(broker=st.sampled_from(IDS))
    def prefer(self, broker: int) -> None:
        if broker in self.truth.isr and self.replicas[broker].is_alive:
            self.truth.leader = broker
            self.truth.epoch += 1

    @rule(broker=st.sampled_from(IDS))
    def shrink_or_expand(self, broker: int) -> None:
        """What the leader writes by compare-and-set: refused to one that is no longer it."""
        truth = self.truth
        leader = self.replicas[truth.leader]
        if not leader.is_leader or leader.epoch != truth.epoch or broker == truth.leader:
            return
        if broker in truth.isr:
            truth.isr.discard(broker)
        elif leader.ends.get(broker, -1) >= leader.partition.log.log_end_offset:
            truth.isr.add(broker)
        leader.isr = set(truth.isr)
        self.advance(leader)

    @rule(broker=st.sampled_from(IDS))
    def hear(self, broker: int) -> None:
        if self.replicas[broker].is_alive:
            self.replicas[broker].learn(self.truth)

    @rule(broker=st.sampled_from(IDS))
    def crash(self, broker: int) -> None:
        if self.replicas[broker].is_alive:
            self.replicas[broker].crash()

    @rule(broker=st.sampled_from(IDS))
    def restart(self, broker: int) -> None:
        self.replicas[broker].is_alive = True

    # What must hold.

    @invariant()
    def no_replica_disagrees_about_what_it_takes_for_committed(self) -> None:
        for replica in self.replicas:
            limit = replica.partition.log.high_watermark
            for offset, data in replica.batches.items():
                if offset < limit:
                    assert data == self.committed[offset]

    @invariant()
    def a_leader_has_all_that_was_committed(self) -> None:
        leader = self.replicas[self.truth.leader]
        if leader.is_leader and leader.epoch == self.truth.epoch:
            batches, start = leader.batches, leader.partition.log.log_start_offset
            missing = [offset for offset in self.committed if offset >= start and offset not in batches]
            assert [] == missing

    def teardown(self) -> None:
        """When all live and hear of the last election, the logs become equal."""
        if not hasattr(self, "replicas"):
            return
        for replica in self.replicas:
            replica.is_alive = True
        self.elect()
        for replica in self.replicas:
            replica.learn(self.truth)
        leader = self.replicas[self.truth.leader]
        for _ in range(200):
            for broker in IDS:
                self.deliver(broker)
                self.fetch(broker)
            self.wait(20.0)
        for replica in self.replicas:
            for broker in IDS:
                if broker in leader.ends and broker not in self.truth.isr:
                    self.shrink_or_expand(broker)
            log = replica.partition.log
            assert log.log_end_offset == leader.partition.log.log_end_offset, (
                replica.core and replica.core.states
            )
            common = {
                offset: data for offset, data in leader.batches.items() if offset >= log.log_start_offset
            }
            ours = {offset: data for offset, data in replica.batches.items() if offset in common}
            assert ours == common


TestFollowers = ClusterMachine.TestCase
TestFollowers.settings = settings(
    max_examples=40,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
