"""Fetches one partition from an offset on, with the next fetch always in flight.

While the caller decodes the records that `PartitionFetch.next` returned, the broker prepares and sends the
following ones. The fetches are full ones without a session: a session pays off for many partitions and many
idle polls, not for one range that is read once.

A failed attempt leaves no fetch in flight that a later attempt could take for its own, and `position` moves
only past records that were returned. The size that a fetch asks for is an estimate: a range that needs more
gets it with the next fetch.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol

from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.errors import BrokerResponseError, ClientError, error_for
from kalda.clients.metadata import Metadata
from kalda.clients.range_reader.leaders import missing_leader, require_topic_id
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff, Pacer
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID, BrokerEndpoint, TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kalda.protocol.schema import Message
from kalda.protocol.wire_format import Buffer

_BATCH_POSITIONS: Final = Struct(">qi11xi")
"""Base offset, length and last offset delta, from the front of a batch in format 2."""
_BATCH_LENGTH_OVERHEAD: Final = 12
"""Bytes of a batch that its length does not count: base offset and the length itself."""
_ANSWER_MARGIN_MS: Final = 5_000
"""Time for an answer to arrive, beyond what the broker may wait for data."""
_LAST_VERSION_WITH_NAMES: Final = 12
"""From 13 on, requests name topics by id only."""
_RECORD_BYTES_ASSUMED: Final = 1_024
"""The size of a record before the first response shows it: an ordinary one, so that a short range is fetched
at once and brings little that is behind it."""
_FETCH_BYTES_MIN: Final = 64 * 1024
"""Below this, a smaller fetch saves nothing. It is also the room for what the estimate does not know: the
records of the last batch that are behind the range."""
_FRUITLESS_FREE: Final = 10
"""Early answers in a row without records: preferred replicas and moved leaders cause some."""


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The records and positions that one fetch returned."""

    records: Buffer
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
    is_checked: bool = False
    """Whether the CRC of each batch was checked already."""


class FetchPort(Protocol):
    """The part of a network client that a fetch uses."""

    @property
    def retry_backoff(self) -> ExponentialBackoff:
        """How long to wait after failures in a row."""
        ...

    @property
    def metadata(self) -> Metadata:
        """What is known of the cluster."""
        ...

    async def ready(self, node_id: int) -> NodeApiVersions:
        """Connect to a broker where needed."""
        ...

    def is_ready(self, node_id: int) -> bool:
        """Whether the connection is open."""
        ...

    def send_nowait(
        self, node_id: int, request: Message, version: int, timeout_ms: int
    ) -> "asyncio.Future[Message]":
        """Send a request over an open connection."""
        ...


class PartitionFetch:
    """Fetches one partition, in order, up to a given end."""

    def __init__(
        self,
        port: FetchPort,
        config: LogReaderConfig,
        topic_partition: TopicPartition,
        *,
        start: int,
        end: int,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.position = start
        """The offset that the next call of `next` returns records from."""
        self._port: Final = port
        self._config: Final = config
        self._end: Final = end
        self._topic_id: Final = topic_id
        """The topic that the offsets belong to; zero for the one that has the name now."""
        self._ahead: asyncio.Future[Message] | None = None
        self._received_bytes = 0
        self._received_offsets = 0
        self._pacer: Final = Pacer(port.retry_backoff, _FRUITLESS_FREE)
        self._sent_at = 0.0
        self._wait_s = 0.0
        """The wait before the next fetch, after early answers without records."""
        self._replica: int | None = None
        """The replica that the leader named for readers of this rack (KIP-392), until an attempt fails."""

    def seek(self, offset: int) -> None:
        """Continue from another offset; a fetch in flight is abandoned."""
        self.position = offset
        self.close()

    def close(self) -> None:
        """Abandon the fetch under way; its response is dropped when it comes."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()

    async def next(self) -> FetchedRecords:
        """Return the records at the position; without any, the broker waits `fetch.max.wait.ms` for some.

        One attempt. The topic must be in the metadata.

        Raises:
            ClientError: the fetch failed, by the broker's or the connection's fault.
        """
        try:
            if self._ahead is None:
                if self._wait_s:
                    await asyncio.sleep(self._wait_s)
                self._ahead = await self._send()
            response = await self._ahead
            assert isinstance(response, FetchResponse), f"a {type(response).__name__}"
            self._ahead = None
            fetched = self._read(response)
        except BaseException:
            self.close()
            self._replica = None
            self._pace(has_records=False)
            raise
        self._pace(has_records=bool(fetched.records))
        self._received_bytes += len(fetched.records)
        self._received_offsets += fetched.next_offset - self.position
        self.position = fetched.next_offset
        if fetched.records and self.position < self._end:
            # The records in hand are good; where this fails, the next call reports what is wrong.
            with contextlib.suppress(ClientError):
                if self._port.is_ready(self._source().id):
                    self._ahead = await self._send()
        return fetched

    def _pace(self, *, has_records: bool) -> None:
        """Hold the next fetch back if the broker keeps answering at once without records."""
        took_s = asyncio.get_running_loop().time() - self._sent_at
        if has_records or took_s >= self._config.fetch_max_wait_ms / 2000:
            self._pacer.reset()
            self._wait_s = 0.0
        else:
            self._wait_s = self._pacer.seconds()

    def _source(self) -> BrokerEndpoint:
        """Return the broker to fetch from: the replica that the leader named, or else the leader."""
        snapshot = self._port.metadata.snapshot
        if self._replica is not None and self._replica in snapshot.brokers:
            return snapshot.brokers[self._replica]
        leader = snapshot.leader(self.topic_partition)
        if leader is None:
            raise missing_leader(snapshot, self.topic_partition)
        return leader

    async def _send(self) -> "asyncio.Future[Message]":
        source = self._source()
        metadata = self._port.metadata.snapshot
        # From version 13 on, the broker compares the id once more: the metadata may be old.
        require_topic_id(metadata, self.topic_partition.topic, self._topic_id)
        topic_id = self._topic_id
        if topic_id == ZERO_UUID:
            topic_id = metadata.topic_id(self.topic_partition.topic)
        versions = await self._port.ready(source.id)
        version_max = _LAST_VERSION_WITH_NAMES if topic_id == ZERO_UUID else None
        version = versions.latest(ApiKey.FETCH, version_max)
        config = self._config
        topic_name, number = self.topic_partition
        partition = FetchPartition(
            partition=number,
            fetch_offset=self.position,
            partition_max_bytes=min(config.max_partition_fetch_bytes, self._missing_bytes()),
        )
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=int(config.isolation),
            topics=[FetchTopic(topic=topic_name, topic_id=topic_id, partitions=[partition])],
            rack_id=config.client_rack,
        )
        timeout_ms = max(config.request_timeout_ms, config.fetch_max_wait_ms + _ANSWER_MARGIN_MS)
        self._sent_at = asyncio.get_running_loop().time()
        return self._port.send_nowait(source.id, request, version, timeout_ms)

    def _missing_bytes(self) -> int:
        """Estimate the size of the records up to the end, by those received so far, and add some room."""
        missing_offsets = max(self._end - self.position, 1)
        if not self._received_offsets:
            return _FETCH_BYTES_MIN + missing_offsets * _RECORD_BYTES_ASSUMED
        return _FETCH_BYTES_MIN + missing_offsets * self._received_bytes * 5 // (self._received_offsets * 4)

    def _read(self, response: FetchResponse) -> FetchedRecords:
        what = f"fetch of {self.topic_partition} at offset {self.position}"
        _raise_unless_none(response.error_code, what)
        for topic in response.responses:
            for data in topic.partitions:
                if data.partition_index == self.topic_partition.partition:
                    if self._replica is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        # A follower may lag behind; the leader decides.
                        raise BrokerResponseError(ErrorCode.OFFSET_NOT_AVAILABLE, what)
                    _raise_unless_none(data.error_code, what)
                    if data.preferred_read_replica >= 0:
                        self._replica = data.preferred_read_replica
                    return self._read_partition(data, what)
        raise BrokerResponseError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the answer leaves the partition out"
        )

    def _read_partition(self, data: PartitionData, what: str) -> FetchedRecords:
        records = data.records if data.records is not None else b""
        assert isinstance(records, bytes | bytearray | memoryview), "decoding gives views of the answer"
        next_offset = offset_behind(records, self.position)
        if records and next_offset == self.position:
            raise BrokerResponseError(
                ErrorCode.MESSAGE_TOO_LARGE, f"{what}: {len(records)} bytes hold no whole batch from there on"
            )
        read_committed = self._config.isolation is IsolationLevel.READ_COMMITTED
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


def offset_behind(records: Buffer, offset: int) -> int:
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
    if code != ErrorCode.NONE:
        raise error_for(code, what)
