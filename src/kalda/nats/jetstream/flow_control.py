"""Bounds the messages that a push consumer sends before its client confirms that it has read them."""

from typing import Final

WINDOW_START: Final = 128 * 1024
WINDOW_MAX: Final = 8 * 1024 * 1024


class FlowControl:
    """The bytes on their way to the client of a push consumer.

    At half of the window the client is asked to answer; the answer comes after the client has read what was
    sent before. The window doubles with each answer.
    """

    def __init__(self) -> None:
        self._window = WINDOW_START
        self._bytes = 0
        self._asked_bytes = 0
        self._subject = b""

    @property
    def is_full(self) -> bool:
        """Whether nothing may be sent until the client answers."""
        return self._bytes >= self._window

    @property
    def asks(self) -> bool:
        """Whether the client is to be asked now."""
        return not self._subject and self._bytes * 2 >= self._window

    def sent(self, size: int) -> None:
        """Count a message."""
        self._bytes += size

    def asked(self, subject: bytes) -> None:
        """Note that the client was asked to answer to a subject."""
        self._subject = subject
        self._asked_bytes = self._bytes

    def answered(self, subject: bytes) -> bool:
        """Take an answer; return whether it is the one that was asked for."""
        if subject != self._subject:
            return False
        self._subject = b""
        self._bytes -= self._asked_bytes
        self._window = min(self._window * 2, WINDOW_MAX)
        return True

    def stalled(self) -> tuple[tuple[str, object], ...]:
        """Return the header of a heartbeat whose client has not answered."""
        return (("Nats-Consumer-Stalled", self._subject.decode()),) if self._subject else ()
