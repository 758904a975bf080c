"""Golden transcripts of share groups (KIP-932): heartbeats, deliveries, acknowledgements, and what is stored
of them.

Each block has commands, a line of dashes, and what follows: responses, records of both internal topics, the
state of the share partition. ``KALDA_REWRITE_TRANSCRIPTS=1 pytest tests/golden/coordinator`` writes that
anew; then review the diff.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from kalda.common.errors import ApiError
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord, decode_key, decode_value
from kalda.coordinator.group.consumer.member import assignment_of
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.group_shard import GroupShard, GroupStatistics
from kalda.coordinator.group.share.share_group import ShareGroup
from kalda.coordinator.group.share.share_group_config import ShareGroupConfig
from kalda.coordinator.group.share.share_protocol import NewState, ShareProtocol
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.share.acknowledgement import Acknowledgement
from kalda.coordinator.share.delivery_state import AcknowledgeType, RecordState
from kalda.coordinator.share.fetched_batch import FetchedBatch
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.coordinator.share.record_ranges import Transition
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.coordinator.share.share_partition import SharePartition
from kalda.coordinator.share.share_records import SharePartitionKey, Snapshot, decode
from kalda.coordinator.share.share_shard import ShareShard, StateChange
from kalda.protocol.messages import share_group_records as messages
from kalda.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kalda.protocol.schema import Message
from tests.golden.transcripts import replay
from tests.unit.coordinator.group.consumer.consumer_simulation import FakeContext, FakeTopics

T = TypeVar("T")

TRANSCRIPTS = sorted(Path(__file__).parent.glob("share-*.txt"))
GROUP = "g"
TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    10: (messages.ShareGroupMemberMetadataKey, messages.ShareGroupMemberMetadataValue),
    11: (messages.ShareGroupMetadataKey, messages.ShareGroupMetadataValue),
    12: (messages.ShareGroupTargetAssignmentMetadataKey, messages.ShareGroupTargetAssignmentMetadataValue),
    13: (messages.ShareGroupTargetAssignmentMemberKey, messages.ShareGroupTargetAssignmentMemberValue),
    14: (messages.ShareGroupCurrentMemberAssignmentKey, messages.ShareGroupCurrentMemberAssignmentValue),
    15: (messages.ShareGroupStatePartitionMetadataKey, messages.ShareGroupStatePartitionMetadataValue),
}


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_members_see(path: Path) -> None:
    """Each file tells one scenario; a change of behaviour shows as a diff that a person can judge."""
    text = path.read_text(encoding="utf-8")
    assert text == replay(path, _Player().play)


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 3


class _Times:
    def __init__(self, interval_ms: int = 0) -> None:
        self.interval_ms = interval_ms

    def session_timeout_ms(self, group_id: str) -> int:
        return 45_000

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return 5_000

    def assignment_interval_ms(self, group_id: str) -> int:
        return self.interval_ms


class _Player:
    """A group, the share coordinator of its partitions, and the leader of partition t-0."""

    def __init__(self) -> None:
        self.topics = FakeTopics()
        self.times = _Times()
        self.context = FakeContext(self.apply_group, 1_000_000)
        self.share_context = FakeContext(self.apply_share, 1_000_000)
        self.group_records: list[CoordinatorRecord] = []
        self.share_records: list[CoordinatorRecord] = []
        self.load()
        self.epochs: dict[str, int] = {}
        self.new_states: list[NewState] = []
        self.partition: SharePartition | None = None
        self.leader_epoch = 0
        self.limits = PartitionLimits(delivery_count_limit=2, lock_ms=30_000)
        self.events: list[str] = []

    def load(self) -> None:
        self.shard = GroupShard(
            0,
            GroupConfig(),
            GroupStatistics(),
            lambda: "id",
            make_share=lambda shard: ShareProtocol(shard, ShareGroupConfig(), self.topics, self.times),
        )
        self.share = ShareShard(
            0, ShareCoordinatorConfig(share_coordinator_snapshot_update_records_per_snapshot=3)
        )
        for offset, record in enumerate(self.group_records):
            self.shard.replay(offset, -1, -1, record)
        for offset, record in enumerate(self.share_records):
            self.share.replay(offset, -1, -1, record)
        self.shard.on_loaded(self.context)
        self.share.on_loaded(self.share_context)

    @property
    def protocol(self) -> ShareProtocol:
        assert self.shard.share is not None
        return self.shard.share

    def apply_group(self, result: Result[T]) -> T:
        for record in result.records:
            self.shard.replay(len(self.group_records), -1, -1, record)
            self.group_records.append(record)
            self.events.append(f"  {self.group_record(record)}")
        self.shard.check_invariants(result.records)
        assert not isinstance(result.response, Pending)
        return result.response

    def apply_share(self, result: Result[T]) -> T:
        for record in result.records:
            self.share.replay(len(self.share_records), -1, -1, record)
            self.share_records.append(record)
            self.events.append(f"  {_share_record(record)}")
        self.share.check_invariants()
        assert not isinstance(result.response, Pending)
        return result.response

    def play(self, commands: list[str]) -> list[str]:
        self.events = []
        for line in commands:
            try:
                self.run(line)
            except ApiError as error:
                self.events.append(f"{error.code.name} {error.message}")
        return [*self.events, self.state()]

    def run(self, line: str) -> None:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        if command == "topics":
            for name, count in options.items():
                self.topics.put(name, int(count))
        elif command == "settings":
            self.times.interval_ms = int(options["assignment_interval_ms"])
        elif command in ("join", "beat", "leave"):
            self.beat(command, names, options)
        elif command == "initialize":
            self.initialize()
        elif command == "fails":
            self.new_states = []
            self.protocol.not_initialized(GROUP)
        elif command == "advance":
            self.context.advance(int(names[0]))
            self.share_context.now_ms = self.context.now_ms
            if self.partition is not None:
                self.store(self.partition.expire(self.now_ms))
        elif command == "load":
            self.load()
        elif command == "lead":
            self.lead(int(names[0]))
        elif command == "fetch":
            self.fetch(names, options)
        elif command == "ack":
            first, _, last = names[1].partition("-")
            types = [AcknowledgeType[each.upper()] for each in names[2].split(",")]
            batch = Acknowledgement(int(first), int(last or first), types)
            self.store(self.led.acknowledge(names[0], [batch], self.now_ms))
        elif command == "close":
            self.store(self.led.release(names[0]))
        elif command == "reset":
            found = self.apply_group(self.protocol.reset(GROUP, {"t": {0: int(names[0])}}))
            self.new_states = list(found)
            self.initialize()
        elif command == "delete":
            keys = self.apply_group(self.protocol.begin_delete(GROUP, None))
            for key in keys:
                self.apply_share(self.share.delete(key))
            self.apply_group(self.protocol.end_delete(GROUP, {key.topic_id for key in keys}))
        else:
            raise AssertionError(f"unknown command: {line}")

    @property
    def now_ms(self) -> int:
        return self.context.now_ms

    @property
    def led(self) -> SharePartition:
        assert self.partition is not None, "nobody leads t-0"
        return self.partition

    @property
    def key(self) -> SharePartitionKey:
        topic = self.topics.topic("t")
        assert topic is not None
        return SharePartitionKey(GROUP, topic.topic_id, 0)

    def beat(self, command: str, names: list[str], options: dict[str, str]) -> None:
        name = names[0]
        epoch = {"join": 0, "leave": -1}.get(command, self.epochs.get(name, 0))
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=int(options.get("epoch", epoch)),
            subscribed_topic_names=options["topics"].split(",") if "topics" in options else None,
        )
        found = self.apply_group(self.protocol.heartbeat(request, "client", "/host"))
        response = found.response
        self.epochs[name] = response.member_epoch
        line = f"{name}: epoch {response.member_epoch}"
        if response.assignment is not None:
            line += f" gets {self.names(assignment_of(response.assignment.topic_partitions))}"
        self.events.append(line)
        if found.new_states:
            self.new_states = list(found.new_states)
            needed = ", ".join(
                f"{self.topics.topic_name(each.key.topic_id)}-{each.key.partition} from {each.start_offset}"
                for each in found.new_states
            )
            self.events.append(f"needs state: {needed}")

    def initialize(self) -> None:
        for each in self.new_states:
            self.apply_share(self.share.initialize(*each))
        self.apply_group(self.protocol.initialized(GROUP, [each.key for each in self.new_states]))
        self.new_states = []

    def lead(self, epoch: int) -> None:
        self.leader_epoch = epoch
        state = self.apply_share(self.share.read(self.key, epoch))
        if state.start_offset < 0:
            state = state._replace(start_offset=0)
        self.partition = SharePartition(state, self.limits)

    def fetch(self, names: list[str], options: dict[str, str]) -> None:
        offset = self.led.next_fetch_offset()
        assert offset is not None
        batches = []
        for word in names[1:]:
            first, _, last = word.rstrip("!").partition("-")
            batches.append(FetchedBatch(int(first), int(last or first), word.endswith("!")))
        acquired = self.led.acquire(
            names[0],
            offset,
            batches,
            self.now_ms,
            records_max=int(options.get("max", "500")),
            batch_size=100,
            is_strict="strict" in options,
        )
        ranges = ", ".join(f"{each.first}-{each.last} ({each.deliveries})" for each in acquired)
        self.events.append(f"{names[0]} acquires {ranges or 'nothing'}")

    def store(self, transition: Transition | None) -> None:
        if transition is None:
            return
        progress = self.led.progress([transition])
        try:
            change = StateChange(self.led.state_epoch, self.leader_epoch, *progress)
            self.apply_share(self.share.write(self.key, change))
        except ApiError:
            self.led.take_back(transition)
            raise
        self.led.confirm(transition)
        self.led.check_invariants()

    def names(self, assignment: Mapping[UUID, frozenset[int]]) -> str:
        found = [
            f"{self.topics.topic_name(topic_id)}-{number}"
            for topic_id, numbers in assignment.items()
            for number in numbers
        ]
        return f"[{' '.join(sorted(found))}]"

    def group_record(self, record: CoordinatorRecord) -> str:
        decoded = decode_key(TYPES, record.key)
        assert decoded is not None
        version, key = decoded
        kind = type(key).__name__.removeprefix("ShareGroup").removesuffix("Key")
        member = getattr(key, "member_id", None)
        if member is not None:
            kind += f"({member})"
        if record.value is None:
            return f"{kind} -"
        value = decode_value(TYPES[version][1], record.value)
        if isinstance(value, messages.ShareGroupMemberMetadataValue):
            return f"{kind} topics={','.join(value.subscribed_topic_names)}"
        if isinstance(value, messages.ShareGroupMetadataValue):
            return f"{kind} epoch={value.epoch}"
        if isinstance(value, messages.ShareGroupTargetAssignmentMetadataValue):
            return f"{kind} epoch={value.assignment_epoch}"
        if isinstance(value, messages.ShareGroupTargetAssignmentMemberValue):
            return f"{kind} {self.names(assignment_of(value.topic_partitions))}"
        if isinstance(value, messages.ShareGroupCurrentMemberAssignmentValue):
            return f"{kind} epoch={value.member_epoch} {self.names(assignment_of(value.assigned_partitions))}"
        assert isinstance(value, messages.ShareGroupStatePartitionMetadataValue)
        return (
            f"{kind} initializing={self.names(assignment_of(value.initializing_topics))} "
            f"initialized={self.names(assignment_of(value.initialized_topics))} "
            f"deleting=[{' '.join(each.topic_name for each in value.deleting_topics)}]"
        )

    def state(self) -> str:
        group = self.shard.groups.get(GROUP)
        line = "no group"
        if isinstance(group, ShareGroup):
            line = f"{group.state_name} epoch={group.epoch} assignment={group.assignment_epoch}"
        if self.partition is not None:
            ranges = " ".join(
                f"[{each.first}-{each.last} {RecordState(each.state).name.lower()} {each.deliveries}]"
                for each in self.partition.state_ranges()
            )
            line += f"; t-0 from {self.partition.start_offset} {ranges}".rstrip()
        return line


def _share_record(record: CoordinatorRecord) -> str:
    decoded = decode(record)
    assert decoded is not None
    key, value = decoded
    if value is None:
        return f"-{key.partition} deleted"
    state = value.state if isinstance(value, Snapshot) else value
    ranges = " ".join(
        f"[{each.first}-{each.last} {RecordState(each.state).name.lower()} {each.deliveries}]"
        for each in state.ranges
    )
    kind = "snapshot" if isinstance(value, Snapshot) else "update"
    line = (
        f"-{key.partition} {kind} {value.epoch} leader={state.leader_epoch} start={state.start_offset} "
        f"complete={state.complete_count} {ranges}"
    )
    return line.rstrip()
