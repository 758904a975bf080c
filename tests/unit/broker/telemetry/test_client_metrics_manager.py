"""What clients push is decided as in Apache Kafka (KIP-714), without sockets and real time."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from kalda.broker.telemetry.client_instance import attributes_of
from kalda.broker.telemetry.client_metrics_manager import (
    ClientMetricsManager,
    Push,
    subscription_id,
)
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import ZERO_UUID
from kalda.protocol.otlp import InvalidMetricsError
from kalda.records.compression import Compression
from kalda.runtime.clock import ManualClock

ME = UUID(int=77)
BYTES_MAX = 100


class Received:
    """Takes what is pushed; refuses ``bad``."""

    def __init__(self) -> None:
        self.pushed: list[tuple[UUID, str, Compression, bytes]] = []
        self.forgotten: list[UUID] = []

    def receive(
        self,
        client_instance_id: UUID,
        attributes: Mapping[str, str],
        compression: Compression,
        metrics: bytes | memoryview,
    ) -> None:
        if metrics == b"bad":
            raise InvalidMetricsError("bad")
        self.pushed.append((client_instance_id, attributes["client_id"], compression, bytes(metrics)))

    def forget(self, client_instance_id: UUID) -> None:
        self.forgotten.append(client_instance_id)


class Broker:
    def __init__(self, *, instances_max: int = 10) -> None:
        self.clock = ManualClock()
        self.received = Received()
        ids = iter(range(100, 200))
        self.manager = ClientMetricsManager(
            self.clock,
            BYTES_MAX,
            self.received,
            new_id=lambda: UUID(int=next(ids)),
            instances_max=instances_max,
        )
        self.subscribe("all", metrics="*", **{"interval.ms": "1000"})

    def subscribe(self, name: str, **settings: str) -> None:
        self.manager.on_entity_change("client-metrics", name, settings)

    def get(self, me: UUID = ME, client_id: str | None = "app") -> tuple[UUID, int, tuple[str, ...], int]:
        found, instance = self.manager.subscription(me, lambda each: self._client(each, client_id))
        return found, instance.subscription_id, instance.metrics, instance.push_interval_ms

    def push(
        self,
        subscription: int,
        me: UUID = ME,
        *,
        last: bool = False,
        compression: int = 0,
        metrics: bytes = b"m",
    ) -> ErrorCode:
        push = Push(me, subscription, last, compression, metrics)
        try:
            self.manager.push(push, lambda each: self._client(each, "app"))
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    @staticmethod
    def _client(me: UUID, client_id: str | None) -> dict[str, str]:
        return attributes_of(me, client_id, ("java", "3.9.0"), "10.0.0.1", "999")


@pytest.fixture
def broker() -> Broker:
    return Broker()


def refused(broker: Broker, me: UUID = ME) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        broker.get(me)
    return caught.value.code


def test_a_client_without_an_id_gets_one(broker: Broker) -> None:
    me, number, metrics, interval_ms = broker.get(ZERO_UUID)
    assert (UUID(int=100), ("*",), 1000) == (me, metrics, interval_ms)
    assert ErrorCode.NONE == broker.push(number, me)
    assert [(me, "app", Compression.NONE, b"m")] == broker.received.pushed


def test_without_a_subscription_nothing_is_asked_for_and_the_interval_is_five_minutes(broker: Broker) -> None:
    broker.subscribe("all")
    assert ((), 300_000) == broker.get()[2:]


def test_overlapping_subscriptions_are_merged(broker: Broker) -> None:
    broker.subscribe("all")
    broker.subscribe("a", metrics="x.,y.", match="client_id=ap+")
    broker.subscribe("b", metrics="x., z.", match="client_software_name=java", **{"interval.ms": "500"})
    broker.subscribe("other", metrics="w.", match="client_id=ap", **{"interval.ms": "100"})
    broker.subscribe("both", metrics="v.", match="client_id=app,client_source_address=10[.]9.*")
    assert (("x.", "y.", "z."), 500) == broker.get()[2:]


def test_a_client_without_a_client_id_matches_no_pattern_for_it(broker: Broker) -> None:
    broker.subscribe("all", metrics="x.", match="client_id=.*")
    assert () == broker.get(client_id=None)[2]


def test_the_subscription_id_is_kafkas() -> None:
    """CRC-32C of ``[*]5000`` and the hash code of the id, as Java computes them."""
    from kalda.records.crc import crc32c

    crc = crc32c(b"[*]5000")
    assert (crc ^ 3) - (1 << 32 if crc ^ 3 >= 1 << 31 else 0) == subscription_id(["*"], 5000, UUID(int=3))
    mixed = UUID(int=(1 << 127) | (5 << 64) | (7 << 32) | 11)
    unsigned = crc32c(b"[a, b]100") ^ (1 << 31) ^ 7 ^ (11 ^ 5)
    assert unsigned % (1 << 32) == subscription_id(["a", "b"], 100, mixed) % (1 << 32)
    assert -(1 << 31) <= subscription_id(["a", "b"], 100, mixed) < 1 << 31


def test_who_asks_again_too_early_is_throttled(broker: Broker) -> None:
    broker.get()
    broker.clock.advance(0.999)
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED == refused(broker)
    assert 1 == broker.manager.throttles
    broker.clock.advance(0.002)
    broker.get()


def test_the_first_push_may_come_at_once_the_next_after_the_interval(broker: Broker) -> None:
    number = broker.get()[1]
    broker.clock.advance(0.1)
    assert ErrorCode.NONE == broker.push(number)
    broker.clock.advance(0.5)
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED == broker.push(number)
    broker.clock.advance(0.6)
    assert ErrorCode.NONE == broker.push(number)


def test_a_broker_that_does_not_know_the_client_takes_its_push(broker: Broker) -> None:
    """The client asked another broker."""
    number = Broker().get()[1]
    assert ErrorCode.NONE == broker.push(number)
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED == refused(broker)


def test_a_changed_subscription_is_adopted_without_another_wait(broker: Broker) -> None:
    number = broker.get()[1]
    broker.push(number)
    broker.clock.advance(0.1)
    broker.subscribe("all", metrics="x.", **{"interval.ms": "1000"})
    assert ErrorCode.UNKNOWN_SUBSCRIPTION_ID == broker.push(number)
    assert 1 == broker.manager.unknown_subscriptions
    _, changed, metrics, _ = broker.get()
    assert ("x.",) == metrics
    assert ErrorCode.NONE == broker.push(changed)


def test_a_wrong_subscription_id_frees_one_request_only(broker: Broker) -> None:
    number = broker.get()[1]
    assert ErrorCode.UNKNOWN_SUBSCRIPTION_ID == broker.push(number + 1)
    broker.get()
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED == refused(broker)


def test_the_last_push_is_taken_at_any_time_and_nothing_behind_it(broker: Broker) -> None:
    number = broker.get()[1]
    broker.push(number)
    assert ErrorCode.NONE == broker.push(number, last=True)
    assert ErrorCode.INVALID_REQUEST == broker.push(number, last=True)


@pytest.mark.parametrize("me", [ZERO_UUID, UUID(int=1)])
def test_reserved_ids_cannot_push(broker: Broker, me: UUID) -> None:
    assert ErrorCode.INVALID_REQUEST == broker.push(1, me)


@pytest.mark.parametrize("compression", [-1, 5, 127])
def test_an_unknown_codec_is_refused_and_the_client_may_ask_at_once(broker: Broker, compression: int) -> None:
    number = broker.get()[1]
    assert ErrorCode.UNSUPPORTED_COMPRESSION_TYPE == broker.push(number, compression=compression)
    broker.get()


def test_a_push_above_the_bound_is_refused(broker: Broker) -> None:
    number = broker.get()[1]
    assert ErrorCode.TELEMETRY_TOO_LARGE == broker.push(number, metrics=bytes(BYTES_MAX + 1))
    assert [] == broker.received.pushed


def test_what_cannot_be_read_is_refused_and_counted(broker: Broker) -> None:
    number = broker.get()[1]
    assert ErrorCode.INVALID_RECORD == broker.push(number, metrics=b"bad")
    assert (0, 1) == (broker.manager.exports, broker.manager.export_errors)


def test_a_push_without_metrics_is_taken(broker: Broker) -> None:
    assert ErrorCode.NONE == broker.push(broker.get()[1], metrics=b"")
    assert [] == broker.received.pushed


def test_metrics_that_nobody_subscribed_to_are_not_decoded(broker: Broker) -> None:
    """Everybody may push under any id, and decoding takes the broker's time."""
    broker.subscribe("all")
    assert ErrorCode.NONE == broker.push(broker.get()[1])
    assert [] == broker.received.pushed


def test_silent_clients_are_forgotten_after_a_minute_at_least(broker: Broker) -> None:
    broker.get()
    broker.clock.advance(59)
    broker.manager.expire()
    assert [] == broker.received.forgotten
    broker.clock.advance(1)
    broker.manager.expire()
    assert [ME] == broker.received.forgotten
    assert 0 == broker.manager.instance_count


def test_silent_clients_are_forgotten_after_three_intervals(broker: Broker) -> None:
    broker.subscribe("all", metrics="*", **{"interval.ms": "100000"})
    broker.get()
    broker.clock.advance(299)
    broker.manager.expire()
    assert 1 == broker.manager.instance_count
    broker.clock.advance(2)
    broker.manager.expire()
    assert 0 == broker.manager.instance_count


def test_the_client_that_was_silent_for_longest_makes_room() -> None:
    broker = Broker(instances_max=2)
    broker.get(UUID(int=11))
    broker.get(UUID(int=12))
    broker.clock.advance(2)
    broker.get(UUID(int=11))
    broker.get(UUID(int=13))
    assert [UUID(int=12)] == broker.received.forgotten


def test_a_bad_subscription_leaves_the_one_before(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.subscribe("all", metrics="*", match="nonsense")
    assert ("*",) == broker.get()[2]
    assert "nonsense" in caplog.text


def test_settings_of_other_entities_are_ignored(broker: Broker) -> None:
    broker.manager.on_entity_change("users", "alice", {"producer_byte_rate": "1"})
    assert ("*",) == broker.get()[2]
