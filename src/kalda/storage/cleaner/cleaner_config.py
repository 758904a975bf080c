"""Declares the ``log.cleaner.*`` settings, typed and with Kafka's defaults; the broker parses them."""

from dataclasses import dataclass
from typing import Final

UNLIMITED: Final = 0.0
"""A rate of bytes per second without a limit."""


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """The broker's ``log.cleaner.*``, with Kafka's defaults."""

    threads: int = 1
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 * 1024
    io_bytes_per_second: float = UNLIMITED
    backoff_ms: int = 15_000
