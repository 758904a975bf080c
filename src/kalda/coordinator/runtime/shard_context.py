"""Gives a loaded shard its clock, its timers and its writes."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.runtime.timers import Timer, Timers
from kalda.runtime.clock import Clock

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_MS: Final = 500
"""The pause before the operation of a timer runs again after its append failed."""

_NOT_RETRIED: Final = ErrorCode.REQUEST_TIMED_OUT
"""The records are in the log; another attempt would write them twice. NOT_COORDINATOR stands for a disk that
refused an append, too; where another broker leads the partition, the timers end with the leadership."""


class _Write(Protocol):
    """Runs an operation and appends its records."""

    def __call__(self, operation: Callable[[], Result[T]], /) -> Pending[T]: ...


class RuntimeContext:
    """The `ShardContext` that the runtime gives a loaded shard; its timers end with the leadership."""

    def __init__(self, timers: Timers, clock: Clock, write: _Write) -> None:
        self._all: Final = timers
        self._clock: Final = clock
        self._write: Final = write
        self._timers: Final[dict[str, Timer]] = {}
        self._is_closed = False

    def time_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        return self._clock.time_ms()

    def monotonic_ms(self) -> int:
        """Return a clock that never goes back, in milliseconds."""
        return int(self._clock.monotonic() * 1000)

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Result[Any]]) -> None:
        """Run `operation` after `delay_ms` and write its records; replace an earlier timer of `key`."""
        if self._is_closed:
            return
        earlier = self._timers.get(key)
        if earlier is not None:
            earlier.cancel()
        self._timers[key] = self._all.add(partial(self._on_time, key, operation), delay_ms)

    def cancel(self, key: str) -> None:
        """Cancel the timer of that key, if one is set."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def is_scheduled(self, key: str) -> bool:
        """Return whether a timer of that key is set."""
        return key in self._timers

    def write(self, operation: Callable[[], Result[T]]) -> Pending[T]:
        """Run `operation` and write its records."""
        return self._write(operation)

    def close(self) -> None:
        """Cancel all timers; `schedule` does nothing from now on."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _on_time(self, key: str, operation: Callable[[], Result[Any]]) -> None:
        timer = self._timers.get(key)
        if timer is None or timer.is_waiting:
            # A timer that was due in the same tick has cancelled or replaced this one.
            return
        del self._timers[key]
        self._write(operation).add_done(partial(self._on_done, key, operation))

    def _on_done(self, key: str, operation: Callable[[], Result[Any]], done: Pending[Any]) -> None:
        error = done.error
        if error is None or self._is_closed:
            return
        if not isinstance(error, ApiError):
            logger.error("The timer %s failed", key, exc_info=error)
        elif error.code is not _NOT_RETRIED and key not in self._timers:
            self.schedule(key, RETRY_MS, operation)
