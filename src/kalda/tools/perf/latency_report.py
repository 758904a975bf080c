"""The result of an end-to-end run: from `send` until the record was consumed, one record in flight."""

from collections.abc import Sequence
from dataclasses import dataclass

from kalda.tools.bytes_text import JsonValue


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """Average and percentiles in milliseconds."""

    average_ms: float
    p50_ms: float
    p99_ms: float
    p999_ms: float

    @classmethod
    def of(cls, latencies_ms: Sequence[float]) -> "LatencyReport":
        """Return the report of at least one latency."""
        assert latencies_ms, "a run has at least one record"
        ordered = sorted(latencies_ms)

        def at(share: float) -> float:
            return ordered[int(len(ordered) * share)]

        return cls(sum(ordered) / len(ordered), at(0.5), at(0.99), at(0.999))

    @property
    def lines(self) -> tuple[str, str]:
        """The lines of Kafka's ``EndToEndLatency``, with fractions of a millisecond where Kafka cuts them."""
        return (
            f"Avg latency: {self.average_ms:.4f} ms",
            f"Percentiles: 50th = {self.p50_ms:.3f}, 99th = {self.p99_ms:.3f}, 99.9th = {self.p999_ms:.3f}",
        )

    @property
    def json(self) -> dict[str, JsonValue]:
        """The same figures."""
        return {
            "latencyAverageMs": round(self.average_ms, 4),
            "latencyP50Ms": round(self.p50_ms, 4),
            "latencyP99Ms": round(self.p99_ms, 4),
            "latencyP99.9Ms": round(self.p999_ms, 4),
        }
