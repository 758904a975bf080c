"""The values of the records that a performance run sends."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kalda.command.errors import ToolUsageError

Payload = Callable[[int], bytes]
"""Returns the value of a record, given its number from 0."""

_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTER_OF_BYTE: Final = bytes(_LETTERS[byte % len(_LETTERS)] for byte in range(256))
_VARIANTS: Final = 1_000
"""How many random values are made; more would measure the making of them."""

_VARIANTS_BYTES_MAX: Final = 64 * 1024 * 1024
"""What the values may take together, so that large records do not fill the memory."""


def random_payload(size: int, source: random.Random) -> Payload:
    """Return values of `size` capital letters, as Kafka's tool sends them."""
    count = min(_VARIANTS, max(1, _VARIANTS_BYTES_MAX // size))
    variants = [source.randbytes(size).translate(_LETTER_OF_BYTE) for _ in range(count)]
    return lambda number: variants[number % count]


def monotonic_payload(number: int) -> bytes:
    """Return the number itself as text."""
    return str(number).encode()


def chosen_payload(values: Sequence[bytes], source: random.Random) -> Payload:
    """Return one of the given values by chance."""
    choose = source.choice
    return lambda _: choose(values)


def read_payloads(path: Path, delimiter: str) -> list[bytes]:
    """Return the values in a file.

    Raises:
        ToolUsageError: the file cannot be read or is empty.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ToolUsageError(f"--payload-file={path}: {error.strerror}") from error
    separator = delimiter.replace("\\n", "\n").encode()
    values = data.removesuffix(separator).split(separator) if data else []
    if not values:
        raise ToolUsageError(f"--payload-file={path} is empty; it takes values and delimiters")
    return values
