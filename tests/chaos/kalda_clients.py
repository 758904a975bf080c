"""The loads and the readers on Kalda's own producer and consumer."""

import time
from collections.abc import Mapping
from typing import Any, TypedDict

from kalda import Consumer, Producer, TopicPartition
from kalda.clients.consumer.consumer_config import Isolation
from kalda.clients.errors import ClientError, RequestTimedOutError
from kalda.clients.producer.producer_config import Acks
from tests.chaos.acknowledged_load import CONSUME_SECONDS, DELIVERY_MS, AcknowledgedLoad
from tests.chaos.ordered_load import CheckingReader, Ledger, OrderedLoad, Record


class Patience(TypedDict):
    """How soon and how long a client tries again."""

    retry_backoff_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    request_timeout_ms: int


SETTINGS: Patience = {
    "retry_backoff_ms": 20,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "metadata_max_age_ms": 10_000,
    "request_timeout_ms": 10_000,
}
"""The same patience as librdkafka's in `ordered_load`."""
_FOR_EVER_MS = 2**31 - 1


def arguments(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return security settings in dotted names as keyword arguments, without the brokers' addresses."""
    return {name.replace(".", "_"): value for name, value in settings.items() if name != "bootstrap.servers"}


class KaldaLoad(OrderedLoad):
    """The load from Kalda's producer."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        ledger: Ledger,
        *,
        records_per_second: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(topic, ledger, records_per_second=records_per_second)
        self._bootstrap = bootstrap
        self._open(settings or {})

    def _open(self, settings: Mapping[str, str]) -> None:
        self._producer = Producer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            delivery_timeout_ms=_FOR_EVER_MS,
            buffer_memory=4_000_000,
            max_block_ms=1_000,
            **SETTINGS,
            **arguments(settings),
        )

    def _produce(self, partition: int, number: int, value: bytes) -> bool:
        def delivered(metadata: object, error: BaseException | None) -> None:
            offset = None if metadata is None else getattr(metadata, "offset", None)
            self._delivered(partition, number, offset, error)

        try:
            self._producer.send(self._topic, value, partition=partition, on_delivery=delivered)
        except RequestTimedOutError:
            # The buffer is full, or no broker has answered for metadata yet.
            return False
        except ClientError as error:
            self.errors.append(f"{type(error).__name__}: {error}")
            return False
        return True

    def _pause(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _flush(self, seconds: float) -> int:
        try:
            self._producer.flush(timeout_s=seconds)
        except RequestTimedOutError:
            return sum(self.produced) - self._ledger.acknowledged_count
        finally:
            self._producer.close(timeout_s=5)
        return 0


class KaldaReader(CheckingReader):
    """The reader on Kalda's consumer."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        ledger: Ledger,
        *,
        isolation: Isolation = "read_committed",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(topic, ledger)
        self._bootstrap = bootstrap
        self._isolation = isolation
        self._open(settings or {})

    def _open(self, settings: Mapping[str, str]) -> None:
        self._consumer = Consumer(
            bootstrap_servers=self._bootstrap,
            # A position that the log does not have is a loss; it must not be mended by a jump.
            auto_offset_reset="none",
            isolation_level=self._isolation,
            **SETTINGS,
            **arguments(settings),
        )
        positions = {
            TopicPartition(self._topic, number): offset
            for number, offset in enumerate(self._ledger.next_offsets)
        }
        self._consumer.assign(list(positions))
        for partition, offset in positions.items():
            self._consumer.seek(partition, offset)

    def _read_some(self) -> None:
        try:
            records = self._consumer.poll(0.1)
        except ClientError as error:
            self.errors.append(f"{type(error).__name__}: {error}")
            return
        for record in records:
            self._ledger.read(Record(record.partition, record.offset, int(record.value or b"")))

    def _close(self) -> None:
        self._consumer.close()


class KaldaAcknowledgedLoad(AcknowledgedLoad):
    """The load that notes offsets, from Kalda's producer."""

    def __init__(self, bootstrap: str, topic: str, *, acks: Acks, is_idempotent: bool) -> None:
        super().__init__(topic)
        self._producer = Producer(
            bootstrap_servers=bootstrap,
            acks=acks,
            enable_idempotence=is_idempotent,
            linger_ms=2,
            delivery_timeout_ms=DELIVERY_MS,
            # About the 5,000 records that librdkafka may hold.
            buffer_memory=1_500_000,
            max_block_ms=1_000,
            **SETTINGS,
        )

    def close(self) -> None:
        """End the load, and the producer with what it has not sent."""
        super().close()
        self._producer.close(timeout_s=0)

    def _produce(self, partition: int, number: int, value: bytes) -> bool:
        def delivered(metadata: object, error: BaseException | None) -> None:
            self._delivered(number, partition, getattr(metadata, "offset", -1), error)

        try:
            self._producer.send(self.topic, value, partition=partition, on_delivery=delivered)
        except RequestTimedOutError:
            # The buffer is full, or no broker has answered for metadata yet.
            return False
        return True

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def _flush(self, seconds: float) -> int:
        try:
            self._producer.flush(timeout_s=seconds)
        except RequestTimedOutError:
            return self._number - sum(map(len, self.acknowledged.values())) - len(self.errors)
        return 0


def kalda_read_partition(bootstrap: str, topic: str, partition: int) -> dict[int, int]:
    """Return the number in each record, by offset."""
    from_partition = TopicPartition(topic, partition)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none", **SETTINGS) as consumer:
        low = consumer.beginning_offsets([from_partition])[from_partition]
        high = consumer.end_offsets([from_partition])[from_partition]
        consumer.assign([from_partition])
        consumer.seek(from_partition, low)
        values: dict[int, int] = {}
        while len(values) < high - low:
            records = consumer.poll(CONSUME_SECONDS)
            assert records, f"{from_partition}: {len(values)} of {high - low} records could be read"
            values.update((record.offset, int(record.value or b"")) for record in records)
        return values
