"""Defines idempotency keys, what is kept of each, and the bounded table of those that are known.

A key belongs to a principal and a topic. It is kept as a digest, so that its length costs nothing, with a
digest of the request and the answer that the request got.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kalda.common.received_json import loads_received
from kalda.http.gateway.parameters import InvalidParameterError

KEY_CHARACTERS_MAX: Final = 255
_DIGEST_BYTES: Final = 16
_OVERHEAD_BYTES: Final = 400
"""About what the table takes for a key beyond the answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request."""

    fingerprint: bytes
    """The digest of the request."""
    body: bytes
    written_ms: int
    """When, in milliseconds since the epoch."""


def check_key(text: str) -> str:
    """Return an ``Idempotency-Key`` that is allowed.

    Raises:
        InvalidParameterError: it is empty, too long, or has characters that are not printable ASCII.
    """
    if not text or len(text) > KEY_CHARACTERS_MAX or not (text.isascii() and text.isprintable()):
        raise InvalidParameterError(
            "Idempotency-Key", text, f"1 to {KEY_CHARACTERS_MAX} printable characters of ASCII"
        )
    return text


def key_digest(principal: str, topic: str, key: str) -> bytes:
    """Return the digest under which a key is kept."""
    return _digest(principal.encode(), topic.encode(), key.encode())


def fingerprint(topic: str, query: str, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """Return the digest of a request, of all that decides which records it writes."""
    named = sorted((name, text) for name, text in headers if name == "content-type" or name.startswith("ce-"))
    return _digest(topic.encode(), query.encode(), json.dumps(named).encode(), body)


def partition_of(digest: bytes, partitions: int) -> int:
    """Return the partition of the topic of keys that a digest is in."""
    return int.from_bytes(digest[:4]) % partitions


def encode_answer(answer: Answer) -> bytes:
    """Return the value of a key's record."""
    return json.dumps(
        {"version": 1, "fingerprint": answer.fingerprint.hex(), "answer": answer.body.decode()}
    ).encode()


def decode_answer(value: bytes, written_ms: int) -> Answer | None:
    """Return what the value of a key's record holds; None if it is of another kind."""
    try:
        document = loads_received(value)
        if document["version"] != 1:
            return None
        return Answer(bytes.fromhex(document["fingerprint"]), document["answer"].encode(), written_ms)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class KeyTable:
    """The keys of one partition, oldest first, with a bound on their memory."""

    def __init__(self, ttl_ms: int, bytes_max: int) -> None:
        self._ttl_ms: Final = ttl_ms
        self._bytes_max: Final = bytes_max
        self._answers: Final[OrderedDict[bytes, Answer]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, digest: bytes, now_ms: int) -> Answer | None:
        """Return the answer of a key that has not expired."""
        self.expire(now_ms)
        return self._answers.get(digest)

    def put(self, digest: bytes, answer: Answer) -> None:
        """Keep an answer; the first one of a key stays."""
        if digest not in self._answers:
            self._answers[digest] = answer
            self._bytes += _OVERHEAD_BYTES + len(answer.body)

    def has_room(self) -> bool:
        """Return whether another key may be taken. Keys that live are never forgotten for others."""
        return self._bytes < self._bytes_max

    def expire(self, now_ms: int) -> None:
        """Forget keys that are older than they need to be kept."""
        while self._answers:
            digest, answer = next(iter(self._answers.items()))
            if answer.written_ms + self._ttl_ms > now_ms:
                break
            del self._answers[digest]
            self._bytes -= _OVERHEAD_BYTES + len(answer.body)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()
