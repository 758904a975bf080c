"""Loads partitions one after the other, in slices between which the event loop serves other work.

What must not break: a partition that fails to load, in whatever way, does not keep the others from loading.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kalda.common.errors import ApiError
from kalda.common.log_text import partitions_text
from kalda.coordinator.runtime.coordinator_shard import Loop
from kalda.coordinator.runtime.log_replay import LogReplay
from kalda.records.errors import RecordsError
from kalda.runtime.clock import Clock

logger: Final = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.002
"""How long one slice may hold the event loop while the loop has little else to do."""

SLICE_SECONDS_MAX: Final = 0.010
"""The longest slice on a busy loop, where a slice takes half as long as other work took since the last one.
A group whose coordinator moved waits for every turn of the loop that loading waits for."""

_END: Final = object()


class Load:
    """The load of one partition; it ends with `on_loaded` and its seconds, or `on_failed` and the error."""

    def __init__(
        self,
        partition: int,
        loading: LogReplay,
        on_loaded: Callable[[float], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self.partition: Final = partition
        self.loading: Final = loading
        self.on_loaded: Final = on_loaded
        self.on_failed: Final = on_failed
        self.steps: Iterator[None] = loading.steps()
        self.started = 0.0
        self.is_cancelled = False

    def cancel(self) -> None:
        """Stop the load: the partition was resigned."""
        self.is_cancelled = True
        self.steps = iter(())


class LoadScheduler:
    """Loads the partitions of one runtime."""

    def __init__(self, topic: str, clock: Clock, loop: Loop) -> None:
        self._topic: Final = topic
        self._clock: Final = clock
        self._loop: Final = loop
        self._waiting: Final[deque[Load]] = deque()
        self._is_running = False
        self._slice_ended = 0.0
        self._loaded: Final[list[Load]] = []
        """The loads that were completed since the last log line about it."""
        self._began = 0.0

    def add(self, load: Load) -> None:
        """Load a partition after the partitions that wait already."""
        self._waiting.append(load)
        if not self._is_running:
            self._is_running = True
            self._began = self._slice_ended = self._clock.monotonic()
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Run one slice."""
        monotonic = self._clock.monotonic
        now = monotonic()
        deadline = now + min(max(SLICE_SECONDS, (now - self._slice_ended) / 2), SLICE_SECONDS_MAX)
        while self._waiting:
            load = self._waiting[0]
            if load.is_cancelled:
                self._waiting.popleft()
                continue
            if self._is_finished(load, deadline):
                self._waiting.popleft()
            self._slice_ended = monotonic()
            if self._slice_ended >= deadline and self._waiting:
                self._loop.call_soon(self._run)
                return
        self._is_running = False
        self._report()

    def _is_finished(self, load: Load, deadline: float) -> bool:
        """Load until the deadline; return whether the partition is loaded or has failed."""
        monotonic = self._clock.monotonic
        if not load.started:
            load.started = monotonic()
        try:
            while monotonic() < deadline:
                if next(load.steps, _END) is _END:
                    load.on_loaded(monotonic() - load.started)
                    self._loaded.append(load)
                    return True
        except Exception as error:
            if not isinstance(error, ApiError | RecordsError):
                logger.exception("%s-%d: loading failed", self._topic, load.partition)
            load.on_failed(error)
            return True
        return False

    def _report(self) -> None:
        """Log all partitions of an election in one line."""
        if self._loaded:
            logger.info(
                "coordinating %s: %d records of %d bytes loaded in %d ms",
                partitions_text(self._topic, (load.partition for load in self._loaded)),
                sum(load.loading.record_count for load in self._loaded),
                sum(load.loading.byte_count for load in self._loaded),
                (self._clock.monotonic() - self._began) * 1000,
            )
            self._loaded.clear()
