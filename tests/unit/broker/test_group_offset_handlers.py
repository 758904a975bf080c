"""OffsetCommit, TxnOffsetCommit and OffsetDelete: what does not exist is refused, the rest goes its way."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from kalda.broker.requests.handlers import offset_commit, offset_delete, offset_fetch, txn_offset_commit
from kalda.broker.requests.large_requests import LargeRequest, LargeRequests
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.offset_operations import FetchedOffsets
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kalda.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.unit.broker.data_path_fakes import DataPath, leadership

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
WANTED = (("orders", (0, 1, -1)), ("nowhere", (0,)))
"""Of these only the first partition of the first topic exists."""


class FakeGroupCoordinator:
    """Does what it is asked to, or fails as told, and takes note of it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self.fetch_error = ErrorCode.NONE
        self.fetched: list[int] = []
        """How many partitions each fetch was for."""

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int, author: object
    ) -> Pending[OffsetCommitResponse]:
        del version, author
        return self._answer(request, offset_commit.error_response(request, NONE))

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> Pending[TxnOffsetCommitResponse]:
        del version
        return self._answer(request, txn_offset_commit.error_response(request, NONE))

    def fetch_offsets(self, group_id: str, topics: Any, **_: object) -> Pending[FetchedOffsets]:
        wanted = [("orders", [0]), ("nowhere", [0])] if topics is None else topics
        self.fetched.append(sum(len(indexes) for _, indexes in wanted))
        if self.fetch_error is not ErrorCode.NONE:
            return Pending.of(FetchedOffsets(group_id, error=self.fetch_error))
        answer: Pending[FetchedOffsets] = Pending()
        found = [(name, [(each, None, NONE) for each in indexes]) for name, indexes in wanted]
        answer.complete(FetchedOffsets(group_id, found))
        return answer

    def delete_offsets(self, request: OffsetDeleteRequest, author: object) -> Pending[OffsetDeleteResponse]:
        answered = OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=NONE)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
        return self._answer(request, answered)

    def _answer(self, request: Any, response: Any) -> Pending[Any]:
        self.seen += [
            (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
        ]
        answer: Pending[Any] = Pending()
        if self.error is not None:
            answer.fail(self.error)
        else:
            answer.complete(response)
        return answer


class FakeGate:
    """Knows whether the transaction is open."""

    def __init__(self) -> None:
        self.code = NONE
        self.asked = 0

    def verify(self, *_: object, adds: bool) -> Pending[ErrorCode]:
        del adds
        self.asked += 1
        verified: Pending[ErrorCode] = Pending()
        verified.complete(self.code)
        return verified


class FakeInternalTopics:
    """Knows the partition of each group's offsets by the group's id."""

    def offsets_partition(self, group_id: str) -> str:
        return group_id


class OffsetsHarness:
    """A broker that knows one topic of one partition, and a group coordinator beside it."""

    def __init__(self, directory: Path) -> None:
        self.broker = DataPath(directory)
        self.broker.host(leadership())
        self.groups = FakeGroupCoordinator()
        self.gate = FakeGate()
        groups, gate = cast("Any", self.groups), cast("Any", self.gate)
        internal_topics = cast("Any", FakeInternalTopics())
        # Only version 0 uses ZooKeeper.
        zookeeper: Any = None
        cache = self.broker.cache
        self.offset_commit = partial(offset_commit.handle, cache, groups, zookeeper)
        self.offset_fetch = partial(offset_fetch.handle, cache, zookeeper, groups)
        self.offset_delete = partial(offset_delete.handle, cache, groups)
        self.txn_offset_commit = partial(txn_offset_commit.handle, cache, groups, gate, internal_topics)

    def commit(self, wanted: Any = WANTED) -> dict[tuple[str, int], ErrorCode]:
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=each, committed_offset=1)
                    for each in partitions
                ],
            )
            for name, partitions in wanted
        ]
        request = OffsetCommitRequest(group_id="g", topics=topics)
        return codes(self.offset_commit(request, self.broker.context(8)))

    def commit_by_id(self, wanted: dict[UUID, list[int]]) -> dict[UUID, list[int]]:
        """Commit with version 10; return the codes of each topic id."""
        topics = [
            OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in indexes
                ],
            )
            for topic_id, indexes in wanted.items()
        ]
        request = OffsetCommitRequest(group_id="g", topics=topics)
        answer: Any = self.offset_commit(request, self.broker.context(10))
        response = answer.value if isinstance(answer, Pending) else answer
        return {topic.topic_id: [each.error_code for each in topic.partitions] for topic in response.topics}

    def commit_in_transaction(
        self, wanted: Any = WANTED, version: int = 5
    ) -> dict[tuple[str, int], ErrorCode]:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=each, committed_offset=1, committed_metadata=None
                    )
                    for each in partitions
                ],
            )
            for name, partitions in wanted
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="t", group_id="g", producer_id=1, producer_epoch=0, topics=topics
        )
        return codes(self.txn_offset_commit(request, self.broker.context(version)))

    def delete(self, wanted: Any = WANTED) -> dict[tuple[str, int], ErrorCode]:
        topics = [
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in partitions],
            )
            for name, partitions in wanted
        ]
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        return codes(self.offset_delete(request, self.broker.context(0)))


def codes(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    response = answer.value if isinstance(answer, Pending) else answer
    found = [
        ((topic.name, each.partition_index), ErrorCode(each.error_code))
        for topic in response.topics
        for each in topic.partitions
    ]
    assert len({topic.name for topic in response.topics}) == len(response.topics), "a topic comes twice"
    assert len(dict(found)) == len(found), "a partition comes twice"
    return dict(found)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[OffsetsHarness]:
    made = OffsetsHarness(tmp_path)
    yield made
    made.broker.close()


REFUSED = {("orders", 1): UNKNOWN, ("orders", -1): UNKNOWN, ("nowhere", 0): UNKNOWN}


@pytest.mark.parametrize("what", ["commit", "commit_in_transaction", "delete"])
def test_partitions_that_do_not_exist_are_refused_one_by_one(harness: OffsetsHarness, what: str) -> None:
    assert {("orders", 0): NONE} | REFUSED == getattr(harness, what)()
    assert [("orders", 0)] == harness.groups.seen


@pytest.mark.parametrize("what", ["commit", "commit_in_transaction"])
def test_nobody_is_asked_about_nothing(harness: OffsetsHarness, what: str) -> None:
    """A transaction does not get a group by a request that commits nothing."""
    assert {("nowhere", 0): UNKNOWN} == getattr(harness, what)((("nowhere", (0,)),))
    assert [] == harness.groups.seen
    assert 0 == harness.gate.asked


@pytest.mark.parametrize("what", ["commit", "commit_in_transaction"])
def test_what_the_coordinator_says_is_for_what_it_was_asked(harness: OffsetsHarness, what: str) -> None:
    harness.groups.error = ApiError(ErrorCode.NOT_COORDINATOR)
    assert {("orders", 0): ErrorCode.NOT_COORDINATOR} | REFUSED == getattr(harness, what)()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # The group is coordinated elsewhere; a producer that heard of loading would never ask there.
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        # The transaction is coordinated elsewhere, as this broker will know in a moment.
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_producer_is_told_whose_coordinator_is_elsewhere(
    harness: OffsetsHarness, code: ErrorCode, expected: ErrorCode
) -> None:
    harness.gate.code = code
    assert {("orders", 0): expected} == harness.commit_in_transaction((("orders", (0,)),), 3)
    assert [] == harness.groups.seen


@pytest.mark.parametrize(
    ("version", "expected"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
@pytest.mark.parametrize("who", ["the group's", "the transaction's"])
def test_old_producers_do_not_hear_that_a_coordinator_loads(
    harness: OffsetsHarness, version: int, expected: ErrorCode, who: str
) -> None:
    """They take COORDINATOR_LOAD_IN_PROGRESS for final and may crash (KAFKA-7296)."""
    if who == "the group's":
        harness.groups.error = ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    else:
        harness.gate.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert {("orders", 0): expected} == harness.commit_in_transaction((("orders", (0,)),), version)


def test_a_commit_by_topic_id_is_for_that_topic_only(harness: OffsetsHarness) -> None:
    """Another topic may have the name of the deleted one."""
    known = harness.broker.cache.topic_id("orders")
    gone = UUID(int=99)
    expected = {known: [NONE, UNKNOWN], gone: [ErrorCode.UNKNOWN_TOPIC_ID]}
    assert expected == harness.commit_by_id({known: [0, 1], gone: [0]})
    assert [("orders", 0)] == harness.groups.seen
    assert {gone: [ErrorCode.UNKNOWN_TOPIC_ID]} == harness.commit_by_id({gone: [0]})
    harness.groups.error = ApiError(ErrorCode.NOT_COORDINATOR)
    assert {known: [ErrorCode.NOT_COORDINATOR]} == harness.commit_by_id({known: [0]})


def test_a_commit_in_a_transaction_is_by_topic_id_as_well(harness: OffsetsHarness) -> None:
    """KIP-1319."""
    known = harness.broker.cache.topic_id("orders")
    gone = UUID(int=99)

    def commit(wanted: dict[UUID, list[int]]) -> dict[UUID, list[int]]:
        topics = [
            TxnOffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=1)
                    for each in partitions
                ],
            )
            for topic_id, partitions in wanted.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="t", group_id="g", producer_id=9, producer_epoch=0, topics=topics
        )
        answer = harness.txn_offset_commit(request, harness.broker.context(6))
        response: Any = answer.value if isinstance(answer, Pending) else answer
        return {topic.topic_id: [each.error_code for each in topic.partitions] for topic in response.topics}

    expected = {known: [NONE, UNKNOWN], gone: [ErrorCode.UNKNOWN_TOPIC_ID]}
    assert expected == commit({known: [0, 1], gone: [0]})
    assert [("orders", 0)] == harness.groups.seen
    assert {gone: [ErrorCode.UNKNOWN_TOPIC_ID]} == commit({gone: [0]})
    harness.groups.error = ApiError(ErrorCode.NOT_COORDINATOR)
    assert {known: [ErrorCode.NOT_COORDINATOR]} == commit({known: [0]})


def test_offsets_are_fetched_by_topic_id(harness: OffsetsHarness) -> None:
    """Of all topics, those without an id are left out: the response has no other name for them."""
    known, gone = harness.broker.cache.topic_id("orders"), UUID(int=99)

    def fetched(topics: list[OffsetFetchRequestTopics] | None) -> list[tuple[UUID, int, int]]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        answer: Any = harness.offset_fetch(request, harness.broker.context(10))
        (group,) = answer.value.groups
        return [
            (topic.topic_id, each.partition_index, each.error_code)
            for topic in group.topics
            for each in topic.partitions
        ]

    asked = [
        OffsetFetchRequestTopics(topic_id=known, partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=gone, partition_indexes=[3]),
    ]
    assert [(known, 0, NONE), (gone, 3, ErrorCode.UNKNOWN_TOPIC_ID)] == fetched(asked)
    assert [(known, 0, NONE)] == fetched(None)


@pytest.mark.parametrize("version", [1, 7, 8, 10])
@pytest.mark.parametrize(("topics", "partitions"), [(1, 1_000), (300, 1), (5, 200)])
async def test_a_large_request_of_offsets_is_answered_in_parts(
    harness: OffsetsHarness, version: int, topics: int, partitions: int
) -> None:
    """A client may ask for 60,000 partitions, which would hold the event loop for 45 ms."""
    by_id = version >= 10
    gone = UUID(int=99)
    ids = [harness.broker.cache.topic_id("orders"), *(UUID(int=100 + each) for each in range(1, topics))]
    indexes = list(range(partitions))
    if version < 8:
        single = [
            OffsetFetchRequestTopic(name=f"t{each}", partition_indexes=indexes) for each in range(topics)
        ]
        request = OffsetFetchRequest(group_id="g", topics=single)
    else:
        many = [
            OffsetFetchRequestTopics(
                name="" if by_id else f"t{each}", topic_id=ids[each], partition_indexes=indexes
            )
            for each in range(topics)
        ]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=many)])
    context = harness.broker.context(version)
    context.large = LargeRequests().add(b"", LargeRequest.end, lambda: None)
    answer: Any = harness.offset_fetch(request, context)
    response = await answer
    found = response.topics if version < 8 else response.groups[0].topics
    assert gone not in ids
    assert topics == len(found)
    assert [indexes] * topics == [[each.partition_index for each in topic.partitions] for topic in found]
    unknown = {ErrorCode.UNKNOWN_TOPIC_ID} if by_id and topics > 1 else set()
    assert {NONE} | unknown == {each.error_code for topic in found for each in topic.partitions}
    assert max(harness.groups.fetched) <= 2 * 128
    known = 1 if by_id else topics
    assert known * partitions == sum(harness.groups.fetched)


async def test_the_error_of_a_group_ends_the_large_request_for_it(harness: OffsetsHarness) -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(1_000)))]
    harness.groups.fetch_error = ErrorCode.NOT_COORDINATOR
    context = harness.broker.context(8)
    context.large = LargeRequests().add(b"", LargeRequest.end, lambda: None)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in "ab"]
    answer: Any = harness.offset_fetch(OffsetFetchRequest(groups=groups), context)
    response = await answer
    assert [("a", ErrorCode.NOT_COORDINATOR, []), ("b", ErrorCode.NOT_COORDINATOR, [])] == [
        (group.group_id, group.error_code, group.topics) for group in response.groups
    ]
    assert 2 == len(harness.groups.fetched)
