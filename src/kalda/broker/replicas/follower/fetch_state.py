"""The state of one followed partition in a fetcher.

One `FetchState` is one tenure: a partition that is followed again, from another leader or in another epoch,
gets a new one. A response to a request of an earlier tenure finds `is_followed` false and is dropped, so a
late response is never appended after this broker has become the leader.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition


class FetchStatus(Enum):
    """What a fetcher does with a partition."""

    FETCHING = "fetching"
    """In the fetch session: requests ask for it."""
    RESOLVING = "resolving"
    """Its offset is out of the leader's range, or its log has no epoch: it needs the leader's bounds."""
    DELAYED = "delayed"
    """The leader answered with an error; retried after a back-off."""
    THROTTLED = "throttled"
    """Left out of requests while the replication quota is exceeded."""
    FAILED = "failed"
    """The log cannot be written (retried later), or the epoch is fenced (until the next `follow`)."""


class FetchState:
    """One tenure of a partition in a fetcher."""

    __slots__ = (
        "failures",
        "fetch_offset",
        "index",
        "is_followed",
        "is_sent",
        "lag",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "retry_at",
        "status",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, partition: "Partition") -> None:
        self.partition: Final = partition
        self.topic_partition: Final = partition.topic_partition
        self.topic_id: Final = partition.topic_id.bytes
        self.index: Final = partition.topic_partition.partition
        self.leader_epoch: Final = partition.leader_epoch
        self.status = FetchStatus.FETCHING
        self.is_followed = True
        """False as soon as the fetcher must not touch the log any more."""
        self.is_sent = False
        """Whether a request of this tenure asked for it; an answer before that belongs to an earlier
        tenure."""
        self.failures = 0
        """Errors since the last success; the back-off grows with them."""
        self.retry_at = 0.0
        """When to retry, in monotonic seconds, while delayed or failed."""
        self.lag: int | None = None
        """Records below the leader's high watermark that this log lacks; None before the first answer."""
        # The fields of the next request; `refresh` reads them from the log.
        self.fetch_offset = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.refresh()

    def refresh(self) -> None:
        """Read the fields of the next request from the log."""
        log = self.partition.log
        self.fetch_offset = log.log_end_offset
        self.last_fetched_epoch = log.leader_epochs.latest_epoch
        self.log_start_offset = log.log_start_offset

    @property
    def is_in_sync(self) -> bool:
        """Whether it lacked nothing committed at the last answer: such a replica is not throttled."""
        return self.lag is not None and self.lag <= 0

    def __repr__(self) -> str:
        return (
            f"FetchState({self.topic_partition}, {self.status.value}, epoch {self.leader_epoch}, "
            f"offset {self.fetch_offset}, lag {self.lag})"
        )
