"""The five ports as one value: `Runtime`, from which a broker or a client is assembled."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from kalda.runtime.background import Background
from kalda.runtime.clock import Clock
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.network import Network
from kalda.runtime.random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a component knows of its machine.

    The code that builds the parts of a component takes it; a part takes the one port that it uses.
    """

    clock: Clock
    random: Random
    network: Network
    file_system: FileSystem
    background: Background


RUNTIME: "Final[ContextVar[Runtime | None]]" = ContextVar("RUNTIME", default=None)
"""The machine of the running context where it is not this one: clients that are created there use it."""
