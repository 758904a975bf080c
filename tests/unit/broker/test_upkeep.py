"""What a broker does beside requests, and how often."""

from collections.abc import Callable
from typing import Any, cast

from kalda.broker.config import BrokerConfig
from kalda.broker.services import BrokerServices
from kalda.broker.upkeep import Upkeep, start_log_upkeep


class Recorder:
    """Upkeep that notes what is to be done instead of doing it."""

    def __init__(self) -> None:
        self.intervals: dict[str, int] = {}

    def every(self, name: str, interval_ms: int, step: Callable[[], object]) -> None:
        self.intervals[name] = interval_ms


def test_idle_producers_are_looked_for_apart_from_retention() -> None:
    """Retention may be switched to hours; sequence numbers are memory."""
    services, upkeep = BrokerServices(), Recorder()
    services.config = BrokerConfig.from_properties(
        {"producer.id.expiration.check.interval.ms": "70", "log.retention.check.interval.ms": "9000"}
    )
    services.log_manager = cast("Any", type("Logs", (), {"__getattr__": lambda *_: None})())
    start_log_upkeep(cast("Upkeep", upkeep), services)
    assert (70, 9000) == (upkeep.intervals["producer expiration"], upkeep.intervals["log retention"])
