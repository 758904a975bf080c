"""A load whose every record can be accounted for, and the reader that accounts for them.

Each partition gets its own sequence of numbers from idempotent producers with acks=all, so that what a reader
must see is known exactly: 0, 1, 2, … in every partition, each once, in order, whatever happened to brokers.
`Ledger` is the judgement, without a client in sight. `OrderedLoad` and `CheckingReader` run a producer and a
consumer in threads of their own and report to it; `LibrdkafkaLoad` and `LibrdkafkaReader` do so with
librdkafka's.
"""

import faulthandler
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka

FINAL_FLUSH_SECONDS = 90.0
READ_SECONDS = 60.0
RENEWAL_SECONDS = 150.0
"""Longer than the final flush of a producer and the end of its client."""
VIOLATIONS_MAX = 20
"""Kept for the report; one lost record shifts all that follow, so more of them say nothing new."""

RECONNECT = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 10_000,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


UNUSED_GROUP = "unused"
"""What librdkafka's consumer needs as a group, where it neither joins nor commits."""

UNKNOWN_OFFSET = -1
"""Where librdkafka knows that a record was kept but not where: its acknowledgement was lost with a broker,
and that of a later one told."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a producer or a reader got it."""

    partition: int
    offset: int
    number: int


class Ledger:
    """What was acknowledged, what was read, and every contradiction between the two.

    >>> ledger = Ledger(partitions=1)
    >>> ledger.acknowledge(Record(0, 0, 0))
    >>> ledger.read(Record(0, 0, 0)); ledger.read(Record(0, 1, 2))
    >>> ledger.violations
    ['partition 0: expected number 1 at offset 1, read 2 at 1']
    """

    def __init__(self, partitions: int, *, is_dense: bool = True) -> None:
        self._is_dense = is_dense
        """Whether nothing but numbers is in the log; transactions put markers between them."""
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        """By partition: the offset of each number that was acknowledged."""
        self.next_numbers = [0] * partitions
        self.next_offsets = [0] * partitions
        self.violations: list[str] = []

    def acknowledge(self, record: Record) -> None:
        """Take note of what a broker promised to keep."""
        offsets = self.acknowledged[record.partition]
        if record.number in offsets:
            self._violate(f"partition {record.partition}: number {record.number} was acknowledged twice")
        # Each partition is filled with nothing but its numbers, from the first on.
        if record.offset not in (record.number, UNKNOWN_OFFSET):
            self._violate(
                f"partition {record.partition}: number {record.number} was acknowledged at {record.offset}"
            )
        offsets[record.number] = record.offset

    def read(self, record: Record) -> None:
        """Judge the next record of a partition."""
        partition = record.partition
        number, offset = self.next_numbers[partition], self.next_offsets[partition]
        is_at_place = record.offset == offset if self._is_dense else record.offset >= offset
        if record.number != number or not is_at_place:
            self._violate(
                f"partition {partition}: expected number {number} at offset {offset}, "
                f"read {record.number} at {record.offset}"
            )
        self.next_numbers[partition] = record.number + 1
        self.next_offsets[partition] = record.offset + 1

    def is_all_read(self) -> bool:
        """Tell whether a reader is past everything that was acknowledged."""
        newest = [max(offsets, default=-1) for offsets in self.acknowledged]
        return all(read > number for read, number in zip(self.next_numbers, newest, strict=True))

    def check_all_read(self) -> None:
        """Find the acknowledged records that no reader saw."""
        for partition, offsets in enumerate(self.acknowledged):
            lost = [number for number in offsets if number >= self.next_numbers[partition]]
            if lost:
                self._violate(
                    f"partition {partition}: {len(lost)} acknowledged records were not read, the first is "
                    f"number {min(lost)}; read up to {self.next_numbers[partition]}"
                )

    @property
    def acknowledged_count(self) -> int:
        """How many records brokers promised to keep."""
        return sum(map(len, self.acknowledged))

    def _violate(self, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(what)


class Renewal:
    """Hands new security settings to the thread that owns a client."""

    def __init__(self, client: str, errors: list[str]) -> None:
        """`client` names it; after one of the `errors` it may not answer any more."""
        self._client = client
        self._errors = errors
        self._wanted: Mapping[str, str] | None = None
        self._done = threading.Event()

    def ask(self, settings: Mapping[str, str]) -> None:
        """Return when the thread has a client with these settings.

        Raises:
            TimeoutError: that took too long, or the client has failed.
        """
        self._done.clear()
        self._wanted = settings
        deadline = time.monotonic() + RENEWAL_SECONDS
        while not self._done.wait(1.0):
            if self._errors:
                raise TimeoutError(f"the {self._client} was not replaced: {self._errors[:3]}")
            if time.monotonic() < deadline:
                continue
            faulthandler.dump_traceback()
            raise TimeoutError(f"the {self._client} was not replaced in {RENEWAL_SECONDS} s")

    def serve(self, exchange: Callable[[Mapping[str, str]], None]) -> None:
        """Exchange the client if that was asked for; called by the thread."""
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            exchange(wanted)
            self._done.set()


def error_reporter(errors: list[str]) -> Callable[[confluent_kafka.KafkaError], None]:
    """Return a callback that keeps what librdkafka reports about logins, certificates and permissions.

    It reports lost connections as well, which faults cause; it connects again by itself.
    """

    def report(error: confluent_kafka.KafkaError) -> None:
        if error.fatal() or is_refusal(error.name(), error.str()):
            errors.append(f"{error.name()}: {error.str()}")

    return report


def is_refusal(name: str, text: str) -> bool:
    """Tell whether an error says that a login, a certificate or a permission was refused.

    librdkafka reports _AUTHENTICATION with a local cause, too, where the broker has not answered: it stands
    still, or is gone. What brokers refused is in their audit logs.
    """
    if name == "_AUTHENTICATION":
        return "Local: " not in text
    return "AUTH" in name or (name == "_SSL" and "certificate" in text)


class OrderedLoad(ABC):
    """An idempotent producer that never gives up, in a thread of its own; a subclass brings the client."""

    def __init__(self, topic: str, ledger: Ledger, *, records_per_second: int) -> None:
        self._topic = topic
        self._ledger = ledger
        self._pause_seconds = len(ledger.acknowledged) / records_per_second
        self._next = [0] * len(ledger.acknowledged)
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._renewal = Renewal(f"load {topic}", self.errors)
        self._thread = threading.Thread(target=self._run, name=f"load {topic}")

    @property
    def produced(self) -> list[int]:
        """How many records were produced, by partition."""
        return list(self._next)

    def start(self) -> None:
        """Begin to produce."""
        self._thread.start()

    def stop(self) -> None:
        """Stop producing and wait until each record is acknowledged; what is not counts as an error."""
        self.abandon()
        left = self._flush(FINAL_FLUSH_SECONDS)
        if left:
            self.errors.append(f"{left} records got no answer in {FINAL_FLUSH_SECONDS} s")

    def abandon(self) -> None:
        """Stop producing and wait for nothing."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def renew(self, settings: Mapping[str, str]) -> None:
        """Wait until all is acknowledged, and go on with another producer of these security settings.

        Raises:
            TimeoutError: that took too long.
        """
        self._renewal.ask(settings)

    def wait_progress(self, timeout_seconds: float) -> float:
        """Wait until each partition acknowledged a record that is produced from now on; return how long.

        Raises:
            TimeoutError: names the partitions that did not.
        """
        begin = time.monotonic()
        targets = list(self._next)
        acknowledged = self._ledger.acknowledged
        while True:
            # Numbers begin at 0 and each is acknowledged once.
            waiting = [p for p, target in enumerate(targets) if len(acknowledged[p]) <= target]
            if not waiting:
                return time.monotonic() - begin
            if time.monotonic() - begin > timeout_seconds or self.errors:
                raise TimeoutError(
                    f"partitions {waiting} acknowledged nothing new in {time.monotonic() - begin:.1f} s"
                    f"{'; errors: ' + '; '.join(self.errors[:3]) if self.errors else ''}"
                )
            time.sleep(0.005)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._renewal.serve(self._exchange)
            for partition, number in enumerate(self._next):
                if self._produce(partition, number, b"%d" % number + b" " * 100):
                    self._next[partition] = number + 1
            self._pause(self._pause_seconds)

    def _exchange(self, settings: Mapping[str, str]) -> None:
        left = self._flush(FINAL_FLUSH_SECONDS)
        if left:
            self.errors.append(f"{left} records got no answer in {FINAL_FLUSH_SECONDS} s")
        self._open(settings)

    @abstractmethod
    def _open(self, settings: Mapping[str, str]) -> None:
        """Create the client, with security settings that the other settings are beside."""

    @abstractmethod
    def _produce(self, partition: int, number: int, value: bytes) -> bool:
        """Hand a record to the client; return whether it was taken, which a full buffer prevents."""

    @abstractmethod
    def _pause(self, seconds: float) -> None:
        """Let time go by, and callbacks run."""

    @abstractmethod
    def _flush(self, seconds: float) -> int:
        """Wait for acknowledgements; return how many records have none."""

    def _delivered(self, partition: int, number: int, offset: int | None, error: object) -> None:
        """Take the answer to one record; an offset below 0 or None is not known."""
        if error is not None:
            self.errors.append(f"partition {partition} number {number}: {error}")
        else:
            known = UNKNOWN_OFFSET if offset is None or offset < 0 else offset
            self._ledger.acknowledge(Record(partition, known, number))


class LibrdkafkaLoad(OrderedLoad):
    """The load from librdkafka's producer."""

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
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 0,
                "queue.buffering.max.messages": 20_000,
                "error_cb": error_reporter(self.errors),
                **RECONNECT,
                **settings,
            }
        )

    def _produce(self, partition: int, number: int, value: bytes) -> bool:
        def delivered(error: Any, message: Any) -> None:
            self._delivered(partition, number, message.offset(), error)

        try:
            self._producer.produce(self._topic, value=value, partition=partition, on_delivery=delivered)
        except BufferError:
            return False
        return True

    def _pause(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def _flush(self, seconds: float) -> int:
        return int(self._producer.flush(seconds))


class CheckingReader(ABC):
    """A consumer that reads along from the first record on and reports each record to the ledger."""

    def __init__(self, topic: str, ledger: Ledger, name: str = "reader") -> None:
        self._ledger = ledger
        self.errors: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._renewal = Renewal(f"{name} {topic}", self.errors)
        self._thread = threading.Thread(target=self._run, name=f"{name} {topic}")

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def wait_all_read(self, timeout_seconds: float = READ_SECONDS) -> None:
        """Return when everything acknowledged was read, or time is over: the ledger tells the difference."""
        deadline = time.monotonic() + timeout_seconds
        ledger = self._ledger
        while time.monotonic() < deadline and not self.errors and not ledger.violations:
            if ledger.is_all_read():
                return
            time.sleep(0.05)

    def stop(self) -> None:
        """End the consumer, while there are brokers: its client may wait for them. Twice is harmless."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close()

    def _run(self) -> None:
        while not self._stop.is_set() and not self.errors:
            self._renewal.serve(self._exchange)
            self._read_some()

    def renew(self, settings: Mapping[str, str]) -> None:
        """Go on where this reader is, with another consumer of these security settings.

        Raises:
            TimeoutError: that took too long.
        """
        self._renewal.ask(settings)

    def _exchange(self, settings: Mapping[str, str]) -> None:
        self._close()
        self._open(settings)

    @abstractmethod
    def _open(self, settings: Mapping[str, str]) -> None:
        """Create the client, with these security settings, where the ledger is."""

    @abstractmethod
    def _read_some(self) -> None:
        """Read what has come within a tenth of a second; report it to the ledger, or to `errors`."""

    @abstractmethod
    def _close(self) -> None:
        """Close the client."""


class LibrdkafkaReader(CheckingReader):
    """The reader on librdkafka's consumer."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        ledger: Ledger,
        *,
        isolation: str = "read_committed",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(topic, ledger)
        self._bootstrap = bootstrap
        self._isolation = isolation
        self._open(settings or {})

    def _open(self, settings: Mapping[str, str]) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": UNUSED_GROUP,
                "enable.auto.commit": False,
                # A position that the log does not have is a loss; it must not be mended by a jump.
                "auto.offset.reset": "error",
                "isolation.level": self._isolation,
                "check.crcs": True,
                "fetch.error.backoff.ms": 20,
                "error_cb": error_reporter(self.errors),
                **RECONNECT,
                **settings,
            }
        )
        positions = enumerate(self._ledger.next_offsets)
        self._consumer.assign([confluent_kafka.TopicPartition(self._topic, *each) for each in positions])

    def _read_some(self) -> None:
        message = self._consumer.poll(0.1)
        if message is None:
            return
        error = message.error()
        if error is None:
            self._ledger.read(Record(message.partition(), message.offset(), int(message.value())))
        elif error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET or error.fatal():
            self.errors.append(str(error))

    def _close(self) -> None:
        self._consumer.close()
