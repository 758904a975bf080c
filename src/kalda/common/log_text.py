"""Formats values for log lines and messages, without Python's ``b''``, brackets and quotes."""

from collections.abc import Iterable
from typing import Final

LISTED_MAX: Final = 5
"""Numbers that a line lists; more are only counted."""

BYTES_SHOWN_MAX: Final = 200
"""The part of unreadable bytes that is shown: enough to recognise them."""


def bytes_text(data: bytes) -> str:
    """Return bytes as quoted text, with escapes for bytes that are not UTF-8, cut to `BYTES_SHOWN_MAX`."""
    text = data[:BYTES_SHOWN_MAX].decode(errors="backslashreplace")
    return f'"{text}"' if len(data) <= BYTES_SHOWN_MAX else f'"{text}"... ({len(data)} bytes)'


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 topic``, ``0 topics``; `many` is `one` with an s unless given."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def numbers_text(numbers: Iterable[int]) -> str:
    """Return numbers in their order, separated by commas; ``none`` if there are none."""
    return ", ".join(map(str, numbers)) or "none"


def partitions_text(topic: str, partitions: Iterable[int]) -> str:
    """Return partitions of one topic as text.

    Examples: ``orders-3``; ``2 partitions of orders (3, 7)``; ``50 partitions of orders``.
    """
    numbers = sorted(partitions)
    if len(numbers) == 1:
        return f"{topic}-{numbers[0]}"
    text = f"{len(numbers)} partitions of {topic}"
    return f"{text} ({numbers_text(numbers)})" if len(numbers) <= LISTED_MAX else text
