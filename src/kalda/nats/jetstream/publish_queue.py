"""Defines the messages on their way into a stream: `PublishQueue`.

A message waits to be added to the log and, once it is, to be replicated; its publisher gets the answer then.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from kalda.nats.jetstream.shared_limits import SharedLimit
from kalda.nats.operations import Publish

MESSAGES_MAX: Final = 20_000
BYTES_MAX: Final = 32 * 1024 * 1024
"""Messages of one stream that wait to be added, and those that wait to be replicated."""

BATCH_BYTES_MAX: Final = 256 * 1024
"""Messages that come together become one batch of records up to this size."""

_MESSAGE_OVERHEAD: Final = 250


class _Added(NamedTuple):
    sequence: int
    reply: bytes
    size: int


class PublishQueue:
    """The messages that wait to be added, and the publishers that wait until theirs are replicated."""

    def __init__(self, limit: SharedLimit) -> None:
        """`limit` bounds the bytes that all streams have together."""
        self._limit: Final = limit
        self._waiting: Final[deque[Publish]] = deque()
        self._added: Final[deque[_Added]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Publish:
        """The message that is added next; there must be one."""
        return self._waiting[0]

    def offer(self, sent: Publish) -> bool:
        """Add a message at the end; return False if there is no room for it."""
        size = _memory(sent)
        if (
            len(self._waiting) + len(self._added) >= MESSAGES_MAX
            or self._bytes + size > BYTES_MAX
            or not self._limit.has_room(self._bytes, size)
        ):
            return False
        self._waiting.append(sent)
        self._take(size)
        return True

    def take_batch(self, count_max: int) -> list[Publish]:
        """Take messages that become one batch: one with headers comes alone, to be checked."""
        taken: list[Publish] = []
        size = 0
        while self._waiting and len(taken) < count_max:
            sent = self._waiting[0]
            needed = _memory(sent)
            if taken and (sent.headers or size + needed > BATCH_BYTES_MAX):
                break
            taken.append(self._waiting.popleft())
            size += needed
            if sent.headers:
                break
        self._give_back(size)
        return taken

    def wait_replicated(self, sequence: int, reply: bytes) -> None:
        """Hold the answer to a publisher back until the message with its sequence is replicated."""
        size = _MESSAGE_OVERHEAD + len(reply)
        self._added.append(_Added(sequence, reply, size))
        self._take(size)

    def replicated(self, last: int) -> Iterator[tuple[int, bytes]]:
        """Take the sequences up to `last` and the subjects of their answers."""
        while self._added and self._added[0].sequence <= last:
            sequence, reply, size = self._added.popleft()
            self._give_back(size)
            yield sequence, reply

    def clear(self) -> list[bytes]:
        """Drop all messages and waiting publishers; return the subjects of their answers."""
        replies = [each.reply for each in self._waiting] + [each.reply for each in self._added]
        self._waiting.clear()
        self._added.clear()
        self._give_back(self._bytes)
        return replies

    def _take(self, size: int) -> None:
        self._bytes += size
        self._limit.take(size)

    def _give_back(self, size: int) -> None:
        self._bytes -= size
        self._limit.give_back(size)


def _memory(sent: Publish) -> int:
    """Return the bytes that a message takes while it waits."""
    return len(sent.payload) + len(sent.headers) + len(sent.subject) + len(sent.reply) + _MESSAGE_OVERHEAD
