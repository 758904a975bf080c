"""Reads the setting `bootstrap.servers`: the brokers that a client asks first."""

import re
from typing import Final

from kalda.net.client.client_errors import ClientConfigError

_PORT_MAX: Final = 65_535
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9_-]*://)?\[?(?P<host>[0-9A-Za-z%._:-]+)\]?:(?P<port>[0-9]{1,5})")
"""As Java's clients read it: the name of a listener before the host is allowed and means nothing."""


def parse_bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Read ``host:port[,host:port…]``; IPv6 addresses stand in brackets, ``[::1]:9092``.

    ``SASL_SSL://host:9092`` is the same as ``host:9092``.

    Raises:
        ClientConfigError: an entry has no port, or no server is named at all.
    """
    servers = []
    for entry in (part.strip() for part in text.split(",")):
        if not entry:
            continue
        found = _ADDRESS.fullmatch(entry)
        if found is None or not 0 < int(found["port"]) <= _PORT_MAX:
            raise ClientConfigError(f"`bootstrap.servers` has {entry!r}, which is not host:port")
        servers.append((found["host"], int(found["port"])))
    if not servers:
        raise ClientConfigError("`bootstrap.servers` names no server; set it to host:port[,host:port…]")
    return tuple(servers)
