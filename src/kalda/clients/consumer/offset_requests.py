"""Builds OffsetCommit and OffsetFetch requests and reads their responses. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kalda.clients.error_hints import explained
from kalda.clients.errors import (
    BrokerResponseError,
    ClientError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kalda.clients.values import OffsetAndMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID, TopicPartition, by_topic
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopics,
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT}
)
"""After one of these, the coordinator has to be looked up again."""
MEMBERSHIP_ERRORS: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Errors of a commit that say something about the member."""
_RETRIED: Final = COORDINATOR_MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_NO_EPOCH: Final = -1
_FROM_MANY_GROUPS: Final = 8
_FROM_REQUIRE_STABLE: Final = 7
_LAST_WITH_NAMES: Final = 9


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """The member in whose name offsets are committed; by default none."""

    generation_id: int = -1
    """The generation, or the member epoch of the consumer protocol."""
    member_id: str = ""
    group_instance_id: str | None = None


class PermanentCommitError(BrokerResponseError):
    """A broker refused a commit with a code that is not retried although it counts as retriable elsewhere."""

    @property
    def is_retriable(self) -> bool:
        """Always false."""
        return False


class UnknownPartitionsError(UnknownTopicOrPartitionError):
    """The coordinator does not know some partitions of a commit; it has committed all others.

    It may not have heard of a new topic yet, so Java retries. A topic that was deleted does not come back.
    """

    def __init__(self, what: str, partitions: Collection[TopicPartition]) -> None:
        super().__init__(what, explained(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self.partitions: Final = partitions
        self.is_final = False
        """Whether the same commit is not worth another attempt."""

    @property
    def is_retriable(self) -> bool:
        """Whether the coordinator may know the partitions later."""
        return not self.is_final


TopicIds = Mapping[str, UUID]
"""The ids of topics by name; zero for those that are not known."""


def version_max(partitions: Collection[TopicPartition], ids: TopicIds) -> int | None:
    """Return the highest version of both requests: the last with names where a topic has no id, else None."""
    return _LAST_WITH_NAMES if any(ids[each.topic] == ZERO_UUID for each in partitions) else None


def commit_request(
    group_id: str, offsets: Offsets, identity: CommitIdentity, ids: TopicIds
) -> OffsetCommitRequest:
    """Build a request that commits the offsets."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids[topic],
                partitions=[_committed(each.partition, offsets[each]) for each in partitions],
            )
            for topic, partitions in by_topic(offsets).items()
        ],
    )


def read_commit_response(
    group_id: str,
    response: OffsetCommitResponse,
    on_membership_error: Callable[[ErrorCode], ClientError],
    coordinator: Callable[[], str],
    ids: TopicIds,
) -> None:
    """Check that all offsets were committed.

    `ids` are those of the request. `on_membership_error` processes a code of `MEMBERSHIP_ERRORS` and returns
    what to raise; `coordinator` names the broker for messages.

    Raises:
        UnknownPartitionsError: the coordinator does not know some partitions, and has committed the others.
        ClientError: an offset was not committed; retriable codes are those that Java retries.
    """
    unauthorized = set()
    unknown = []
    names_by_id = _names(ids)
    for topic in response.topics:
        name = topic.name or names_by_id.get(topic.topic_id, "")
        for each in topic.partitions:
            code = ErrorCode.of(each.error_code)
            if code is ErrorCode.NONE:
                continue
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                unauthorized.add(name)
                continue
            if code in MEMBERSHIP_ERRORS:
                raise on_membership_error(code)
            partition = TopicPartition(name, each.partition_index)
            if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                unknown.append(partition)
                continue
            what = f"the commit of group {group_id} for {partition} at {coordinator()}"
            if code.retriable and code not in _RETRIED:
                raise PermanentCommitError(code, what)
            raise error_for(code, what)
    if unauthorized:
        names = ", ".join(sorted(unauthorized))
        what = f"the commit of group {group_id} for {names} at {coordinator()}"
        raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, what)
    if unknown:
        names = ", ".join(map(str, unknown))
        what = f"the commit of group {group_id} for {names} at {coordinator()}"
        raise UnknownPartitionsError(what, unknown)


def fetch_request(
    group_id: str,
    partitions: Collection[TopicPartition],
    identity: CommitIdentity,
    version: int,
    ids: TopicIds,
) -> OffsetFetchRequest:
    """Build a request for committed offsets, without those of transactions under way (KIP-447)."""
    grouped = {topic: [each.partition for each in found] for topic, found in by_topic(partitions).items()}
    if version < _FROM_MANY_GROUPS:
        return OffsetFetchRequest(
            group_id=group_id,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in grouped.items()
            ],
            require_stable=version >= _FROM_REQUIRE_STABLE,
        )
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=identity.member_id or None,
        member_epoch=identity.generation_id if identity.member_id else -1,
        topics=[
            OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=numbers)
            for name, numbers in grouped.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=True)


def read_fetch_response(
    group_id: str, response: OffsetFetchResponse, coordinator: Callable[[], str], ids: TopicIds
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Return the committed offsets; None for a partition without one. `ids` are those of the request.

    Raises:
        ClientError: the group or a partition has an error.
    """
    group = next((each for each in response.groups if each.group_id == group_id), None)
    topics = response.topics if group is None else group.topics
    code = ErrorCode.of(response.error_code if group is None else group.error_code)
    what = f"the committed offsets of group {group_id}"
    if code is not ErrorCode.NONE:
        raise error_for(code, f"{what} at {coordinator()}")
    committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
    unstable: list[TopicPartition] = []
    names_by_id = _names(ids)
    for topic in topics:
        topic_id = topic.topic_id if isinstance(topic, OffsetFetchResponseTopics) else ZERO_UUID
        name = topic.name or names_by_id.get(topic_id, "")
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition_index)
            code = ErrorCode.of(each.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_ID:
                # Newer metadata has the id of the topic that has the name now.
                raise error_for(code, f"{what} for {partition} at {coordinator()}")
            if code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                unstable.append(partition)
            elif code is not ErrorCode.NONE:
                raise PermanentCommitError(code, f"{what} for {partition} at {coordinator()}")
            elif each.committed_offset < 0:
                committed[partition] = None
            else:
                epoch = each.committed_leader_epoch
                committed[partition] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", None if epoch < 0 else epoch
                )
    if unstable:
        names = ", ".join(map(str, unstable))
        what = f"{what} for {names} at {coordinator()} (a transaction is under way)"
        raise error_for(ErrorCode.UNSTABLE_OFFSET_COMMIT, what)
    return committed


def _names(ids: TopicIds) -> dict[UUID, str]:
    return {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}


def _committed(partition: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    epoch = offset.leader_epoch
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=_NO_EPOCH if epoch is None else epoch,
        committed_metadata=offset.metadata,
    )
