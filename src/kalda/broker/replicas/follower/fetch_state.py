"""Defines the state of one followed partition in a fetcher.

One `FetchState` is one tenure: a partition that is followed again, from another leader or in another epoch,
gets a new one. A response to a request of an earlier tenure finds `is_followed` false and is dropped, so a
late response is never appended after this broker has become the leader.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kalda.common.types import TopicPartition

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition


class FetchStatus(Enum):
    """The activity of a fetcher for a partition."""

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


@dataclass(slots=True, eq=False, repr=False)
class FetchState:
    """One tenure of a partition in a fetcher."""

    partition: "Partition"
    is_by_id: bool = True
    """Whether requests and responses name the topic by id, else by name."""
    topic_partition: TopicPartition = field(init=False)
    topic: bytes = field(init=False)
    """The topic as responses name it."""
    index: int = field(init=False)
    leader_epoch: int = field(init=False)
    status: FetchStatus = FetchStatus.FETCHING
    is_followed: bool = True
    """False as soon as the fetcher must not touch the log any more."""
    is_sent: bool = False
    """Whether a request of this tenure asked for it; an answer before that belongs to an earlier tenure."""
    failures: int = 0
    """Errors since the last success; the back-off grows with them."""
    setbacks: int = 0
    """How often in this tenure the log was cut or records were refused."""
    retry_at: float = 0.0
    """When to retry, in monotonic seconds, while delayed or failed."""
    lag: int | None = None
    """Records below the leader's high watermark that this log lacks; None before the first answer."""
    # The fields of the next request; `refresh` reads them from the log.
    fetch_offset: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1

    def __post_init__(self) -> None:
        partition = self.partition
        self.topic_partition = partition.topic_partition
        self.topic = partition.topic_id.bytes if self.is_by_id else partition.name_bytes
        self.index = partition.topic_partition.partition
        self.leader_epoch = partition.leader_epoch
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
