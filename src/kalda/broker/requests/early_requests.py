"""Requests that a broker receives before it knows the cluster's topics.

A broker that has just started knows neither topics nor other brokers. If it answered, clients would believe
that their topics are gone, so their requests wait, in order, for the few milliseconds until the controller
has sent the metadata of every partition. The controller's own requests and ApiVersions are served at once.
"""

import logging
from collections.abc import Callable
from struct import Struct
from typing import Final

from kalda.common.api_keys import ApiKey
from kalda.net.connection import Connection

FRAMES_HELD_MAX: Final = 1_000
BYTES_HELD_MAX: Final = 32 * 1024 * 1024
"""A reconnecting crowd fits; who comes later is closed and comes again."""

_SERVED_EARLY: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA}
)
_API_KEY: Final = Struct(">h")

FrameHandler = Callable[[Connection, memoryview], None]


class EarlyRequests:
    """Stands before the dispatcher until `open`."""

    def __init__(self, handle: FrameHandler) -> None:
        self._handle: Final = handle
        self._is_open = False
        self._held: list[tuple[Connection, bytearray]] = []
        self._held_bytes = 0
        self._holding: set[int] = set()
        """Connections with something held: what follows on them must not overtake it."""

    def __len__(self) -> int:
        return len(self._held)

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Hold a request, or have it handled."""
        if self._is_open:
            self._handle(connection, frame)
            return
        is_early = len(frame) >= _API_KEY.size and _API_KEY.unpack_from(frame)[0] in _SERVED_EARLY
        if is_early and connection.id not in self._holding:
            self._handle(connection, frame)
            return
        if len(self._held) >= FRAMES_HELD_MAX or self._held_bytes + len(frame) > BYTES_HELD_MAX:
            connection.close("the broker has just started and is asked too much", logging.DEBUG)
            return
        # A copy: the frame's memory is the connection's again when this returns.
        self._held.append((connection, bytearray(frame)))
        self._held_bytes += len(frame)
        self._holding.add(connection.id)

    def give_up(self) -> None:
        """Close the connections whose requests wait: their clients turn to another broker, or come again."""
        held, self._held = self._held, []
        self._held_bytes = 0
        self._holding.clear()
        for connection, _ in held:
            connection.close("no controller has sent this broker the cluster's metadata yet")

    def open(self) -> None:
        """Have everything handled that was held, and whatever comes from now on at once."""
        self._is_open = True
        held, self._held = self._held, []
        self._holding.clear()
        for connection, frame in held:
            if not connection.is_closed:
                # Not by ourselves: outside the receiving nothing would send the answer.
                connection.handle_kept(memoryview(frame))
