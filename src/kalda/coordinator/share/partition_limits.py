"""Defines the settings of a share group that its share partitions obey: `PartitionLimits`."""

from typing import Final, NamedTuple

_DOUBLINGS_MAX: Final = 32


class PartitionLimits(NamedTuple):
    """The settings of a share group that its partitions obey."""

    delivery_count_limit: int = 5
    lock_ms: int = 30_000
    in_flight_max: int = 2_000
    may_renew: bool = True
    has_dead_letters: bool = False
    """Whether a record that is given up waits for its dead letter."""
    backoff_ms: int = 0
    """How long a record waits before its next delivery, after a release or the end of a lock."""
    backoff_max_ms: int = 0
    """If it is above `backoff_ms`, the wait doubles with each delivery up to this."""
    delay_ms: int = 0
    """How long after its timestamp a record is delivered at the earliest."""
    has_times: bool = False
    """Whether records may name the time of their delivery."""
    has_key_order: bool = False
    """Whether a record is delivered after all before it with the same key are done."""

    @property
    def looks_into_batches(self) -> bool:
        """Whether more of a batch than its offsets decides which of its records are acquired."""
        return self.has_times or self.has_key_order or self.delay_ms > 0

    @property
    def suspect_count(self) -> int:
        """From so many deliveries on, a record may be what ends its members: half of the limit, or 2."""
        return max(2, (self.delivery_count_limit + 1) // 2)

    def suspects_max(self, deliveries: int, count: int) -> int:
        """Return how many of `count` suspect records are delivered together, that were delivered so often.

        Half of them, and one at the last attempt, so that the others are not given up with the one that ends
        its members (KAFKA-17541). Example with a limit of 5: of 500 records that were delivered three times,
        250 are delivered, and of those one at a time.
        """
        return 1 if deliveries + 1 >= self.delivery_count_limit else max(count // 2, 1)

    def wait_ms(self, deliveries: int) -> int:
        """Return how long a record waits that was delivered so often.

        Example: 100 and 1000 give 100, 200, 400, 800, 1000, 1000, …; 100 and 0 give 100 each time.
        """
        doubled = self.backoff_ms << min(max(deliveries - 1, 0), _DOUBLINGS_MAX)
        return max(self.backoff_ms, min(doubled, self.backoff_max_ms))
