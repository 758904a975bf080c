"""What this broker did for each topic: records and bytes in and out, requests, failures.

The data path adds to a `BrokerTopicMetrics` that the partition holds; the figures of all topics together are
summed when the metrics are rendered. Names are Kafka's (``BrokerTopicStats``, ``BrokerTopicMetrics``).
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["BrokerTopicMetrics", "BrokerTopicStats"]


class BrokerTopicMetrics:
    """The counters of one topic on this broker. The data path adds to the attributes directly."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes of records sent to consumers; followers are counted elsewhere."""
        self.produces = 0
        """Appends that were asked for, one for each partition of a request."""
        self.fetches = 0
        """Reads, one for each partition of a request, and again when a fetch that waited is answered."""
        self.failed_produces = 0
        self.failed_fetches = 0

    def add(self, other: "BrokerTopicMetrics") -> None:
        """Add the counts of another topic."""
        for name in BrokerTopicMetrics.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTopicStats:
    """The counters of every topic that has a partition on this broker, and their sums."""

    def __init__(self) -> None:
        self._by_topic: Final[dict[str, BrokerTopicMetrics]] = {}
        self._removed: Final = BrokerTopicMetrics()
        """The counts of topics that left this broker: the sums of all topics must not fall."""
        self.replication_bytes_out = 0
        """Bytes of records sent to followers, of all topics."""

    @property
    def by_topic(self) -> Mapping[str, BrokerTopicMetrics]:
        """The counters by topic."""
        return self._by_topic

    def of(self, topic: str) -> BrokerTopicMetrics:
        """Return the counters of a topic, made at the first call."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = BrokerTopicMetrics()
        return found

    def remove(self, topic: str) -> None:
        """Drop a topic that has no partition here any more; its counts stay in the sums."""
        gone = self._by_topic.pop(topic, None)
        if gone is not None:
            self._removed.add(gone)

    def total(self) -> BrokerTopicMetrics:
        """Return the sums over all topics since the start of the broker."""
        sums = BrokerTopicMetrics()
        sums.add(self._removed)
        for each in self._by_topic.values():
            sums.add(each)
        return sums
