"""Lists the quotas that can be set, with what they bound and how their values are written."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_WHOLE_TOLERANCE: Final = 1e-6
_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class QuotaSetting:
    """One kind of quota."""

    name: str
    whole_up_to: int | None = None
    """The greatest value of a quota that is a whole number; None for one with decimals."""
    is_of_ips: bool = False
    """Whether it is set for addresses, rather than for users and client ids."""
    at_least: int = 0
    """The least value of a whole number; one with decimals must be above 0."""


QUOTAS: Final = {
    each.name: each
    for each in (
        QuotaSetting(PRODUCER_BYTE_RATE, _INT64_MAX, at_least=1),
        QuotaSetting(CONSUMER_BYTE_RATE, _INT64_MAX, at_least=1),
        QuotaSetting(REQUEST_PERCENTAGE),
        QuotaSetting(CONTROLLER_MUTATION_RATE),
        QuotaSetting(CONNECTION_CREATION_RATE, _INT32_MAX, is_of_ips=True),
    )
}


def quota_text(name: str, value: float, *, of_ip: bool) -> str:
    """Return a quota's value as ZooKeeper keeps it.

    Raises:
        ValueError: entities of this kind have no such quota, or it cannot have this value.
    """
    setting = QUOTAS.get(name)
    if setting is None or setting.is_of_ips != of_ip:
        allowed = ", ".join(each.name for each in QUOTAS.values() if each.is_of_ips == of_ip)
        raise ValueError(f"Invalid configuration key {name}; allowed are {allowed}")
    if not isfinite(value):
        raise ValueError(f"{name} must be a number, found {value}")
    if setting.whole_up_to is None:
        if value <= 0:
            raise ValueError(f"{name} must be above 0, found {value:g}")
        return repr(float(value))
    whole = round(value)
    if abs(whole - value) > _WHOLE_TOLERANCE:
        raise ValueError(f"{name} must be a whole number, found {value}")
    if not setting.at_least <= whole <= setting.whole_up_to:
        raise ValueError(f"{name} must be {setting.at_least} to {setting.whole_up_to}, found {whole}")
    return str(whole)


def quota_values(settings: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas among an entity's settings; those that are no numbers are left out."""
    found: dict[str, float] = {}
    for name in QUOTAS.keys() & settings.keys():
        try:
            value = float(settings[name])
        except ValueError:
            continue
        if isfinite(value) and value >= 0:
            found[name] = value
    return found
