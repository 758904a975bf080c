"""Access lists: validates them and checks a client's permissions by ZooKeeper's rules. Sans-IO.

The schemes are ``world``, ``auth`` (in requests only: all identities of the client), ``digest`` (name and
SHA-1 of name and password), ``ip`` (an address, or a network with its bits), ``sasl`` (a user name), ``x509``
(the subject of a certificate) and ``super``, an identity that may do everything. An entry of an unknown
scheme grants nothing.
"""

import base64
import functools
import hashlib
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from typing import Final, TypeAlias

from kalda.zookeeper.acl import Acl
from kalda.zookeeper.errors import AuthFailedError, InvalidAclError, NoAuthError


class Permission(IntFlag):
    """The permissions of an access list; the bits are ZooKeeper's."""

    READ = 1
    """Read the znode's data and the names of its children."""
    WRITE = 2
    CREATE = 4
    """Create children of the znode."""
    DELETE = 8
    """Delete children of the znode, but not the znode itself."""
    ADMIN = 16
    """Change the access list."""
    ALL = 31


READ: Final = Permission.READ
WRITE: Final = Permission.WRITE
CREATE: Final = Permission.CREATE
DELETE: Final = Permission.DELETE
ADMIN: Final = Permission.ADMIN


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity that a connection has proved: a scheme and an id in it."""

    scheme: str
    id: str


SUPER: Final = Identity("super", "")
"""The identity that may do everything."""

BUILT_IN_SCHEMES: Final = frozenset(("digest", "ip"))
"""The schemes that every server serves; settings add ``sasl`` and ``x509``."""

_SASL_SUPER: Final = "super"
"""The SASL user that matches every ``sasl`` entry of a list, as in ZooKeeper."""


def authenticate(scheme: str, auth: bytes, peer_host: str) -> Identity:
    """Return the identity that a client's auth packet proves.

    >>> authenticate("digest", b"alice:secret", "127.0.0.1").id
    'alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E='

    Raises:
        AuthFailedError: the scheme is unknown, or a digest's text is not UTF-8.
    """
    if scheme == "digest":
        return Identity(scheme, _digest(auth))
    if scheme == "ip":
        return Identity(scheme, peer_host)
    raise AuthFailedError(f"scheme {scheme!r} is not known; use digest or ip")


def check_permission(
    acl: tuple[Acl, ...], permission: int, identities: tuple[Identity, ...] | None, path: str | None = None
) -> None:
    """Check that an entry of the list grants the permission to one of the identities.

    None as identities stands for this process itself, which may do everything.

    Raises:
        NoAuthError: no entry grants it.
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
    acl: Iterable[Acl],
    identities: tuple[Identity, ...] | None,
    path: str | None = None,
    schemes: frozenset[str] = BUILT_IN_SCHEMES,
) -> tuple[Acl, ...]:
    """Return the list to store: without duplicates, ``auth`` replaced by the client's identities.

    `schemes` are those that the server serves. Lists of this process itself (None as identities) are stored
    as they are.

    Raises:
        InvalidAclError: it is empty, an entry is invalid, or ``auth`` is used by an unauthenticated client.
    """
    if identities is None:
        return tuple(acl)
    stored: list[Acl] = []
    for entry in dict.fromkeys(acl):
        if entry.scheme == "world" and entry.id == "anyone":
            stored.append(entry)
        elif entry.scheme == "auth":
            own = [identity for identity in identities if identity.scheme in _AUTHENTICATING_SCHEMES]
            if not own:
                raise InvalidAclError(
                    f"{entry} needs an authenticated session, and this session is not authenticated", path
                )
            stored.extend(Acl(entry.permissions, identity.scheme, identity.id) for identity in own)
        elif entry.scheme in schemes and _is_valid(entry):
            stored.append(entry)
        else:
            served = ", ".join(_FORMS[scheme] for scheme in sorted(schemes))
            raise InvalidAclError(f"{entry} is not valid; use world:anyone, auth, {served}", path)
    if not stored:
        raise InvalidAclError("an access list has at least one entry", path)
    return tuple(stored)


_FORMS: Final = {
    "digest": "digest:NAME:HASH",
    "ip": "ip:ADDRESS[/BITS]",
    "sasl": "sasl:NAME",
    "x509": "x509:SUBJECT",
}

_AUTHENTICATING_SCHEMES: Final = frozenset(("digest", "sasl", "x509"))
"""Schemes whose identities ``auth`` stands for: an address authenticates nothing."""

_PRINCIPAL: Final = re.compile(r"[^/@]*(/[^/@]*)?@[^/@]*")

_ATTRIBUTE: Final = r'\s*+[\w.-]++\s*+=\s*+(?:"[^"]*+"\s*+|(?:\\.|[^\\,;+"])*+)'
_SUBJECT: Final = re.compile(rf"{_ATTRIBUTE}(?:[,;+]{_ATTRIBUTE})*+", re.DOTALL)
"""A distinguished name: attributes with values, quoted or with escapes (RFC 2253). Nothing is tried twice, so
that a client's long text takes no longer than its length."""

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def _digest(auth: bytes) -> str:
    try:
        name = auth.decode().split(":", 1)[0]
    except UnicodeDecodeError as error:
        raise AuthFailedError(f"the auth packet is not UTF-8: {error}") from None
    return f"{name}:{base64.b64encode(hashlib.sha1(auth).digest()).decode()}"


def _is_valid(entry: Acl) -> bool:
    if entry.scheme == "digest":
        # Java's split drops empty strings at the end: "name:" has one part and is refused.
        return len(entry.id.rstrip(":").split(":")) == 2
    if entry.scheme == "sasl":
        # A name, or a principal of Kerberos: NAME[/HOST]@REALM.
        return "@" not in entry.id or _PRINCIPAL.fullmatch(entry.id) is not None
    if entry.scheme == "x509":
        return _SUBJECT.fullmatch(entry.id) is not None
    return _network(entry.id) is not None


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
    return entry.id == identity.id or (entry.scheme == "sasl" and identity.id == _SASL_SUPER)


@functools.lru_cache(maxsize=1024)
def _network(text: str) -> _Network | None:
    # ZooKeeper accepts a number of bits after the slash, but no netmask.
    _, slash, bits = text.partition("/")
    if slash and not bits.isdecimal():
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen == network.max_prefixlen:
        # A listener for both families reports IPv4 peers like this: ::ffff:10.0.0.1 is 10.0.0.1.
        mapped = network.network_address.ipv4_mapped
        return network if mapped is None else ipaddress.IPv4Network(mapped)
    return network
