"""Holds the thread and the connections of a log reader that is in use."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from kalda.clients.loop_thread import LoopThread
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.range_reader.cluster_lookup import ClusterLookup
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.range_reader.partition_fetch import FetchedRecords, PartitionFetch
from kalda.clients.range_reader.read_lease import ReadLease, ReadLeaseCalls
from kalda.common.types import UUID, TopicPartition

T = TypeVar("T")


class LogReaderCore:
    """The thread, the network client on it, and what they serve."""

    def __init__(self, config: LogReaderConfig) -> None:
        self.thread: Final = LoopThread("kalda-log-reader")
        self.client: Final = NetworkClient(config, Metadata())
        self.lookup: Final = ClusterLookup(self.client, config)
        self.leases: Final = ReadLeaseCalls(self.client, config)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        return self.thread.call(coroutine)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run a callback on the loop soon."""
        self.thread.call_soon(callback)

    async def fetch(self, fetch: PartitionFetch) -> FetchedRecords:
        """Return the records at the position of `fetch`, with retries; see `PartitionFetcher.next`."""

        async def attempt() -> FetchedRecords:
            await self.lookup.require_topics((fetch.topic_partition.topic,))
            return await fetch.next()

        return await self.lookup.retry(f"fetch of {fetch.topic_partition}", attempt)

    async def acquire_lease(
        self, topic_partition: TopicPartition, start: int, end: int, topic_id: UUID
    ) -> ReadLease:
        """Lease the files of a range, in one attempt; see `LogReader.acquire_lease`."""
        await self.lookup.require_topics((topic_partition.topic,))
        return await self.leases.acquire(topic_partition, start, end, topic_id)

    def close(self) -> None:
        """Close the connections and end the thread; in a fork of the process, only forget them."""
        try:
            if self.thread.is_usable:
                self.thread.call(self.client.close())
        finally:
            self.thread.close()
