"""Replication throttles (KIP-73): limit the rate of followers that are being moved or caught up.

Topics name the throttled replicas (``leader.replication.throttled.replicas`` and its follower twin, as
``partition:broker`` pairs or ``*``); the broker sets the rate (``….replication.throttled.rate``). One
`ReplicationQuota` serves one direction; `RateQuota` alone limits moves between log directories. While the
rate is exceeded, a follower leaves throttled partitions out of its fetches, and a leader returns no records
for them. A replica in sync is never throttled, because the throttle could push it out of the ISR.

The rate is Kafka's: the bytes of the last window's samples divided by the time that these samples cover, so a
burst in a quiet second is spread over the window. Without a limit all this costs one comparison.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from kalda.common.types import TopicPartition
from kalda.runtime.clock import Clock

UNLIMITED: Final = 2**63 - 1
"""The default of both rates."""
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LOG_DIR_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"

_ALL: Final = None
_NONE: Final[frozenset[int]] = frozenset()


class RateQuota:
    """A rate limit on what replicas copy."""

    def __init__(self, clock: Clock, *, sample_count: int, sample_seconds: int) -> None:
        self._rate: Final = WindowedRate(clock, sample_count, sample_seconds)
        self._bytes_per_second = UNLIMITED
        self.is_limited = False
        """Whether a rate is set. Callers check it first, because it rarely is."""

    @property
    def bytes_per_second(self) -> int:
        """The rate limit; `UNLIMITED` without one."""
        return self._bytes_per_second

    def set_rate(self, bytes_per_second: int) -> None:
        """Set the rate limit."""
        self._bytes_per_second = bytes_per_second
        self.is_limited = bytes_per_second < UNLIMITED

    def is_exceeded(self) -> bool:
        """Return whether throttled replicas must wait for now."""
        return self.is_limited and self._rate.per_second() > self._bytes_per_second

    def record(self, size: int) -> None:
        """Count bytes that a throttled replica sent or fetched."""
        self._rate.record(size)

    @property
    def byte_rate(self) -> float:
        """Bytes a second that throttled replicas sent or fetched in the window."""
        return self._rate.per_second()


class ReplicationQuota(RateQuota):
    """One direction's throttle on one broker."""

    def __init__(
        self,
        setting: str,
        broker_id: int,
        overrides: Callable[[str], Mapping[str, str]],
        clock: Clock,
        *,
        sample_count: int,
        sample_seconds: int,
    ) -> None:
        """`overrides` returns a topic's settings; `setting` names the one with the throttled replicas."""
        super().__init__(clock, sample_count=sample_count, sample_seconds=sample_seconds)
        self._setting: Final = setting
        self._broker_id: Final = broker_id
        self._overrides: Final = overrides
        self._topics: Final[dict[str, frozenset[int] | None]] = {}
        """The throttled partitions by topic, read at first use; None means all of them."""

    def forget_topic(self, topic: str) -> None:
        """Read a topic's throttled replicas again at the next use, as its settings changed."""
        self._topics.pop(topic, None)

    def is_throttled(self, partition: TopicPartition) -> bool:
        """Return whether the replica of a partition on this broker is throttled."""
        topic = partition.topic
        if topic not in self._topics:
            text = self._overrides(topic).get(self._setting, "")
            self._topics[topic] = throttled_partitions(text, self._broker_id)
        partitions = self._topics[topic]
        return partitions is _ALL or partition.partition in partitions


class WindowedRate:
    """Measures bytes a second over the last samples, as Kafka's ``SimpleRate`` does.

    Samples of 1 s, 11 of them: 22 MB at once are 22 MB/s for the first second (a window is never taken for
    shorter than a sample), 11 MB/s after two, 2 MB/s at the end, then nothing.
    """

    def __init__(self, clock: Clock, sample_count: int, sample_seconds: int) -> None:
        self._clock: Final = clock
        self._sample_seconds: Final = float(sample_seconds)
        self._window_seconds: Final = float(sample_count * sample_seconds)
        # (begin, bytes), oldest first; at most `sample_count` + 1, because a sample that leaves the window is
        # dropped and none begins within another.
        self._samples: Final[deque[list[float]]] = deque()

    def record(self, size: int) -> None:
        """Add bytes to the current sample."""
        assert size >= 0, f"{size} bytes are recorded"
        now = self._clock.monotonic()
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._sample_seconds:
            self._drop_old(now)
            samples.append([now, 0.0])
        samples[-1][1] += size

    def per_second(self) -> float:
        """Return the current rate."""
        now = self._clock.monotonic()
        self._drop_old(now)
        samples = self._samples
        if not samples:
            return 0.0
        total = sum(size for _, size in samples)
        return total / max(now - samples[0][0], self._sample_seconds)

    def _drop_old(self, now: float) -> None:
        samples = self._samples
        while samples and now - samples[0][0] >= self._window_seconds:
            samples.popleft()


def throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """Return the partitions that a setting names for a broker, or None for all of them.

    ``0:1,1:2,2:1`` names 0 and 2 for broker 1; ``*`` names all for every broker.
    """
    text = text.strip()
    if text == "*":
        return _ALL
    if text in ("", "none"):
        return _NONE
    pairs = (entry.strip().partition(":") for entry in text.split(","))
    return frozenset(int(partition) for partition, _, broker in pairs if broker == str(broker_id))
