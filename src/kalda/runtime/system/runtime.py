"""The five ports of this machine: `system_runtime`."""

from kalda.runtime.background import Background
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.runtime.system.random import SYSTEM_RANDOM


def system_runtime(background: Background, file_system: FileSystem | None = None) -> Runtime:
    """Return the ports of this machine; `background` belongs to an event loop and is closed by the caller."""
    return Runtime(
        clock=SystemClock(),
        random=SYSTEM_RANDOM,
        network=SYSTEM_NETWORK,
        file_system=OsFileSystem() if file_system is None else file_system,
        background=background,
    )
