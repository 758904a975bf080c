"""Grants read leases on partitions that this broker leads, and identifies the files of their ranges.

It connects the table (`read_leases`) with the logs: it is the port that `kalda.storage` asks before it
removes segments, and it answers the requests of readers. The handlers turn its values into messages.

A reader must prove to itself that it sees the broker's files and not others of the same names: the broker
writes a random number to `READ_NONCE_FILE` of each log directory, and the answer has this number and each
file's device and inode.
"""

import logging
import os
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Final

from kalda.broker.leases.read_leases import LeaseLimits, LeaseRefusedError, ReadLease, ReadLeases
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.metrics import Metrics
from kalda.common.types import TopicPartition
from kalda.runtime.clock import Clock
from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.random import Random
from kalda.storage.errors import StorageError
from kalda.storage.file_names import READ_NONCE_FILE
from kalda.storage.log_types import FetchIsolation
from kalda.storage.segment_extents import SegmentExtent, aborted_transactions, locate
from kalda.storage.transaction_index import AbortedTransaction

logger: Final = logging.getLogger(__name__)

SEGMENTS_MAX: Final = 64
"""Segments of one lease: finding more would hold the event loop for longer than a few milliseconds. A range
with more of them takes several leases."""

FALLBACK_REASONS: Final = frozenset(
    {
        "access_denied",
        "corrupt",
        "lease_lost",
        "not_same_files",
        "not_visible",
        "truncated",
        "unflushed",
    }
)
"""The reasons that readers report; others are counted as ``other``, which bounds the number of series."""

_INT64_MASK: Final = 2**63 - 1
"""Devices and inodes are unsigned 64-bit numbers, and those of the protocol are signed."""
_LEASE_ID_MAX: Final = 2**63 - 2


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """One segment file of a lease."""

    extent: SegmentExtent
    file: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease with all that a reader needs to find its files."""

    lease: ReadLease
    partition: Partition
    directory: str
    nonce_file: str
    nonce: str
    segments: tuple[FoundSegment, ...]
    aborted: tuple[AbortedTransaction, ...]


class LeaseGrants:
    """The read leases of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        file_system: FileSystem,
        clock: Clock,
        random: Random,
        limits: LeaseLimits,
    ) -> None:
        self._replicas: Final = replicas
        self._file_system: Final = file_system
        self._clock: Final = clock
        self._leases: Final = ReadLeases(limits, lambda: random.randrange(_LEASE_ID_MAX) + 1)
        self._random: Final = random
        self._nonces: Final[dict[str, str]] = {}
        """By log directory; written when the first lease of the directory is granted."""
        self.limits: Final = limits
        self.bytes_read = 0
        """Bytes that readers reported to have read in place."""
        self.fallbacks: Final[Counter[str]] = Counter(dict.fromkeys((*FALLBACK_REASONS, "other"), 0))

    # Requests of readers.

    def acquire(
        self,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        *,
        isolation: FetchIsolation,
        current_leader_epoch: int,
    ) -> Grant:
        """Lease the files of the range as far as readers of this isolation may see it.

        Raises:
            ApiError: this broker does not lead the partition, or the epoch is not its own; readers do not
                see the range yet; there is no room for the lease (THROTTLING_QUOTA_EXCEEDED); or the
                directory cannot be identified.
            StorageError: the log does not hold the range, or the disk failed.
        """
        partition = self._replicas.partition(topic_partition)
        partition.check_leader_epoch(current_leader_epoch)
        log = partition.log
        bound = log.last_stable_offset if isolation is FetchIsolation.TXN_COMMITTED else log.high_watermark
        end_offset = min(end_offset, bound)
        log_directory = os.path.dirname(log.directory)
        nonce = self._nonce(log_directory)
        extents = locate(log, start_offset, end_offset, SEGMENTS_MAX)
        if start_offset >= end_offset:
            raise ApiError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{topic_partition}: readers see offsets below {bound} now, not {start_offset}.",
            )
        if len(extents) == SEGMENTS_MAX:
            end_offset = extents[-1].end_offset
        aborted: list[AbortedTransaction] = []
        if extents and isolation is FetchIsolation.TXN_COMMITTED:
            aborted = aborted_transactions(log, start_offset, end_offset)
        with log.disk_errors.raised("identify the files of"):
            segments = tuple(_identify(extent) for extent in extents)
        try:
            lease = self._leases.grant(
                topic_partition,
                start_offset,
                end_offset,
                partition.leader_epoch,
                self._clock.monotonic(),
            )
        except LeaseRefusedError as error:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(error)) from error
        return Grant(
            lease,
            partition,
            log.directory,
            os.path.join(log_directory, READ_NONCE_FILE),
            nonce,
            segments,
            tuple(aborted),
        )

    def renew(self, lease_id: int, topic_partition: TopicPartition) -> ReadLease:
        """Extend a lease.

        Raises:
            ApiError: this broker does not lead the partition any more, or does not know the lease.
        """
        self._replicas.partition(topic_partition).check_leader_epoch(-1)
        lease = self._leases.renew(lease_id, topic_partition, self._clock.monotonic())
        if lease is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Read lease {lease_id} of {topic_partition} has expired, or its records were cut off.",
            )
        return lease

    def release(self, lease_id: int, bytes_read: int, fallback_reason: str) -> ReadLease | None:
        """End a lease, count what its reader reports, and return it; None if it is unknown."""
        lease = self._leases.release(lease_id, self._clock.monotonic())
        if lease is not None:
            self.bytes_read += max(bytes_read, 0)
        if fallback_reason:
            self.fallbacks[fallback_reason if fallback_reason in FALLBACK_REASONS else "other"] += 1
        return lease

    # The port of the logs (`kalda.storage.log_resources.ReadLeasesPort`).

    def removable_below(self, topic_partition: TopicPartition, offset: int) -> int:
        """Return up to where segments may be removed now, at most `offset`."""
        return self._leases.removable_below(topic_partition, offset, self._clock.monotonic())

    def begin_rewrite(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Return whether the segments below `offset` may be replaced now; no lease covers them meanwhile."""
        return self._leases.begin_rewrite(topic_partition, offset, self._clock.monotonic())

    def end_rewrite(self, topic_partition: TopicPartition) -> None:
        """Allow leases again after `begin_rewrite`."""
        self._leases.end_rewrite(topic_partition)

    def on_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        """Note that the log now ends at `offset`."""
        self._leases.on_truncation(topic_partition, offset)

    def on_removal(self, topic_partition: TopicPartition) -> None:
        """Drop the leases of a removed log."""
        self._leases.forget(topic_partition)

    # Metrics.

    def register_metrics(self, metrics: Metrics) -> None:
        """Publish the leases and what readers reported."""
        leases = self._leases
        metrics.gauge("kalda_broker_readleases", "Read leases that hold.", self._count)
        metrics.counter_function(
            "kalda_broker_readleases_granted", "Read leases granted.", lambda: leases.granted
        )
        metrics.counter_function(
            "kalda_broker_readleases_refused",
            "Read leases refused, for want of room or because a deletion waits.",
            lambda: leases.refused,
        )
        metrics.counter_function(
            "kalda_broker_readleases_expired",
            "Read leases that ended without a release.",
            lambda: leases.expired,
        )
        metrics.counter_function(
            "kalda_broker_readleases_bytes",
            "Bytes of segment files that clients read in place, as they report.",
            lambda: self.bytes_read,
        )
        for reason in sorted(self.fallbacks):
            metrics.counter_function(
                "kalda_broker_readleases_fallbacks",
                "Ranges that clients fetched though they had a read lease, as they report.",
                partial(self.fallbacks.__getitem__, reason),
                reason=reason,
            )

    def _count(self) -> int:
        self._leases.expire(self._clock.monotonic())
        return len(self._leases)

    def _nonce(self, log_directory: str) -> str:
        nonce = self._nonces.get(log_directory)
        if nonce is None:
            nonce = self._random.randbytes(16).hex()
            path = os.path.join(log_directory, READ_NONCE_FILE)
            try:
                self._file_system.replace(path, nonce.encode("ascii"), sync=False)
            except OSError as error:
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot write {path}: {error_text(error)}"
                ) from error
            self._nonces[log_directory] = nonce
        return nonce


LEASE_ERRORS: Final = (ApiError, StorageError)
"""What `LeaseGrants.acquire` raises; both have a `code`."""


def _identify(extent: SegmentExtent) -> FoundSegment:
    records = extent.segment.records
    found = os.fstat(records.file().fileno())
    return FoundSegment(
        extent, os.path.basename(records.path), found.st_dev & _INT64_MASK, found.st_ino & _INT64_MASK
    )
