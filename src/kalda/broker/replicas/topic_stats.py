"""Counts records and bytes in and out, requests, and failures of each topic on this broker.

The data path adds to the `BrokerTopicMetrics` that a partition holds; the totals of all topics are summed at
each scrape. The names are Kafka's (``BrokerTopicStats``, ``BrokerTopicMetrics``).
"""

from collections.abc import Mapping
from typing import Final


class BrokerTopicMetrics:
    """The counters of one topic on this broker. The data path adds to the attributes directly."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetch_conversions",
        "fetches",
        "messages_in",
        "produce_conversions",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes of records sent to consumers, without followers."""
        self.produces = 0
        """Appends, one for each partition of a request."""
        self.fetches = 0
        """Reads, one for each partition of a request, and one more when a fetch has waited."""
        self.failed_produces = 0
        self.failed_fetches = 0
        self.produce_conversions = 0
        """Records that came in another message format than the log's."""
        self.fetch_conversions = 0
        """Records that were converted for clients of an older message format."""

    def add(self, other: "BrokerTopicMetrics") -> None:
        """Add the counts of another topic."""
        for name in BrokerTopicMetrics.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTopicStats:
    """The counters of every topic that has a partition on this broker, and their sums."""

    def __init__(self) -> None:
        self._by_topic: Final[dict[str, BrokerTopicMetrics]] = {}
        self._removed: Final = BrokerTopicMetrics()
        """The counts of topics that left this broker, so that the totals do not decrease."""
        self.replication_bytes_out = 0
        """Bytes of records sent to followers, of all topics."""

    @property
    def by_topic(self) -> Mapping[str, BrokerTopicMetrics]:
        """The counters by topic."""
        return self._by_topic

    def of(self, topic: str) -> BrokerTopicMetrics:
        """Return the counters of a topic; the first call makes them."""
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = BrokerTopicMetrics()
        return found

    def remove(self, topic: str) -> None:
        """Drop a topic without a partition on this broker; its counts stay in the totals."""
        gone = self._by_topic.pop(topic, None)
        if gone is not None:
            self._removed.add(gone)

    def total(self) -> BrokerTopicMetrics:
        """Return the totals of all topics since the broker started."""
        sums = BrokerTopicMetrics()
        sums.add(self._removed)
        for each in self._by_topic.values():
            sums.add(each)
        return sums
