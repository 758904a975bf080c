"""A `BrokerServices` with only those parts that a test needs; another part raises `AttributeError`."""

from typing import Any

from kalda.broker.access.broker_access import BrokerAccess
from kalda.broker.requests.services import BrokerServices


def services_with(**parts: Any) -> BrokerServices:
    """Return services with these parts."""
    services = object.__new__(BrokerServices)
    provide(services, access=_open(), **parts)
    return services


def _open() -> BrokerAccess:
    """Return the access of a broker without ACLs."""
    access = object.__new__(BrokerAccess)
    object.__setattr__(access, "authorizer", None)
    return access


def provide(services: BrokerServices, **parts: Any) -> None:
    """Add parts to services, or replace them."""
    for name, part in parts.items():
        object.__setattr__(services, name, part)
