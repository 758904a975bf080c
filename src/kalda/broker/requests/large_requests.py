"""Bounds the memory of large requests, which are decoded, handled and answered in turns: `LargeRequests`.

The event loop does other work between the turns, so that many large requests could be in work at the same
time, and each may hold ten times its bytes as objects. So their bytes wait here, and a few are in work.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

LARGE_BYTES: Final = 4 * 1024
"""A request above this size is large. One below it can name at most some thousand things."""

ELEMENTS_MAX: Final = 100_000
"""Elements that the arrays of one request may have together. The largest honest request names each partition
of a broker, some 20,000; each element takes some 200 bytes, and about as much again in the response."""

CONTROLLER_ELEMENTS_MAX: Final = 500_000
"""The same for requests of the controller, which name each partition of a cluster: 200,000 or so."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of all large requests of a broker; a single one may have more."""

IN_WORK_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of the large requests that are in work at the same time; a single one may have more."""


class LargeRequest:
    """A large request until its answer is made or its connection is closed."""

    __slots__ = ("_begin", "_requests", "body", "drop", "is_ended", "is_in_work", "size")

    def __init__(
        self,
        requests: "LargeRequests",
        body: bytes,
        begin: "Callable[[LargeRequest], None]",
        drop: Callable[[], None],
    ) -> None:
        self._requests: Final = requests
        self.drop: Final = drop
        """Closes the connection, which ends the request."""
        self._begin: Callable[[LargeRequest], None] | None = begin
        self.body = body
        self.size: Final = len(body)
        self.is_in_work = False
        self.is_ended = False

    def begin(self) -> None:
        """Begin with the work."""
        begin, self._begin = self._begin, None
        assert begin is not None, "a request begins once"
        self.is_in_work = True
        begin(self)

    def end(self) -> None:
        """Make room for others; ending twice is harmless."""
        if not self.is_ended:
            self.is_ended = True
            self.body = b""
            # It refers to what refers to this: a cycle would keep the request until the next collection.
            self._begin = None
            self._requests.on_end(self)


class LargeRequests:
    """The large requests of one broker: those in work and those that wait, first come, first served."""

    def __init__(self) -> None:
        self._waiting: Final[deque[LargeRequest]] = deque()
        self._bytes = 0
        self._in_work_bytes = 0

    def has_room(self, size: int) -> bool:
        """Return whether a request of `size` bytes can be taken."""
        return not self._bytes or self._bytes + size <= WAITING_BYTES_MAX

    def add(
        self, body: bytes, begin: Callable[[LargeRequest], None], drop: Callable[[], None]
    ) -> LargeRequest:
        """Take a request for which there is room.

        `begin_next` calls `begin` when it has its turn, `close` calls `drop` if it has none.
        """
        request = LargeRequest(self, body, begin, drop)
        self._bytes += request.size
        self._waiting.append(request)
        return request

    def begin_next(self) -> None:
        """Begin with the requests that have their turn."""
        waiting = self._waiting
        while waiting and (
            not self._in_work_bytes or self._in_work_bytes + waiting[0].size <= IN_WORK_BYTES_MAX
        ):
            request = waiting.popleft()
            if not request.is_ended:
                self._in_work_bytes += request.size
                request.begin()

    def close(self) -> None:
        """Drop the requests that wait; those in progress continue."""
        waiting = list(self._waiting)
        self._waiting.clear()
        for request in waiting:
            request.drop()

    def on_end(self, request: LargeRequest) -> None:
        """Note that a request has ended."""
        self._bytes -= request.size
        if request.is_in_work:
            self._in_work_bytes -= request.size
        assert 0 <= self._in_work_bytes <= self._bytes, f"{self._in_work_bytes} of {self._bytes} bytes"
        self.begin_next()
