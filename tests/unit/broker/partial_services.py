"""A `BrokerServices` with only those parts that a test needs; another part raises `AttributeError`."""

from typing import Any

from kalda.broker.requests.services import BrokerServices


def services_with(**parts: Any) -> BrokerServices:
    """Return services with these parts."""
    services = object.__new__(BrokerServices)
    provide(services, **parts)
    return services


def provide(services: BrokerServices, **parts: Any) -> None:
    """Add parts to services, or replace them."""
    for name, part in parts.items():
        object.__setattr__(services, name, part)
