"""Matches clients with the host of an ACL: all, one address, or a range of addresses (KIP-1276)."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from kalda.security.acl.model import WILDCARD

_RANGE_MARK: Final = "/"


def check_host(host: str) -> None:
    """Check the host of an ACL that is to be added. As in Kafka, one without a slash may be any text.

    Raises:
        ValueError: it is empty, or not a range of addresses in CIDR notation although it has a slash.
    """
    if not host:
        raise ValueError("The host is empty; use * for every host.")
    if _RANGE_MARK in host and _network(host) is None:
        raise ValueError(
            f"The host {host} is not a range of addresses; a range is an address of IPv4 or IPv6, a slash "
            "and the number of leading bits that all its addresses share, as 10.1.0.0/16 or 2001:db8::/32."
        )


def applies(host: str, address: str) -> bool:
    """Whether the host of an ACL stands for a client's address, which is as `Authorizer` gives it.

    >>> applies("10.1.0.0/16", "10.1.200.7"), applies("10.1.0.0/16", "10.2.0.1"), applies("*", "10.2.0.1")
    (True, False, True)
    """
    if host in (address, WILDCARD):
        return True
    if _RANGE_MARK not in host:
        return False
    network, parsed = _network(host), _address(address)
    return network is not None and parsed is not None and parsed in network


# Both are called for each entry of each decision that no connection has remembered yet.


@lru_cache(maxsize=4096)
def _network(host: str) -> IPv4Network | IPv6Network | None:
    _, _, bits = host.partition(_RANGE_MARK)
    # Python takes a netmask, too, which no other broker of a cluster understands.
    if not (bits.isascii() and bits.isdecimal()) or "%" in host:
        return None
    try:
        # An address within the range stands for the range, as in Kafka.
        return ip_network(host, strict=False)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
