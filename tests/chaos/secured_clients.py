"""The clients under load on a secured cluster: producer, readers, members of groups, an administrator.

All of one role log in as the same user. `Fleet.renew` replaces the clients of a role by new ones of another
user, one after the other; records, positions and groups go on. What must hold: no client reports a refused
login, certificate or permission, and none fails for good.
"""

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import confluent_kafka
import confluent_kafka.admin

from kalda import Admin, Consumer, NewTopic
from kalda.clients.consumer.consumer_config import GroupProtocol
from kalda.clients.errors import ClientError
from kalda.net.client.client_errors import AuthenticationError
from tests.chaos.copier_clients import LIBRDKAFKA
from tests.chaos.kalda_clients import SETTINGS, arguments
from tests.chaos.ordered_load import (
    RECONNECT,
    CheckingReader,
    Ledger,
    OrderedLoad,
    Record,
    Renewal,
    error_reporter,
    is_refusal,
)
from tests.chaos.rounds_clients import CLIENTS

TOPIC: Final = "ordered"
GROUPS: Final[dict[str, GroupProtocol]] = {"members-classic": "classic", "members-consumer": "consumer"}
"""The protocol of each group."""
MEMBERS: Final = 2
"""Of each group."""
PROBE_PREFIX: Final = "probe-"
ROLES: Final = ("producer", "reader", "member", "prober")

_PROBE_SECONDS: Final = 0.5
_PROBE_CALL_SECONDS: Final = 20.0


class GroupLedger(Ledger):
    """Judges what all members of a group read: records may come again, but none may be left out.

    A member begins where the group has committed, which is never past what some member has read.
    """

    def __init__(self, main: Ledger) -> None:
        super().__init__(len(main.acknowledged))
        self.acknowledged = main.acknowledged
        self.repeated = 0
        self._lock = threading.Lock()

    def read(self, record: Record) -> None:
        """Judge the next record of one member."""
        with self._lock:
            if record.offset < self.next_offsets[record.partition]:
                self.repeated += 1
            else:
                super().read(record)


class LibrdkafkaMember(CheckingReader):
    """A member of a group on librdkafka's consumer."""

    def __init__(self, group: str, topic: str, ledger: Ledger, settings: Mapping[str, str]) -> None:
        super().__init__(topic, ledger, f"member of {group}")
        self._group = group
        self._open(settings)

    def _open(self, settings: Mapping[str, str]) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "group.id": self._group,
                "group.protocol": GROUPS[self._group],
                "enable.auto.offset.store": False,
                "auto.commit.interval.ms": 1_000,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "error_cb": error_reporter(self.errors),
                **RECONNECT,
                **settings,
            }
        )
        self._consumer.subscribe([self._topic])

    def _read_some(self) -> None:
        message = self._consumer.poll(0.1)
        if message is None:
            return
        error = message.error()
        if error is None:
            self._ledger.read(Record(message.partition(), message.offset(), int(message.value())))
            with contextlib.suppress(confluent_kafka.KafkaException):
                # The partition may have gone to another member meanwhile, who reads the record again.
                self._consumer.store_offsets(message)
        elif error.fatal() or is_refusal(error.name(), error.str()):
            self.errors.append(f"{self._group}: {error}")

    def _close(self) -> None:
        self._consumer.close()


class KaldaMember(CheckingReader):
    """A member of a group on Kalda's consumer."""

    def __init__(self, group: str, topic: str, ledger: Ledger, settings: Mapping[str, str]) -> None:
        super().__init__(topic, ledger, f"member of {group}")
        self._group = group
        self._open(settings)

    def _open(self, settings: Mapping[str, str]) -> None:
        self._consumer = Consumer(
            bootstrap_servers=settings["bootstrap.servers"],
            group_id=self._group,
            group_protocol=GROUPS[self._group],
            auto_commit_interval_ms=1_000,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **SETTINGS,
            **arguments(settings),
        )
        self._consumer.subscribe([self._topic])

    def _read_some(self) -> None:
        try:
            records = self._consumer.poll(0.1)
        except ClientError as error:
            if not error.is_retriable:
                self.errors.append(f"{self._group}: {type(error).__name__}: {error}")
            return
        for record in records:
            self._ledger.read(Record(record.partition, record.offset, int(record.value or b"")))

    def _close(self) -> None:
        with contextlib.suppress(ClientError):
            # It could not leave the group in time; its session ends.
            self._consumer.close()


class Prober(ABC):
    """An administrator that creates and deletes topics all the time; a subclass brings the client."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.errors: list[str] = []
        self.succeeded = 0
        self._number = 0
        self._stop = threading.Event()
        self._renewal = Renewal("prober", self.errors)
        self._thread = threading.Thread(target=self._run, name="prober")
        self._open(settings)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def renew(self, settings: Mapping[str, str]) -> None:
        """Go on with another client.

        Raises:
            TimeoutError: that took too long.
        """
        self._renewal.ask(settings)

    def stop(self) -> None:
        """End it. Twice is harmless."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close()

    def wait_progress(self, timeout_seconds: float) -> None:
        """Wait until a call that begins from now on has succeeded.

        Raises:
            TimeoutError: none did.
        """
        deadline = time.monotonic() + timeout_seconds
        # The call that is under way may have begun before.
        target = self.succeeded + 2
        while self.succeeded < target:
            if time.monotonic() > deadline or self.errors:
                raise TimeoutError(f"the administrator did nothing in {timeout_seconds} s: {self.errors}")
            time.sleep(0.05)

    def _run(self) -> None:
        while not self._stop.wait(_PROBE_SECONDS):
            self._renewal.serve(self._exchange)
            self._number += 1
            topic = f"{PROBE_PREFIX}{self._number}"
            if self._try(self._create, topic) and self._try(self._delete, topic):
                self.succeeded += 1

    def _exchange(self, settings: Mapping[str, str]) -> None:
        self._close()
        self._open(settings)

    @abstractmethod
    def _try(self, call: Callable[[str], None], topic: str) -> bool:
        """Return whether a call succeeded; keep what it says about logins and permissions in `errors`."""

    @abstractmethod
    def _open(self, settings: Mapping[str, str]) -> None:
        """Create the client."""

    @abstractmethod
    def _create(self, topic: str) -> None:
        """Create a topic."""

    @abstractmethod
    def _delete(self, topic: str) -> None:
        """Delete a topic."""

    @abstractmethod
    def _close(self) -> None:
        """Close the client."""


class LibrdkafkaProber(Prober):
    """The administrator on librdkafka's client."""

    def _open(self, settings: Mapping[str, str]) -> None:
        self._admin = confluent_kafka.admin.AdminClient(
            {"error_cb": error_reporter(self.errors), **RECONNECT, **settings}
        )

    def _try(self, call: Callable[[str], None], topic: str) -> bool:
        # Callbacks run while this thread polls.
        self._admin.poll(0)
        try:
            call(topic)
        except confluent_kafka.KafkaException as failure:
            error = failure.args[0]
            if is_refusal(error.name(), error.str()):
                self.errors.append(f"{error.name()}: {error.str()}")
            return False
        return True

    def _create(self, topic: str) -> None:
        new = confluent_kafka.admin.NewTopic(topic, 1, 3)
        futures = self._admin.create_topics([new], request_timeout=_PROBE_CALL_SECONDS)
        futures[topic].result(2 * _PROBE_CALL_SECONDS)

    def _delete(self, topic: str) -> None:
        futures = self._admin.delete_topics([topic], request_timeout=_PROBE_CALL_SECONDS)
        futures[topic].result(2 * _PROBE_CALL_SECONDS)

    def _close(self) -> None:
        del self._admin


class KaldaProber(Prober):
    """The administrator on Kalda's client."""

    def _open(self, settings: Mapping[str, str]) -> None:
        self._admin = Admin.from_config(
            {**settings, "default.api.timeout.ms": str(int(_PROBE_CALL_SECONDS * 1000))}
        )

    def _try(self, call: Callable[[str], None], topic: str) -> bool:
        try:
            call(topic)
        except ClientError as error:
            name = type(error).__name__ if error.code is None else error.code.name
            if isinstance(error, AuthenticationError) or is_refusal(name, str(error)):
                self.errors.append(f"{name}: {error}")
            return False
        return True

    def _create(self, topic: str) -> None:
        self._admin.create_topics([NewTopic(topic, 1, 3)])

    def _delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def _close(self) -> None:
        self._admin.close()


@dataclass(frozen=True, slots=True)
class Fleet:
    """All clients, by role."""

    ledger: Ledger
    load: OrderedLoad
    reader: CheckingReader
    members: Mapping[str, list[CheckingReader]]
    """By group."""
    group_ledgers: Mapping[str, GroupLedger]
    prober: Prober

    @classmethod
    def make(
        cls, library: str, partitions: int, records_per_second: int, settings: Mapping[str, Mapping[str, str]]
    ) -> "Fleet":
        """Create the clients of a library; `settings` are those of each role."""
        ledger = Ledger(partitions)
        clients = CLIENTS[library]
        bootstrap = settings["producer"]["bootstrap.servers"]
        member = LibrdkafkaMember if library == LIBRDKAFKA else KaldaMember
        group_ledgers = {group: GroupLedger(ledger) for group in GROUPS}
        return cls(
            ledger=ledger,
            load=clients.load(
                bootstrap,
                TOPIC,
                ledger,
                records_per_second=records_per_second,
                settings=settings["producer"],
            ),
            reader=clients.reader(bootstrap, TOPIC, ledger, settings=settings["reader"]),
            members={
                group: [
                    member(group, TOPIC, group_ledgers[group], settings["member"]) for _ in range(MEMBERS)
                ]
                for group in GROUPS
            },
            group_ledgers=group_ledgers,
            prober=(LibrdkafkaProber if library == LIBRDKAFKA else KaldaProber)(settings["prober"]),
        )

    def start(self) -> None:
        """Begin to produce, read and administer."""
        self.prober.start()
        for reader in self._readers:
            reader.start()
        self.load.start()

    def renew(self, role: str, settings: Mapping[str, str]) -> None:
        """Replace the clients of a role.

        Raises:
            TimeoutError: one could not be replaced in time.
        """
        if role == "producer":
            self.load.renew(settings)
        elif role == "prober":
            self.prober.renew(settings)
        else:
            readers = [self.reader] if role == "reader" else self._members
            for reader in readers:
                reader.renew(settings)

    def problems(self) -> list[str]:
        """Return what must not be and is."""
        found = [*self.load.errors, *self.prober.errors, *self.ledger.violations]
        for reader in self._readers:
            found += reader.errors
        for group, ledger in self.group_ledgers.items():
            found += [f"{group}: {violation}" for violation in ledger.violations]
        return found

    def wait_all_read(self) -> None:
        """Have the load end, and every reader and group read all; `problems` tells what is missing."""
        self.load.stop()
        for reader in [self.reader, *(members[0] for members in self.members.values())]:
            reader.wait_all_read()
        for ledger in (self.ledger, *self.group_ledgers.values()):
            ledger.check_all_read()

    def stop(self) -> None:
        """End all clients. Twice is harmless."""
        self.load.abandon()
        self.prober.stop()
        for reader in self._readers:
            reader.stop()

    @property
    def _members(self) -> list[CheckingReader]:
        return [member for members in self.members.values() for member in members]

    @property
    def _readers(self) -> list[CheckingReader]:
        return [self.reader, *self._members]
