"""Parses the address of an engine: ``etcd://host:port,…[/prefix]`` or ``zookeeper://host:port,…[/chroot]``."""

import re
from dataclasses import dataclass
from typing import Final

from kalda.zookeeper.errors import BadArgumentsError
from kalda.zookeeper.path_validation import check_path

ETCD: Final = "etcd"
ZOOKEEPER: Final = "zookeeper"

_DEFAULT_PORT: Final = 2379
_DEFAULT_PREFIX: Final = "/kalda"
_PORT_MAX: Final = 65_535
_ENTRY: Final = re.compile(r"(?P<host>\[[^\[\]/\s]+\]|[^:\[\]/\s,]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """The servers of an etcd cluster as ``host:port``, and the prefix of Kalda's keys in it."""

    endpoints: tuple[str, ...]
    prefix: str


def split_scheme(text: str) -> tuple[str, str]:
    """Split an address into the engine, `ETCD` or `ZOOKEEPER`, and the rest.

    Raises:
        BadArgumentsError: it names no engine.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in (ETCD, ZOOKEEPER) or not rest:
        raise BadArgumentsError(
            f"`coordination.connect`={text!r} is not allowed: use etcd://host:port[,host:port…][/prefix] or "
            "zookeeper://host:port[,host:port…][/chroot]"
        )
    return scheme, rest


def parse_etcd_address(text: str) -> EtcdAddress:
    """Parse ``host:port,…[/prefix]``.

    Raises:
        BadArgumentsError: a server is no address, or the prefix is no path.
    """
    servers, slash, prefix = text.partition("/")
    prefix = (slash + prefix).rstrip("/") or _DEFAULT_PREFIX
    check_path(prefix)
    endpoints = []
    for entry in servers.split(","):
        found = _ENTRY.fullmatch(entry.strip())
        port = _DEFAULT_PORT if found is None or found["port"] is None else int(found["port"])
        if found is None or not 0 < port <= _PORT_MAX:
            raise BadArgumentsError(f"etcd://{text}: {entry.strip()!r} is no address; use host:port")
        endpoints.append(f"{found['host']}:{port}")
    return EtcdAddress(tuple(endpoints), prefix)
