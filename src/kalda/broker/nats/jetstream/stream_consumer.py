"""Defines `StreamConsumer`, the interface of a consumer that its stream and the API call."""

from collections.abc import Hashable
from typing import Final, Protocol

from kalda.nats.jetstream.acks import Acknowledgement
from kalda.nats.jetstream.consumer_config import ConsumerConfig
from kalda.nats.jetstream.pull_requests import status

REMOVED: Final = status(409, "Consumer Deleted")
MOVED: Final = status(409, "Leadership Change")
"""Clients ask again, where they end with a consumer that is removed."""


class StreamConsumer(Protocol):
    """One consumer of a stream."""

    name: str
    config: ConsumerConfig

    @property
    def is_durable(self) -> bool:
        """Whether the consumer outlives its broker."""
        ...

    @property
    def is_bound(self) -> bool:
        """Whether a client gets what the consumer pushes."""
        ...

    @property
    def pending_count(self) -> int:
        """How many messages wait for acknowledgements."""
        ...

    @property
    def unread(self) -> int:
        """How many messages are not delivered yet."""
        ...

    @property
    def waiting_count(self) -> int:
        """How many pull requests wait."""
        ...

    def added(self, sequence: int, subject: bytes) -> None:
        """Count a message that the stream has now."""
        ...

    def removed(self, sequence: int, subject: bytes) -> None:
        """Count a message that the stream is about to lose."""
        ...

    def stream_purged(self) -> None:
        """Drop pending acknowledgements of messages that the stream no longer has."""
        ...

    def configure(self, config: ConsumerConfig) -> None:
        """Take a new configuration, which is stored where it has to be."""
        ...

    def acknowledge(self, ack: Acknowledgement, reply: bytes, client: Hashable) -> None:
        """Take an acknowledgement; a reply subject gets an answer once it is stored."""
        ...

    def pull(self, body: bytes, reply: bytes, client: Hashable) -> None:
        """Take a request for messages; `client` has a share of the requests that may wait."""
        ...

    def flow_answered(self, subject: bytes) -> None:
        """Note that a client has read up to a request of flow control."""
        ...

    @property
    def first_count(self) -> int:
        """How many last messages of subjects are still to be delivered before all others."""
        ...

    def wake_for_new(self) -> None:
        """Deliver new messages in a turn of their own, if there are any for the consumer."""
        ...

    def wake(self) -> None:
        """Deliver what there is, in a turn of its own."""
        ...

    def info(self) -> dict[str, object]:
        """Return what responses say of the consumer."""
        ...

    def close(self, reason: bytes = REMOVED) -> None:
        """Stop, and answer the requests that wait with a status: why."""
        ...
