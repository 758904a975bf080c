from uuid import UUID

import pytest

from kalda.clients.consumer.group.errors import CommitFailedError
from kalda.clients.consumer.offset_requests import (
    CommitIdentity,
    UnknownPartitionsError,
    commit_request,
    fetch_request,
    read_commit_response,
    read_fetch_response,
    version_max,
)
from kalda.clients.errors import ClientError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.protocol import codec
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

MEMBER = CommitIdentity(5, "m1", "i1")


def answer(*codes: ErrorCode) -> OffsetCommitResponse:
    partitions = [
        OffsetCommitResponsePartition(partition_index=number, error_code=code)
        for number, code in enumerate(codes)
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])


NO_IDS = {"t": ZERO_UUID, "u": ZERO_UUID}
IDS = {"t": UUID(int=1), "u": UUID(int=2)}


def unexpected(code: ErrorCode) -> ClientError:
    raise AssertionError(code)


def test_a_commit_names_member_epochs_and_metadata() -> None:
    """Leader epochs let the next owner detect a truncated log (KIP-320)."""
    offsets = {
        TopicPartition("t", 1): OffsetAndMetadata(7, "note", 3),
        TopicPartition("u", 0): OffsetAndMetadata(0),
        TopicPartition("t", 2): OffsetAndMetadata(9),
    }
    request = codec.decode(
        OffsetCommitRequest, 9, codec.encode(commit_request("g", offsets, MEMBER, NO_IDS), 9)
    )

    assert ("g", 5, "m1", "i1") == (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
    )
    committed = [
        (
            topic.name,
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata,
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    assert [("t", 1, 7, 3, "note"), ("t", 2, 9, -1, ""), ("u", 0, 0, -1, "")] == committed


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_without_a_member_fits_every_version(version: int) -> None:
    """Brokers from 2.1 on are supported; what a version cannot carry is left out."""
    offsets = {TopicPartition("t", 1): OffsetAndMetadata(7, "note", 3)}
    codec.encode(commit_request("g", offsets, CommitIdentity(), NO_IDS), version)


@pytest.mark.parametrize(
    ("code", "is_retriable"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, False),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
    ],
)
def test_a_refused_commit_is_retried_for_javas_codes(code: ErrorCode, is_retriable: bool) -> None:
    """A commit that can never succeed must not be repeated until the time is up."""
    with pytest.raises(ClientError, match="t-1") as caught:
        read_commit_response("g", answer(ErrorCode.NONE, code), unexpected, coordinator, NO_IDS)
    assert (code, is_retriable) == (caught.value.code, caught.value.is_retriable)


def test_partitions_that_are_unknown_are_named_together_behind_every_other_error() -> None:
    """Whoever leaves them out knows that all other offsets are committed."""
    codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    with pytest.raises(UnknownPartitionsError, match="for t-0, t-2 at") as caught:
        read_commit_response("g", answer(*codes), unexpected, coordinator, NO_IDS)
    assert [TopicPartition("t", 0), TopicPartition("t", 2)] == caught.value.partitions
    with pytest.raises(ClientError, match="for t-1 at") as other:
        read_commit_response(
            "g", answer(codes[0], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), unexpected, coordinator, NO_IDS
        )
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS is other.value.code


def test_unauthorized_topics_are_named_together() -> None:
    """The user can fix all of them at once."""
    with pytest.raises(ClientError, match=r"for t at broker 1 \(h:9092\): TOPIC_AUTHORIZATION_FAILED"):
        read_commit_response(
            "g", answer(*[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2), unexpected, coordinator, NO_IDS
        )


def test_errors_of_the_membership_are_for_the_member_to_judge() -> None:
    """Only the member knows whether its generation has changed since the commit was sent."""
    seen = []

    def refused(code: ErrorCode) -> ClientError:
        seen.append(code)
        return CommitFailedError("gone")

    with pytest.raises(CommitFailedError):
        read_commit_response("g", answer(ErrorCode.UNKNOWN_MEMBER_ID), refused, coordinator, NO_IDS)
    assert [ErrorCode.UNKNOWN_MEMBER_ID] == seen


@pytest.mark.parametrize("version", range(1, 10))
def test_committed_offsets_are_asked_for_in_every_version(version: int) -> None:
    """From version 8 the request names groups, and from 7 it asks for stable offsets only (KIP-447)."""
    partitions = [TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 2)]
    encoded = codec.encode(fetch_request("g", partitions, MEMBER, version, NO_IDS), version)
    request = codec.decode(OffsetFetchRequest, version, encoded)
    topics = request.topics if version < 8 else request.groups[0].topics
    assert topics is not None
    assert [("t", [1, 2]), ("u", [0])] == [(each.name, each.partition_indexes) for each in topics]
    assert (version >= 7) == request.require_stable
    if version == 9:
        assert ("m1", 5) == (request.groups[0].member_id, request.groups[0].member_epoch)


@pytest.mark.parametrize("batched", [False, True])
def test_committed_offsets_are_read(batched: bool) -> None:
    """An offset of -1 means that nothing was committed."""
    values = [(0, 7, 2, "note", ErrorCode.NONE), (1, -1, -1, "", ErrorCode.NONE)]
    expected = {TopicPartition("t", 0): OffsetAndMetadata(7, "note", 2), TopicPartition("t", 1): None}
    assert expected == read_fetch_response("g", fetched(values, batched), coordinator, NO_IDS)


def test_unstable_offsets_are_retried() -> None:
    """A transaction with these offsets is under way; its end decides what is committed."""
    with pytest.raises(ClientError, match="t-0") as caught:
        read_fetch_response(
            "g", fetched([(0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)], True), coordinator, NO_IDS
        )
    assert caught.value.is_retriable


def test_an_unknown_topic_has_no_committed_offset_to_wait_for() -> None:
    """Java does not retry it either."""
    with pytest.raises(ClientError, match="t-0") as caught:
        read_fetch_response(
            "g", fetched([(0, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], True), coordinator, NO_IDS
        )
    assert not caught.value.is_retriable


def test_an_error_of_the_group_is_raised() -> None:
    """The coordinator may have moved."""
    response = OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=ErrorCode.NOT_COORDINATOR)]
    )
    with pytest.raises(ClientError) as caught:
        read_fetch_response("g", response, coordinator, NO_IDS)
    assert ErrorCode.NOT_COORDINATOR is caught.value.code


def fetched(values: list[tuple[int, int, int, str, ErrorCode]], batched: bool) -> OffsetFetchResponse:
    if not batched:
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata=metadata,
                error_code=code,
            )
            for number, offset, epoch, metadata, code in values
        ]
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)])
    many = [
        OffsetFetchResponsePartitions(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=epoch,
            metadata=metadata,
            error_code=code,
        )
        for number, offset, epoch, metadata, code in values
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=many)]
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=ErrorCode.NONE)]
    )


def coordinator() -> str:
    """Name the broker that answers."""
    return "broker 1 (h:9092)"


def test_topics_go_by_their_ids_where_all_are_known() -> None:
    """A topic that was created again has no offsets of the deleted one."""
    offsets = {TopicPartition("t", 1): OffsetAndMetadata(7), TopicPartition("u", 0): OffsetAndMetadata(8)}
    assert version_max(offsets, IDS) is None
    assert 9 == version_max(offsets, {**IDS, "u": ZERO_UUID})
    request = codec.decode(
        OffsetCommitRequest, 10, codec.encode(commit_request("g", offsets, MEMBER, IDS), 10)
    )
    assert [("", IDS["t"]), ("", IDS["u"])] == [(each.name, each.topic_id) for each in request.topics]
    asked = codec.decode(
        OffsetFetchRequest, 10, codec.encode(fetch_request("g", list(offsets), MEMBER, 10, IDS), 10)
    )
    assert asked.groups[0].topics is not None
    assert [IDS["t"], IDS["u"]] == [each.topic_id for each in asked.groups[0].topics]


def test_a_commit_for_a_topic_id_that_is_gone_names_the_topic() -> None:
    refused = OffsetCommitResponsePartition(partition_index=1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    response = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(topic_id=IDS["t"], partitions=[refused])]
    )
    with pytest.raises(UnknownPartitionsError, match="for t-1 at") as caught:
        read_commit_response("g", response, unexpected, coordinator, IDS)
    assert [TopicPartition("t", 1)] == caught.value.partitions


def test_offsets_of_topic_ids_are_read() -> None:
    """An id that is gone is asked for again by newer metadata."""
    partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="")
    topics = [OffsetFetchResponseTopics(topic_id=IDS["u"], partitions=[partition])]
    response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])
    expected = {TopicPartition("u", 0): OffsetAndMetadata(7)}
    assert expected == read_fetch_response("g", response, coordinator, IDS)
    partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
    with pytest.raises(ClientError, match="u-0") as caught:
        read_fetch_response("g", response, coordinator, IDS)
    assert caught.value.is_retriable
