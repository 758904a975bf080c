"""Defines the exceptions of the old producer, under the names of Kafka's."""

from kalda.clients.errors import ClientError
from kalda.common.public import public_in


@public_in("kalda.clients.legacy")
class FailedToSendMessageError(ClientError):
    """Messages were not acknowledged after every attempt; brokers may have appended some of them.

    `count` is how many.
    """

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.count = count


@public_in("kalda.clients.legacy")
class QueueFullError(ClientError):
    """The queue of an async producer is full, and `queue.enqueue.timeout.ms` does not let the caller wait."""

    @property
    def is_retriable(self) -> bool:
        """Always true: the producer's thread empties the queue."""
        return True


@public_in("kalda.clients.legacy")
class QueueClosedError(ClientError):
    """The async producer was closed."""


@public_in("kalda.clients.legacy")
class NoBrokersForPartitionError(ClientError):
    """No live broker leads the partition that a message is for, or the topic has no partitions."""

    @property
    def is_retriable(self) -> bool:
        """Always true: a leader may be elected."""
        return True


@public_in("kalda.clients.legacy")
class InvalidPartitionError(ClientError, ValueError):
    """A partitioner returned a number that is not an index of the partition list."""


@public_in("kalda.clients.legacy")
class MessageSizeTooLargeError(ClientError, ValueError):
    """A message is larger than `max.message.size`."""
