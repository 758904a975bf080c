"""Reads one partition from an offset on, with the next fetch always in flight.

While the caller decodes the records that `PartitionFetcher.next` returned, the broker prepares and sends the
following ones, so network and decoding overlap without a thread. The fetches are full ones without a session:
a session pays off for many partitions and many idle polls, not for one range that is read once.
"""

from dataclasses import dataclass
from struct import Struct
from types import TracebackType
from typing import Final, Self

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.client.broker_connection import BrokerConnection
from kalda.net.client.client_config import IsolationLevel
from kalda.net.client.client_errors import (
    BrokerResponseError,
    ClientError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kalda.net.client.cluster_client import ClusterClient
from kalda.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_BATCH_POSITIONS: Final = Struct(">qi11xi")
"""Base offset, length and last offset delta, from the front of a batch in format 2."""
_BATCH_LENGTH_OVERHEAD: Final = 12
"""Bytes of a batch that its length does not count: base offset and the length itself."""
_ANSWER_MARGIN_MS: Final = 5_000
"""Time for an answer to arrive, beyond what the broker may wait for data."""


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The records and positions that one fetch returned."""

    records: bytes
    """Whole record batches, perhaps followed by a partial one. Empty where nothing new was there in time.
    The first batch may begin before the offset asked for."""
    next_offset: int
    """Where the following fetch goes on: behind the last whole batch."""
    high_watermark: int
    last_stable_offset: int
    """Up to where a reader of this isolation level gets records; -1 from brokers before 0.11."""
    log_start_offset: int
    aborted_transactions: tuple[tuple[int, int], ...]
    """Producer ids with the first offset of an aborted transaction of theirs."""


class PartitionFetcher:
    """Fetches one partition, in order, up to a given end.

    Example:
        ```python
        with PartitionFetcher(client, TopicPartition("orders", 0), start=0, end=1000) as fetcher:
            while fetcher.position < 1000:
                fetched = fetcher.next()
        ```
    """

    def __init__(
        self, client: ClusterClient, topic_partition: TopicPartition, *, start: int, end: int
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.position = start
        """The offset that the next call of `next` returns records from."""
        self._client: Final = client
        self._end: Final = end
        self._connection: BrokerConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; one with a fetch still under way is closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client.give_back(connection)

    def seek(self, offset: int) -> None:
        """Go on from another offset; a fetch under way is abandoned."""
        self.position = offset
        self._drop_connection()

    def next(self) -> FetchedRecords:
        """Return the records at the position; without any, the broker waits `fetch.max.wait.ms` for some.

        Raises:
            OffsetOutOfRangeError: the log does not hold the position.
            UnknownTopicOrPartitionError: the partition does not exist.
            BrokerResponseError, RequestTimedOutError: the broker's failure persisted through all retries.
        """
        try:
            return self._client.retry(f"fetch of {self.topic_partition}", self._next_once)
        except BrokerResponseError:
            self._drop_connection()
            raise

    def _next_once(self, deadline: float) -> FetchedRecords:
        try:
            connection = self._connection
            if connection is None:
                connection = self._client.borrow(
                    self._client.leader(self.topic_partition, deadline), deadline
                )
                self._connection = connection
            if not connection.in_flight:
                connection.send(self._request(self.position), deadline)
            wait_deadline = self._client.clock.monotonic() + (
                (self._client.config.fetch_max_wait_ms + _ANSWER_MARGIN_MS) / 1000
            )
            response = connection.receive(FetchResponse, max(deadline, wait_deadline))
            fetched = self._read(response)
        except BaseException:
            self._drop_connection()
            raise
        self.position = fetched.next_offset
        if fetched.records and self.position < self._end:
            self._fetch_ahead(connection, deadline)
        return fetched

    def _fetch_ahead(self, connection: BrokerConnection, deadline: float) -> None:
        try:
            connection.send(self._request(self.position), deadline)
        except ClientError:
            # The records in hand are good; the next call connects again and reports what is wrong then.
            self._drop_connection()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _request(self, offset: int) -> FetchRequest:
        config = self._client.config
        topic, number = self.topic_partition
        partition = FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=config.max_partition_fetch_bytes
        )
        return FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=int(config.isolation_level),
            topics=[FetchTopic(topic=topic, topic_id=self._client.topic_id(topic), partitions=[partition])],
            rack_id=config.client_rack,
        )

    def _read(self, response: FetchResponse) -> FetchedRecords:
        what = f"fetch of {self.topic_partition} at offset {self.position}"
        _raise_unless_none(response.error_code, what)
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self.topic_partition.partition:
                    _raise_unless_none(data.error_code, what)
                    return self._read_partition(data, what)
        raise BrokerResponseError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the answer leaves the partition out"
        )

    def _read_partition(self, data: PartitionData, what: str) -> FetchedRecords:
        received = data.records if data.records is not None else b""
        assert isinstance(received, bytes | bytearray | memoryview), "decoding gives views of the answer"
        records = bytes(received)
        next_offset = offset_behind(records, self.position)
        if records and next_offset == self.position:
            raise BrokerResponseError(
                ErrorCode.MESSAGE_TOO_LARGE, f"{what}: {len(records)} bytes hold no whole batch from there on"
            )
        read_committed = self._client.config.isolation_level is IsolationLevel.READ_COMMITTED
        return FetchedRecords(
            records=records,
            next_offset=next_offset,
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset if read_committed else data.high_watermark,
            log_start_offset=data.log_start_offset,
            aborted_transactions=tuple(
                (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
            ),
        )


def offset_behind(records: bytes, offset: int) -> int:
    """Return the offset behind the last whole batch, or `offset` if there is none or all are below it.

    Example: batches of offsets 0-4 and 5-9 and half a batch: 10.
    """
    position = 0
    size = len(records)
    while position + _BATCH_POSITIONS.size <= size:
        base_offset, length, last_offset_delta = _BATCH_POSITIONS.unpack_from(records, position)
        position += _BATCH_LENGTH_OVERHEAD + max(length, 0)
        if position > size:
            break
        offset = max(offset, base_offset + last_offset_delta + 1)
    return offset


def _raise_unless_none(number: int, what: str) -> None:
    code = ErrorCode.of(number)
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRangeError(what)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicOrPartitionError(what)
    if code != ErrorCode.NONE:
        raise BrokerResponseError(code, what)
