"""The purgatory: holds operations that cannot complete yet, until an event or a timeout completes them.

Each waiting operation watches one or more keys, such as the partitions of a fetch. `check_and_complete`
notifies the watchers of a key; a timer expires what no event completed in time. An operation completes
exactly once, whichever comes first.

Everything runs on the event loop, so there are no locks. But completing one operation can run code that adds,
completes or cancels others, so no method here iterates over a container that such code can change.
"""

import logging
from collections.abc import Hashable, Sequence
from typing import Final, Protocol

from kalda.common import invariants
from kalda.common.metrics import Metrics, metric_name
from kalda.common.timing_wheel import TimerEntry

logger: Final = logging.getLogger(__name__)


class Watcher(Protocol):
    """A watcher that a purgatory notifies of the events of a key."""

    def on_event(self, key: Hashable, /) -> bool:
        """Handle an event of `key` and of no other; return whether this completed an operation."""
        ...


class DelayedOperation:
    """One operation that waits; a `Watcher`. Subclasses define the condition and what completion does.

    The purgatory calls `try_complete` when the operation is added, and `on_event` for each event of one of
    its keys. Both must be cheap, and call `force_complete` once the condition holds.
    """

    __slots__ = ("_entry", "_keys", "_purgatory", "delay_ms", "is_completed")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms: Final = delay_ms
        self.is_completed = False
        self._purgatory: DelayedOperationPurgatory | None = None
        self._keys: Sequence[Hashable] = ()
        self._entry: TimerEntry[DelayedOperation] | None = None

    def try_complete(self) -> bool:
        """Complete the operation if its condition holds; return whether this call completed it."""
        raise NotImplementedError

    def on_event(self, _key: Hashable, /) -> bool:
        """Complete the operation if its condition holds after an event of one key.

        An operation with many keys overrides this to look at that key only.
        """
        return self.try_complete()

    def on_complete(self) -> None:
        """Perform the operation; called exactly once: after an event, at expiry or on cancellation."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Handle the timeout; called after `on_complete`, and only if the operation expired."""

    def expire(self) -> None:
        """Complete the operation because its time is up; does nothing if it is complete."""
        if self.force_complete():
            if self._purgatory is not None:
                self._purgatory.expired_count += 1
            self.on_expiration()

    def force_complete(self) -> bool:
        """Complete the operation now, whether its condition holds or not; return whether this call did."""
        if self.is_completed:
            return False
        self.is_completed = True
        if self._purgatory is not None:
            self._purgatory._forget(self)
        self.on_complete()
        return True


class Timer(Protocol):
    """Calls `DelayedOperation.expire` when the time is up: a `LoopTimer`, or a test with a `TimingWheel`."""

    def add(self, operation: DelayedOperation, delay_ms: int, /) -> TimerEntry[DelayedOperation]:
        """Expire the operation after `delay_ms`, unless the returned entry is cancelled."""
        ...


class DelayedOperationPurgatory:
    """Holds the delayed operations of one kind by the keys that they watch.

    Several purgatories share one timer.
    """

    def __init__(self, name: str, timer: Timer) -> None:
        self.name: Final = name
        self.expired_count = 0
        self._timer: Final = timer
        # Key -> watchers in the order in which they came. An operation is in the lists of all its keys or in
        # none; a key without watchers has no list.
        self._watchers: Final[dict[Hashable, dict[Watcher, None]]] = {}
        self._waiting: Final[dict[DelayedOperation, None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def watched_count(self) -> int:
        """How many (key, watcher) pairs there are: Kafka's ``PurgatorySize``."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Complete the operation now if possible, else let it wait; return whether it completed."""
        if operation.try_complete():
            return True
        assert operation._purgatory is None, f"{operation} waits twice"
        assert not operation.is_completed, f"{operation} completed, but try_complete returned False"
        operation._purgatory = self
        operation._keys = keys
        self.watch(operation, keys)
        self._waiting[operation] = None
        operation._entry = self._timer.add(operation, operation.delay_ms)
        if invariants.enabled:
            self.check_invariants(operation)
        return False

    def watch(self, watcher: Watcher, keys: Sequence[Hashable]) -> None:
        """Notify `watcher` of the events of these keys until `unwatch`, without a timeout."""
        watchers = self._watchers
        for key in keys:
            watching = watchers.get(key)
            if watching is None:
                watching = watchers[key] = {}
            watching[watcher] = None

    def unwatch(self, watcher: Watcher, keys: Sequence[Hashable]) -> None:
        """Stop notifying `watcher` of the events of these keys."""
        watchers = self._watchers
        for key in keys:
            watching = watchers.get(key)
            if watching is not None:
                watching.pop(watcher, None)
                if not watching:
                    del watchers[key]

    def check_and_complete(self, key: Hashable) -> int:
        """Notify the watchers of `key` of an event; return how many operations completed.

        An exception of a watcher is logged and goes no further: the request that caused the event is another
        one, and not at fault.
        """
        watching = self._watchers.get(key)
        if watching is None:
            return 0
        completed = 0
        for watcher in tuple(watching):
            # A watcher before this one may have completed or removed it.
            if watcher in watching:
                try:
                    completed += watcher.on_event(key)
                except Exception:
                    logger.exception("%s failed on an event of %s", type(watcher).__name__, key)
        return completed

    def close(self) -> None:
        """Complete every operation that waits; called at shutdown, so that every client gets a response."""
        for operation in tuple(self._waiting):
            operation.force_complete()

    def check_invariants(self, operation: DelayedOperation) -> None:
        """Assert that an operation waits and watches all its keys, or is complete and watches none."""
        is_waiting = operation in self._waiting
        assert is_waiting is not operation.is_completed, f"{operation} waits: {is_waiting}, and is complete"
        for key in operation._keys:
            watching = self._watchers.get(key)
            is_watching = watching is not None and operation in watching
            assert is_watching is is_waiting, f"{operation} waits: {is_waiting}, under {key}: {is_watching}"
            assert watching is None or watching, f"{key} has an empty list of watchers"

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
            "Delayed operations that expired.",
            lambda: self.expired_count,
            delayedoperation=title,
        )

    def _forget(self, operation: DelayedOperation) -> None:
        """Remove an operation that is about to complete."""
        del self._waiting[operation]
        if operation._entry is not None:
            operation._entry.cancel()
            # The entry refers to the operation: with a cycle for each request that waited, memory would grow
            # until the garbage collector looks at old objects.
            operation._entry = None
        self.unwatch(operation, operation._keys)
        if invariants.enabled:
            self.check_invariants(operation)
