"""Counts how the bytes of a task's ranges reached it: from files in place, or over the network, and why.

The broker's metrics have the same figures of all tasks, except for those that were killed; see
`kalda.broker.leases`.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ReadCounters:
    """The figures of the ranges that one caller read."""

    bytes_in_place: int = 0
    """Bytes of record batches that were decoded from mapped segment files."""
    bytes_fetched: int = 0
    """Bytes of record batches in responses to fetches."""
    fallbacks: Counter[str] = field(default_factory=Counter)
    """By reason: how often the reader went from files to fetching, or found no file to begin with."""
