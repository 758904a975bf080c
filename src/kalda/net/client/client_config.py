"""Parses the settings of a client connection; names and defaults are Kafka's.

Only settings that this client honours are accepted. `ClientConfig.from_properties` refuses the others,
because a user could believe that a connection is encrypted when a setting is accepted and ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from kalda.net.client.bootstrap_servers import parse_bootstrap_servers
from kalda.net.client.client_errors import ClientConfigError


class IsolationLevel(IntEnum):
    """Whether a reader sees records of transactions that are open or aborted; numbers are the wire's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """One client's settings. Build it with `from_properties`, or directly in code."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "kalda-client"
    client_rack: str = ""
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    socket_connection_setup_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    """The bound on one whole operation: connecting, every retry and every wait between them."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    receive_buffer_bytes: int = 65_536
    """-1 leaves the size to the operating system."""
    check_crcs: bool = True

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read settings by Kafka's names, e.g. ``{"bootstrap.servers": "localhost:9092"}``.

        Raises:
            ClientConfigError: `bootstrap.servers` is missing, or a setting is unknown or has a bad value.
        """
        values: dict[str, object] = {}
        for name, text in properties.items():
            if name == "bootstrap.servers":
                values["bootstrap_servers"] = parse_bootstrap_servers(text)
            elif name in _INTEGERS:
                values[name.replace(".", "_")] = _parse_integer(name, text)
            elif name in _TEXTS:
                values[name.replace(".", "_")] = text
            elif name == "isolation.level":
                values["isolation_level"] = _parse_isolation_level(text)
            elif name == "check.crcs":
                values["check_crcs"] = _parse_boolean(name, text)
            elif name == "security.protocol":
                if text.upper() != "PLAINTEXT":
                    raise ClientConfigError(
                        f"`security.protocol`={text!r}: only PLAINTEXT is supported by this client so far"
                    )
            else:
                raise ClientConfigError(_unknown(name))
        if "bootstrap_servers" not in values:
            raise ClientConfigError("`bootstrap.servers` is missing; set it to host:port[,host:port…]")
        return cls(**values)  # type: ignore[arg-type]  # the names were checked against the tables above


_INTEGERS: Final[Mapping[str, int]] = {
    # The number is the smallest value allowed.
    "socket.connection.setup.timeout.ms": 1,
    "request.timeout.ms": 1,
    "default.api.timeout.ms": 1,
    "retry.backoff.ms": 0,
    "retry.backoff.max.ms": 0,
    "fetch.min.bytes": 0,
    "fetch.max.wait.ms": 0,
    "fetch.max.bytes": 0,
    "max.partition.fetch.bytes": 0,
    "receive.buffer.bytes": -1,
}
_TEXTS: Final = frozenset({"client.id", "client.rack"})
KNOWN_PROPERTIES: Final = frozenset(
    {*_INTEGERS, *_TEXTS, "bootstrap.servers", "isolation.level", "check.crcs", "security.protocol"}
)
"""Every property that `ClientConfig.from_properties` accepts."""
_SECURITY_PREFIXES: Final = ("sasl.", "ssl.", "security.")


def _parse_integer(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ClientConfigError(f"`{name}`={text!r} is not an integer") from None
    if value < _INTEGERS[name]:
        raise ClientConfigError(f"`{name}`={value} is below {_INTEGERS[name]}, the least allowed")
    return value


def _parse_boolean(name: str, text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ClientConfigError(f"`{name}`={text!r} is neither true nor false")


def _parse_isolation_level(text: str) -> IsolationLevel:
    try:
        return IsolationLevel[text.upper()]
    except KeyError:
        raise ClientConfigError(
            f"`isolation.level`={text!r} is neither read_uncommitted nor read_committed"
        ) from None


def _unknown(name: str) -> str:
    if name.startswith(_SECURITY_PREFIXES):
        return (
            f"`{name}`: this client does not support TLS or SASL yet and will not ignore a security setting"
        )
    return f"`{name}` is not a setting of this client; known: {', '.join(sorted(KNOWN_PROPERTIES))}"
