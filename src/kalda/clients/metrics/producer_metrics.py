"""Declares the metrics of the producer: ``producer-metrics`` and, for each topic, ``producer-topic-metrics``.

The accumulator, the sender and the facade record, once for each batch or request.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kalda.clients.metrics.registry import ClientMetrics
from kalda.records.batch import HEADER_SIZE

GROUP: Final = "producer-metrics"
TOPIC_GROUP: Final = "producer-topic-metrics"


class TopicProducerMetrics:
    """What is recorded for one topic."""

    __slots__ = ("bytes", "compression", "errors", "records", "retries")

    def __init__(self, metrics: ClientMetrics, topic: str) -> None:
        tags = {"topic": topic}
        self.records: Final = metrics.sensor()
        self.bytes: Final = metrics.sensor()
        self.compression: Final = metrics.sensor()
        self.retries: Final = metrics.sensor()
        self.errors: Final = metrics.sensor()
        metrics.add_meter(TOPIC_GROUP, "record-send", "records sent for a topic", self.records, tags=tags)
        metrics.add_meter(TOPIC_GROUP, "byte", "bytes sent for a topic", self.bytes, tags=tags)
        metrics.add_meter(
            TOPIC_GROUP, "record-retry", "retried record sends for a topic", self.retries, tags=tags
        )
        metrics.add_meter(
            TOPIC_GROUP,
            "record-error",
            "record sends that resulted in errors for a topic",
            self.errors,
            tags=tags,
        )
        metrics.add(
            TOPIC_GROUP,
            "compression-rate",
            "The average compression rate of record batches for a topic: compressed over uncompressed size.",
            self.compression.average,
            tags=tags,
        )


class ProducerMetrics:
    """What is recorded for one producer."""

    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics: Final = metrics
        self._topics: Final[dict[str, TopicProducerMetrics]] = {}
        sensor = metrics.sensor
        self._records: Final = sensor()
        self._record_size: Final = sensor()
        self._batch_size: Final = sensor()
        self._compression: Final = sensor()
        self._queue_time: Final = sensor()
        self._per_request: Final = sensor()
        self._latency: Final = sensor()
        self._retries: Final = sensor()
        self._errors: Final = sensor()
        self._splits: Final = sensor()
        self._throttle: Final = sensor()
        self._buffer_wait: Final = sensor()
        self._exhausted: Final = sensor()
        self._times_ns: Final[dict[str, int]] = {}
        self._declare()

    def _declare(self) -> None:
        add, meter, spread = (
            self._metrics.add,
            self._metrics.add_meter,
            self._metrics.add_average_and_max,
        )
        meter(GROUP, "record-send", "records sent", self._records)
        meter(GROUP, "record-retry", "retried record sends", self._retries)
        meter(GROUP, "record-error", "record sends that resulted in errors", self._errors)
        meter(GROUP, "batch-split", "batch splits", self._splits)
        meter(GROUP, "buffer-exhausted", "record sends that are dropped for want of buffer", self._exhausted)
        spread(GROUP, "batch-size", "number of bytes sent per partition per request", self._batch_size)
        spread(GROUP, "record-size", "record size in bytes, a batch's records averaged", self._record_size)
        spread(GROUP, "record-queue-time", "time in ms batches spent in the send buffer", self._queue_time)
        spread(GROUP, "request-latency", "latency of produce requests in ms", self._latency)
        spread(
            GROUP, "produce-throttle-time", "time in ms a request was throttled by a broker", self._throttle
        )
        add(
            GROUP,
            "records-per-request-avg",
            "The average number of records per request.",
            self._per_request.average,
        )
        add(
            GROUP,
            "compression-rate-avg",
            "The average compression rate of record batches: compressed over uncompressed size.",
            self._compression.average,
        )
        add(
            GROUP,
            "bufferpool-wait-ratio",
            "The fraction of time an appender waits for space allocation.",
            self._buffer_wait.rate,
        )
        self._metrics.add_total(
            GROUP,
            "bufferpool-wait-time-ns-total",
            "The total time an appender waits for space allocation, in nanoseconds.",
            lambda now: self._buffer_wait.total * 1e9,
        )
        for name, what in (
            ("flush", "flush"),
            ("txn-init", "init_transactions"),
            ("txn-begin", "begin_transaction"),
            ("txn-send-offsets", "send_offsets_to_transaction"),
            ("txn-prepare", "prepare_transaction"),
            ("txn-commit", "commit_transaction"),
            ("txn-abort", "abort_transaction"),
            ("metadata-wait", "waits for metadata"),
        ):
            self._times_ns[name] = 0
            self._metrics.add_total(
                GROUP,
                f"{name}-time-ns-total",
                f"The total time the producer has spent in {what}, in nanoseconds.",
                self._read_time(name),
            )

    def watch_buffer(
        self,
        total_bytes: int,
        available_bytes: Callable[[], int],
        waiting_threads: Callable[[], int],
    ) -> None:
        """Register the gauges of the buffer pool."""
        self._metrics.add(
            GROUP,
            "buffer-total-bytes",
            "The maximum amount of buffer memory the client can use.",
            lambda _: total_bytes,
        )
        self._metrics.add(
            GROUP,
            "buffer-available-bytes",
            "The amount of buffer memory that is not used.",
            lambda _: available_bytes(),
        )
        self._metrics.add(
            GROUP,
            "waiting-threads",
            "The number of callers that wait for buffer memory.",
            lambda _: waiting_threads(),
        )

    def watch_sender(
        self, requests_in_flight: Callable[[], int], metadata_age_s: Callable[[], float]
    ) -> None:
        """Register the gauges of the sender."""
        self._metrics.add(
            GROUP,
            "requests-in-flight",
            "The current number of requests that await a response.",
            lambda _: requests_in_flight(),
        )
        self._metrics.add(
            GROUP,
            "metadata-age",
            "The age in seconds of the metadata in use.",
            lambda _: metadata_age_s(),
        )

    def topic(self, topic: str) -> TopicProducerMetrics:
        """Return the metrics of a topic, registered at the first call."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicProducerMetrics(self._metrics, topic)
        return found

    def batch_sent(
        self,
        topic: str,
        *,
        record_count: int,
        batch_bytes: int,
        uncompressed_bytes: int,
        queue_time_s: float,
    ) -> None:
        """Record a batch that goes out for the first time, or again."""
        now = self._metrics.now()
        compression_ratio = batch_bytes / max(uncompressed_bytes, 1)
        found = self.topic(topic)
        found.records.record(record_count, now)
        found.bytes.record(batch_bytes, now)
        found.compression.record(compression_ratio, now)
        self._batch_size.record(batch_bytes, now)
        self._compression.record(compression_ratio, now)
        self._queue_time.record(queue_time_s * 1000, now)
        self._record_size.record((uncompressed_bytes - HEADER_SIZE) / max(record_count, 1), now)

    def request_sent(self, record_count: int) -> None:
        """Record a Produce request."""
        now = self._metrics.now()
        self._records.record(record_count, now)
        self._per_request.record(record_count, now)

    def response_received(self, latency_s: float, throttle_ms: int) -> None:
        """Record the response to a Produce request."""
        now = self._metrics.now()
        self._latency.record(latency_s * 1000, now)
        self._throttle.record(throttle_ms, now)

    def batch_retried(self, topic: str, record_count: int) -> None:
        """Record a batch that will be sent again."""
        now = self._metrics.now()
        self._retries.record(record_count, now)
        self.topic(topic).retries.record(record_count, now)

    def batch_failed(self, topic: str, record_count: int) -> None:
        """Record a batch whose records failed."""
        now = self._metrics.now()
        self._errors.record(record_count, now)
        self.topic(topic).errors.record(record_count, now)

    def batch_split(self) -> None:
        """Record a batch that was split for its size."""
        self._splits.record(1, self._metrics.now())

    @contextmanager
    def waiting_for_buffer(self) -> Iterator[None]:
        """Record the time of a block in which an appender waits for buffer memory."""
        started = self._metrics.now()
        try:
            yield
        finally:
            now = self._metrics.now()
            self._buffer_wait.record(now - started, now)

    def buffer_exhausted(self) -> None:
        """Record a record that was refused for want of buffer memory."""
        self._exhausted.record(1, self._metrics.now())

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Add the time of a block to ``<name>-time-ns-total``, e.g. of ``flush`` or ``txn-commit``."""
        started = self._metrics.now()
        try:
            yield
        finally:
            self._times_ns[name] += round((self._metrics.now() - started) * 1e9)

    def _read_time(self, name: str) -> Callable[[float], float]:
        return lambda _: self._times_ns[name]
