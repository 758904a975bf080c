"""Resolving names on daemon threads. The resolver is replaced; nothing is looked up."""

import asyncio
import socket
import threading
import time

import pytest

from kalda.runtime.network import address_text
from kalda.runtime.system.connect import canonical_addresses, connect_socket, on_daemon_thread


def test_addresses_are_written_as_bootstrap_servers_are() -> None:
    assert ["h:1", "127.0.0.1:2", "[::1]:3"] == [
        address_text("h", 1),
        address_text("127.0.0.1", 2),
        address_text("::1", 3),
    ]


def test_a_resolver_that_hangs_delays_neither_the_caller_nor_the_end_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A default executor would make both wait for its thread."""
    resume = threading.Event()
    ended = threading.Event()

    def hang(host: str, port: int, **named: object) -> list[object]:
        if named.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not numeric")
        assert resume.wait(30)
        ended.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)

    async def main() -> None:
        async with asyncio.timeout(0.05):
            await connect_socket("kafka.example", 9092, timeout_seconds=10)

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert time.monotonic() - began < 25

    # The result comes after the loop was closed, and is dropped without a word.
    (thread,) = (each for each in threading.enumerate() if each.name == "resolve kafka.example")
    assert thread.daemon
    resume.set()
    assert ended.wait(60)
    thread.join(60)


async def test_a_name_that_dns_cannot_hold_is_an_os_error() -> None:
    def encode() -> str:
        return ("x" * 64).encode("idna").decode()

    with pytest.raises(OSError, match="not a host name: "):
        await on_daemon_thread(encode, "encode")


async def test_canonical_names_come_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 9092))
        for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "getnameinfo", lambda address, _: (f"host-{address[0][-1]}", "9092"))

    assert [("host-1", 9092), ("host-2", 9092)] == await canonical_addresses("kafka.example", 9092)
