"""Matches answers of other servers with the requests of this server's clients that wait for them.

A request goes out with a reply subject of its own, to which its answer comes back. A client cannot name such
a subject: the protocol's subjects have no spaces. When the way to a server is lost, the requests that it has
not answered fail, since nobody knows whether it has done them; an answer that comes later is dropped.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from kalda.nats.operations import Publish

WAITING_MAX: Final = 20_000
"""Requests that wait for their answers, some 500 bytes each."""

ANSWER_SECONDS_MAX: Final = 30.0
"""A request without an answer for so long fails. Most clients give up after 5 s."""

NOT_SERVED: Final = b"NATS/1.0 503\r\n\r\n"
"""The headers of the answer of a server that has not done a request."""

_PREFIX: Final = b"answer "
_REPLY: Final = re.compile(re.escape(_PREFIX) + rb"([0-9]{1,10}) [0-9]+")


class _Waiting(NamedTuple):
    answered: Callable[[bytes, bytes], None]
    failed: Callable[[], None]
    until: float


class CarriedRequests:
    """The requests of one server that other servers have not answered yet."""

    def __init__(self, server: int, first: int) -> None:
        """`first` is the number of the first request: an earlier run of this server had others."""
        self._server: Final = server
        self._next = first
        self._waiting: Final[dict[int, dict[bytes, _Waiting]]] = {}
        """By server and reply subject; the oldest of a server comes first."""
        self._count = 0
        self.failure_count = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, to: int, answered: Callable[[bytes, bytes], None], failed: Callable[[], None], now: float
    ) -> bytes | None:
        """Wait for the answer to a request; return its reply subject, None if too many wait.

        `answered` is called with the headers and the payload of the answer, or `failed` without one.
        """
        if self._count >= WAITING_MAX:
            return None
        reply = _PREFIX + b"%d %d" % (self._server, self._next)
        self._next += 1
        self._count += 1
        waiting = _Waiting(answered, failed, now + ANSWER_SECONDS_MAX)
        self._waiting.setdefault(to, {})[reply] = waiting
        return reply

    def answer(self, server: int, sent: Publish) -> None:
        """Take an answer of another server."""
        waiting = self._waiting.get(server, {}).pop(sent.subject, None)
        if waiting is None:
            return
        self._count -= 1
        if sent.headers == NOT_SERVED:
            self._fail(waiting)
        else:
            waiting.answered(sent.headers, sent.payload)

    def lost(self, server: int) -> None:
        """Fail all requests that a lost server has not answered."""
        for waiting in self._waiting.pop(server, {}).values():
            self._count -= 1
            self._fail(waiting)

    def expire(self, now: float) -> None:
        """Fail the requests that have waited longer than `ANSWER_SECONDS_MAX`."""
        for of_server in self._waiting.values():
            while of_server:
                reply, waiting = next(iter(of_server.items()))
                if waiting.until > now:
                    break
                del of_server[reply]
                self._count -= 1
                self._fail(waiting)

    def _fail(self, waiting: _Waiting) -> None:
        self.failure_count += 1
        waiting.failed()


def asking_server(reply: bytes) -> int | None:
    """Return the server that waits for the answer to this reply subject; None if it is a client's subject."""
    if not reply.startswith(_PREFIX):  # most of them
        return None
    found = _REPLY.fullmatch(reply)
    return None if found is None else int(found[1])
