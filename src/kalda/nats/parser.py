"""Reads operations from the bytes of a connection, however they are cut.

The parser holds less than one operation: a control line of at most `CONTROL_LINE_BYTES_MAX`, or a message up
to the largest payload. The texts of errors are those of nats-server; where it closes a connection silently,
the client gets ``Parser Error``.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kalda.nats.operations import (
    CRLF,
    Connect,
    Err,
    Info,
    Message,
    Ok,
    Operation,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Unsubscribe,
)

CONTROL_LINE_BYTES_MAX: Final = 4096
"""nats-server's default for the arguments of an operation."""

_SIZE_DIGITS_MAX: Final = 9

AUTHORIZATION_VIOLATION: Final = "Authorization Violation"
UNKNOWN_OPERATION: Final = "Unknown Protocol Operation"
PARSER_ERROR: Final = "Parser Error"
CONTROL_LINE_EXCEEDED: Final = "maximum control line exceeded"
PAYLOAD_EXCEEDED: Final = "Maximum Payload Violation"


class NatsProtocolError(Exception):
    """A peer broke the protocol; the text is for the peer, and its connection ends."""


class Parser:
    """The operations of one direction of a connection."""

    def __init__(self, verbs: Mapping[bytes, "Reader"], payload_bytes_max: int) -> None:
        self.verbs = verbs
        """`OF_CLIENTS`, `OF_SERVERS`, or `BEFORE_LOGIN`, which may change at any time."""
        self.payload_bytes_max: Final = payload_bytes_max
        self._buffer = b""
        self._position = 0
        self._rest: Final = bytearray()
        """Received, and less than one operation."""
        self._last_line = b""
        self._last: _Announced | None = None
        """What the control line said of the last message without headers that was published."""
        self._needed = 0
        """The size of `_rest` below which it is known to be incomplete."""

    def receive(self, data: bytes | memoryview) -> None:
        """Append received bytes; `next` returns the operations in them."""
        rest = self._rest
        rest.extend(self._buffer[self._position :])
        self._position = 0
        if not rest:
            self._buffer = bytes(data)
            return
        rest.extend(data)
        if len(rest) < self._needed:
            self._buffer = b""
            return
        self._buffer = bytes(rest)
        rest.clear()
        self._needed = 0

    def clear(self) -> None:
        """Drop the received bytes of a closed connection: an incomplete message may be large."""
        self._buffer = b""
        self._position = 0
        self._rest.clear()

    def next(self) -> Operation | None:
        """Return the next operation; None if more has to arrive first.

        Raises:
            NatsProtocolError: the peer broke the protocol; the parser cannot be used afterwards.
        """
        buffer, start = self._buffer, self._position
        end = buffer.find(b"\n", start)
        if end < 0:
            if start < len(buffer):
                self._check_begun(buffer[start:])
                self._keep(len(buffer) - start + 1)
            return None
        line = buffer[start:end]
        if line == self._last_line and self._last is not None:
            # Clients publish many messages of one size to one subject.
            payload_start = end + 1
            payload_end = payload_start + self._last.size
            if buffer.startswith(CRLF, payload_end):
                self._position = payload_end + 2
                return Publish(self._last.subject, self._last.reply, b"", buffer[payload_start:payload_end])
        as_sent = line
        line = line.removesuffix(b"\r")
        word, _, arguments = line.partition(b" ")
        reader = self.verbs.get(word)
        if reader is None:
            # In lower case, or with a tab behind it.
            word = _first_word(line)
            reader = self.verbs.get(word)
            if reader is None:
                raise NatsProtocolError(UNKNOWN_OPERATION)
            arguments = line[len(word) + 1 :]
        if len(arguments) > CONTROL_LINE_BYTES_MAX:
            raise NatsProtocolError(CONTROL_LINE_EXCEEDED)
        if b"\r" in arguments:
            raise NatsProtocolError(PARSER_ERROR)
        read = reader(arguments)
        if not isinstance(read, _Announced):
            self._position = end + 1
            return read
        if read.size > self.payload_bytes_max:
            raise NatsProtocolError(PAYLOAD_EXCEEDED)
        headers_start = end + 1
        payload_end = headers_start + read.size
        if len(buffer) < payload_end + len(CRLF):
            self._keep(payload_end + len(CRLF) - start)
            return None
        if not buffer.startswith(CRLF, payload_end):
            raise NatsProtocolError(UNKNOWN_OPERATION)
        self._position = payload_end + len(CRLF)
        if read.subscription_id is None and not read.headers_size:
            self._last_line, self._last = as_sent, read
        payload_start = headers_start + read.headers_size
        return read.operation(buffer[headers_start:payload_start], buffer[payload_start:payload_end])

    def _keep(self, needed: int) -> None:
        self._rest.extend(self._buffer[self._position :])
        self._buffer = b""
        self._position = 0
        self._needed = needed

    def _check_begun(self, line: bytes) -> None:
        """Refuse a line that is too long or cannot become an operation, before its end has arrived."""
        line = line.removesuffix(b"\r")
        word = _first_word(line)
        is_begun = len(word) == len(line) and any(verb.startswith(word) for verb in self.verbs)
        if not is_begun and word not in self.verbs:
            raise NatsProtocolError(UNKNOWN_OPERATION)
        if len(line) - len(word) > CONTROL_LINE_BYTES_MAX + 1:
            raise NatsProtocolError(CONTROL_LINE_EXCEEDED)


def _first_word(line: bytes) -> bytes:
    return line.partition(b" ")[0].partition(b"\t")[0].upper()


class _Announced(NamedTuple):
    """A message whose headers and payload follow."""

    subject: bytes
    subscription_id: bytes | None
    """None if a client publishes it."""
    reply: bytes
    headers_size: int
    size: int
    """With headers."""

    def operation(self, headers: bytes, payload: bytes) -> Operation:
        if self.subscription_id is None:
            return Publish(self.subject, self.reply, headers, payload)
        return Message(self.subject, self.subscription_id, self.reply, headers, payload)


Reader: TypeAlias = Callable[[bytes], "Operation | _Announced"]
"""Reads what follows a verb."""


def _size(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > _SIZE_DIGITS_MAX:
        raise NatsProtocolError(PARSER_ERROR)
    return int(digits)


def _words(arguments: bytes, count_min: int, count_max: int) -> list[bytes]:
    words = arguments.split()
    if not words:
        raise NatsProtocolError(UNKNOWN_OPERATION)
    if not count_min <= len(words) <= count_max:
        raise NatsProtocolError(PARSER_ERROR)
    return words


def _announced(words: list[bytes], subscription_id: bytes | None, sizes: int) -> _Announced:
    """Read a subject, perhaps a reply, and one size or two."""
    size = _size(words[-1])
    headers_size = _size(words[-2]) if sizes == 2 else 0
    if headers_size > size:
        raise NatsProtocolError(PARSER_ERROR)
    reply = words[1] if len(words) > sizes + 1 else b""
    return _Announced(words[0], subscription_id, reply, headers_size, size)


def _pub(arguments: bytes) -> _Announced:
    return _announced(_words(arguments, 2, 3), None, 1)


def _hpub(arguments: bytes) -> _Announced:
    return _announced(_words(arguments, 3, 4), None, 2)


def _refuse(_: bytes) -> _Announced:
    raise NatsProtocolError(AUTHORIZATION_VIOLATION)


def _msg(arguments: bytes) -> _Announced:
    words = _words(arguments, 3, 4)
    return _announced(words, words.pop(1), 1)


def _hmsg(arguments: bytes) -> _Announced:
    words = _words(arguments, 4, 5)
    return _announced(words, words.pop(1), 2)


def _sub(arguments: bytes) -> Subscribe:
    words = _words(arguments, 2, 3)
    return Subscribe(words[0], words[1] if len(words) == 3 else b"", words[-1])


def _unsub(arguments: bytes) -> Unsubscribe:
    words = _words(arguments, 1, 2)
    # As nats-server: what is no count ends the subscription at once.
    count = words[-1] if len(words) == 2 else b""
    return Unsubscribe(words[0], int(count) if count.isdigit() and len(count) <= _SIZE_DIGITS_MAX else 0)


def _err(arguments: bytes) -> Err:
    return Err(arguments.strip().removeprefix(b"'").removesuffix(b"'"))


_OF_BOTH: Final[Mapping[bytes, Reader]] = {
    b"PING": lambda _: Ping(),
    b"PONG": lambda _: Pong(),
    b"+OK": lambda _: Ok(),
    b"-ERR": _err,
    b"INFO": lambda arguments: Info(arguments.strip()),
}

OF_CLIENTS: Final[Mapping[bytes, Reader]] = {
    **_OF_BOTH,
    b"CONNECT": lambda arguments: Connect(arguments.strip()),
    b"PUB": _pub,
    b"HPUB": _hpub,
    b"SUB": _sub,
    b"UNSUB": _unsub,
}
"""What a server reads. As nats-server does, it reads what only servers send, too, and ignores it."""

BEFORE_LOGIN: Final[Mapping[bytes, Reader]] = {**OF_CLIENTS, b"PUB": _refuse, b"HPUB": _refuse}
"""What a server reads of a client that has to log in: no payload, which would take memory."""

OF_SERVERS: Final[Mapping[bytes, Reader]] = {**_OF_BOTH, b"MSG": _msg, b"HMSG": _hmsg}
"""What a client reads."""
