"""Looks whether ports are free before a start makes anything.

What a process listens at is opened late in its start, when directories are there and others know of it. A
port that somebody else holds is the most common reason for a start to fail, so it is found first. Another
process may take the port in between; the start then fails later, with the same message.
"""

import socket
from collections.abc import Iterable
from dataclasses import dataclass

from kalda.broker.config import BrokerConfig
from kalda.broker.process.errors import ProcessError


@dataclass(frozen=True, slots=True)
class WantedPort:
    """An address to listen at; `what` names it in the error. An empty host is every interface."""

    what: str
    host: str
    port: int


def ports_of(config: BrokerConfig) -> list[WantedPort]:
    """Return what a broker with these settings listens at."""
    wanted = [WantedPort(f"listener {each.name}", each.host, each.port) for each in config.listeners]
    if config.metrics_port is not None:
        wanted.append(WantedPort("`metrics.port`", config.listeners[0].host, config.metrics_port))
    return wanted


def require_free(wanted: Iterable[WantedPort]) -> None:
    """Return if all of the ports can be bound now; port 0 always can.

    Raises:
        ProcessError: one cannot; the message names the address and the reason.
    """
    for each in wanted:
        if each.port == 0:
            continue
        try:
            _bind(each.host, each.port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ProcessError(f"{each.what} cannot use {each.host}:{each.port}: {reason}") from None


def _bind(host: str, port: int) -> None:
    # As the listener itself chooses: IPv4 unless the host is an IPv6 address.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    infos = socket.getaddrinfo(
        host or None, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, address = infos[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
