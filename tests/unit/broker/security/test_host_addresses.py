"""Host names in quotas and limits: looked up outside the loop, kept by name, in force by address."""

import asyncio
import logging
import socket
from collections.abc import Mapping
from typing import cast

import pytest

from kalda.broker.config import ConfigStore
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.security.host_addresses import HostAddresses, resolve
from kalda.runtime.system.network import SystemNetwork
from kalda.settings import BrokerConfig
from tests.runtimes import runtime_with

NAMES = {"a.example": "10.0.0.1", "b.example": "10.0.0.2"}
RATE = "connection_creation_rate"


class Names(SystemNetwork):
    """A resolver that knows some names."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    async def address_of(self, host: str) -> str | None:
        return self.names.get(host)


class Waiting:
    """Addresses, and a way to wait until they changed."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.network = Names(NAMES)
        self.hosts = HostAddresses(self.network, self.changed.set)


async def test_names_are_left_out_until_they_have_an_address() -> None:
    waiting = Waiting()
    values = {"::ffff:10.0.0.9": 1, "a.example": 2}
    assert {"10.0.0.9": 1} == waiting.hosts.by_address(values)
    await waiting.changed.wait()
    assert {"10.0.0.9": 1, "10.0.0.1": 2} == waiting.hosts.by_address(values)


async def test_a_name_without_an_address_limits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting()
    assert {} == waiting.hosts.by_address({"no.example": 1, "a.example": 2})
    await waiting.changed.wait()
    while not caplog.records:  # noqa: ASYNC110  # the other look-up ends in its own time
        await asyncio.sleep(0)
    assert {"10.0.0.1": 2} == waiting.hosts.by_address({"no.example": 1, "a.example": 2})
    assert [(logging.WARNING, True)] == [
        (record.levelno, "from no.example is left out" in record.getMessage()) for record in caplog.records
    ]


async def test_a_name_that_comes_back_is_looked_up_again() -> None:
    waiting = Waiting()
    waiting.hosts.by_address({"a.example": 2})
    await waiting.changed.wait()
    waiting.hosts.by_address({})
    waiting.network.names = {"a.example": "10.0.0.7"}
    waiting.changed.clear()
    waiting.hosts.by_address({"a.example": 2})
    await waiting.changed.wait()
    assert {"10.0.0.7": 2} == waiting.hosts.by_address({"a.example": 2})


async def test_quotas_of_names_bound_addresses() -> None:
    """A quota that is removed no longer bounds the address that the name had."""
    config = BrokerConfig.from_properties({})
    store = ConfigStore(config)
    throttle = ClientThrottle(config, store, runtime_with(network=Names(NAMES)))
    rates: dict[str | None, int | None] = {}
    changed = asyncio.Event()

    def on_rate(address: str | None, rate: int | None) -> None:
        rates[address] = rate
        changed.set()

    throttle.on_ip_rate(on_rate)

    async def set_quota(name: str, settings: Mapping[str, str]) -> dict[str | None, int | None]:
        rates.clear()
        changed.clear()
        store.set_entity("ips", name, settings)
        await changed.wait()
        return dict(rates)

    assert {"10.0.0.1": 5} == await set_quota("a.example", {RATE: "5"})
    assert {"10.0.0.1": 6} == await set_quota("a.example", {RATE: "6"})
    assert {"10.0.0.2": 7} == await set_quota("b.example", {RATE: "7"})
    assert {"192.0.2.7": 8} == await set_quota("192.0.2.7", {RATE: "8"})
    assert {None: 9} == await set_quota("<default>", {RATE: "9"})
    assert {"10.0.0.1": None} == await set_quota("a.example", {})
    late: dict[str | None, int | None] = {}
    throttle.on_ip_rate(late.__setitem__)
    assert {None: 9, "10.0.0.2": 7, "192.0.2.7": 8} == late


async def test_an_address_of_ipv4_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Java, which prefers it unless told otherwise."""
    infos = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: cast("list[object]", list(infos)))
    assert "127.0.0.1" == await resolve(SystemNetwork(), "localhost")
