"""Resolves the host names in quotas and limits of connections, outside the event loop.

As in Kafka a setting keeps the name that it was given, and each broker limits the address that it has. A name
without an address limits nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kalda.runtime.network import Network
from kalda.security.quota.connection_rates import plain_address

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)


async def resolve(network: Network, name: str) -> str | None:
    """Return the address of a host in plain form; None if it has none."""
    address = await network.address_of(name)
    return None if address is None else plain_address(address)


class HostAddresses:
    """The addresses of the host names in some settings."""

    def __init__(self, network: Network, on_resolved: Callable[[], None]) -> None:
        """`on_resolved` is called when a name that `by_address` has met got its address."""
        self._network: Final = network
        self._look_ups: Final[set[asyncio.Task[str | None]]] = set()
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

        def on_done(done: "asyncio.Task[str | None]") -> None:
            self._look_ups.discard(done)
            if done.cancelled() or name not in self._addresses:
                return
            address = self._addresses[name] = done.result()
            if address is None:
                logger.warning("the limit of connections from %s is left out: it has no address", name)
            else:
                self._on_resolved()

        look_up = asyncio.create_task(resolve(self._network, name), name=f"resolve {name}")
        self._look_ups.add(look_up)
        look_up.add_done_callback(on_done)
