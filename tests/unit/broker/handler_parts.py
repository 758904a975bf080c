"""What tests of request handlers share: parts of a broker without limits, and the end of an answer."""

from types import GeneratorType
from typing import Final, TypeVar, cast

from kalda.broker.config import ConfigStore
from kalda.broker.requests.services import BrokerServices
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.common.turns import Steps, first_turn
from kalda.runtime.clock import Clock
from kalda.runtime.system.clock import SystemClock
from kalda.settings import BrokerConfig
from tests.runtimes import runtime_with

T = TypeVar("T")

_CONFIG: Final = BrokerConfig.from_properties({"broker.id": "0"})

NO_SERVICES: Final = object.__new__(BrokerServices)
"""For a dispatcher whose handlers need nothing of a broker; there is only the clock, which it uses itself."""

object.__setattr__(NO_SERVICES, "clock", SystemClock())


def no_quotas(clock: Clock) -> ClientThrottle:
    """Return the throttle of a broker without quotas."""
    return ClientThrottle(_CONFIG, ConfigStore(_CONFIG), runtime_with(clock=clock))


def finished(result: T | Steps[T]) -> T:
    """Return what a handler answers, after all its steps if it has more than one turn of them."""
    while isinstance(result, GeneratorType):
        result = first_turn(result)
    return cast(T, result)
