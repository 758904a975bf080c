"""A `BrokerServices` with only those parts that a test needs; another part raises `AttributeError`."""

from types import GeneratorType
from typing import Any, TypeVar, cast

from kalda.broker.config import ConfigStore
from kalda.broker.requests.services import BrokerServices
from kalda.broker.security.broker_access import BrokerAccess
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.common.turns import Steps, first_turn
from kalda.runtime.system.clock import SystemClock
from kalda.settings import BrokerConfig
from tests.runtimes import runtime_with

T = TypeVar("T")

_CONFIG = BrokerConfig.from_properties({"broker.id": "0"})


def services_with(**parts: Any) -> BrokerServices:
    """Return services with these parts."""
    services = object.__new__(BrokerServices)
    provide(services, **{"access": _open(), "clock": SystemClock(), **parts})
    return services


def finished(result: T | Steps[T]) -> T:
    """Return what a handler answers, after all its steps if it has more than one turn of them."""
    while isinstance(result, GeneratorType):
        result = first_turn(result)
    return cast(T, result)


def _open() -> BrokerAccess:
    """Return the access of a broker without ACLs and quotas."""
    access = object.__new__(BrokerAccess)
    object.__setattr__(access, "authorizer", None)
    object.__setattr__(access, "throttle", ClientThrottle(_CONFIG, ConfigStore(_CONFIG), runtime_with()))
    return access


def provide(services: BrokerServices, **parts: Any) -> None:
    """Add parts to services, or replace them."""
    for name, part in parts.items():
        object.__setattr__(services, name, part)
