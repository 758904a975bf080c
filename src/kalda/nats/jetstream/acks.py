"""Encodes and parses the subjects and bodies of acknowledgements."""

from typing import Final, NamedTuple

from kalda.nats.jetstream import fields
from kalda.nats.jetstream.api_errors import JetStreamError

PREFIX: Final = b"$JS.ACK."
_NS: Final = 1_000_000_000
_DIGITS_MAX: Final = 18
_BODY_BYTES_MAX: Final = 1024
_DELAY_SECONDS_MAX: Final = 365 * 86_400.0

ACK: Final = "ack"
NAK: Final = "nak"
PROGRESS: Final = "progress"
TERM: Final = "term"
NEXT: Final = "next"


class Acknowledgement(NamedTuple):
    """The kinds of acknowledgement of a message."""

    kind: str
    sequence: int
    delay: float = 0.0
    """Seconds until the message is delivered again."""
    request: bytes = b""
    """The body of the pull request that comes with it."""


def ack_subject(
    stream: str, consumer: str, deliveries: int, sequence: int, number: int, time_ms: int, unread: int
) -> bytes:
    """Return the subject to which a client acknowledges a message; it identifies the message."""
    text = f"{stream}.{consumer}.{deliveries}.{sequence}.{number}.{time_ms * 1_000_000}.{unread}"
    return PREFIX + text.encode()


def parse_ack(subject: bytes, body: bytes) -> Acknowledgement | None:
    """Read an acknowledgement; None if its subject is none, or its body asks for nothing known."""
    tokens = subject.split(b".")
    if len(tokens) != 9 or not tokens[5].isdigit() or len(tokens[5]) > _DIGITS_MAX:
        return None
    sequence = int(tokens[5])
    body = body.strip()
    if body.startswith(b"-NAK"):
        return Acknowledgement(NAK, sequence, _delay(body[4:]))
    if body.startswith(b"+WPI"):
        return Acknowledgement(PROGRESS, sequence)
    if body.startswith(b"+TERM"):
        return Acknowledgement(TERM, sequence)
    if body.startswith(b"+NXT"):
        return Acknowledgement(NEXT, sequence, request=body[4:])
    # As nats-server: whatever else comes is an acknowledgement.
    return Acknowledgement(ACK, sequence)


def _delay(body: bytes) -> float:
    if not body.strip() or len(body) > _BODY_BYTES_MAX:
        return 0.0
    try:
        nanoseconds = fields.integer(fields.read_object(body), "delay")
    except JetStreamError:
        return 0.0
    return min(max(nanoseconds, 0) / _NS, _DELAY_SECONDS_MAX)
