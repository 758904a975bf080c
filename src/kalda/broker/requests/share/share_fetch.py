"""Handles ShareFetch."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import share_groups as share_checks
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_requests import (
    Acknowledgements,
    ShareParts,
    acknowledge,
    acknowledgements_of,
    endpoints,
    leader_of,
    refusal_of_topic,
    session_key,
    share_parts,
)
from kalda.broker.share.share_fetch import DelayedShareFetch, ShareFetched, ShareFetchParams
from kalda.broker.share.share_sessions import PartitionName, SessionKey, ShareSession
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import UUID
from kalda.protocol.fetch_session import FINAL_EPOCH
from kalda.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

_STRICT: Final = 1


def handle(
    parts: ShareParts, request: ShareFetchRequest, context: RequestContext
) -> ShareFetchResponse | Pending[ShareFetchResponse]:
    """Acknowledge, then acquire; answer when both are done."""
    try:
        key = session_key(parts, request.group_id, request.member_id)
        acknowledgements = acknowledgements_of(request.topics, renews=request.is_renew_ack)
        _check_renewal(request)
        session = _session(parts, context, request, key, acknowledgements)
    except ApiError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    outcomes = acknowledge(parts, context, key, acknowledgements)
    if request.share_session_epoch != FINAL_EPOCH:
        # A client acknowledges what it has of a partition when it stops to fetch it.
        parts.partitions.forget(
            session,
            ((topic.topic_id, each) for topic in request.forgotten_topics_data for each in topic.partitions),
        )
    response: Pending[ShareFetchResponse] = Pending()
    fetched: list[ShareFetched] = []
    left = 1 + len(outcomes)

    def finish(_: object = None) -> None:
        nonlocal left
        left -= 1
        if not left:
            session.unsent.clear()
            response.complete(_respond(parts, context, key, outcomes, fetched))

    for each in outcomes.values():
        each.add_done(finish)
    if request.share_session_epoch == FINAL_EPOCH:
        # Also where acknowledgements failed: what they were about is available again.
        parts.partitions.close(session).add_done(finish)
    elif request.is_renew_ack or request.max_records <= 0:
        finish()
    else:
        response.on_abandoned = _acquire(parts, context, request, session, fetched, finish)
    return response


def _check_renewal(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A request that renews acquires nothing: its limits and its time to wait must be 0.",
        )


def _session(
    parts: ShareParts,
    context: RequestContext,
    request: ShareFetchRequest,
    key: SessionKey,
    acknowledgements: Acknowledgements,
) -> ShareSession:
    return parts.partitions.session(
        context.connection,
        key,
        request.share_session_epoch,
        [(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions],
        acknowledges=bool(acknowledgements),
    )


def _acquire(
    parts: ShareParts,
    context: RequestContext,
    request: ShareFetchRequest,
    session: ShareSession,
    fetched: list[ShareFetched],
    finish: Callable[[], None],
) -> Callable[[], None]:
    """Acquire records of the session's partitions, now or when there are some; return what ends the wait."""
    readable: list[PartitionName] = []
    for name in session.partitions:
        refused = refusal_of_topic(parts, context, name)
        if refused is None:
            readable.append(name)
        else:
            fetched.append(ShareFetched(name, refused))
    max_bytes = min(request.max_bytes, parts.config.fetch_max_bytes)
    if parts.throttle.is_active:
        max_bytes = int(min(max_bytes, parts.throttle.fetch_bytes_max(context.connection, context.client_id)))
    first = session.epoch % len(readable) if readable else 0
    params = ShareFetchParams(
        group_id=session.key.group_id,
        member_id=session.key.member_id,
        # What has an error is answered now.
        max_wait_ms=0 if fetched else request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        records_max=request.max_records,
        batch_size=request.batch_size,
        is_strict=request.share_acquire_mode == _STRICT,
    )

    def respond(found: list[ShareFetched]) -> None:
        fetched.extend(found)
        session.unsent.update((each.name, each.acquired) for each in found)
        finish()

    # Each request begins with another partition, so that none of them starves.
    names = readable[first:] + readable[:first]
    operation = DelayedShareFetch(parts.partitions, params, session, names, respond)
    if params.max_wait_ms <= 0 or not names:
        operation.force_complete()
    else:
        parts.purgatory.try_complete_else_watch(operation, operation.keys)
    return operation.cancel


def _respond(
    parts: ShareParts,
    context: RequestContext,
    key: SessionKey,
    outcomes: dict[PartitionName, Pending[None]],
    fetched: Sequence[ShareFetched],
) -> ShareFetchResponse:
    found: dict[PartitionName, PartitionData] = {}
    leaders: list[int] = []
    size = 0
    for each in fetched:
        data = found[each.name] = PartitionData(partition_index=each.name[1])
        if each.error is not None:
            data.error_code, data.error_message = each.error.code, each.error.message
            _name_leader(parts, data, each.name, each.error, leaders)
            continue
        data.records = each.records
        data.acquired_records = [
            AcquiredRecords(first_offset=one.first, last_offset=one.last, delivery_count=one.deliveries)
            for one in each.acquired
        ]
        size += each.records.size
    for name, outcome in outcomes.items():
        present = found.get(name)
        if present is None:
            present = found[name] = PartitionData(partition_index=name[1])
        error = outcome.error
        if error is not None:
            if not isinstance(error, ApiError):
                error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
            present.acknowledge_error_code, present.acknowledge_error_message = error.code, error.message
            _name_leader(parts, present, name, error, leaders)
    if parts.throttle.is_active:
        context.throttle_seconds = parts.throttle.fetched(context.connection, context.client_id, size)
    topics: dict[UUID, list[PartitionData]] = {}
    for (topic_id, _), data in found.items():
        topics.setdefault(topic_id, []).append(data)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=parts.partitions.settings.limits(key.group_id).lock_ms,
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=endpoints(parts, context, leaders, NodeEndpoint),
    )


def _name_leader(
    parts: ShareParts, data: PartitionData, name: PartitionName, error: ApiError, leaders: list[int]
) -> None:
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader_id, leader_epoch = leader_of(parts, name)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        leaders.append(leader_id)


def error_response(request: ShareFetchRequest, code: ErrorCode) -> ShareFetchResponse:
    """Return a response with the error."""
    return ShareFetchResponse(error_code=code)


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, share_parts(services))


ACCESS: Final = share_checks.of_member
