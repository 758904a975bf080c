"""Defines what programs plug into the async producer: event handlers and callback handlers.

Each runs on the producer's thread, except `CallbackHandler.before_enqueue` and `after_enqueue`, which run on
that of the caller of `send`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kalda.clients.legacy.message_set import Message
from kalda.clients.legacy.producer.sync_producer import SyncProducer
from kalda.common.public import public_in


@public_in("kalda.clients.legacy")
@dataclass(frozen=True, slots=True)
class QueueItem:
    """One event in the queue of an async producer."""

    data: object
    """What the program gave to `send`; an encoder makes a message of it."""
    topic: str
    partition: int
    """The partition that was chosen; -1 for any."""
    key: object = None


@public_in("kalda.clients.legacy")
class EventHandler:
    """Sends batches to brokers in place of the producer's own dispatch. A subclass overrides `handle`."""

    def init(self, properties: Mapping[str, str]) -> None:
        """Take the setting `event.handler.props` before the first batch."""

    def handle(
        self, events: Sequence[QueueItem], producer: SyncProducer, encoder: Callable[[object], Message]
    ) -> None:
        """Send a batch whose partitions one broker leads.

        An exception is logged and drops the batch: retries are the handler's.

        Args:
            events: The batch, in the order of the queue.
            producer: The connection to the broker.
            encoder: The function of `serializer.class`.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Clean up, after the last batch."""


@public_in("kalda.clients.legacy")
class CallbackHandler:
    """Sees and changes events on their way through the async producer. A subclass overrides what it needs."""

    def init(self, properties: Mapping[str, str]) -> None:
        """Take the setting `callback.handler.props` before the first event."""

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        """Return the event that enters the queue."""
        return item

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        """Called after an event has entered the queue, or was dropped because the queue was full."""

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        """Return the events to add to the batch for an event that left the queue.

        None stands for `queue.time` that is over: events that were kept back may be returned then.
        """
        return [] if item is None else [item]

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        """Return the batch to send instead of this one."""
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        """Return events to add to the last batch."""
        return []

    def close(self) -> None:
        """Clean up, after the last batch."""
