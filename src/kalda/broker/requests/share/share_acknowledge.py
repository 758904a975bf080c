"""Handles ShareAcknowledge."""

from functools import partial
from typing import Final

from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import share_groups as share_checks
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_requests import (
    ShareParts,
    acknowledge,
    acknowledgements_of,
    endpoints,
    leader_of,
    session_key,
    share_parts,
)
from kalda.broker.share.share_sessions import PartitionName, SessionKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import UUID
from kalda.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from kalda.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(
    parts: ShareParts, request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse | Pending[ShareAcknowledgeResponse]:
    """Answer when the acknowledgements are stored."""
    try:
        key = session_key(parts, request.group_id, request.member_id)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        acknowledgements = acknowledgements_of(request.topics, renews=request.is_renew_ack)
        session = parts.partitions.session(context.connection, key, request.share_session_epoch, ())
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    outcomes = acknowledge(parts, context, key, acknowledgements)
    waits = list(outcomes.values())
    if request.share_session_epoch == FINAL_EPOCH:
        waits.append(parts.partitions.close(session))
    response: Pending[ShareAcknowledgeResponse] = Pending()
    left = 1 + len(waits)

    def finish(_: object = None) -> None:
        nonlocal left
        left -= 1
        if not left:
            response.complete(_respond(parts, context, key, outcomes))

    for each in waits:
        each.add_done(finish)
    finish()
    return response


def _respond(
    parts: ShareParts,
    context: RequestContext,
    key: SessionKey,
    outcomes: dict[PartitionName, Pending[None]],
) -> ShareAcknowledgeResponse:
    topics: dict[UUID, list[PartitionData]] = {}
    leaders: list[int] = []
    for name, outcome in outcomes.items():
        data = PartitionData(partition_index=name[1])
        error = outcome.error
        if error is not None:
            if not isinstance(error, ApiError):
                error = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
            data.error_code, data.error_message = error.code, error.message
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader_id, leader_epoch = leader_of(parts, name)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                leaders.append(leader_id)
        topics.setdefault(name[0], []).append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=parts.partitions.settings.limits(key.group_id).lock_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=endpoints(parts, context, leaders, NodeEndpoint),
    )


def error_response(request: ShareAcknowledgeRequest, code: ErrorCode) -> ShareAcknowledgeResponse:
    """Return a response with the error."""
    return ShareAcknowledgeResponse(error_code=code)


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, share_parts(services))


ACCESS: Final = share_checks.of_member
