"""How long a broker waits for its peers to accept a connection."""

import pytest

from kalda.net.peer.dialer import ImpatientDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection


class Peers:
    """Addresses that do not answer, until they are up."""

    def __init__(self) -> None:
        self.up: set[str] = set()
        self.limits: list[float] = []

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        self.limits.append(options.timeout_seconds)
        if host not in self.up:
            raise ConnectionError(f"no connection to {host}:{port}")
        return object.__new__(PeerConnection)


async def limits(peers: Peers, dialer: ImpatientDialer, *hosts: str, seconds: float = 30) -> list[float]:
    """Return how long each attempt might take."""
    peers.limits.clear()
    for host in hosts:
        try:
            await dialer.dial(host, 9092, DialOptions(client_id="1", timeout_seconds=seconds))
        except ConnectionError:
            assert host not in peers.up
    return list(peers.limits)


async def test_each_failure_doubles_the_time_up_to_the_most() -> None:
    peers = Peers()
    dialer = ImpatientDialer(peers, 5_000, 18_000)
    assert [5, 10, 18, 18, 18] == await limits(peers, dialer, *["a"] * 5)


async def test_each_address_has_its_own_time_and_a_connection_resets_it() -> None:
    peers = Peers()
    dialer = ImpatientDialer(peers, 5_000, 20_000)
    assert [5, 10, 5, 20] == await limits(peers, dialer, "a", "a", "b", "a")
    peers.up.add("a")
    assert [20, 5, 10] == await limits(peers, dialer, "a", "a", "b")


@pytest.mark.parametrize(("first_ms", "max_ms", "expected"), [(10_000, 30_000, 1), (500, 100, 0.5)])
async def test_an_attempt_never_has_more_than_its_caller(first_ms: int, max_ms: int, expected: float) -> None:
    peers = Peers()
    assert [expected] == await limits(peers, ImpatientDialer(peers, first_ms, max_ms), "a", seconds=1)


async def test_addresses_that_fail_for_ever_are_not_all_remembered() -> None:
    peers = Peers()
    dialer = ImpatientDialer(peers, 5_000, 20_000)
    await limits(peers, dialer, *(f"host-{number}" for number in range(2_000)))
    assert [5, 10] == await limits(peers, dialer, "host-0", "host-1999")
