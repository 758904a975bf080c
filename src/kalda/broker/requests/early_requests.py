"""Holds the requests that a broker receives before it has the cluster's metadata.

A broker that has just started has no topics and no other brokers in its metadata. If it answered, clients
would conclude that their topics were deleted. So their requests wait, in order, for the few milliseconds
until the controller has sent the metadata of every partition. The controller's own requests and ApiVersions
are handled at once.
"""

import logging
from collections.abc import Callable, Set
from struct import Struct
from typing import Final

from kalda.net.connection import Connection

FRAMES_HELD_MAX: Final = 1_000
BYTES_HELD_MAX: Final = 32 * 1024 * 1024
"""Enough for many clients that reconnect at once. Further connections are closed; their clients reconnect."""

_API_KEY: Final = Struct(">h")

FrameHandler = Callable[[Connection, memoryview], None]


class EarlyRequests:
    """Receives the frames of all connections and holds them until `open`, but for some API keys."""

    def __init__(self, handle: FrameHandler, served_early: Set[int]) -> None:
        self.handle: Final = handle
        self._served_early: Final = served_early
        self._is_open = False
        self._held: list[tuple[Connection, bytearray]] = []
        self._held_bytes = 0
        self._holding: set[int] = set()
        """Connections with held requests, which later requests must not overtake."""

    def __len__(self) -> int:
        return len(self._held)

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Hold a request or pass it to the dispatcher."""
        if self._is_open:
            self.handle(connection, frame)
            return
        is_early = len(frame) >= _API_KEY.size and _API_KEY.unpack_from(frame)[0] in self._served_early
        if is_early and connection.id not in self._holding:
            self.handle(connection, frame)
            return
        if len(self._held) >= FRAMES_HELD_MAX or self._held_bytes + len(frame) > BYTES_HELD_MAX:
            connection.close("the broker is starting and holds too many requests", logging.DEBUG)
            return
        # A copy, because the connection reuses the frame's memory when this returns.
        self._held.append((connection, connection.keep(frame)))
        self._held_bytes += len(frame)
        self._holding.add(connection.id)

    def give_up(self) -> None:
        """Close the connections with held requests; their clients use another broker or reconnect."""
        held, self._held = self._held, []
        self._held_bytes = 0
        self._holding.clear()
        for connection, _ in held:
            connection.close("the broker has not received the cluster's metadata from a controller")

    def open(self) -> None:
        """Handle all held requests, and pass on later ones at once.

        The server passes its connections' frames to `handle` itself by now, but for sessions of clients that
        logged in before; those do when they log in again.
        """
        self._is_open = True
        held, self._held = self._held, []
        self._holding.clear()
        for connection, frame in held:
            if not connection.is_closed:
                # Outside of its receiving, a connection sends a response only through this method.
                connection.handle_kept(memoryview(frame))
