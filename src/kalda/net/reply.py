"""Defines the parts of a reply: bytes in memory, regions of files, pieces that are made while it is sent."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from kalda.runtime.filesystem import File


class FileRegion(Protocol):
    """Bytes of an open file; all but small ones go from the page cache to the socket by ``sendfile``."""

    @property
    def position(self) -> int:
        """Where the region begins, in bytes from the start of the file."""
        ...

    @property
    def size(self) -> int:
        """How many bytes it has."""
        ...

    @property
    def file(self) -> File | None:
        """The open file; None only where there are no bytes."""
        ...


class PieceSource:
    """Bytes that are made while they are sent; `size` of them in all, in pieces."""

    __slots__ = ("_on_ready", "size")

    def __init__(self) -> None:
        self.size = 0
        self._on_ready: Callable[[], None] | None = None

    def take(self) -> bytes | None:
        """Return the next piece, which has at least one byte, or None if it is not ready."""
        raise NotImplementedError

    def when_ready(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` once, when the piece that `take` did not return is there."""
        self._on_ready = on_ready

    def _signal(self) -> None:
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()


Chunk: TypeAlias = bytes | bytearray | memoryview | FileRegion | PieceSource
"""One piece of a reply."""


class Ticket:
    """The place of one request's reply in the order of its connection."""

    __slots__ = ("on_abandoned", "reply")

    def __init__(self) -> None:
        self.reply: bytes | Sequence[Chunk] | None = None
        self.on_abandoned: Callable[[], None] | None = None
        """Called if the connection closes before the reply: lets a delayed operation stop waiting."""


NO_REPLY: Final[tuple[Chunk, ...]] = ()
"""The reply that sends nothing."""
