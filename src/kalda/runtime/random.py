"""Defines the port for randomness: ids, jitter, samples and secrets come from one `Random`.

The system's source fits secrets as well, so callers need not choose. A simulation passes
`random.Random(seed)`, which has the same methods and repeats its answers.
"""

import base64
from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")


class Random(Protocol):
    """The methods of `random.Random` that Kalda uses."""

    def random(self) -> float:
        """Return a number from 0 to 1, without 1."""
        ...

    def uniform(self, a: float, b: float) -> float:
        """Return a number between two."""
        ...

    def randrange(self, start: int, stop: int | None = None) -> int:
        """Return an integer from `start` to before `stop`, or from 0 to before `start` without it."""
        ...

    def randbytes(self, n: int) -> bytes:
        """Return so many bytes."""
        ...

    def sample(self, population: Sequence[T], k: int) -> list[T]:
        """Return `k` different elements in random order."""
        ...

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Put a list in random order."""
        ...


def new_uuid(random: Random) -> UUID:
    """Return a new id: a UUID of version 4."""
    return UUID(bytes=random.randbytes(16), version=4)


def random_text(random: Random, size: int) -> str:
    """Return `size` bytes in URL-safe base64, as `secrets.token_urlsafe` does."""
    return base64.urlsafe_b64encode(random.randbytes(size)).rstrip(b"=").decode("ascii")
