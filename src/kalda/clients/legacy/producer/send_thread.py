"""Makes batches of the events in an async producer's queue, and hands them on: Kafka's ProducerSendThread.

A batch is complete when it has `batch.size` events, or `queue.time` after the batch before it. An error of a
handler drops the batch with a log line: the callers of `send` are gone.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kalda.clients.legacy.producer.handlers import CallbackHandler, QueueItem
from kalda.runtime.clock import Clock
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)


class QueuePort(Protocol):
    """The reader's side of an `EventQueue`."""

    def take(self, count_max: int, timeout_s: float) -> list[QueueItem] | None:
        """Return events; none if the time is up, None at the end of all."""
        ...


class ProducerSendThread:
    """The thread of one async producer.

    Args:
        name: The name of the thread.
        queue: Where the events come from.
        handle: Sends a batch; its exceptions are logged.
        callbacks: Sees events on their way.
        batch_size: The events of a batch.
        queue_time_ms: How long an event may wait for a batch.
        clock: The time of waits.
    """

    def __init__(
        self,
        name: str,
        queue: QueuePort,
        handle: Callable[[Sequence[QueueItem]], None],
        callbacks: CallbackHandler,
        batch_size: int,
        queue_time_ms: int,
        clock: Clock,
    ) -> None:
        self._queue: Final = queue
        self._handle: Final = handle
        self._callbacks: Final = callbacks
        self._batch_size: Final = batch_size
        self._queue_time_seconds: Final = queue_time_ms / 1000
        self._clock: Final = clock
        # A daemon: a program that forgets to close its producer still exits.
        self._thread: Final = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread, as handlers do."""
        return threading.current_thread() is self._thread

    def join(self) -> None:
        """Wait until the closed queue is empty and its last batch handled."""
        self._thread.join()

    def run(self) -> None:
        """Handle batches until the queue is closed and empty."""
        batch: list[QueueItem] = []
        last_send = self._clock.monotonic()
        while True:
            left = last_send + self._queue_time_seconds - self._clock.monotonic()
            taken = self._queue.take(max(self._batch_size - len(batch), 1), max(left, 0.0))
            if taken is None:
                break
            is_expired = not taken
            items: Sequence[QueueItem | None] = taken or [None]
            for item in items:
                batch += self._after_dequeuing(item)
            if is_expired or len(batch) >= self._batch_size:
                self._send(batch)
                last_send = self._clock.monotonic()
                batch = []
        try:
            batch += self._callbacks.last_batch_before_close()
        except Exception:
            logger.exception("The producer's callback for the last batch failed")
        self._send(batch)

    def _send(self, batch: list[QueueItem]) -> None:
        if not batch:
            return
        try:
            self._handle(self._callbacks.before_sending_data(batch))
        except Exception as error:
            logger.error("A batch of %d events was dropped: %s", len(batch), error, exc_info=error)

    def _after_dequeuing(self, item: QueueItem | None) -> Sequence[QueueItem]:
        """Return what the callback adds to the batch; its error costs this event."""
        try:
            return list(self._callbacks.after_dequeuing_existing_data(item))
        except Exception:
            logger.exception("The producer's callback for %s failed", item)
            return []
