"""The topics of the Spark benchmarks: records of varying size, with and without compression."""

import random
from dataclasses import dataclass
from typing import Final

import confluent_kafka

from benchmarks.end_to_end import Workload, create_topic

PARTITIONS: Final = 4
MINUTES: Final = 600
FIRST_TIME_MS: Final = 1_700_000_000_000
"""The timestamp of the first record of a topic that spans `MINUTES`."""
_VARIATION: Final = 0.4
"""Sizes are spread evenly over ±40 %: equal sizes flatter a decoder, which could add a constant."""
_PIECE_COUNT: Final = 500
_TEXT_PIECES: Final = 20_000


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """A topic and its records."""

    name: str
    count: int
    value_bytes: int
    codec: str = "none"
    is_spread: bool = False
    """Whether the timestamps are spread over `MINUTES` minutes; else they are those of the load."""


def load(bootstrap: str, topic: TopicLoad) -> None:
    """Create and fill a topic: keys that differ, values of varying size that compress about threefold."""
    create_topic(bootstrap, topic.name, Workload(partitions=PARTITIONS, topic_config={"retention.ms": "-1"}))
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 262_144,
            "compression.type": topic.codec,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
        }
    )
    chooser = random.Random(1)
    pieces = [b"%08x" % chooser.getrandbits(32) for _ in range(_PIECE_COUNT)]
    text = b"".join(chooser.choice(pieces) for _ in range(_TEXT_PIECES))
    shortest, longest = (round(topic.value_bytes * (1 + sign * _VARIATION)) for sign in (-1, 1))
    for number in range(topic.count):
        size = chooser.randint(shortest, longest)
        start = number * 7_919 % (len(text) - size)
        time_ms = FIRST_TIME_MS + number * MINUTES * 60_000 // topic.count if topic.is_spread else 0
        _produce(producer, topic.name, number, text[start : start + size], time_ms)
    if producer.flush(120):
        raise RuntimeError(f"the broker did not take all records of {topic.name}")


def _produce(producer: confluent_kafka.Producer, topic: str, number: int, value: bytes, time_ms: int) -> None:
    while True:
        try:
            # A timestamp of 0 means now to this client.
            producer.produce(
                topic, key=b"key-%d" % number, value=value, partition=number % PARTITIONS, timestamp=time_ms
            )
            break
        except BufferError:
            producer.poll(0.05)
