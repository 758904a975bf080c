"""What a fetcher knows of one partition that it follows.

One object is one tenure: a partition that is followed again, at another leader or epoch, gets a new one. An
answer to a request that an older tenure made finds `is_followed` false and is dropped; this is what keeps a
late answer from being appended after the broker began to lead.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition


class FetchStatus(Enum):
    """Where a partition is in its life."""

    FETCHING = "fetching"
    """In the session: the leader is asked for it."""
    RESOLVING = "resolving"
    """Its offset is out of the leader's range, or it knows no epoch: the leader's bounds are to be asked."""
    DELAYED = "delayed"
    """An error was answered; asked again after a back-off."""
    THROTTLED = "throttled"
    """Left out until the follower's replication quota has room."""
    FAILED = "failed"
    """The log here cannot take records, or the leader fenced us: tried again late, or when told anew."""


class FetchState:
    """One partition's place in a fetcher."""

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
        """False from the moment at which the fetcher may no longer touch the log."""
        self.is_sent = False
        """Whether the leader's session has it as this tenure asked: an answer before is another tenure's."""
        self.failures = 0
        """Errors since the last good answer; the back-off grows with them."""
        self.retry_at = 0.0
        """When to try again, in monotonic seconds, while delayed or failed."""
        self.lag: int | None = None
        """Records below the leader's high watermark that are missing here; None before the first answer."""
        # What the next request says; `refresh` reads it from the log.
        self.fetch_offset = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.refresh()

    def refresh(self) -> None:
        """Take the log as it is for the next request."""
        log = self.partition.log
        self.fetch_offset = log.log_end_offset
        self.last_fetched_epoch = log.leader_epochs.latest_epoch
        self.log_start_offset = log.log_start_offset

    @property
    def is_in_sync(self) -> bool:
        """Whether nothing committed was missing at the last answer: such a replica is not throttled."""
        return self.lag is not None and self.lag <= 0

    def __repr__(self) -> str:
        return (
            f"FetchState({self.topic_partition}, {self.status.value}, epoch {self.leader_epoch}, "
            f"offset {self.fetch_offset}, lag {self.lag})"
        )
