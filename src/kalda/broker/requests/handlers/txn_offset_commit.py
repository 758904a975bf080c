"""TxnOffsetCommit (key 28), versions 0-6: commits a group's offsets as part of a transaction (KIP-98).

The group coordinator appends the offsets; they take effect with the transaction's marker. Before the first
offsets of a transaction the transaction coordinator verifies that the transaction is open (KIP-890). v3 adds
the member's id, instance id and generation, which fence members that left the group (KIP-447). For a
transaction that is not open, versions below 4 get INVALID_TXN_STATE, later ones TRANSACTION_ABORTABLE. From
v5 this request adds the group's partition to the transaction (transactions V2). v6 names topics by id: a
commit for a topic that was deleted since is refused, also where another one has its name (KIP-1319).
"""

from functools import partial
from typing import Final

from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.requests.checks import transactions as transaction_checks
from kalda.broker.requests.checks.check import in_turn
from kalda.broker.requests.requested_partitions import (
    merge_topics,
    take_unknown,
    take_unnamed,
    topic_errors,
    with_ids,
)
from kalda.broker.transactions.produce_gate import ProduceGate
from kalda.broker.transactions.verification import PASSING
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, first_turn, result_of
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kalda.security.acl.model import AclOperation

LOADING_FROM: Final = 2
"""Producers older than Kafka 2.3 may crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
ABORTABLE_FROM: Final = 4
ADDS_FROM: Final = 5
_TOPIC_IDS_FROM: Final = 6


Answer = TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]


def handle(
    cache: MetadataCache,
    coordinator: GroupCoordinator,
    produce_gate: ProduceGate,
    internal_topics: InternalTopics,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> Answer | Steps[Answer]:
    """Commit once the transaction is verified. Each unknown partition gets an error of its own."""
    commit = _commit if context.api_version < _TOPIC_IDS_FROM else _commit_by_id
    return first_turn(commit(cache, coordinator, produce_gate, internal_topics, request, context.api_version))


def _commit_by_id(
    cache: MetadataCache,
    coordinator: GroupCoordinator,
    produce_gate: ProduceGate,
    internal_topics: InternalTopics,
    request: TxnOffsetCommitRequest,
    version: int,
) -> Steps[Answer]:
    unnamed = yield from take_unnamed(cache, request.topics)
    unknown = yield from _errors(unnamed, ErrorCode.UNKNOWN_TOPIC_ID)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=unknown)
    identified = with_ids(request.topics, unknown)
    answer = yield from _commit(cache, coordinator, produce_gate, internal_topics, request, version)
    if isinstance(answer, Pending):
        return answer.then(lambda done: identified(done.value))
    return identified(answer)


def _commit(
    cache: MetadataCache,
    coordinator: GroupCoordinator,
    produce_gate: ProduceGate,
    internal_topics: InternalTopics,
    request: TxnOffsetCommitRequest,
    version: int,
) -> Steps[Answer]:
    unknown = yield from take_unknown(cache, request.topics)
    refused = yield from _errors(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if refused and not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    answer: Pending[TxnOffsetCommitResponse] = Pending()

    def complete(response: TxnOffsetCommitResponse) -> None:
        if version < LOADING_FROM:
            _replace(response, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer.complete(TxnOffsetCommitResponse(topics=merge_topics(response.topics, refused)))

    def verified(pending: Pending[ErrorCode]) -> None:
        code = _translated(pending.value, version)
        if code is not ErrorCode.NONE:
            complete(error_response(request, code))
            return
        try:
            result = coordinator.txn_offset_commit(request, version)
        except ApiError as error:
            complete(error_response(request, error.code))
            return
        if isinstance(result, Pending):
            result.add_done(committed)
        else:
            complete(result)

    def committed(pending: Pending[TxnOffsetCommitResponse]) -> None:
        if isinstance(pending.error, ApiError):
            complete(error_response(request, pending.error.code))
        elif pending.error is not None:
            answer.fail(pending.error)
        else:
            complete(pending.value)

    if not request.group_id:
        complete(error_response(request, ErrorCode.INVALID_GROUP_ID))
        return answer
    produce_gate.verify(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        internal_topics.offsets_partition(request.group_id),
        adds=version >= ADDS_FROM,
    ).add_done(verified)
    return answer


def _replace(response: TxnOffsetCommitResponse, code: ErrorCode, by: ErrorCode) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == code:
                partition.error_code = by


def _translated(code: ErrorCode, version: int) -> ErrorCode:
    if code in PASSING:
        # The producer retries here, without looking for another group coordinator.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        # This broker does not coordinate the group. Producers would retry here for ever on any other code.
        return ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _errors(
    topics: list[TxnOffsetCommitRequestTopic], code: ErrorCode
) -> Steps[list[TxnOffsetCommitResponseTopic]]:
    found = yield from topic_errors(
        topics, code, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
    )
    for topic, refused in zip(topics, found, strict=True):
        refused.topic_id = topic.topic_id
    return found


def error_response(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Return a response with the error for each partition."""
    return TxnOffsetCommitResponse(topics=result_of(_errors(request.topics, code)))


HANDLER: Final = ApiHandler(
    key=ApiKey.TXN_OFFSET_COMMIT,
    versions=(0, 6),
    build=lambda services: partial(
        handle,
        services.metadata_cache,
        services.group_coordinator,
        services.produce_gate,
        services.internal_topics,
    ),
    error_response=error_response,
    access=in_turn(
        transaction_checks.of_request(),
        group_checks.MEMBERS,
        topic_checks.named_from(6),
        topic_checks.by_name(AclOperation.READ),
    ),
)
