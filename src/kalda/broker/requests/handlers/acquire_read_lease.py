"""AcquireReadLease (key 20000), version 0: leases segment files to a client that reads them in place.

Kalda's own. The leader answers; after an error the client fetches instead. A lease gives no access that a
Fetch would not give: `_acquire` is the place of the check of READ on the topic, as `handle_fetch` is for
fetches, and the file system decides whether the client can open the files at all.
"""

from functools import partial
from typing import Final

from kalda.broker.leases.lease_grants import LEASE_ERRORS, FoundSegment, Grant, LeaseGrants
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import topics as topic_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.host_identity import host_id
from kalda.common.types import TopicPartition, is_other_topic
from kalda.protocol.messages.acquire_read_lease import (
    NO_LEASE,
    AcquireReadLeaseRequest,
    AcquireReadLeaseResponse,
    LeaseAbortedTransaction,
    LeasedPartition,
    LeasedSegment,
    LeasedTopic,
    LeasePartition,
    LeaseTopic,
)
from kalda.storage.log_types import FetchIsolation

_READ_COMMITTED: Final = 1
PARTITIONS_MAX: Final = 100
"""Partitions of one request: each may take a millisecond of the event loop."""


def handle(
    lease_grants: LeaseGrants | None,
    replicas: ReplicaManager,
    request: AcquireReadLeaseRequest,
    context: RequestContext,
) -> AcquireReadLeaseResponse:
    """Grant or extend each lease, or return the error for its partition."""
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
        return error_response(request, ErrorCode.INVALID_REQUEST)
    is_committed = request.isolation_level == _READ_COMMITTED
    isolation = FetchIsolation.TXN_COMMITTED if is_committed else FetchIsolation.HIGH_WATERMARK
    return AcquireReadLeaseResponse(
        topics=[
            LeasedTopic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _acquire(lease_grants, replicas, topic, wanted, isolation) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _acquire(
    grants: LeaseGrants | None,
    replicas: ReplicaManager,
    topic: LeaseTopic,
    wanted: LeasePartition,
    isolation: FetchIsolation,
) -> LeasedPartition:
    topic_partition = TopicPartition(topic.topic, wanted.partition)
    try:
        if grants is None:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                "`kalda.read.lease.enable`=false: this broker grants no read leases.",
            )
        partition = replicas.partition(topic_partition)
        if is_other_topic(topic.topic_id, partition.topic_id):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if wanted.lease_id != NO_LEASE:
            lease = grants.renew(wanted.lease_id, topic_partition)
            return LeasedPartition(
                partition=wanted.partition,
                lease_id=lease.lease_id,
                lease_ms=grants.limits.lease_ms,
                leader_epoch=partition.leader_epoch,
            )
        grant = grants.acquire(
            topic_partition,
            wanted.start_offset,
            wanted.end_offset,
            isolation=isolation,
            current_leader_epoch=wanted.current_leader_epoch,
        )
    except LEASE_ERRORS as error:
        message = error.message if isinstance(error, ApiError) else str(error)
        return LeasedPartition(partition=wanted.partition, error_code=error.code, error_message=message)
    return _granted(wanted, grant, grants.limits.lease_ms)


def _granted(wanted: LeasePartition, grant: Grant, lease_ms: int) -> LeasedPartition:
    lease, log = grant.lease, grant.partition.log
    return LeasedPartition(
        partition=wanted.partition,
        lease_id=lease.lease_id,
        lease_ms=lease_ms,
        leader_epoch=lease.leader_epoch,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        end_offset=lease.end_offset,
        directory=grant.directory,
        nonce_file=grant.nonce_file,
        nonce=grant.nonce,
        host_id=host_id(),
        segments=[_segment(found) for found in grant.segments],
        aborted_transactions=[
            LeaseAbortedTransaction(
                producer_id=each.producer_id, first_offset=each.first_offset, last_offset=each.last_offset
            )
            for each in grant.aborted
        ],
    )


def _segment(found: FoundSegment) -> LeasedSegment:
    extent = found.extent
    return LeasedSegment(
        base_offset=extent.segment.base_offset,
        file=found.file,
        start_position=extent.start_position,
        end_position=extent.end_position,
        flushed_position=extent.flushed_position,
        device=found.device,
        inode=found.inode,
        is_sealed=extent.is_sealed,
    )


def error_response(request: AcquireReadLeaseRequest, code: ErrorCode) -> AcquireReadLeaseResponse:
    """Return a response with the error for each partition."""
    return AcquireReadLeaseResponse(
        topics=[
            LeasedTopic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    LeasedPartition(partition=wanted.partition, error_code=code)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.ACQUIRE_READ_LEASE,
    versions=(0, 0),
    build=lambda services: partial(handle, services.lease_grants, services.replica_manager),
    error_response=error_response,
    access=topic_checks.read_leases,
)
