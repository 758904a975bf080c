"""A load that notes where each acknowledged record is, and the reader that looks there.

Unlike `tests.chaos.ordered_load` it also runs without idempotence, where records may come twice and out of
order: what a broker acknowledged at an offset must be at that offset, and nothing else is promised.
`AcknowledgedLoad` keeps the notes; `LibrdkafkaAcknowledgedLoad` and `read_partition` use librdkafka.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Any, Final

import confluent_kafka

PARTITIONS: Final = 3
FINAL_FLUSH_SECONDS: Final = 60.0
CONSUME_SECONDS: Final = 30.0
DELIVERY_MS: Final = 120_000
"""How long a producer tries to deliver a record."""


class AcknowledgedLoad(ABC):
    """One producer in a thread of its own; a subclass brings the client."""

    def __init__(self, topic: str) -> None:
        self.topic: Final = topic
        self.acknowledged: Final[dict[int, dict[int, int]]] = defaultdict(dict)
        """By partition and offset: the number of the record that a broker acknowledged there."""
        self.errors: Final[list[str]] = []
        self._number = 0
        self._newest_acknowledged = -1
        self._stop: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name=f"load {topic}")

    def start(self) -> None:
        """Begin to produce."""
        self._thread.start()

    def stop(self) -> None:
        """Stop producing and wait until each record is acknowledged or has failed."""
        self._end()
        left = self._flush(FINAL_FLUSH_SECONDS)
        assert 0 == left, f"{left} records of {self.topic} got no answer"

    def close(self) -> None:
        """End the load and wait for no acknowledgement. Twice is harmless."""
        self._end()

    def wait_progress(self, timeout_seconds: float) -> None:
        """Wait until a record that was produced from now on is acknowledged."""
        target = self._number
        deadline = time.monotonic() + timeout_seconds
        while self._newest_acknowledged < target:
            assert time.monotonic() < deadline, f"{self.topic}: nothing acknowledged in {timeout_seconds} s"
            time.sleep(0.005)

    def _end(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                if self._produce(partition, self._number, b"%d" % self._number + b" " * 200):
                    self._number += 1
            self._pause(0.0005)

    @abstractmethod
    def _produce(self, partition: int, number: int, value: bytes) -> bool:
        """Hand a record to the client; return whether it was taken, which a full buffer prevents."""

    @abstractmethod
    def _pause(self, seconds: float) -> None:
        """Let time go by, and callbacks run."""

    @abstractmethod
    def _flush(self, seconds: float) -> int:
        """Wait for acknowledgements; return how many records have none."""

    def _delivered(self, number: int, partition: int, offset: int, error: object) -> None:
        """Take the answer to one record."""
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged[partition][offset] = number
            self._newest_acknowledged = max(self._newest_acknowledged, number)


class LibrdkafkaAcknowledgedLoad(AcknowledgedLoad):
    """The load from librdkafka's producer."""

    def __init__(self, bootstrap: str, topic: str, *, acks: str, is_idempotent: bool) -> None:
        super().__init__(topic)
        self._producer: Final = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "enable.idempotence": is_idempotent,
                "linger.ms": 2,
                "message.timeout.ms": DELIVERY_MS,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "queue.buffering.max.messages": 5_000,
                "log_level": 0,
            }
        )

    def _produce(self, partition: int, number: int, value: bytes) -> bool:
        def delivered(error: Any, message: Any) -> None:
            self._delivered(number, message.partition(), message.offset(), error)

        try:
            self._producer.produce(self.topic, value=value, partition=partition, on_delivery=delivered)
        except BufferError:
            self._producer.poll(0.01)
            return False
        return True

    def _pause(self, seconds: float) -> None:
        self._producer.poll(0)
        time.sleep(seconds)

    def _flush(self, seconds: float) -> int:
        return int(self._producer.flush(seconds))


def read_partition(bootstrap: str, topic: str, partition: int) -> dict[int, int]:
    """Return the number in each record, by offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(
            confluent_kafka.TopicPartition(topic, partition), timeout=CONSUME_SECONDS
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, low)])
        values: dict[int, int] = {}
        while len(values) < high - low:
            # It waits for as many as are asked for.
            batch = consumer.consume(min(10_000, high - low - len(values)), timeout=CONSUME_SECONDS)
            assert batch, f"{topic}-{partition}: {len(values)} of {high - low} records could be read"
            for message in batch:
                assert message.error() is None, message.error()
                values[message.offset()] = int(message.value())
        return values
    finally:
        consumer.close()
