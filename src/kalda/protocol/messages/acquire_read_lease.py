"""AcquireReadLease (key 20000): a lease on the segment files of ranges, for reading them in place.

Kalda's own; Apache Kafka has no such API. The request names ranges of offsets, the response the bytes of
segment files that hold them. A request with a lease id extends that lease and gets no segments.
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID_KIND,
    Message,
    Struct,
    array,
    wire,
)

NO_LEASE = -1
"""The lease id of a request for a new lease."""


class LeasePartition(Struct):
    """The range of one partition.

    `current_leader_epoch` fences as in a fetch; -1 names none. `lease_id` is that of the lease to extend.
    """

    partition: int = wire(INT32, "0+")
    current_leader_epoch: int = wire(INT32, "0+", default=-1)
    start_offset: int = wire(INT64, "0+")
    end_offset: int = wire(INT64, "0+")
    lease_id: int = wire(INT64, "0+", default=NO_LEASE)


class LeaseTopic(Struct):
    """The partitions of one topic; a `topic_id` that is not zero must be that of the topic now."""

    topic: str = wire(STRING, "0+")
    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[LeasePartition] = wire(array(LeasePartition), "0+")


class AcquireReadLeaseRequest(Message, api_key=ApiKey.ACQUIRE_READ_LEASE, versions="0", flexible="0+"):
    """Ranges by topic. `isolation_level` is that of a fetch: 1 ends them at the last stable offset."""

    isolation_level: int = wire(INT8, "0+")
    topics: list[LeaseTopic] = wire(array(LeaseTopic), "0+")


class LeasedSegment(Struct):
    """The bytes of one segment file that hold a part of the range: whole batches.

    `device` and `inode` identify the file. A `sealed` segment gets no more records. The part below
    `flushed_position` is on the device; other kernels must not read behind it.
    """

    base_offset: int = wire(INT64, "0+")
    file: str = wire(STRING, "0+")
    start_position: int = wire(INT64, "0+")
    end_position: int = wire(INT64, "0+")
    flushed_position: int = wire(INT64, "0+")
    device: int = wire(INT64, "0+")
    inode: int = wire(INT64, "0+")
    is_sealed: bool = wire(BOOL, "0+")


class LeaseAbortedTransaction(Struct):
    """An aborted transaction; readers skip the producer's records from the first to the last offset."""

    producer_id: int = wire(INT64, "0+")
    first_offset: int = wire(INT64, "0+")
    last_offset: int = wire(INT64, "0+")


class LeasedPartition(Struct):
    """A lease, or an error.

    It covers the offsets up to `end_offset`, which is below the one asked for where the log or the answer
    ends before. `directory` is the partition's; the file `nonce_file` contains `nonce`, so that a reader
    that finds the same there sees the same files. `host_id` is that of the broker's kernel.
    """

    partition: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    lease_id: int = wire(INT64, "0+", default=NO_LEASE)
    lease_ms: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+", default=-1)
    log_start_offset: int = wire(INT64, "0+", default=-1)
    high_watermark: int = wire(INT64, "0+", default=-1)
    last_stable_offset: int = wire(INT64, "0+", default=-1)
    end_offset: int = wire(INT64, "0+", default=-1)
    directory: str = wire(STRING, "0+")
    nonce_file: str = wire(STRING, "0+")
    nonce: str = wire(STRING, "0+")
    host_id: str = wire(STRING, "0+")
    segments: list[LeasedSegment] = wire(array(LeasedSegment), "0+")
    aborted_transactions: list[LeaseAbortedTransaction] = wire(array(LeaseAbortedTransaction), "0+")


class LeasedTopic(Struct):
    """The partitions of one topic."""

    topic: str = wire(STRING, "0+")
    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[LeasedPartition] = wire(array(LeasedPartition), "0+")


class AcquireReadLeaseResponse(Message, api_key=ApiKey.ACQUIRE_READ_LEASE, versions="0", flexible="0+"):
    """One entry for each partition of the request."""

    throttle_time_ms: int = wire(INT32, "0+")
    topics: list[LeasedTopic] = wire(array(LeasedTopic), "0+")
