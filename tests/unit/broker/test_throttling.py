"""How long a response tells a client to wait, at the ends of the range."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.broker.config import ConfigStore
from kalda.broker.requests.throttling import throttle_ms
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.net.connection import Connection
from kalda.runtime.clock import ManualClock
from kalda.security.principal import ANONYMOUS
from kalda.settings import BrokerConfig
from tests.runtimes import runtime_with
from tests.unit.broker.data_path_fakes import DataPath, batch, leadership


class FakeConnection:
    principal = ANONYMOUS

    def __init__(self) -> None:
        self.muted: list[float] = []

    def mute(self, seconds: float) -> None:
        self.muted.append(seconds)


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


def throttle_with(clock: ManualClock, **quotas: str) -> ClientThrottle:
    """Return the quotas of a broker, where every client id has these."""
    config = BrokerConfig.from_properties({"broker.id": "0"})
    store = ConfigStore(config)
    throttle = ClientThrottle(config, store, runtime_with(clock=clock))
    store.set_entity("clients", "<default>", quotas)
    return throttle


def throttled(connection: FakeConnection, quota: str, size: int) -> int:
    """Return the milliseconds that a client with a quota waits after a request of that size."""
    throttle = throttle_with(ManualClock(), producer_byte_rate=quota)
    seconds = throttle.produced(cast(Connection, connection), "app", size)
    context: Any = SimpleNamespace(connection=connection, throttle_seconds=seconds, parked_at=0.0)
    return throttle_ms(throttle, context)


def test_a_wait_is_at_most_what_a_response_can_name(connection: FakeConnection) -> None:
    """Beyond 32 bits the response could not be encoded, though the records were appended."""
    assert 2**31 - 1 == throttled(connection, "1", 100_000_000)
    assert [100_000_000 - 11.0] == connection.muted


@pytest.mark.parametrize("quota", ["1e308", "9223372036854775807"])
def test_a_huge_quota_bounds_nothing(connection: FakeConnection, quota: str) -> None:
    assert 0 == throttled(connection, quota, 100_000_000)


@pytest.mark.parametrize("quota", ["nan", "inf", "-1", "", "fast"])
def test_what_is_no_quota_bounds_nothing(connection: FakeConnection, quota: str) -> None:
    """Other programs may write anything into the znode of an entity."""
    assert 0 == throttled(connection, quota, 100_000_000)


def test_a_quota_of_zero_makes_a_client_wait_for_a_window_at_a_time(connection: FakeConnection) -> None:
    assert 11_000 == throttled(connection, "0", 1)


def test_requests_without_acks_use_up_the_time_of_a_client(
    tmp_path: Path, connection: FakeConnection
) -> None:
    """They have no response, so that only the muted connection slows their client down."""
    broker = DataPath(tmp_path)
    broker.host(leadership())
    clock = ManualClock()
    throttle = throttle_with(clock, request_percentage="0.000001")
    broker.throttle = throttle
    broker.connection = cast("Any", connection)
    throttle.begin(clock.monotonic())
    clock.advance(0.001)
    assert broker.produce_request(batch(), acks=0) is None
    broker.close()
    (seconds,) = connection.muted
    assert 0 < seconds <= 1
