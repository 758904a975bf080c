"""Share groups of one shard: what is left of groups and members that go, and what is tried again."""

from collections.abc import Sequence
from typing import Any

from kalda.cluster.history.author import RequestAuthor
from kalda.common.errors import ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.group_shard import GroupShard, GroupStatistics
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.group.share.share_group import ShareGroup
from kalda.coordinator.group.share.share_group_config import ShareGroupConfig
from kalda.coordinator.group.share.share_group_records import target_epoch_record
from kalda.coordinator.group.share.share_protocol import Heartbeat, ShareProtocol
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.events.event import EventKind
from kalda.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.unit.coordinator.group.consumer.consumer_simulation import FakeContext, FakeTopics
from tests.unit.events.kept_events import KeptEvents

ALICE = RequestAuthor("AlterShareGroupOffsets", "User:alice", "cli", "::1")


class Times:
    """The default times."""

    def session_timeout_ms(self, group_id: str) -> int:
        return 45_000

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return 5_000

    def assignment_interval_ms(self, group_id: str) -> int:
        return 1_000


class Groups:
    """The groups of one shard."""

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.topics = FakeTopics()
        self.kept = KeptEvents()
        self.context = FakeContext(self.apply, 1_000_000)
        self.shard = GroupShard(
            0,
            GroupConfig(),
            GroupStatistics(),
            lambda: "id",
            events=self.kept,
            make_share=lambda shard: ShareProtocol(shard, ShareGroupConfig(), self.topics, Times()),
        )
        self.shard.on_loaded(self.context)

    @property
    def protocol(self) -> ShareProtocol:
        assert self.shard.share is not None
        return self.shard.share

    def apply(self, result: Result[Any]) -> Any:
        self.records += result.records
        for offset, record in enumerate(result.records):
            self.shard.replay(offset, -1, -1, record)
        self.shard.check_invariants(result.records)
        if result.on_written is not None:
            result.on_written(ErrorCode.NONE)
        return result.response

    def beat(self, group_id: str, member_id: str, epoch: int = 0, topics: Sequence[str] = ()) -> Heartbeat:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if epoch and not topics else [*(topics or ("t",))],
        )
        found = self.apply(self.protocol.heartbeat(request, "client", "/host"))
        assert isinstance(found, Heartbeat)
        self.context.run_deferred()
        return found

    def group(self, group_id: str) -> ShareGroup:
        return self.protocol.group(group_id)


def test_share_groups_of_a_shard_cost_nothing_until_it_has_one() -> None:
    """Their records are known all the same when the log has some."""
    groups = Groups()
    groups.beat("g", "m")
    made: list[GroupShardState] = []

    def make_share(shard: GroupShardState) -> ShareProtocol:
        made.append(shard)
        return ShareProtocol(shard, ShareGroupConfig(), groups.topics, Times())

    shard = GroupShard(0, GroupConfig(), GroupStatistics(), lambda: "id", make_share=make_share)
    shard.on_loaded(groups.context)
    shard.on_unloaded()
    assert [] == made
    for record in groups.records:
        shard.replay(0, -1, -1, record)
    assert [shard] == made
    assert ["g"] == list(shard.groups)


def test_slashes_in_ids_do_not_mix_up_the_sessions_of_members() -> None:
    """A member of one group could otherwise keep that of another alive, or have it removed."""
    groups = Groups()
    groups.beat("a/b", "c")
    groups.beat("a", "b/c")
    groups.beat("a", "b/c", -1)
    groups.context.advance(45_000)
    assert groups.group("a/b").is_empty


def test_nothing_is_left_of_a_deleted_group() -> None:
    groups = Groups()
    groups.topics.put("t", 1)
    groups.beat("g", "a")
    assert ["g"] == list(groups.protocol._asked)
    groups.beat("g", "a", -1)
    groups.apply(Result(groups.group("g").tombstones(), None))
    assert [] == list(groups.protocol._asked)
    assert [] == [key for key in groups.context.timers if key.startswith("share-")]


def test_state_that_could_not_be_deleted_is_deleted_again() -> None:
    """It would fence a later group of the same name, whose epoch begins again."""
    groups = Groups()
    topic_id = groups.topics.put("t", 2)
    keys = [each.key for each in groups.beat("g", "a").new_states]
    groups.apply(groups.protocol.initialized("g", keys))
    groups.beat("g", "a", -1)
    assert keys == groups.apply(groups.protocol.begin_delete("g", None))
    groups.apply(groups.protocol.end_delete("g", []))
    assert keys == groups.apply(groups.protocol.begin_delete("g", [topic_id]))
    groups.apply(groups.protocol.end_delete("g", [topic_id]))
    assert [] == groups.apply(groups.protocol.begin_delete("g", None))


def test_offsets_that_a_client_resets_or_deletes_are_events() -> None:
    groups = Groups()
    topic_id = groups.topics.put("t", 2)
    keys = [each.key for each in groups.beat("g", "a").new_states]
    groups.apply(groups.protocol.initialized("g", keys))
    groups.beat("g", "a", -1)
    for result in (
        groups.protocol.reset("g", {"t": {0: 4, 1: 0}}, lambda: ALICE),
        groups.protocol.begin_delete("g", [topic_id], author=lambda: ALICE),
    ):
        assert result.on_written is not None
        result.on_written(ErrorCode.NOT_COORDINATOR)
    assert [] == groups.kept.events

    groups.apply(groups.protocol.reset("g", {"t": {0: 4, 1: 0}}, lambda: ALICE))
    groups.apply(groups.protocol.begin_delete("g", [topic_id], author=lambda: ALICE))
    reset, deleted = groups.kept.events
    assert [EventKind.OFFSETS_RESET, EventKind.OFFSETS_DELETED] == [reset.kind, deleted.kind]
    assert [{"group": "g", "topic": "t"}] * 2 == [reset.subject, deleted.subject]
    assert ([[0, -1, 4], [1, -1, 0]], 2) == (reset.details["offsets"], deleted.number("partitions_count"))
    assert ["User:alice"] * 2 == [reset.text("by_user"), deleted.text("by_user")]


def test_an_assignment_of_the_future_does_not_stop_the_next_one() -> None:
    groups = Groups()
    groups.topics.put("t", 1)
    groups.beat("g", "a")
    groups.apply(Result([target_epoch_record("g", 1, 2_000_000)], None))
    groups.beat("g", "b")
    assert 2 == groups.group("g").assignment_epoch
