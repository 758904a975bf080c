"""Declares the metrics of the consumer: its polls, its fetches and its part in a group.

Groups: ``consumer-metrics``, ``consumer-fetch-manager-metrics`` (also by topic and by partition) and
``consumer-coordinator-metrics``. The fetcher records once for each response and partition, the coordinators
once for each request.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.metrics.sensor import Sensor
from kalda.common.types import TopicPartition

GROUP: Final = "consumer-metrics"
FETCH_GROUP: Final = "consumer-fetch-manager-metrics"
COORDINATOR_GROUP: Final = "consumer-coordinator-metrics"
SECONDS_PER_HOUR: Final = 3600.0


class PollTimes:
    """How the application calls `poll`, a ``with`` block here."""

    def __init__(self, metrics: ClientMetrics, group: str) -> None:
        self._metrics: Final = metrics
        self._between: Final = metrics.sensor()
        self._idle: Final = metrics.sensor()
        self._started: float | None = None
        self._ended: float | None = None
        metrics.add_average_and_max(group, "time-between-poll", "delay between polls in ms", self._between)
        metrics.add(
            group,
            "poll-idle-ratio-avg",
            "The average fraction of time that poll waits, as opposed to the program processing records.",
            self._idle.average,
        )
        metrics.add(
            group,
            "last-poll-seconds-ago",
            "The number of seconds since the last poll; -1 before the first.",
            lambda now: -1.0 if self._started is None else now - self._started,
        )

    def __enter__(self) -> None:
        """Record the start of a poll: the time since the one before, and the share of it that poll waited."""
        now = self._metrics.now()
        if self._started is not None:
            between = now - self._started
            self._between.record(between * 1000, now)
            if self._ended is not None and between > 0:
                self._idle.record((self._ended - self._started) / between, now)
        self._started = now

    def __exit__(self, *_: object) -> None:
        """Record its end."""
        self._ended = self._metrics.now()


class PollMetrics(PollTimes):
    """How the application calls `poll`, and how long it waits in other calls."""

    def __init__(self, metrics: ClientMetrics) -> None:
        super().__init__(metrics, GROUP)
        self._times_ns: Final = {"commit-sync": 0, "committed": 0}
        for name, what in (("commit-sync", "commit"), ("committed", "committed")):
            metrics.add_total(
                GROUP,
                f"{name}-time-ns-total",
                f"The total time the consumer has spent in {what}, in nanoseconds.",
                self._read_time(name),
            )

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Add the time of a block to ``commit-sync-time-ns-total`` or ``committed-time-ns-total``."""
        started = self._metrics.now()
        try:
            yield
        finally:
            self._times_ns[name] += round((self._metrics.now() - started) * 1e9)

    def _read_time(self, name: str) -> Callable[[float], float]:
        return lambda _: self._times_ns[name]


class _Consumed:
    """Bytes and records that were consumed, in all or of one topic."""

    __slots__ = ("bytes", "records")

    def __init__(self, metrics: ClientMetrics, tags: dict[str, str], where: str) -> None:
        self.bytes: Final = metrics.sensor()
        self.records: Final = metrics.sensor()
        add = metrics.add
        metrics.add_meter(FETCH_GROUP, "bytes-consumed", f"bytes consumed{where}", self.bytes, tags=tags)
        metrics.add_meter(
            FETCH_GROUP, "records-consumed", f"records consumed{where}", self.records, tags=tags
        )
        metrics.add_average_and_max(
            FETCH_GROUP, "fetch-size", f"number of bytes fetched per request{where}", self.bytes, tags
        )
        add(
            FETCH_GROUP,
            "records-per-request-avg",
            f"The average number of records in each request{where}.",
            self.records.average,
            tags=tags,
        )


class _PartitionFetchMetrics:
    """The lag and lead of one partition."""

    __slots__ = ("lag", "lead", "preferred_read_replica")

    def __init__(self, metrics: ClientMetrics, tags: dict[str, str]) -> None:
        self.lag: Final = metrics.sensor()
        self.lead: Final = metrics.sensor()
        self.preferred_read_replica = -1
        add, lag, lead = metrics.add, self.lag, self.lead
        for name, description, measure in (
            ("records-lag", "The latest lag of the partition.", lag.last_value),
            ("records-lag-max", "The maximum lag of the partition.", lag.largest),
            ("records-lag-avg", "The average lag of the partition.", lag.average),
            ("records-lead", "The latest lead of the partition.", lead.last_value),
            ("records-lead-min", "The minimum lead of the partition.", lead.smallest),
            ("records-lead-avg", "The average lead of the partition.", lead.average),
        ):
            add(FETCH_GROUP, name, description, measure, tags=tags)
        add(
            FETCH_GROUP,
            "preferred-read-replica",
            "The broker that the partition is read from, or -1 for the leader.",
            lambda _: self.preferred_read_replica,
            tags=tags,
        )


class FetchMetrics:
    """What the fetcher records."""

    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics: Final = metrics
        self._all: Final = _Consumed(metrics, {}, "")
        self._topics: Final[dict[str, _Consumed]] = {}
        self._partitions: Final[dict[TopicPartition, _PartitionFetchMetrics]] = {}
        self._latency: Final = metrics.sensor()
        self._throttle: Final = metrics.sensor()
        self._lag: Final = metrics.sensor()
        self._lead: Final = metrics.sensor()
        metrics.add_meter(FETCH_GROUP, "fetch", "fetch requests", self._latency, counts=True)
        metrics.add_average_and_max(
            FETCH_GROUP, "fetch-latency", "time taken for a fetch request in ms", self._latency
        )
        metrics.add_average_and_max(FETCH_GROUP, "fetch-throttle-time", "throttle time in ms", self._throttle)
        metrics.add(
            FETCH_GROUP,
            "records-lag-max",
            "The maximum lag, in records, of any partition in this window.",
            self._lag.largest,
        )
        metrics.add(
            FETCH_GROUP,
            "records-lead-min",
            "The minimum lead, in records, of any partition in this window.",
            self._lead.smallest,
        )

    def response_received(self, latency_s: float, throttle_ms: int) -> None:
        """Record the response to a Fetch request."""
        now = self._metrics.now()
        self._latency.record(latency_s * 1000, now)
        self._throttle.record(throttle_ms, now)

    def fetched(self, byte_count: int, record_count: int) -> None:
        """Record what one response brought, once all its records were given out."""
        now = self._metrics.now()
        self._all.bytes.record(byte_count, now)
        self._all.records.record(record_count, now)

    def topic_fetched(self, topic: str, byte_count: int, record_count: int) -> None:
        """Record the part of one topic in `fetched`."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _Consumed(self._metrics, {"topic": topic}, " for a topic")
        now = self._metrics.now()
        found.bytes.record(byte_count, now)
        found.records.record(record_count, now)

    def position_moved(self, partition: TopicPartition, *, lag: int | None, lead: int | None) -> None:
        """Record how far a position is from the end and from the start of the log, where that is known."""
        found = self._partition(partition)
        now = self._metrics.now()
        if lag is not None:
            found.lag.record(lag, now)
            self._lag.record(lag, now)
        if lead is not None:
            found.lead.record(lead, now)
            self._lead.record(lead, now)

    def read_replica(self, partition: TopicPartition, broker_id: int) -> None:
        """Note the broker that the partition is read from, -1 for the leader."""
        self._partition(partition).preferred_read_replica = broker_id

    def assigned(self, partitions: set[TopicPartition]) -> None:
        """Remove the metrics of partitions that are no longer assigned."""
        for partition in self._partitions.keys() - partitions:
            del self._partitions[partition]
            self._metrics.remove(_partition_tags(partition))

    def _partition(self, partition: TopicPartition) -> _PartitionFetchMetrics:
        found = self._partitions.get(partition)
        if found is None:
            found = _PartitionFetchMetrics(self._metrics, _partition_tags(partition))
            self._partitions[partition] = found
        return found


class ResponseMetrics:
    """What one Fetch response brought; recorded when all its records were given out or dropped."""

    __slots__ = ("_metrics", "_partitions_left", "_topics")

    def __init__(self, metrics: FetchMetrics, partition_count: int) -> None:
        self._metrics: Final = metrics
        self._partitions_left = partition_count
        self._topics: dict[str, tuple[int, int]] = {}

    def drained(self, topic: str, byte_count: int, record_count: int) -> None:
        """Note that nothing of one partition is left."""
        bytes_before, records_before = self._topics.get(topic, (0, 0))
        self._topics[topic] = bytes_before + byte_count, records_before + record_count
        self._partitions_left -= 1
        if self._partitions_left:
            return
        for name, (bytes_of_topic, records_of_topic) in self._topics.items():
            self._metrics.topic_fetched(name, bytes_of_topic, records_of_topic)
        self._metrics.fetched(
            sum(each[0] for each in self._topics.values()), sum(each[1] for each in self._topics.values())
        )


class HeartbeatMetrics:
    """What the member of a group of any kind records."""

    def __init__(self, metrics: ClientMetrics, group: str) -> None:
        self._metrics: Final = metrics
        self._heartbeat: Final = metrics.sensor()
        self._last_heartbeat: float | None = None
        metrics.add_meter(group, "heartbeat", "heartbeats", self._heartbeat, counts=True)
        metrics.add(
            group,
            "heartbeat-response-time-max",
            "The maximum time taken to receive a response to a heartbeat, in ms.",
            self._heartbeat.largest,
        )
        metrics.add(
            group,
            "last-heartbeat-seconds-ago",
            "The number of seconds since the last heartbeat was sent; -1 before the first.",
            lambda now: -1.0 if self._last_heartbeat is None else now - self._last_heartbeat,
        )

    def heartbeat_sent(self) -> None:
        """Note that a heartbeat was sent."""
        self._last_heartbeat = self._metrics.now()

    def heartbeat_answered(self, latency_s: float) -> None:
        """Record the response to a heartbeat."""
        self._heartbeat.record(latency_s * 1000, self._metrics.now())


class CoordinatorMetrics(HeartbeatMetrics):
    """What the member of a group records, with either protocol."""

    def __init__(self, metrics: ClientMetrics, assigned_count: Callable[[], int]) -> None:
        super().__init__(metrics, COORDINATOR_GROUP)
        self._commit: Final = metrics.sensor()
        self._join: Final = metrics.sensor()
        self._sync: Final = metrics.sensor()
        self._rebalance: Final = metrics.sensor()
        self._failed: Final = metrics.sensor()
        self._callbacks: Final = {
            name: metrics.sensor() for name in ("partition-revoked", "partition-assigned", "partition-lost")
        }
        self._last_rebalance: float | None = None
        meter, spread = metrics.add_meter, metrics.add_average_and_max
        group = COORDINATOR_GROUP
        meter(group, "commit", "commit calls", self._commit, counts=True)
        spread(group, "commit-latency", "time taken for a commit request in ms", self._commit)
        meter(group, "join", "group joins", self._join, counts=True)
        spread(group, "join-time", "time taken for a group rejoin in ms", self._join)
        meter(group, "sync", "group syncs", self._sync, counts=True)
        spread(group, "sync-time", "time taken for a group sync in ms", self._sync)
        spread(group, "rebalance-latency", "time taken for a successful rebalance in ms", self._rebalance)
        metrics.add_total(
            group,
            "rebalance-latency-total",
            "The total time in ms this consumer has spent in successful rebalances.",
            self._rebalance.sum_total,
        )
        add_hourly(metrics, group, "rebalance", "successful rebalances", self._rebalance)
        add_hourly(metrics, group, "failed-rebalance", "failed rebalances", self._failed)
        for name, sensor in self._callbacks.items():
            spread(
                group,
                f"{name}-latency",
                f"time taken by the {name.replace('-', 's-')} callback in ms",
                sensor,
            )
        metrics.add(
            group,
            "assigned-partitions",
            "The number of partitions assigned to this consumer.",
            lambda _: assigned_count(),
        )
        metrics.add(
            group,
            "last-rebalance-seconds-ago",
            "The number of seconds since the last successful rebalance; -1 before the first.",
            lambda now: -1.0 if self._last_rebalance is None else now - self._last_rebalance,
        )

    def committed(self, latency_s: float) -> None:
        """Record the response to an OffsetCommit."""
        self._commit.record(latency_s * 1000, self._metrics.now())

    def joined(self, latency_s: float) -> None:
        """Record the response to a JoinGroup."""
        self._join.record(latency_s * 1000, self._metrics.now())

    def synced(self, latency_s: float) -> None:
        """Record the response to a SyncGroup."""
        self._sync.record(latency_s * 1000, self._metrics.now())

    def rebalanced(self, latency_s: float) -> None:
        """Record a rebalance that ended with an assignment."""
        now = self._metrics.now()
        self._rebalance.record(latency_s * 1000, now)
        self._last_rebalance = now

    def rebalance_failed(self) -> None:
        """Record a rebalance that has to start again."""
        self._failed.record(1, self._metrics.now())

    def called_back(self, event: str, seconds: float) -> None:
        """Record a rebalance callback: ``revoked``, ``assigned`` or ``lost``."""
        self._callbacks[f"partition-{event}"].record(seconds * 1000, self._metrics.now())


def _partition_tags(partition: TopicPartition) -> dict[str, str]:
    return {"topic": partition.topic, "partition": str(partition.partition)}


def add_hourly(metrics: ClientMetrics, group: str, base: str, what: str, sensor: Sensor) -> None:
    """Register ``<base>-rate-per-hour`` and ``<base>-total`` of events."""
    metrics.add(
        group,
        f"{base}-rate-per-hour",
        f"The number of {what} per hour.",
        lambda now: sensor.count_rate(now) * SECONDS_PER_HOUR,
    )
    metrics.add_total(group, f"{base}-total", f"The total number of {what}.", sensor.count_total)
