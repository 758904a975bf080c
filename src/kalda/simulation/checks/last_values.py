"""Checks that a compacted topic has the last value of each key: `KeyHistory`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

Value = bytes | None
"""A value, or None for a tombstone."""


@dataclass(slots=True)
class KeyHistory:
    """What one producer after the other wrote to a key; the index in `sent` is the order."""

    sent: list[Value] = field(default_factory=list)
    last_acknowledged: int = -1
    """The index of the last value that is surely in the log; -1 as long as none is."""

    def acknowledge(self, index: int) -> None:
        """Note that a value is in the log."""
        self.last_acknowledged = max(self.last_acknowledged, index)

    def problem(self, found: Sequence[Value]) -> str | None:
        """Compare with the values that a reader found from start to end, in order; None if all is well.

        Values before the last one may be missing: compaction removes them. A tombstone may be missing as
        well, and then nothing is left of the key.
        """
        allowed = self.sent[max(self.last_acknowledged, 0) :]
        last = found[-1] if found else None
        if last not in allowed and not (self.last_acknowledged < 0 and not found):
            return f"the last value is {last!r}; {self._allowed()}"
        indexes = [self.sent.index(value) for value in found if value is not None]
        if indexes != sorted(set(indexes)):
            return f"{found[-6:]} is not in the order in which the values were sent"
        return None

    def _allowed(self) -> str:
        if self.last_acknowledged < 0:
            return "none is acknowledged"
        later = len(self.sent) - self.last_acknowledged - 1
        return f"{self.sent[self.last_acknowledged]!r} is acknowledged, {later} were sent later"
