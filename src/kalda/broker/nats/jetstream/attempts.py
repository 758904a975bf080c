"""Retries requests for a few seconds while no broker leads the stream or consumers are being restored."""

import asyncio
from collections.abc import Callable
from typing import Final

from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts

COUNT_MAX: Final = 1_000
BYTES_MAX: Final = 4 * 1024 * 1024
"""Of the payloads of these requests."""

_PAUSE_SECONDS: Final = 0.05
_TIMES: Final = 80
"""Clients give up after 5 s."""


class Attempts:
    """The requests that wait for another attempt."""

    def __init__(self, parts: JetStreamParts) -> None:
        self._parts: Final = parts
        self._count = 0
        self._bytes = 0
        self._is_closed = False

    def add(self, size: int, attempt: Callable[[], bool], failed: Callable[[], None]) -> None:
        """Call `attempt` until it returns True, or `failed` where it does not in time or too many wait."""
        if self._count >= COUNT_MAX or self._bytes + size > BYTES_MAX:
            failed()
            return
        self._count += 1
        self._bytes += size
        self._parts.run("try again", self._try(size, attempt, failed))

    def close(self) -> None:
        """Fail the requests that wait."""
        self._is_closed = True

    async def _try(self, size: int, attempt: Callable[[], bool], failed: Callable[[], None]) -> None:
        try:
            for _ in range(_TIMES):
                await asyncio.sleep(_PAUSE_SECONDS)
                if self._is_closed:
                    break
                if attempt():
                    return
            failed()
        finally:
            self._count -= 1
            self._bytes -= size
