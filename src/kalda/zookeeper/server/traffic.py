"""Counts requests and latencies of one connection, or of all, for the four-letter commands."""

from typing import Final


class Traffic:
    """Counters; a latency is the milliseconds from a request's arrival to its response."""

    __slots__ = (
        "_latency_ms_min",
        "answered",
        "last_latency_ms",
        "last_operation",
        "last_received_at",
        "last_xid",
        "last_zxid",
        "latency_ms_max",
        "latency_ms_sum",
        "received",
    )

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero."""
        self.received = 0
        self.answered = 0
        self.latency_ms_sum = 0.0
        self.latency_ms_max = 0.0
        self._latency_ms_min = _NO_LATENCY
        self.last_latency_ms = 0.0
        self.last_operation = "NA"
        self.last_xid = -1
        self.last_zxid = -1
        self.last_received_at = 0.0

    @property
    def latency_ms_mean(self) -> float:
        """The mean latency, 0 before the first response."""
        return self.latency_ms_sum / self.answered if self.answered else 0.0

    @property
    def latency_ms_min(self) -> float:
        """The shortest latency, 0 before the first response."""
        return self._latency_ms_min if self.answered else 0.0

    def add_answer(self, latency_ms: float) -> None:
        """Count a response."""
        self.answered += 1
        self.last_latency_ms = latency_ms
        self.latency_ms_sum += latency_ms
        if latency_ms > self.latency_ms_max:
            self.latency_ms_max = latency_ms
        if latency_ms < self._latency_ms_min:
            self._latency_ms_min = latency_ms

    def note_last(self, operation: str, xid: int, zxid: int, received_at: float) -> None:
        """Record the last request; `received_at` is in monotonic seconds."""
        self.last_operation = operation
        self.last_xid = xid
        self.last_zxid = zxid
        self.last_received_at = received_at


_NO_LATENCY: Final = float("inf")
