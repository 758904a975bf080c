"""Where operations wait that cannot be answered yet: until an event completes them or their time is up.

A delayed operation is completed exactly once, by whichever comes first. Everything runs on the event loop, so
there are no locks, but completing one operation may run code that adds, completes or cancels others: no
method here iterates over a container that such code could change.
"""

import logging
from collections.abc import Hashable, Sequence
from typing import Final, Protocol

from kalda.common.metrics import Metrics, metric_name
from kalda.common.timing_wheel import TimerEntry

logger: Final = logging.getLogger(__name__)


class DelayedOperation:
    """One operation that waits; subclasses say for what and what then.

    `try_complete` is asked when the operation is added and whenever something happens to one of its keys. It
    has to be cheap, and calls `force_complete` when the time has come.
    """

    __slots__ = ("_entry", "_keys", "_purgatory", "delay_ms", "is_completed")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms: Final = delay_ms
        self.is_completed = False
        self._purgatory: DelayedOperationPurgatory | None = None
        self._keys: Sequence[Hashable] = ()
        self._entry: TimerEntry[DelayedOperation] | None = None

    def try_complete(self) -> bool:
        """Complete the operation if it can be; true if this call completed it."""
        raise NotImplementedError

    def try_complete_for(self, key: Hashable) -> bool:
        """Do the same after something happened to one of the keys and to no other.

        For operations with many keys: they should look at this one only.
        """
        return self.try_complete()

    def on_complete(self) -> None:
        """Do what was delayed; called exactly once, by event, expiry or cancellation."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Note that time ran out; called after `on_complete`, only then."""

    def expire(self) -> None:
        """Complete the operation because its time is up; nothing happens if it was complete."""
        if self.force_complete():
            if self._purgatory is not None:
                self._purgatory.expired_count += 1
            self.on_expiration()

    def force_complete(self) -> bool:
        """Complete the operation now; false if it was complete."""
        if self.is_completed:
            return False
        self.is_completed = True
        if self._purgatory is not None:
            self._purgatory._forget(self)
        self.on_complete()
        return True


class Timer(Protocol):
    """What calls `DelayedOperation.expire` in time: a `LoopTimer`, or a test with a `TimingWheel`."""

    def add(self, operation: DelayedOperation, delay_ms: int, /) -> TimerEntry[DelayedOperation]:
        """Have the operation expire after `delay_ms`."""
        ...


class DelayedOperationPurgatory:
    """Delayed operations of one kind, by what they wait for.

    Several purgatories share one timer.
    """

    def __init__(self, name: str, timer: Timer) -> None:
        self.name: Final = name
        self.expired_count = 0
        self._timer: Final = timer
        # Key -> operations in the order they came. An operation is in all its keys' lists or in none.
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._waiting: dict[DelayedOperation, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def watched_count(self) -> int:
        """How many (key, operation) pairs are watched: Kafka's ``PurgatorySize`` counts these."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Complete the operation at once if possible, else let it wait; true if it is complete."""
        if operation.try_complete():
            return True
        assert operation._purgatory is None, "an operation waits once"
        assert not operation.is_completed, "try_complete said that it did not complete the operation"
        operation._purgatory = self
        operation._keys = keys
        watchers = self._watchers
        for key in keys:
            watching = watchers.get(key)
            if watching is None:
                watching = watchers[key] = {}
            watching[operation] = None
        self._waiting[operation] = None
        operation._entry = self._timer.add(operation, operation.delay_ms)
        return False

    def subscribe(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> None:
        """Have an operation asked about these keys until `unsubscribe`, without a time."""
        for key in keys:
            self._watchers.setdefault(key, {})[operation] = None

    def unsubscribe(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> None:
        """Ask an operation about these keys no longer."""
        for key in keys:
            watching = self._watchers.get(key)
            if watching is not None:
                watching.pop(operation, None)
                if not watching:
                    del self._watchers[key]

    def check_and_complete(self, key: Hashable) -> int:
        """Something happened to `key`: complete whatever can be; returns how many operations were.

        An operation that fails is logged: it is not the fault of the request that made it happen.
        """
        watching = self._watchers.get(key)
        if watching is None:
            return 0
        completed = 0
        for operation in tuple(watching):
            if operation.is_completed:
                continue
            try:
                completed += operation.try_complete_for(key)
            except Exception:
                logger.exception("%s failed on an event of %s", type(operation).__name__, key)
        return completed

    def force_complete(self, key: Hashable) -> int:
        """Complete everything that watches `key`, whether its condition holds or not.

        For a partition that is leaving this broker: each operation finds that out in its `on_complete`.
        """
        completed = 0
        for operation in tuple(self._watchers.get(key, ())):
            completed += operation.force_complete()
        return completed

    def close(self) -> None:
        """Complete everything that waits; called at shutdown, so that every client gets an answer."""
        for operation in tuple(self._waiting):
            operation.force_complete()

    def register_metrics(self, metrics: Metrics) -> None:
        """Publish the sizes under the names of Kafka's purgatories."""
        kind = "DelayedOperationPurgatory"
        title = "".join(word.capitalize() for word in self.name.split("_"))
        metrics.gauge(
            metric_name("kafka.server", kind, "PurgatorySize"),
            "Watched pairs of a key and a delayed operation.",
            lambda: self.watched_count,
            delayedoperation=title,
        )
        metrics.gauge(
            metric_name("kafka.server", kind, "NumDelayedOperations"),
            "Delayed operations that wait.",
            lambda: len(self._waiting),
            delayedoperation=title,
        )
        metrics.counter_function(
            metric_name("kafka.server", "DelayedOperationMetrics", "ExpiresPerSec"),
            "Delayed operations whose time ran out.",
            lambda: self.expired_count,
            delayedoperation=title,
        )

    def _forget(self, operation: DelayedOperation) -> None:
        del self._waiting[operation]
        if operation._entry is not None:
            operation._entry.cancel()
        watchers = self._watchers
        for key in operation._keys:
            watching = watchers.get(key)
            if watching is not None:
                watching.pop(operation, None)
                if not watching:
                    del watchers[key]
