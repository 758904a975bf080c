"""Defines the ports of the replica fetchers: their interface to the broker, and to leaders.

Changes of roles call `FollowerFetching`. Fetchers reach leaders through `LeaderDialer` and
`LeaderConnection`, so that tests can put a model leader in their place. Everything runs on the event loop.
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
    """Keeps followed partitions up to date with their leaders; implemented by `ReplicaFetcherManager`."""

    def follow(self, partitions: "Sequence[Partition]") -> None:
        """Fetch each partition from its `leader_id` at its `leader_epoch` from now on.

        A repeated call without a change has no effect. A leader of -1 stops the fetching.
        """
        ...

    def unfollow(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these; when this returns, no fetcher touches their logs any more."""
        ...


class LeaderConnection(Protocol):
    """A connection to another broker with one request at a time; any failure closes it."""

    is_closed: bool

    async def request(
        self, request: Message, *, timeout_seconds: float, version: int | None = None
    ) -> Message:
        """Send a request and return the response; raises `ConnectionError`."""
        ...

    async def request_raw(
        self, api_key: ApiKey, version: int, body: bytes | list[bytes], *, timeout_seconds: float
    ) -> memoryview:
        """Send a request body and return the response body, which is writable and valid until the next call.

        Raises:
            ConnectionError: the connection was lost, timed out, or received invalid data.
        """
        ...

    def version_of(self, api_key: ApiKey) -> int:
        """Return the highest version that both brokers support."""
        ...

    def close(self) -> None:
        """Close the connection; a request under way fails."""
        ...


class LeaderDialer(Protocol):
    """Opens connections to leaders."""

    async def dial(self, host: str, port: int, options: DialOptions) -> LeaderConnection:
        """Connect; raises `ConnectionError` on any failure."""
        ...
