"""Sends the events to a topic with confluent-kafka, an unmodified Kafka client."""

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.flights.events import Event

PARTITIONS = 4

_FLUSH_SECONDS = 60
_REPORT_EVERY = 5_000


def create_topic(bootstrap: str, topic: str) -> None:
    """Create the topic without retention by time, which would delete the events of 2013."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)


def replay(bootstrap: str, topic: str, events: Sequence[Event], report: Callable[[int], None]) -> int:
    """Send the events in order, with the carrier as key; return how many the broker acknowledged.

    Raises:
        KafkaException: the broker refused a message, or did not acknowledge all in time.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "enable.idempotence": True,
            "compression.type": "lz4",
        }
    )
    acknowledged = 0
    failure: KafkaError | None = None

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal acknowledged, failure
        if error is None:
            acknowledged += 1
        else:
            failure = error

    for sent, event in enumerate(events, start=1):
        arguments = {"key": event.carrier, "timestamp": event.time_ms, "on_delivery": on_delivery}
        while True:
            try:
                producer.produce(topic, event.payload, **arguments)
                break
            except BufferError:
                producer.poll(0.05)
        if sent % _REPORT_EVERY == 0:
            producer.poll(0)
            report(acknowledged)
    waiting = producer.flush(_FLUSH_SECONDS)
    if failure is not None:
        raise KafkaException(failure)
    if waiting:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{waiting} messages were not acknowledged"))
    report(acknowledged)
    return acknowledged
