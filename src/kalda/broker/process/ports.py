"""Checks that the ports of a process are free before its start creates anything.

A process opens its listeners late in its start, when its directories exist and it is registered. A port that
another process uses is the most common reason for a failed start, so it is found first. If another process
takes the port in between, the start fails later with the same message.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kalda.broker.process.errors import ProcessError
from kalda.runtime.network import address_text
from kalda.runtime.system.bound_socket import probe
from kalda.settings import BrokerConfig


@dataclass(frozen=True, slots=True)
class WantedPort:
    """An address to listen on; `what` names it in the error. An empty host stands for every interface."""

    what: str
    host: str
    port: int


def ports_of(config: BrokerConfig) -> list[WantedPort]:
    """Return the addresses that a broker with these settings listens on."""
    listeners = (*config.listeners, *config.nats_listeners)
    wanted = [WantedPort(f"listener {each.name}", each.host, each.port) for each in listeners]
    if config.metrics_port is not None:
        wanted.append(WantedPort("`metrics.port`", config.metrics_address, config.metrics_port))
    return wanted


def require_free(wanted: Iterable[WantedPort]) -> None:
    """Bind and release each of the ports; port 0 is always free.

    Raises:
        ProcessError: a port cannot be bound; the message names the address and the reason.
    """
    for each in wanted:
        if each.port == 0:
            continue
        try:
            probe(each.host, each.port)
        except OSError as error:
            reason = error.strerror or str(error)
            address = address_text(each.host, each.port)
            raise ProcessError(f"{each.what} cannot use {address}: {reason}") from None
