"""The five ports as one value: `Runtime`, from which a broker or a client is assembled."""

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Final

from kalda.runtime.background import Background
from kalda.runtime.clock import Clock
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.network import Network
from kalda.runtime.random import Random


class ClientNumbers:
    """Numbers clients that were given no `client.id`, from 1 for each kind of client; any thread may ask."""

    def __init__(self) -> None:
        self._counts: Final[dict[str, Iterator[int]]] = {}

    def next(self, kind: str) -> int:
        """Return the next number of a kind, such as ``producer``."""
        return next(self._counts.setdefault(kind, count(1)))


PROCESS_CLIENT_NUMBERS: Final = ClientNumbers()
"""Numbers the clients of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The access of a component to its machine.

    The code that builds the parts of a component takes it; a part takes the one port that it uses.
    """

    clock: Clock
    random: Random
    network: Network
    file_system: FileSystem
    background: Background
    client_numbers: ClientNumbers = PROCESS_CLIENT_NUMBERS


RUNTIME: "Final[ContextVar[Runtime | None]]" = ContextVar("RUNTIME", default=None)
"""The machine of the running context where it is not this one: clients that are created there use it."""
