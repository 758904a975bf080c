"""How `ClientThrottle` shares the time that requests take among clients."""

from types import SimpleNamespace
from typing import cast

from kalda.broker.config import ConfigStore
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.net.connection import Connection
from kalda.runtime.clock import ManualClock
from kalda.security.principal import KafkaPrincipal
from kalda.settings import BrokerConfig
from tests.runtimes import runtime_with

_CONFIG = BrokerConfig.from_properties({"broker.id": "0"})
_PERCENT = 1.0
_BUDGET_SECONDS = 0.11
"""What a full bucket of one percent holds, for a window of 11 s."""


class Rig:
    """A throttle on a clock that the test moves, with a quota of request time for each client id."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store = ConfigStore(_CONFIG)
        self.throttle = ClientThrottle(_CONFIG, store, runtime_with(clock=self.clock))
        store.set_entity("clients", "<default>", {"request_percentage": str(_PERCENT)})
        self.connection = cast(Connection, SimpleNamespace(principal=KafkaPrincipal("User", "ANONYMOUS")))

    def owed(self, client_id: str) -> float:
        """Return the seconds of work that a client had of its budget."""
        share = self.throttle._client(self.connection, client_id).request
        assert share is not None
        return _BUDGET_SECONDS - share.left(self.clock.monotonic()) / 100


def test_reading_handling_and_sending_count() -> None:
    rig = Rig()
    turn_began = rig.clock.monotonic()
    rig.clock.advance(0.001)
    rig.throttle.begin(turn_began)
    rig.clock.advance(0.002)
    assert 0.0 == rig.throttle.worked(rig.connection, "a")
    rig.clock.advance(0.004)
    rig.throttle.end()
    # The bucket fills while the clock runs: 1 % of 4 ms.
    assert abs(rig.owed("a") - 0.007) < 0.0001


def test_requests_that_came_together_count_once() -> None:
    rig = Rig()
    turn_began = rig.clock.monotonic()
    for client_id in ("a", "b"):
        rig.throttle.begin(turn_began)
        rig.clock.advance(0.005)
        rig.throttle.worked(rig.connection, client_id)
        rig.throttle.end()
    assert abs(rig.owed("b") - 0.005) < 0.0001


def test_nobody_pays_for_a_turn_without_bounded_requests() -> None:
    rig = Rig()
    rig.throttle.begin(rig.clock.monotonic())
    rig.throttle.worked(rig.connection, "a")
    rig.throttle.end()
    rig.clock.advance(1.0)
    rig.throttle.end()
    assert 0.0 == rig.owed("a")


def test_the_client_that_waited_pays_for_its_response_and_not_the_one_that_completed_it() -> None:
    rig = Rig()
    rig.throttle.begin(rig.clock.monotonic())
    rig.clock.advance(0.002)
    rig.throttle.worked_before(rig.connection, "consumer", 0.001)
    rig.clock.advance(0.010)
    rig.throttle.sent(rig.connection, "consumer", 0.010)
    rig.throttle.worked(rig.connection, "producer")
    rig.throttle.end()
    assert abs(rig.owed("consumer") - 0.011) < 0.0002
    assert abs(rig.owed("producer") - 0.002) < 0.0002


def test_a_client_over_its_time_waits_for_one_sample_at_most_and_owes_a_window_at_most() -> None:
    rig = Rig()
    assert 1.0 == rig.throttle.worked_before(rig.connection, "a", 1000.0)
    assert abs(rig.owed("a") - 2 * _BUDGET_SECONDS) < 0.0001
