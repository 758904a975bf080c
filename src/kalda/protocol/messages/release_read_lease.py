"""ReleaseReadLease (key 20001): ends leases of AcquireReadLease, and says whether they held to the end.

Kalda's own; Apache Kafka has no such API. The request also reports how much was read in place and why the
reader went back to fetching, which the broker counts in its metrics.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class ReleasedLease(Struct):
    """One lease. `fallback_reason` is empty if the range was read in place to its end."""

    lease_id: int = wire(INT64, "0+")
    bytes_read: int = wire(INT64, "0+")
    fallback_reason: str = wire(STRING, "0+")


class ReleaseReadLeaseRequest(Message, api_key=ApiKey.RELEASE_READ_LEASE, versions="0", flexible="0+"):
    """The leases to end."""

    leases: list[ReleasedLease] = wire(array(ReleasedLease), "0+")


class ReleaseResult(Struct):
    """The end of one lease.

    `has_held` is whether the leased offsets were in the log until now. `error_code` is INVALID_REQUEST if
    the broker does not know the lease: it has expired, or another process granted it.
    """

    lease_id: int = wire(INT64, "0+")
    error_code: int = wire(INT16, "0+")
    has_held: bool = wire(BOOL, "0+")
    leader_epoch: int = wire(INT32, "0+", default=-1)


class ReleaseReadLeaseResponse(Message, api_key=ApiKey.RELEASE_READ_LEASE, versions="0", flexible="0+"):
    """The result for each lease of the request."""

    throttle_time_ms: int = wire(INT32, "0+")
    leases: list[ReleaseResult] = wire(array(ReleaseResult), "0+")
