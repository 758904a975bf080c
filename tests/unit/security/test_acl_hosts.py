"""Which clients the host of an ACL stands for."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.security.acl.hosts import applies, check_host

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@pytest.mark.parametrize(
    ("host", "address", "expected"),
    [
        ("*", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.1.0.0/16", "10.1.255.255", True),
        ("10.1.0.0/16", "10.2.0.0", False),
        ("10.1.7.7/16", "10.1.0.1", True),
        ("10.1.0.1/32", "10.1.0.1", True),
        ("0.0.0.0/0", "203.0.113.9", True),
        ("0.0.0.0/0", "2001:db8:0:0:0:0:0:1", False),
        ("2001:db8::/32", "2001:db8:0:0:0:0:0:1", True),
        ("2001:db8::/32", "2001:db9:0:0:0:0:0:1", False),
        ("::/0", "10.0.0.1", False),
        ("10.1.0.0/255.255.0.0", "10.1.0.1", False),
        ("10.1.0.0/33", "10.1.0.0", False),
        ("a/b", "10.1.0.1", False),
        ("10.0.0.0/8", "no address", False),
    ],
)
def test_a_range_is_what_its_addresses_share(host: str, address: str, expected: bool) -> None:
    assert expected is applies(host, address)


@given(st.ip_addresses(), st.ip_addresses(), st.integers(0, 128))
def test_ranges_are_those_of_the_leading_bits(network: Address, address: Address, bits: int) -> None:
    bits = min(bits, network.max_prefixlen)
    alike = network.version == address.version and (
        int(network) >> (network.max_prefixlen - bits) == int(address) >> (network.max_prefixlen - bits)
    )
    assert alike is applies(f"{network}/{bits}", str(address))


@pytest.mark.parametrize(
    "host", ["*", "10.0.0.1", "host.example", "10.0.0.0/0", "10.0.0.7/8", "2001:db8::/128"]
)
def test_hosts_that_may_be_added(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "10.0.0.0/33",
        "10.0.0.0/",
        "/8",
        "10.0.0.0/-1",
        "10.0.0.0/8/8",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/\N{ARABIC-INDIC DIGIT EIGHT}",
        "2001:db8::/129",
        "fe80::1%eth0/64",
        "host.example/8",
    ],
)
def test_hosts_that_are_refused_by_name(host: str) -> None:
    with pytest.raises(ValueError, match="host"):
        check_host(host)
