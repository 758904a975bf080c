"""Reads a cluster's topics, offsets and ranges of partitions with blocking calls.

It is not a consumer: it joins no group, keeps no position and needs no group API of the broker. Transient
failures (a broker restarts, a leader moves) are retried with back-off until `default.api.timeout.ms` is over;
other failures are raised at once.

The loop thread starts with the first call, so that a reader can be created before a fork and used after it.
"""

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from kalda.clients.metadata import ClusterMetadata
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.range_reader.log_reader_core import LogReaderCore
from kalda.clients.range_reader.partition_fetch import FetchedRecords, PartitionFetch
from kalda.clients.range_reader.read_lease import ReadLease
from kalda.clients.values import OffsetAndTimestamp
from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP


class LogReader:
    """Reads a cluster; its connections and its thread live from the first call to `close`.

    Several threads may use a reader at the same time.

    Example:
        ```python
        with LogReader(LogReaderConfig.from_options({"bootstrap_servers": "localhost:9092"})) as reader:
            ends = reader.end_offsets([TopicPartition("orders", 0)])
        ```
    """

    def __init__(self, config: LogReaderConfig) -> None:
        self.config: Final = config
        self._core: LogReaderCore | None = None
        # Reentrant for signal handlers. One that starts the reader within its start leaves a thread behind.
        self._start_lock: Final = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread; the reader can be used again afterwards."""
        with self._start_lock:
            core, self._core = self._core, None
        if core is not None:
            core.close()

    def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Ask a broker for the named topics, or for all of them; topics are never created by asking.

        A topic that does not exist is in the answer, with its error.

        Raises:
            RequestTimedOutError: no broker answered in time.
        """
        core = self._running
        return core.call(core.lookup.describe(topics))

    def topic_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of the topics.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            BrokerResponseError: a topic cannot be described, e.g. for its name.
            RequestTimedOutError: no broker answered in time.
        """
        core = self._running
        return core.call(core.lookup.topic_partitions(topics))

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Find offsets by timestamp, or by `EARLIEST_TIMESTAMP` and `LATEST_TIMESTAMP`.

        None stands where no record is as young as the timestamp. One request goes to each leader. Under
        `isolation.level=read_committed` the latest offset is the last stable one.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            BrokerResponseError: a broker answered with another error that retrying does not cure.
            RequestTimedOutError: not all leaders answered in time.
        """
        core = self._running
        return core.call(core.lookup.list_offsets(timestamps))

    def beginning_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each log holds; raises as `list_offsets`."""
        return _offsets(self.list_offsets(dict.fromkeys(topic_partitions, EARLIEST_TIMESTAMP)))

    def end_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset that a reader of each partition would stop at; raises as `list_offsets`."""
        return _offsets(self.list_offsets(dict.fromkeys(topic_partitions, LATEST_TIMESTAMP)))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return where each log leaves the given leader epoch, or the last one before it (KIP-320).

        A reader that read offset 99 under the epoch and gets an answer below 100 has read records that the
        log does not hold any more. None stands where the broker does not know. Raises as `list_offsets`.
        """
        core = self._running
        return core.call(core.lookup.epoch_ends(epochs))

    def fetcher(
        self, topic_partition: TopicPartition, *, start: int, end: int, topic_id: UUID = ZERO_UUID
    ) -> "PartitionFetcher":
        """Return a fetcher of one partition that fetches ahead up to `end`.

        With a `topic_id`, a topic that was deleted and created again since does not exist for the fetcher.
        """
        core = self._running
        return PartitionFetcher(
            core,
            PartitionFetch(
                core.client, self.config, topic_partition, start=start, end=end, topic_id=topic_id
            ),
        )

    def acquire_lease(
        self, topic_partition: TopicPartition, *, start: int, end: int, topic_id: UUID = ZERO_UUID
    ) -> ReadLease:
        """Lease the segment files of ``[start, end)``, or of its beginning, for reading them in place.

        One attempt: a caller without a lease fetches. `topic_id` is that of `fetcher`.

        Raises:
            UnsupportedApiError: the leader has no leases; Apache Kafka has none.
            ClientError: the leader refuses, or cannot be reached.
        """
        core = self._running
        return core.call(core.acquire_lease(topic_partition, start, end, topic_id))

    def known_leader_id(self, topic_partition: TopicPartition) -> int:
        """Return the leader's broker id as the metadata has it now, without a request; -1 if unknown."""
        leader = self._running.client.metadata.snapshot.leader(topic_partition)
        return -1 if leader is None else leader.id

    def renew_lease(self, lease: ReadLease) -> None:
        """Extend a lease by its time.

        Raises:
            ClientError: it does not hold any more, or the leader cannot be reached.
        """
        core = self._running
        core.call(core.leases.renew(lease))

    def release_lease(self, lease: ReadLease, *, bytes_read: int = 0, fallback_reason: str = "") -> bool:
        """End a lease and report its use; return whether its offsets were in the log until now.

        Raises:
            ClientError: the leader does not know the lease (any more), or cannot be reached.
        """
        core = self._running
        return core.call(core.leases.release(lease, bytes_read, fallback_reason))

    @property
    def _running(self) -> LogReaderCore:
        with self._start_lock:
            if self._core is None:
                self._core = LogReaderCore(self.config)
            return self._core


class PartitionFetcher:
    """Fetches one partition of a `LogReader`, in order.

    Example:
        ```python
        with reader.fetcher(TopicPartition("orders", 0), start=0, end=1000) as fetcher:
            while fetcher.position < 1000:
                fetched = fetcher.next()
        ```
    """

    def __init__(self, core: LogReaderCore, fetch: PartitionFetch) -> None:
        """Use `LogReader.fetcher`."""
        self._core: Final = core
        self._fetch: Final = fetch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> int:
        """The offset that the next call of `next` returns records from."""
        return self._fetch.position

    def next(self) -> FetchedRecords:
        """Return the records at the position; without any, the broker waits `fetch.max.wait.ms` for some.

        Raises:
            OffsetOutOfRangeError: the log does not hold the position.
            UnknownTopicOrPartitionError: the partition does not exist.
            BrokerResponseError, RequestTimedOutError: the broker's failure persisted through all retries.
        """
        return self._core.call(self._core.fetch(self._fetch))

    def seek(self, offset: int) -> None:
        """Continue from another offset; a fetch in flight is abandoned."""
        self._core.call(self._seek(offset))

    def close(self) -> None:
        """Abandon the fetch under way."""
        self._core.call_soon(self._fetch.close)

    async def _seek(self, offset: int) -> None:
        self._fetch.seek(offset)


def _offsets(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, int]:
    return {each: -1 if answer is None else answer.offset for each, answer in found.items()}
