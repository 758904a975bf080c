"""Leases segment files of a partition's leader, for reading them in place: the values and the requests.

It opens no file: `kalda.spark.source.segment_reader` does. A broker without these APIs, such as Apache
Kafka's, gives `UnsupportedApiError`; every error means that the caller fetches instead.

Each call is one attempt with a short time-out. A reader that cannot get a lease loses nothing but speed, so
it must not wait for one.
"""

import os
from dataclasses import dataclass
from typing import Final

from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.errors import BrokerResponseError, error_for
from kalda.clients.network_client import NetworkClient
from kalda.clients.range_reader.leaders import missing_leader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.protocol.messages.acquire_read_lease import (
    NO_LEASE,
    AcquireReadLeaseRequest,
    AcquireReadLeaseResponse,
    LeasedPartition,
    LeasePartition,
    LeaseTopic,
)
from kalda.protocol.messages.release_read_lease import (
    ReleasedLease,
    ReleaseReadLeaseRequest,
    ReleaseReadLeaseResponse,
)

CALL_TIMEOUT_MS: Final = 5_000
"""A broker answers in less than a millisecond; one that takes longer than this is better asked to fetch."""


@dataclass(frozen=True, slots=True)
class LeasedFile:
    """The bytes of one segment file that hold a part of the leased range: whole batches."""

    path: str
    start_position: int
    end_position: int
    flushed_position: int
    """Another kernel than the broker's must not read behind it."""
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class ReadLease:
    """The leave to read the files of ``[start_offset, end_offset)`` of a partition, for a time."""

    topic_partition: TopicPartition
    topic_id: UUID
    """Zero on a cluster without topic ids."""
    leader_id: int
    lease_id: int
    lease_ms: int
    """How long it holds without a renewal."""
    leader_epoch: int
    start_offset: int
    end_offset: int
    """At most the end that was asked for; the range may take more leases."""
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    nonce_file: str
    nonce: str
    """What `nonce_file` contains on the broker's file system."""
    host_id: str
    """The identity of the broker's kernel (`kalda.common.host_identity`)."""
    files: tuple[LeasedFile, ...]
    aborted: tuple[tuple[int, int, int], ...]
    """Producer id, first and last offset of each aborted transaction that overlaps the range."""


class ReadLeaseCalls:
    """The requests for leases, over the connections of a network client that runs."""

    def __init__(self, client: NetworkClient, config: LogReaderConfig) -> None:
        self._client: Final = client
        self._config: Final = config

    async def acquire(
        self, topic_partition: TopicPartition, start: int, end: int, topic_id: UUID
    ) -> ReadLease:
        """Lease the files of a range; see `LogReader.acquire_lease`."""
        snapshot = self._client.metadata.snapshot
        leader = snapshot.leader(topic_partition)
        if leader is None:
            raise missing_leader(snapshot, topic_partition)
        wanted = LeasePartition(partition=topic_partition.partition, start_offset=start, end_offset=end)
        if topic_id == ZERO_UUID:
            topic_id = snapshot.topic_id(topic_partition.topic)
        answer = await self._ask(leader.id, topic_partition, topic_id, wanted)
        return _lease(leader.id, topic_partition, topic_id, start, answer)

    async def renew(self, lease: ReadLease) -> None:
        """Extend a lease; see `LogReader.renew_lease`."""
        wanted = LeasePartition(
            partition=lease.topic_partition.partition,
            start_offset=lease.start_offset,
            end_offset=lease.end_offset,
            lease_id=lease.lease_id,
        )
        await self._ask(lease.leader_id, lease.topic_partition, lease.topic_id, wanted)

    async def release(self, lease: ReadLease, bytes_read: int, fallback_reason: str) -> bool:
        """End a lease; see `LogReader.release_lease`."""
        released = ReleasedLease(
            lease_id=lease.lease_id, bytes_read=bytes_read, fallback_reason=fallback_reason
        )
        response = await self._client.send(
            lease.leader_id,
            ReleaseReadLeaseRequest(leases=[released]),
            ReleaseReadLeaseResponse,
            timeout_ms=CALL_TIMEOUT_MS,
        )
        what = f"release of a read lease of {lease.topic_partition}"
        for each in response.leases:
            if each.lease_id == lease.lease_id:
                if each.error_code:
                    raise error_for(ErrorCode.of(each.error_code), what)
                return each.has_held
        raise BrokerResponseError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the answer leaves it out")

    async def _ask(
        self, leader_id: int, topic_partition: TopicPartition, topic_id: UUID, wanted: LeasePartition
    ) -> LeasedPartition:
        is_committed = self._config.isolation is IsolationLevel.READ_COMMITTED
        # The broker compares the id with that of the topic now.
        topic = LeaseTopic(topic=topic_partition.topic, topic_id=topic_id, partitions=[wanted])
        request = AcquireReadLeaseRequest(isolation_level=int(is_committed), topics=[topic])
        response = await self._client.send(
            leader_id, request, AcquireReadLeaseResponse, timeout_ms=CALL_TIMEOUT_MS
        )
        what = f"read lease of {topic_partition} from offset {wanted.start_offset}"
        for answered in response.topics:
            for partition in answered.partitions:
                if partition.partition == topic_partition.partition:
                    if partition.error_code:
                        raise error_for(ErrorCode.of(partition.error_code), what, partition.error_message)
                    return partition
        raise BrokerResponseError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the answer leaves it out")


def _lease(
    leader_id: int, topic_partition: TopicPartition, topic_id: UUID, start: int, answer: LeasedPartition
) -> ReadLease:
    if answer.lease_id == NO_LEASE or answer.end_offset <= start:
        raise BrokerResponseError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"read lease of {topic_partition}: the answer has none"
        )
    return ReadLease(
        topic_partition=topic_partition,
        topic_id=topic_id,
        leader_id=leader_id,
        lease_id=answer.lease_id,
        lease_ms=answer.lease_ms,
        leader_epoch=answer.leader_epoch,
        start_offset=start,
        end_offset=answer.end_offset,
        log_start_offset=answer.log_start_offset,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        nonce_file=answer.nonce_file,
        nonce=answer.nonce,
        host_id=answer.host_id,
        files=tuple(
            LeasedFile(
                os.path.join(answer.directory, each.file),
                each.start_position,
                each.end_position,
                each.flushed_position,
                each.device,
                each.inode,
            )
            for each in answer.segments
        ),
        aborted=tuple(
            (each.producer_id, each.first_offset, each.last_offset) for each in answer.aborted_transactions
        ),
    )
