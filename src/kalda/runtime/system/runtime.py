"""The five ports of this machine: `system_runtime` for servers, `client_runtime` for clients."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kalda.runtime.background import Background, InlineExecutor
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.runtime import RUNTIME, Runtime
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.runtime.system.random import SYSTEM_RANDOM

T = TypeVar("T")


def system_runtime(background: Background, file_system: FileSystem | None = None) -> Runtime:
    """Return the ports of this machine; `background` belongs to an event loop and is closed by the caller."""
    return Runtime(
        clock=SystemClock(),
        random=SYSTEM_RANDOM,
        network=SYSTEM_NETWORK,
        file_system=OsFileSystem() if file_system is None else file_system,
        background=background,
    )


class _ClientBackground(InlineExecutor):
    """A client submits no work; what may block for long, such as a login, runs on asyncio's threads."""

    async def call(self, function: Callable[[], T]) -> T:
        """Call it on a thread."""
        return await asyncio.to_thread(function)


def client_runtime() -> Runtime:
    """Return the ports of a client, which owns no threads and writes no files.

    They are those of this machine, unless the context has others (`RUNTIME`), as in a simulation.
    """
    given = RUNTIME.get()
    return system_runtime(_ClientBackground()) if given is None else given
