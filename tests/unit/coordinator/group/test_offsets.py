"""Committed offsets: who may commit, what is kept, what is forgotten, and what transactions hold back."""

from dataclasses import replace

import pytest

from kalda.cluster.history.author import RequestAuthor
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.offset_operations import (
    COMMITTED_MAX,
    SLICE_MAX,
    TOMBSTONES_MAX,
    FetchedOffsets,
)
from kalda.events.event import EventKind
from kalda.events.recorder import EventQuery, EventRecorder
from kalda.protocol.messages.offset_commit import OffsetCommitRequest
from kalda.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import ManualClock
from tests.unit.coordinator.group.group_simulation import GROUP, Client, GroupSimulation, commit_request
from tests.unit.storage.faulty_file_system import FaultyFileSystem

HOUR_MS = 3_600_000
SIMPLE = Client("simple")
ALICE = RequestAuthor("OffsetCommit", "User:alice", "cli", "::1")


def commit(simulation: GroupSimulation, request: OffsetCommitRequest, version: int = 9) -> ErrorCode:
    """Commit and return the first partition's code, or the one of the whole."""
    pending = simulation.coordinator.commit_offsets(request, version)
    assert pending.is_done, "it waits to be replicated"
    if pending.error is not None:
        assert isinstance(pending.error, ApiError)
        return pending.error.code
    return ErrorCode(pending.value.topics[0].partitions[0].error_code)


def fetch(simulation: GroupSimulation, *, stable: bool = False, group: str = GROUP) -> FetchedOffsets:
    pending = simulation.coordinator.fetch_offsets(group, None, require_stable=stable)
    assert pending.is_done
    return pending.value


def offsets(simulation: GroupSimulation, group: str = GROUP) -> dict[tuple[str, int], int]:
    return {
        (topic, partition): committed.offset
        for topic, partitions in fetch(simulation, group=group).topics
        for partition, committed, _ in partitions
        if committed is not None
    }


def txn_commit(simulation: GroupSimulation, offset: int, *, producer: int = 7, partition: int = 0) -> None:
    request = TxnOffsetCommitRequest(
        transactional_id="copier",
        group_id=GROUP,
        producer_id=producer,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=None
                    )
                ],
            )
        ],
    )
    pending = simulation.coordinator.txn_offset_commit(request, 3)
    assert isinstance(pending, Pending)
    assert ErrorCode.NONE == pending.value.topics[0].partitions[0].error_code


def end_transaction(simulation: GroupSimulation, *, committed: bool, producer: int = 7) -> None:
    simulation.log.add_marker(0, producer, 0, committed)
    simulation.runtime.complete_transaction(0, producer, 0, committed)


def delete(simulation: GroupSimulation, topic: str, *partitions: int) -> list[ErrorCode]:
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in partitions],
            )
        ],
    )
    pending = simulation.coordinator.delete_offsets(request)
    assert isinstance(pending, Pending)
    return [ErrorCode(each.error_code) for each in pending.value.topics[0].partitions]


def resets(simulation: GroupSimulation) -> list[object]:
    return [event.details["offsets"] for event in simulation.kept.of_kind(EventKind.OFFSETS_RESET)]


def stable_group() -> GroupSimulation:
    """One member of a group, in generation 1."""
    simulation = GroupSimulation(group_initial_rebalance_delay_ms=0)
    simulation.join("a", version=3)
    simulation.advance(100)
    simulation.sync("a")
    return simulation


def test_everything_about_a_commit_comes_back() -> None:
    simulation = GroupSimulation()
    request = commit_request(SIMPLE, 42, committed_leader_epoch=3)
    request.topics[0].partitions[0].committed_metadata = "méta"
    assert commit(simulation, request) is ErrorCode.NONE
    for _ in range(2):
        ((topic, ((partition, committed, code),)),) = fetch(simulation).topics
        assert committed is not None
        assert ("t", 0, ErrorCode.NONE) == (topic, partition, code)
        assert (42, 3, "méta") == (committed.offset, committed.leader_epoch, committed.metadata)
        simulation.fail_over()


def test_a_group_nobody_knows_has_no_offsets() -> None:
    simulation = GroupSimulation()
    pending = simulation.coordinator.fetch_offsets("unknown", [("t", [0, 1])])
    assert [("t", [(0, None, ErrorCode.NONE), (1, None, ErrorCode.NONE)])] == pending.value.topics
    assert [] == fetch(simulation).topics


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.GROUP_ID_NOT_FOUND), (8, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_member_of_a_group_that_is_not_there_cannot_commit(version: int, code: ErrorCode) -> None:
    simulation = GroupSimulation()
    assert commit(simulation, commit_request(Client("a", "a-1", 3), 1), version) is code


@pytest.mark.parametrize(
    ("version", "code"), [(6, ErrorCode.GROUP_ID_NOT_FOUND), (5, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_producer_cannot_commit_for_a_member_of_a_group_that_is_not_there(
    version: int, code: ErrorCode
) -> None:
    """Producers know the new code from version 6 on (KIP-1319)."""
    request = TxnOffsetCommitRequest(group_id=GROUP, generation_id=3, member_id="a", producer_id=7)
    pending = GroupSimulation().coordinator.txn_offset_commit(request, version)
    assert isinstance(pending, Pending)
    with pytest.raises(ApiError) as caught:
        _ = pending.value
    assert caught.value.code is code


def test_metadata_has_a_limit() -> None:
    simulation = GroupSimulation(offset_metadata_max_bytes=4)
    request = commit_request(SIMPLE, 1)
    request.topics[0].partitions[0].committed_metadata = "12345"
    assert commit(simulation, request) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert {} == offsets(simulation)


def test_members_alone_commit_while_there_are_members() -> None:
    simulation = stable_group()
    member = simulation.client("a")
    assert commit(simulation, commit_request(SIMPLE, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    stale = Client("a", member.member_id, 0)
    assert commit(simulation, commit_request(stale, 1)) is ErrorCode.ILLEGAL_GENERATION
    assert commit(simulation, commit_request(member, 1)) is ErrorCode.NONE
    simulation.join("a")
    assert commit(simulation, commit_request(simulation.client("a"), 2)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_a_member_alive() -> None:
    simulation = stable_group()
    for _ in range(5):
        simulation.advance(8000)
        assert commit(simulation, commit_request(simulation.client("a"), 1)) is ErrorCode.NONE


def test_an_answer_waits_until_the_commit_is_replicated() -> None:
    simulation = GroupSimulation()
    simulation.log.lag = True
    pending = simulation.coordinator.commit_offsets(commit_request(SIMPLE, 5), 9)
    fetched = simulation.coordinator.fetch_offsets(GROUP, None)
    assert [False, False] == [pending.is_done, fetched.is_done]
    simulation.replicate()
    assert [True, True] == [pending.is_done, fetched.is_done]


def test_a_commit_that_cannot_replicate_fails_so_that_clients_try_again() -> None:
    simulation = GroupSimulation(offsets_commit_timeout_ms=2000)
    simulation.log.lag = True
    pending = simulation.coordinator.commit_offsets(commit_request(SIMPLE, 5), 9)
    fetched = simulation.coordinator.fetch_offsets(GROUP, None)
    simulation.advance(2100)
    assert isinstance(pending.error, ApiError)
    assert pending.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetched.value.error is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_what_the_log_refuses_has_a_code_that_clients_know(refusal: ErrorCode, code: ErrorCode) -> None:
    simulation = GroupSimulation()
    simulation.log.append_error = refusal
    assert commit(simulation, commit_request(SIMPLE, 1)) is code
    simulation.log.append_error = None
    assert {} == offsets(simulation)


def test_a_commit_that_fits_no_batch_is_refused_before_it_is_encoded() -> None:
    simulation = GroupSimulation()
    request = commit_request(SIMPLE, 1)
    request.topics[0].partitions *= COMMITTED_MAX + 1
    assert commit(simulation, request) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert {} == offsets(simulation)


# Transactions.


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    simulation = GroupSimulation()
    assert commit(simulation, commit_request(SIMPLE, 1)) is ErrorCode.NONE
    txn_commit(simulation, 5)
    assert {("t", 0): 1} == offsets(simulation)
    ((_, ((_, committed, code),)),) = fetch(simulation, stable=True).topics
    assert (None, ErrorCode.UNSTABLE_OFFSET_COMMIT) == (committed, code)
    simulation.fail_over()
    assert {("t", 0): 1} == offsets(simulation)
    end_transaction(simulation, committed=True)
    assert {("t", 0): 5} == offsets(simulation)
    assert fetch(simulation, stable=True).topics[0][1][0][2] is ErrorCode.NONE
    simulation.fail_over()
    assert {("t", 0): 5} == offsets(simulation)


def test_offsets_of_an_aborted_transaction_are_dropped() -> None:
    simulation = GroupSimulation()
    txn_commit(simulation, 5)
    end_transaction(simulation, committed=False)
    assert {} == offsets(simulation)
    assert not simulation.shard.offsets.has_pending(GROUP)


def test_a_transaction_does_not_overwrite_a_later_commit() -> None:
    """The order in the log decides, not the order of the markers."""
    simulation = GroupSimulation()
    txn_commit(simulation, 5)
    assert commit(simulation, commit_request(SIMPLE, 9)) is ErrorCode.NONE
    end_transaction(simulation, committed=True)
    assert {("t", 0): 9} == offsets(simulation)


def test_two_producers_do_not_mix() -> None:
    simulation = GroupSimulation()
    txn_commit(simulation, 5, producer=7, partition=0)
    txn_commit(simulation, 6, producer=8, partition=1)
    end_transaction(simulation, committed=True, producer=8)
    assert {("t", 1): 6} == offsets(simulation)
    assert simulation.shard.offsets.is_pending(GROUP, "t", 0)
    assert not simulation.shard.offsets.is_pending(GROUP, "t", 1)


# Deleting.


def test_offsets_of_a_topic_that_is_subscribed_are_not_deleted() -> None:
    simulation = stable_group()
    member = simulation.client("a")
    commit(simulation, commit_request(member, 1))
    commit(simulation, commit_request(member, 2, "other"))
    assert [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] == delete(simulation, "t", 0)
    assert [ErrorCode.NONE, ErrorCode.NONE] == delete(simulation, "other", 0, 1)
    assert {("t", 0): 1} == offsets(simulation)
    simulation.fail_over()
    assert {("t", 0): 1} == offsets(simulation)


def test_a_deleted_group_is_gone_with_its_offsets() -> None:
    simulation = stable_group()
    commit(simulation, commit_request(simulation.client("a"), 1))
    assert {GROUP: ErrorCode.NON_EMPTY_GROUP} == simulation.coordinator.delete_groups([GROUP]).value
    simulation.leave("a")
    txn_commit(simulation, 5, partition=3)
    deleted = simulation.coordinator.delete_groups([GROUP, "unknown"]).value
    assert {GROUP: ErrorCode.NONE, "unknown": ErrorCode.GROUP_ID_NOT_FOUND} == deleted
    (event,) = simulation.kept.of_kind(EventKind.OFFSETS_DELETED)
    assert ({"group": GROUP}, "a client deleted the group (DeleteGroups)") == (
        event.subject,
        event.text("reason"),
    )
    end_transaction(simulation, committed=True)
    for _ in range(2):
        assert simulation.group is None
        assert {} == offsets(simulation)
        simulation.fail_over()


def test_offsets_that_a_tool_sets_are_an_event_with_its_author() -> None:
    """It explains a lag that grew or vanished at once. Members leave their offsets to no simple consumer."""
    simulation = stable_group()
    commit(simulation, commit_request(simulation.client("a"), 50))
    simulation.leave("a")
    for offset, partition in ((10, 0), (10, 0), (90, 0), (7, 1)):
        pending = simulation.coordinator.commit_offsets(
            commit_request(SIMPLE, offset, partition=partition), 9, lambda: ALICE
        )
        assert pending.error is None
    events = simulation.kept.of_kind(EventKind.OFFSETS_RESET)
    assert [{"group": GROUP, "topic": "t"}] * 3 == [event.subject for event in events]
    assert [[[0, 50, 10]], [[0, 10, 90]], [[1, -1, 7]]] == [event.details["offsets"] for event in events]
    assert [1] * 3 == [event.number("partitions_count") for event in events]
    assert ("User:alice", "cli", "::1") == tuple(
        events[0].text(each) for each in ("by_user", "by_client", "by_host")
    )


def test_commits_of_members_and_of_simple_consumers_that_go_on_are_no_event() -> None:
    simulation = stable_group()
    for offset in (50, 10):
        commit(simulation, commit_request(simulation.client("a"), offset))
    alone = GroupSimulation()
    for offset in (1, 2, 2, 500):
        commit(alone, commit_request(SIMPLE, offset))
    assert [] == [*simulation.kept.of_kind(EventKind.OFFSETS_RESET), *alone.kept.events]

    commit(alone, commit_request(SIMPLE, 499))
    (event,) = alone.kept.events
    assert (EventKind.OFFSETS_RESET, [[0, 500, 499]]) == (event.kind, event.details["offsets"])


def test_commits_under_the_id_of_a_group_that_had_members_are_no_events() -> None:
    """A consumer that assigns itself partitions may use the id of such a group; the first step could be a
    tool's.
    """
    simulation = stable_group()
    commit(simulation, commit_request(simulation.client("a"), 50))
    simulation.leave("a")
    for offset in (60, 70, 80):
        commit(simulation, commit_request(SIMPLE, offset))
    assert [[[0, 50, 60]]] == resets(simulation)

    for offset in (10, 90, 95):
        commit(simulation, commit_request(SIMPLE, offset))
    assert [[[0, 80, 10]], [[0, 10, 90]]] == resets(simulation)[1:]


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_step_forward_is_a_reset_again_after_members_committed(is_transactional: bool) -> None:
    """A tool skips records, members go on, and the tool skips others."""
    simulation = stable_group()
    commit(simulation, commit_request(simulation.client("a"), 50))
    simulation.leave("a")
    commit(simulation, commit_request(SIMPLE, 60))
    if is_transactional:
        txn_commit(simulation, 65)
        end_transaction(simulation, committed=True)
    else:
        simulation.join("a", member_id="", generation_id=-1)
        simulation.advance(100)
        simulation.sync("a")
        commit(simulation, commit_request(simulation.client("a"), 65))
        simulation.leave("a")
    commit(simulation, commit_request(SIMPLE, 70))

    assert [[[0, 50, 60]], [[0, 65, 70]]] == resets(simulation)


def test_what_is_kept_of_steps_forward_goes_with_the_offsets() -> None:
    simulation = stable_group()
    commit(simulation, commit_request(simulation.client("a"), 50))
    simulation.leave("a")
    commit(simulation, commit_request(SIMPLE, 60))
    assert {GROUP: {("t", 0)}} == simulation.shard.offsets.advanced
    delete(simulation, "t", 0)
    assert {} == simulation.shard.offsets.advanced


@pytest.mark.parametrize("has_members", [False, True])
async def test_two_resets_in_a_minute_are_two_events_with_their_authors(has_members: bool) -> None:
    """Equal events are counted; these are not equal."""
    recorder = EventRecorder(1, ManualClock(), FaultyFileSystem(), InlineExecutor(), lambda: ["/a"], 1 << 20)
    recorder.open()
    simulation = GroupSimulation(recorder, group_initial_rebalance_delay_ms=0)
    if has_members:
        simulation.join("a", version=3)
        simulation.advance(100)
        simulation.sync("a")
        simulation.leave("a")
    commit(simulation, commit_request(SIMPLE, 50))
    bob = replace(ALICE, user="User:bob")
    simulation.coordinator.commit_offsets(commit_request(SIMPLE, 10), 9, lambda: ALICE)
    again = commit_request(SIMPLE, 90_000 if has_members else 5)
    simulation.coordinator.commit_offsets(again, 9, lambda: bob)

    events = (await recorder.read(EventQuery())).events
    authors = [event.text("by_user") for event in events if event.kind == EventKind.OFFSETS_RESET]
    assert ["User:alice", "User:bob"] == [each for each in authors if each]


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
def test_offsets_that_could_not_be_written_are_no_event(error: ErrorCode) -> None:
    simulation = GroupSimulation(offsets_retention_minutes=60, offsets_retention_check_interval_ms=60_000)
    commit(simulation, commit_request(SIMPLE, 50))
    simulation.log.append_error = error

    commit(simulation, commit_request(SIMPLE, 10))
    simulation.coordinator.delete_offsets(
        OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(
                    name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        )
    )
    simulation.coordinator.delete_groups([GROUP])
    simulation.coordinator.on_topics_deleted({"t"})
    simulation.advance(2 * HOUR_MS)

    assert [] == simulation.kept.events
    kept = simulation.shard.offsets.get(GROUP, "t", 0)
    assert 50 == (kept and kept.offset)


def test_a_reset_is_an_event_when_it_is_committed() -> None:
    simulation = GroupSimulation()
    commit(simulation, commit_request(SIMPLE, 50))
    simulation.log.lag = True
    pending = simulation.coordinator.commit_offsets(commit_request(SIMPLE, 10), 9, lambda: ALICE)
    assert (False, []) == (pending.is_done, simulation.kept.events)
    simulation.replicate()
    assert (True, [[[0, 50, 10]]]) == (pending.is_done, resets(simulation))


def test_a_refused_offset_is_no_reset_and_an_event_has_few_of_many_offsets() -> None:
    simulation = GroupSimulation(offset_metadata_max_bytes=4)
    request = commit_request(SIMPLE, 9)
    template = request.topics[0].partitions[0]
    request.topics[0].partitions = [
        type(template)(partition_index=index, committed_offset=9, committed_metadata="")
        for index in range(20)
    ]
    commit(simulation, request)
    for each in request.topics[0].partitions:
        each.committed_offset = 3
    request.topics[0].partitions[0].committed_metadata = "too long"
    commit(simulation, request)
    (event,) = simulation.kept.of_kind(EventKind.OFFSETS_RESET)
    assert [[index, 9, 3] for index in range(1, 9)] == event.details["offsets"]
    assert 19 == event.number("partitions_count")


def test_a_group_with_very_many_offsets_is_deleted_in_parts() -> None:
    simulation = GroupSimulation()
    request = commit_request(SIMPLE, 1)
    template = request.topics[0].partitions[0]
    request.topics[0].partitions = [
        type(template)(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(TOMBSTONES_MAX * 2 + 1)
    ]
    assert commit(simulation, request) is ErrorCode.NONE
    batches = len(simulation.log.batches[0])
    assert {GROUP: ErrorCode.NONE} == simulation.coordinator.delete_groups([GROUP]).value
    assert 3 == len(simulation.log.batches[0]) - batches
    assert 0 == simulation.shard.offsets.count


def test_offsets_go_with_their_topic() -> None:
    simulation = GroupSimulation()
    commit(simulation, commit_request(SIMPLE, 1))
    commit(simulation, commit_request(SIMPLE, 2, "other"))
    txn_commit(simulation, 5, partition=3)
    simulation.coordinator.on_topics_deleted({"t"})
    end_transaction(simulation, committed=True)
    for _ in range(2):
        assert {("other", 0): 2} == offsets(simulation)
        simulation.fail_over()


# Expiring.


def expiring(**settings: int) -> GroupSimulation:
    return GroupSimulation(
        offsets_retention_minutes=60, offsets_retention_check_interval_ms=60_000, **settings
    )


def test_offsets_of_a_simple_group_expire_after_their_commit() -> None:
    simulation = expiring()
    commit(simulation, commit_request(SIMPLE, 1))
    simulation.advance(HOUR_MS // 2)
    commit(simulation, commit_request(SIMPLE, 2, partition=1))
    simulation.advance(HOUR_MS // 2 + 120_000)
    assert {("t", 1): 2} == offsets(simulation)
    simulation.advance(HOUR_MS)
    assert {} == offsets(simulation)
    assert simulation.group is None
    assert 2 == simulation.statistics.offset_expirations
    events = simulation.kept.of_kind(EventKind.OFFSETS_DELETED)
    assert [{"group": GROUP, "topic": "t"}] * 2 == [event.subject for event in events]
    assert "nothing used them for offsets.retention.minutes=60" == events[0].text("reason")


def test_a_retention_without_end_is_no_overflow() -> None:
    simulation = GroupSimulation()
    request = commit_request(SIMPLE, 1)
    request.retention_time_ms = 2**63 - 1
    assert commit(simulation, request, 4) is ErrorCode.NONE
    assert {("t", 0): 1} == offsets(simulation)
    simulation.advance(simulation.coordinator.config.offsets_retention_ms * 2)
    assert {("t", 0): 1} == offsets(simulation)


def test_a_topic_that_is_asked_for_twice_is_answered_twice() -> None:
    simulation = GroupSimulation()
    commit(simulation, commit_request(SIMPLE, 1))
    pending = simulation.coordinator.fetch_offsets(GROUP, [("t", [0, 1]), ("u", [0]), ("t", [0])])
    assert [("t", [1, None]), ("u", [None]), ("t", [1])] == [
        (topic, [None if committed is None else committed.offset for _, committed, _ in partitions])
        for topic, partitions in pending.value.topics
    ]


def test_a_retention_of_the_commits_own_is_kept() -> None:
    """Consumers of before Kafka 2.1 say how long; the record has a place for it in one version only."""
    simulation = expiring()
    request = commit_request(SIMPLE, 1)
    request.retention_time_ms = 3 * HOUR_MS
    commit(simulation, request, 4)
    simulation.fail_over()
    simulation.advance(2 * HOUR_MS)
    assert {("t", 0): 1} == offsets(simulation)
    simulation.advance(HOUR_MS + 120_000)
    assert {} == offsets(simulation)


def test_offsets_stay_while_members_subscribe() -> None:
    simulation = expiring(group_initial_rebalance_delay_ms=0)
    simulation.join("a", version=3, session_timeout_ms=1_000_000)
    simulation.advance(100)
    simulation.sync("a")
    member = simulation.client("a")
    commit(simulation, commit_request(member, 1))
    commit(simulation, commit_request(member, 2, "other"))
    for _ in range(5):
        simulation.advance(HOUR_MS // 4)
        simulation.heartbeat("a")
    # KIP-211: what nobody subscribes to any more expires under a live group.
    assert {("t", 0): 1} == offsets(simulation)
    simulation.leave("a")
    simulation.advance(HOUR_MS // 2)
    assert {("t", 0): 1} == offsets(simulation)
    simulation.advance(HOUR_MS // 2 + 120_000)
    assert {} == offsets(simulation)
    assert simulation.group is None


def test_an_offset_in_a_transaction_does_not_expire() -> None:
    simulation = expiring()
    commit(simulation, commit_request(SIMPLE, 1))
    txn_commit(simulation, 5)
    simulation.advance(2 * HOUR_MS)
    assert {("t", 0): 1} == offsets(simulation)
    end_transaction(simulation, committed=True)
    simulation.advance(2 * HOUR_MS)
    assert {} == offsets(simulation)


def test_a_group_that_never_came_to_be_is_not_kept() -> None:
    simulation = expiring()
    simulation.join("a")
    simulation.advance(HOUR_MS)
    assert simulation.group is None
    assert 0 not in simulation.log.batches


def test_very_many_expired_offsets_go_in_parts() -> None:
    simulation = expiring()
    request = commit_request(SIMPLE, 1)
    template = request.topics[0].partitions[0]
    request.topics[0].partitions = [
        type(template)(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(TOMBSTONES_MAX * 2)
    ]
    commit(simulation, request)
    simulation.advance(HOUR_MS + 61_000)
    assert 0 == simulation.shard.offsets.count


def test_housekeeping_looks_at_many_groups_in_slices() -> None:
    """A coordinator of very many groups serves requests in between."""
    simulation = expiring()
    for number in range(SLICE_MAX + 50):
        request = commit_request(SIMPLE, 1)
        request.group_id = f"group-{number}"
        commit(simulation, request)
    simulation.advance(HOUR_MS)
    batches = len(simulation.log.batches[0])
    simulation.advance(70_000)
    assert [] == simulation.coordinator.groups()
    assert len(simulation.log.batches[0]) - batches >= 2
