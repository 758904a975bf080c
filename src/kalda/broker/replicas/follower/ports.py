"""What the follower's side of replication offers to the rest of the broker, and what it needs of it.

The replica manager tells it whom to follow (`FollowerFetching`); it dials leaders through a connection whose
inside it does not know (`LeaderConnection`). Everything runs on the event loop.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from kalda.common.api_keys import ApiKey
from kalda.common.types import TopicPartition
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.schema import Message

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition


class FollowerFetching(Protocol):
    """Keeps followed partitions up to date with their leaders."""

    def follow(self, partitions: "Sequence[Partition]") -> None:
        """Fetch each partition from its `leader_id` at its `leader_epoch` from now on.

        Calling again with nothing changed changes nothing. A leader of -1 stops the fetching.
        """
        ...

    def unfollow(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these; when it returns nobody here touches their logs any more."""
        ...


class LeaderConnection(Protocol):
    """A connection to another broker, one request at a time; any failure closes it."""

    is_closed: bool

    async def request(
        self, request: Message, *, timeout_seconds: float, version: int | None = None
    ) -> Message:
        """Send a request and return the answer; raises `ConnectionError`."""
        ...

    async def request_raw(
        self, api_key: ApiKey, version: int, body: bytes | list[bytes], *, timeout_seconds: float
    ) -> memoryview:
        """Send a body and return the answer's, writable and valid until the next call.

        Raises:
            ConnectionError: it was lost, timed out, or the peer sent junk.
        """
        ...

    def version_of(self, api_key: ApiKey) -> int:
        """Return the highest version that both sides know."""
        ...

    def close(self) -> None:
        """Close; a request under way fails."""
        ...


class LeaderDialer(Protocol):
    """Opens connections to leaders."""

    async def dial(self, host: str, port: int, options: DialOptions) -> LeaderConnection:
        """Connect; raises `ConnectionError` on any failure."""
        ...
