"""Defines the operations of the protocol and writes them as bytes.

`INFO`, `MSG`, `HMSG`, `+OK` and `-ERR` come from servers, `CONNECT`, `PUB`, `HPUB`, `SUB` and `UNSUB` from
clients, `PING` and `PONG` from both. A `Publish` or `Message` with headers is an `HPUB` or `HMSG`.
"""

from typing import Final, NamedTuple, TypeAlias

CRLF: Final = b"\r\n"
OK: Final = b"+OK\r\n"
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"


class Info(NamedTuple):
    """The INFO operation: a server describes itself in JSON."""

    text: bytes

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        return b"INFO %b\r\n" % self.text


class Connect(NamedTuple):
    """A client's options, in JSON."""

    text: bytes

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        return b"CONNECT %b\r\n" % self.text


class Publish(NamedTuple):
    """A message that a client publishes."""

    subject: bytes
    reply: bytes
    """The subject for answers; empty without one."""
    headers: bytes
    payload: bytes

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        verb = b"HPUB %b" if self.headers else b"PUB %b"
        return verb % self.subject + message_tail(self.reply, self.headers, self.payload)


class Message(NamedTuple):
    """A message for one subscription."""

    subject: bytes
    subscription_id: bytes
    reply: bytes
    headers: bytes
    payload: bytes

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        verb = b"HMSG %b %b" if self.headers else b"MSG %b %b"
        tail = message_tail(self.reply, self.headers, self.payload)
        return verb % (self.subject, self.subscription_id) + tail


class Subscribe(NamedTuple):
    """A client's subscription to a subject, or to its share of a queue group."""

    subject: bytes
    queue: bytes
    """The queue group; empty without one."""
    subscription_id: bytes

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        return b" ".join(filter(None, (b"SUB", *self))) + CRLF


class Unsubscribe(NamedTuple):
    """The end of a subscription, at once or after so many messages in all."""

    subscription_id: bytes
    message_count_max: int
    """0 for at once."""

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        count = b" %d" % self.message_count_max if self.message_count_max else b""
        return b"UNSUB %b%b\r\n" % (self.subscription_id, count)


class Ping(NamedTuple):
    """The PING operation, which the peer answers with PONG."""

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        return PING


class Pong(NamedTuple):
    """The answer to `Ping`."""

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        return PONG


class Ok(NamedTuple):
    """The answer to each operation of a verbose client."""

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        return OK


class Err(NamedTuple):
    """An error, without the quotes around it."""

    text: bytes

    def encode(self) -> bytes:
        """Return the bytes of the operation."""
        return b"-ERR '%b'\r\n" % self.text


Operation: TypeAlias = Info | Connect | Publish | Message | Subscribe | Unsubscribe | Ping | Pong | Ok | Err


def message_tail(reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """Return what follows the subject of `Publish` and the subscription of `Message`."""
    start = b" %b " % reply if reply else b" "
    if headers:
        sizes = b"%d %d\r\n" % (len(headers), len(headers) + len(payload))
    else:
        sizes = b"%d\r\n" % len(payload)
    return b"".join((start, sizes, headers, payload, CRLF))
