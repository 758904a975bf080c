"""Binds an asynchronous client to the event loop and the process that it was started in."""

import asyncio
import os
from typing import Final

from kalda.clients.errors import IllegalStateError


class LoopOwner:
    """The loop of one client, known from its first use."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    @property
    def is_foreign_process(self) -> bool:
        """Whether this process is a fork of the one that uses the client."""
        return self._loop is not None and os.getpid() != self._pid

    def check(self) -> None:
        """Take the running loop for that of the client, or check that it is.

        Raises:
            IllegalStateError: the client was started on another loop, or before a fork.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Such as `metrics` in another thread.
            return
        if self._loop is None:
            self._loop, self._pid = loop, os.getpid()
        if self.is_foreign_process:
            raise IllegalStateError(
                f"this {self._name} was started in process {self._pid} and cannot be used in its fork "
                f"{os.getpid()}; create one in each process, after the fork"
            )
        if self._loop is not loop:
            raise IllegalStateError(
                f"this {self._name} was started on another event loop, which its connections belong to; use "
                "and close it there, or create one in each loop (each asyncio.run() has its own)"
            )
