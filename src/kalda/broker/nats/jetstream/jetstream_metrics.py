"""Registers the metrics of JetStream on one broker: led streams and consumers, and counters."""

from collections.abc import Callable, Iterator
from typing import Final

from kalda.broker.nats.jetstream.jetstream_parts import JetStreamCounts
from kalda.broker.nats.jetstream.led_stream import LedStream
from kalda.broker.nats.jetstream.stream_consumer import StreamConsumer
from kalda.broker.nats.jetstream.streams import Streams
from kalda.common.metrics import Metrics
from kalda.nats.carried_requests import CarriedRequests

_PREFIX: Final = "kalda_nats_jetstream_"


def register(metrics: Metrics, streams: Streams, requests: CarriedRequests, counts: JetStreamCounts) -> None:
    """Register the metrics; `requests` are those that other brokers have."""

    def led() -> Iterator[LedStream]:
        for known in streams.known.values():
            if known.led is not None and known.led.is_open and not known.led.is_closed:
                yield known.led

    def consumers(value: Callable[[StreamConsumer], int]) -> Callable[[], float]:
        return lambda: sum(value(each) for stream in led() for each in stream.consumers.values())

    gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("streams", "Streams that this broker leads.", lambda: sum(1 for _ in led())),
        ("messages", "Messages of these streams.", lambda: sum(each.index.count for each in led())),
        ("bytes", "Bytes of these messages.", lambda: sum(each.index.bytes for each in led())),
        ("consumers", "Consumers of these streams.", consumers(lambda each: 1)),
        (
            "ack_pending",
            "Messages that wait for acknowledgements.",
            consumers(lambda each: each.pending_count),
        ),
        ("unread", "Messages that consumers have not delivered yet.", consumers(lambda each: each.unread)),
        ("pull_requests", "Pull requests that wait.", consumers(lambda each: each.waiting_count)),
        ("carried_waiting", "Requests that other brokers have not answered.", lambda: len(requests)),
    )
    for name, help_text, value in gauges:
        metrics.gauge(_PREFIX + name, help_text, value)
    counters: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("api_requests", "Requests of the API that were answered.", lambda: counts.requests),
        ("api_errors", "Requests that were answered with an error.", lambda: counts.errors),
        ("stored_messages", "Messages added to streams.", lambda: counts.stored),
        ("duplicates", "Messages whose ids streams had already.", lambda: counts.duplicates),
        ("delivered_messages", "Messages that consumers delivered.", lambda: counts.delivered),
        (
            "redelivered_messages",
            "Deliveries of messages that were delivered before.",
            lambda: counts.redelivered,
        ),
        ("carried", "Requests and messages carried to other brokers.", lambda: counts.carried),
        ("carry_failures", "Requests that other brokers did not answer.", lambda: requests.failure_count),
    )
    for name, help_text, value in counters:
        metrics.counter_function(_PREFIX + name, help_text, value)
