"""Decides which addresses the server may send requests to, and connects only to those.

A URL that a caller gives must not reach what only this machine or its network can reach. The name is resolved
once, every address is checked, and the connection goes to the address that was checked, so that a name that
resolves otherwise a moment later changes nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import httpcore

from kalda.common.overriding import override

URL_CHARACTERS_MAX: Final = 2_000
ADDRESSES_MAX: Final = 16
"""Addresses of one name that are tried."""

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that a translator turns into IPv4 addresses (RFC 6052)."""


class ForbiddenAddressError(Exception):
    """A URL, or an address of its host, is not one that the server sends requests to."""


def parse_networks(texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    """Return networks such as ``10.1.0.0/16``.

    Raises:
        ValueError: a text is no network.
    """
    return tuple(ipaddress.ip_network(text.strip()) for text in texts)


def check_url(url: object) -> str:
    """Return a URL that a webhook may have, as far as its text shows.

    Raises:
        ForbiddenAddressError: it is none.
    """
    if not isinstance(url, str) or len(url) > URL_CHARACTERS_MAX or not (url.isascii() and url.isprintable()):
        raise ForbiddenAddressError(f"url is no text of at most {URL_CHARACTERS_MAX} characters of ASCII")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ForbiddenAddressError(f"url={url!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or " " in url:
        raise ForbiddenAddressError(f"url={url!r} is not http://HOST/… or https://HOST/…")
    if parts.username is not None or parts.fragment:
        raise ForbiddenAddressError(f"url={url!r} has a user or a fragment, which is not allowed")
    return url


def is_allowed(address: IPAddress, allowed: Sequence[IPNetwork]) -> bool:
    """Return whether requests may go to an address: a public one, or one of the networks that are allowed."""
    embedded = _embedded(address)
    if embedded is not None:
        return is_allowed(embedded, allowed)
    if any(address.version == network.version and address in network for network in allowed):
        return True
    is_site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or is_site_local)


def _embedded(address: IPAddress) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to allowed addresses only."""

    def __init__(self, allowed: Sequence[IPNetwork]) -> None:
        self._allowed: Final = allowed
        self._network: Final = httpcore.AnyIOBackend()

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError(f"{host} has no address")

    async def _resolve(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from None
        addresses = list(dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found))
        for text in addresses:
            if not is_allowed(ipaddress.ip_address(text), self._allowed):
                raise ForbiddenAddressError(
                    f"{host} has the address {text}, which is not public and not in `http.webhooks.allow`"
                )
        return addresses[:ADDRESSES_MAX]
