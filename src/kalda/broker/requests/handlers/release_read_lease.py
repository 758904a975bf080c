"""ReleaseReadLease (key 20001), version 0: ends read leases, and returns whether they were still valid.

Kalda's own. A lease held if its offsets were in the log until now: a truncation below its end breaks it, as
after an unclean election. A change of the leader alone does not, because committed records stay.
"""

from functools import partial
from typing import Final

from kalda.broker.leases.lease_grants import LeaseGrants
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.protocol.messages.release_read_lease import (
    ReleasedLease,
    ReleaseReadLeaseRequest,
    ReleaseReadLeaseResponse,
    ReleaseResult,
)


def handle(
    lease_grants: LeaseGrants | None,
    replicas: ReplicaManager,
    request: ReleaseReadLeaseRequest,
    context: RequestContext,
) -> ReleaseReadLeaseResponse | Steps[ReleaseReadLeaseResponse]:
    """End each lease."""
    return first_turn(_release_each(lease_grants, replicas, request))


def _release_each(
    lease_grants: LeaseGrants | None, replicas: ReplicaManager, request: ReleaseReadLeaseRequest
) -> Steps[ReleaseReadLeaseResponse]:
    response = ReleaseReadLeaseResponse()
    for released in request.leases:
        response.leases.append(_release(lease_grants, replicas, released))
        yield
    return response


def _release(grants: LeaseGrants | None, replicas: ReplicaManager, released: ReleasedLease) -> ReleaseResult:
    lease = (
        None
        if grants is None
        else grants.release(released.lease_id, released.bytes_read, released.fallback_reason)
    )
    if lease is None:
        return ReleaseResult(lease_id=released.lease_id, error_code=ErrorCode.INVALID_REQUEST)
    try:
        epoch = replicas.partition(lease.topic_partition).leader_epoch
    except ApiError:
        epoch = -1
    return ReleaseResult(lease_id=lease.lease_id, has_held=not lease.is_broken, leader_epoch=epoch)


def error_response(request: ReleaseReadLeaseRequest, code: ErrorCode) -> ReleaseReadLeaseResponse:
    """Return a response with the error for each lease."""
    return ReleaseReadLeaseResponse(
        leases=[ReleaseResult(lease_id=each.lease_id, error_code=code) for each in request.leases]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.RELEASE_READ_LEASE,
    versions=(0, 0),
    build=lambda services: partial(handle, services.lease_grants, services.replica_manager),
    error_response=error_response,
    access=None,
)
