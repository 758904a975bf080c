"""Resolves the host names in quotas and limits of connections, outside the event loop.

As in Kafka a setting keeps the name that it was given, and each broker limits the address that it has. A name
without an address limits nothing.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kalda.security.quota.connection_rates import plain_address

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)


def resolve(name: str) -> str | None:
    """Return the address of a host, one of IPv4 where there is one; None if there is none. Blocks."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return plain_address(str(found[0][4][0])) if found else None


class HostAddresses:
    """The addresses of the host names in some settings."""

    def __init__(self, on_resolved: Callable[[], None]) -> None:
        """`on_resolved` is called when a name that `by_address` has met got its address."""
        self._on_resolved: Final = on_resolved
        self._addresses: Final[dict[str, str | None]] = {}
        """By name; None while a name is looked up, and if it has no address."""

    def by_address(self, values: Mapping[str, T]) -> dict[str, T]:
        """Return values by address instead of by host.

        A name that is new is looked up, and left out meanwhile. Names that are not among the values are
        forgotten: when they come back they are looked up again.
        """
        found: dict[str, T] = {}
        for name in self._addresses.keys() - values.keys():
            del self._addresses[name]
        for name, value in values.items():
            try:
                found[plain_address(name)] = value
            except ValueError:
                if name not in self._addresses:
                    self._look_up(name)
                elif (address := self._addresses[name]) is not None:
                    found[address] = value
        return found

    def _look_up(self, name: str) -> None:
        self._addresses[name] = None

        def on_done(done: "asyncio.Future[str | None]") -> None:
            if done.cancelled() or name not in self._addresses:
                return
            address = self._addresses[name] = done.result()
            if address is None:
                logger.warning("the limit of connections from %s is left out: it has no address", name)
            else:
                self._on_resolved()

        asyncio.get_running_loop().run_in_executor(None, resolve, name).add_done_callback(on_done)
