"""Parses ``listeners`` and its relatives: where a broker listens, and which addresses it gives to clients."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from kalda.common.config_def import ConfigError

KAFKA_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NATS_PROTOCOLS: Final = ("NATS", "NATS_SSL", "SASL_NATS", "SASL_NATS_SSL")
"""Those of listeners that speak NATS's protocol; with ``SASL_`` clients log in by a name and a password."""

SECURITY_PROTOCOLS: Final = KAFKA_PROTOCOLS + NATS_PROTOCOLS

_LISTENER: Final = re.compile(r"(?P<name>[^:/\[\]]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)")


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener. An empty host stands for every interface; port 0 lets the system choose."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def uses_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether its clients log in by SASL; on a listener of NATS, by a name and a password."""
        return self.security_protocol.startswith("SASL_")

    @property
    def speaks_nats(self) -> bool:
        """Whether it speaks NATS's protocol instead of Kafka's."""
        return self.security_protocol in NATS_PROTOCOLS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(setting: str, text: str, protocols: dict[str, str]) -> tuple[ListenerConfig, ...]:
    """Read a list of listeners, each with a name of its own.

    Raises:
        ConfigError: an entry is malformed, a name has no security protocol, or a name comes twice.
    """
    listeners: list[ListenerConfig] = []
    names: set[str] = set()
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        match = _LISTENER.fullmatch(entry)
        if match is None or not 0 <= int(match["port"]) <= 65535:
            raise ConfigError(
                setting,
                f"`{setting}`: {entry} is not a listener; write NAME://host:port with a port of 0 to 65535",
            )
        name = match["name"].upper()
        # The map's default is Kafka's, so the names of NATS's protocols need no entry.
        protocol = protocols.get(name, name if name in NATS_PROTOCOLS else None)
        if protocol is None:
            raise ConfigError(
                setting,
                f"`{setting}`: no security protocol for listener {name}; name it in "
                f"`listener.security.protocol.map`, which has {', '.join(sorted(protocols))}",
            )
        if name in names:
            raise ConfigError(setting, f"`{setting}`: name {name} comes twice; each listener needs its own")
        names.add(name)
        listeners.append(ListenerConfig(name, match["host"], int(match["port"]), protocol))
    return tuple(listeners)


def require_distinct_ports(setting: str, listeners: Sequence[ListenerConfig]) -> None:
    """Refuse listeners that share a port other than 0, except an IPv4 and an IPv6 address.

    Raises:
        ConfigError: the listeners of a port are not such a pair.
    """
    by_port: dict[int, list[ListenerConfig]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted(_ip_version(each.host) for each in sharing) != [4, 6]:
            names = ", ".join(map(str, sharing))
            raise ConfigError(
                setting,
                f"`{setting}`: port {port} is that of {names}; each listener needs its own port, "
                "except a pair of an IPv4 address and an IPv6 address",
            )


def parse_protocol_map(setting: str, text: str) -> dict[str, str]:
    """Read ``NAME:PROTOCOL`` pairs.

    Raises:
        ConfigError: a pair is malformed or its protocol unknown.
    """
    protocols = {}
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        name, separator, protocol = (piece.strip().upper() for piece in entry.partition(":"))
        if not separator or not name or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                setting,
                f"`{setting}`: {entry} is not NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}",
            )
        protocols[name] = protocol
    return protocols


def _ip_version(host: str) -> int:
    """Return 4 or 6 for an address, 0 for a name or every interface."""
    try:
        return ip_address(host).version
    except ValueError:
        return 0
