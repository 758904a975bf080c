"""Defines the codecs' two errors: malformed bytes from the peer, and misuse by our own code."""


class ProtocolError(Exception):
    """The peer's bytes are not what the protocol allows: truncated, malformed, out of bounds or left over.

    The only exception that reading can raise for bad bytes. A broker closes the connection on it or
    answers INVALID_REQUEST; the text is for the log, never for the peer.
    """


class MessageError(ValueError):
    """Our own misuse: a value that the version cannot carry, or a version that the message does not have.

    Raised before a byte is sent, so that a silently dropped field never becomes a protocol bug.
    """
