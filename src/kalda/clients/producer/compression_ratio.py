"""Estimates how small the records of a topic get, so that batches of `batch.size` compressed bytes can be
filled.

The counterpart of Java's `CompressionRatioEstimator`. An estimate that is too low makes batches that a broker
refuses and that have to be split; so it goes down slowly and up fast.
"""

from typing import Final

_IMPROVING_STEP: Final = 0.005
_DETERIORATING_STEP: Final = 0.05
_CAUTION: Final = 1.05
"""Estimates are 5 % above the ratio, as in Java's client."""


class CompressionRatio:
    """The ratio of compressed to uncompressed bytes, 1.0 at first."""

    __slots__ = ("_ratio",)

    def __init__(self) -> None:
        self._ratio = 1.0

    @property
    def value(self) -> float:
        """The present estimate."""
        return self._ratio

    def estimate(self, uncompressed: int) -> int:
        """Return the estimated compressed size of `uncompressed` bytes."""
        return int(uncompressed * self._ratio * _CAUTION)

    def observe(self, ratio: float) -> None:
        """Take the ratio of a batch."""
        if ratio > self._ratio:
            self._ratio = max(self._ratio + _DETERIORATING_STEP, ratio)
        elif ratio < self._ratio:
            self._ratio = max(self._ratio - _IMPROVING_STEP, ratio)

    def reset(self) -> None:
        """Assume the worst after a batch that was too large."""
        self._ratio = max(1.0, self._ratio)
