"""Access lists: who may do what with a znode, as ZooKeeper judges it. Sans-IO.

Schemes are world, auth (only in requests: "those that I am authenticated as"), digest (name and SHA-1 of
name and password), ip (an address, or a network with its bits), and super, which no list names and to which
nothing is forbidden. An entry of a scheme not known here (SASL, X.509; out of a log that a ZooKeeper wrote)
grants nothing.
"""

import base64
import functools
import hashlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from typing import Final, TypeAlias

from kalda.zk.client.zookeeper_errors import AuthFailedError, InvalidAclError, NoAuthError
from kalda.zk.server.txns import Acl


class Permission(IntFlag):
    """What an access list grants; the bits are ZooKeeper's."""

    READ = 1
    """Data of the znode and the names of its children."""
    WRITE = 2
    CREATE = 4
    """Children of the znode."""
    DELETE = 8
    """Children of the znode, not itself."""
    ADMIN = 16
    """Its access list."""
    ALL = 31


READ: Final = Permission.READ
WRITE: Final = Permission.WRITE
CREATE: Final = Permission.CREATE
DELETE: Final = Permission.DELETE
ADMIN: Final = Permission.ADMIN


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody that a connection has shown to be: a scheme and a name in it."""

    scheme: str
    id: str


SUPER: Final = Identity("super", "")
"""An identity to which nothing is forbidden."""


def authenticate(scheme: str, auth: bytes, peer_host: str) -> Identity:
    """Return the identity that a client's auth packet proves.

    >>> authenticate("digest", b"alice:secret", "127.0.0.1").id
    'alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E='

    Raises:
        AuthFailedError: the scheme is not known, or a digest's text is not UTF-8.
    """
    if scheme == "digest":
        return Identity(scheme, _digest(auth))
    if scheme == "ip":
        return Identity(scheme, peer_host)
    raise AuthFailedError(f"scheme {scheme!r} is not known; use digest or ip")


def is_super(identity: Identity, super_digest: str) -> bool:
    """Return whether an identity is the one that the setting ``superDigest`` names.

    Who shows it has `SUPER` as a further identity.
    """
    return bool(super_digest) and identity.scheme == "digest" and identity.id == super_digest


def check_permission(
    acl: tuple[Acl, ...], permission: int, identities: tuple[Identity, ...] | None, path: str | None = None
) -> None:
    """Return if one entry of the list grants the permission to one of the identities.

    Identities of None are this process itself, to which everything is granted.

    Raises:
        NoAuthError: nothing does.
    """
    if identities is None or not acl or SUPER in identities:
        return
    for entry in acl:
        if not entry.permissions & permission:
            continue
        if entry.scheme == "world" and entry.id == "anyone":
            return
        for identity in identities:
            if identity.scheme == entry.scheme and _matches(entry, identity):
                return
    raise NoAuthError(f"permission {permission} on {path or 'the znode'} is not granted", path)


def normalise_acl(
    acl: Iterable[Acl], identities: tuple[Identity, ...] | None, path: str | None = None
) -> tuple[Acl, ...]:
    """Return the list as it is stored: without repetitions, ``auth`` replaced by who asks.

    Raises:
        InvalidAclError: it is empty, an entry is not valid, or ``auth`` stands for nobody.
    """
    stored: list[Acl] = []
    for entry in dict.fromkeys(acl):
        if entry.scheme == "world" and entry.id == "anyone":
            stored.append(entry)
        elif entry.scheme == "auth":
            own = [identity for identity in identities or () if identity.scheme in _AUTHENTICATING_SCHEMES]
            if not own:
                raise InvalidAclError(
                    f"{entry} stands for who is authenticated, and this session is not", path
                )
            stored.extend(Acl(entry.permissions, identity.scheme, identity.id) for identity in own)
        elif _is_valid(entry):
            stored.append(entry)
        else:
            raise InvalidAclError(
                f"{entry} is not valid; use world:anyone, auth, digest:NAME:HASH or ip:ADDRESS[/BITS]", path
            )
    if not stored:
        raise InvalidAclError("an access list has at least one entry", path)
    return tuple(stored)


_AUTHENTICATING_SCHEMES: Final = frozenset(("digest",))
"""Those whose identities prove something: an address does not, so ``auth`` does not stand for it."""

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def _digest(auth: bytes) -> str:
    try:
        name = auth.decode().split(":", 1)[0]
    except UnicodeDecodeError as error:
        raise AuthFailedError(f"the auth packet is not UTF-8: {error}") from None
    return f"{name}:{base64.b64encode(hashlib.sha1(auth).digest()).decode()}"


def _is_valid(entry: Acl) -> bool:
    if entry.scheme == "digest":
        # Java's split drops empty texts at the end: "name:" is one part, and so refused.
        return len(entry.id.rstrip(":").split(":")) == 2
    return entry.scheme == "ip" and _network(entry.id) is not None


def _matches(entry: Acl, identity: Identity) -> bool:
    if entry.scheme == "ip":
        network = _network(entry.id)
        address = _network(identity.id)
        return (
            network is not None
            and address is not None
            and network.version == address.version
            and address.network_address in network
        )
    return entry.scheme == "digest" and entry.id == identity.id


@functools.lru_cache(maxsize=1024)
def _network(text: str) -> _Network | None:
    # ZooKeeper takes a number of bits behind the slash, and no netmask.
    _, slash, bits = text.partition("/")
    if slash and not bits.isdecimal():
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen == network.max_prefixlen:
        # A listener for both families sees IPv4 peers so: ::ffff:10.0.0.1 is 10.0.0.1.
        mapped = network.network_address.ipv4_mapped
        return network if mapped is None else ipaddress.IPv4Network(mapped)
    return network
