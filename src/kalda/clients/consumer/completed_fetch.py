"""Holds the records of one partition that one fetch returned, and hands them out in order.

Batches are opened one at a time, when their records are asked for: by the thread that called `poll`, not by
the event loop. Control batches, batches of aborted transactions and records below the position are left out;
offsets may have gaps where compaction removed records.

`next_offset` moves only past records that were returned or left out on purpose, so an error (a wrong CRC, a
deserializer) leaves the position where it is.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from kalda.clients.consumer.consumer_errors import FetchCorruptionError, RecordDeserializationError
from kalda.clients.consumer.record_decoder import BatchDecoder, Deserializers
from kalda.clients.fetch_position import NO_LEADER_EPOCH
from kalda.clients.metrics.consumer_metrics import ResponseMetrics
from kalda.clients.values import ConsumerRecord
from kalda.common.types import TopicPartition
from kalda.records.aborted_transactions import AbortedTransactions
from kalda.records.batch import LOG_OVERHEAD, MAGIC, BatchHeader, read_header, validate
from kalda.records.errors import NeedMoreBytes, RecordsError
from kalda.records.format_conversion import up_convert
from kalda.records.record import record_bytes
from kalda.runtime.system.clock import monotonic

OFFSET_MAX: Final = 2**63 - 1
"""The largest position; the last record that can be consumed is the one before."""
BATCH_FRONT: Final = Struct(">qiib6xi")
"""Base offset, length, partition leader epoch, magic, last offset delta, from the front of a batch."""


DECODED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Decompressed bytes after which one poll opens no further batch. A few kilobytes may hold hundreds of
megabytes, and the records of one poll are in memory together."""
DECODED_SECONDS_MAX: Final = 0.5
"""Time after which one poll opens no further batch, nor another part of a large one: its caller has to go on,
with what there is."""


class DecodeBound:
    """The bytes that one poll decodes. A batch may exceed it, because a large batch has to be read, too."""

    __slots__ = ("_bytes_left", "_deadline", "_monotonic")

    def __init__(self, monotonic: Callable[[], float] = monotonic) -> None:
        self._monotonic: Final = monotonic
        self._deadline: Final = monotonic() + DECODED_SECONDS_MAX
        self._bytes_left = DECODED_BYTES_MAX

    @property
    def is_reached(self) -> bool:
        """Whether no further batch may be opened, nor another part of a large one decoded."""
        return self._bytes_left <= 0 or self._monotonic() >= self._deadline

    def opened(self, size: int) -> None:
        """Count the decompressed bytes of a batch."""
        self._bytes_left -= size


class CompletedFetch:
    """The records of one partition from one response.

    Args:
        partition: The partition.
        generation: The partition's generation when the request was sent; see `partition_state`.
        fetch_offset: The offset that was asked for.
        records: Whole batches, and perhaps a part of one more; kept alive by this object.
        aborted: (producer id, first offset) of aborted transactions; empty under read_uncommitted.
        check_crcs: Whether to check the CRC of each batch.
        response_metrics: Counts what the response brought.
    """

    __slots__ = (
        "_aborted",
        "_check_crcs",
        "_decoder",
        "_end",
        "_header",
        "_position",
        "_records",
        "_resume_at",
        "_returned",
        "aborted",
        "consumed_count",
        "fetch_offset",
        "generation",
        "last_epoch",
        "next_offset",
        "partition",
        "response_metrics",
        "size",
    )

    def __init__(
        self,
        partition: TopicPartition,
        generation: int,
        fetch_offset: int,
        records: memoryview,
        aborted: Sequence[tuple[int, int]],
        *,
        check_crcs: bool,
        response_metrics: ResponseMetrics | None = None,
    ) -> None:
        self.partition: Final = partition
        self.generation: Final = generation
        self.fetch_offset: Final = fetch_offset
        self.aborted: Final = aborted
        self.size: Final = len(records)
        self.consumed_count = 0
        """Records that were given out, for metrics."""
        self.response_metrics = response_metrics
        """Where to count them once; None after that, or without metrics."""
        self.next_offset = fetch_offset
        """The position after what was taken so far."""
        self.last_epoch = NO_LEADER_EPOCH
        """The leader epoch of the last batch that was taken from."""
        # Message sets are replaced by batches when they are opened.
        self._records = records
        self._end = len(records)
        self._aborted: Final = AbortedTransactions(aborted)
        self._check_crcs: Final = check_crcs
        self._position = 0
        self._header: BatchHeader | None = None
        self._decoder: BatchDecoder | None = None
        # Records that iteration took and did not hand out, and the next offset and epoch behind them.
        self._returned: list[ConsumerRecord[Any, Any]] = []
        self._resume_at = (fetch_offset, NO_LEADER_EPOCH)

    def count_consumed(self) -> None:
        """Count, at the end of this fetch, what was given out of it; harmless twice."""
        metrics, self.response_metrics = self.response_metrics, None
        if metrics is not None:
            metrics.drained(self.partition.topic, self.size, self.consumed_count)

    @property
    def is_consumed(self) -> bool:
        """Whether nothing is left."""
        return self._decoder is None and self._position >= self._end and not self._returned

    @property
    def records(self) -> memoryview:
        """The batches as they were fetched."""
        return self._records

    @property
    def unread_bytes(self) -> int:
        """Bytes of the batches that were not opened yet."""
        return self._end - self._position

    def take(
        self, count: int, deserializers: Deserializers, bound: DecodeBound | None = None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return up to `count` records; fewer at the end, before a record that cannot be read, or at `bound`.

        Raises:
            FetchCorruptionError: the next batch is damaged.
            RecordDeserializationError: a deserializer failed for the next record.
        """
        taken: list[ConsumerRecord[Any, Any]] = self._take_returned(count) if self._returned else []
        try:
            while len(taken) < count:
                decoder = self._decoder
                if decoder is None:
                    if bound is not None and bound.is_reached:
                        break
                    decoder = self._open_next(deserializers)
                    if decoder is None:
                        break
                    if bound is not None:
                        bound.opened(decoder.size)
                if decoder.remaining:
                    records = decoder.take(count - len(taken))
                    taken = taken + records if taken else records
                    self.next_offset = decoder.next_offset
                if not decoder.remaining:
                    decoder.check_end()
                    self._close_batch()
                elif bound is not None and bound.is_reached:
                    break
        except (RecordsError, RecordDeserializationError) as error:
            # What was taken before is good; nothing has moved behind it, so the next call fails the same way.
            if not taken:
                if isinstance(error, RecordsError):
                    raise FetchCorruptionError(self.partition, self.next_offset, error) from error
                raise
        return taken

    def put_back(self, records: list[ConsumerRecord[Any, Any]], offset: int) -> None:
        """Take back the last records of the last `take`; the next one returns them, from `offset` on."""
        if not self._returned:
            self._resume_at = self.next_offset, self.last_epoch
        self._returned = records + self._returned
        self.next_offset = offset

    def _take_returned(self, count: int) -> list[ConsumerRecord[Any, Any]]:
        taken, self._returned = self._returned[:count], self._returned[count:]
        if self._returned:
            epoch = taken[-1].leader_epoch
            self.next_offset = taken[-1].offset + 1
            self.last_epoch = NO_LEADER_EPOCH if epoch is None else epoch
        else:
            self.next_offset, self.last_epoch = self._resume_at
        return taken

    def _open_next(self, deserializers: Deserializers) -> BatchDecoder | None:
        """Open the next batch with records to return; None at the end."""
        while self._position < self._end:
            position, records = self._position, self._records
            try:
                header = read_header(records, position)
            except NeedMoreBytes:
                break
            end = position + header.size
            if end > self._end:
                break
            if header.magic != MAGIC:
                self._convert_messages()
                continue
            if self._check_crcs:
                validate(records, position, header)
            is_dropped = self._aborted.drops(records, position, header)
            self.last_epoch = header.partition_leader_epoch
            if is_dropped or header.is_control or header.next_offset <= self.next_offset:
                self.next_offset = max(self.next_offset, header.next_offset)
                self._position = end
                continue
            decoder = BatchDecoder(
                self.partition, header, record_bytes(records, position, header), deserializers
            )
            if header.base_offset < self.next_offset:
                decoder.skip_to(self.next_offset)
            self._decoder, self._header, self._position = decoder, header, end
            return decoder
        self._position = self._end
        return None

    def _convert_messages(self) -> None:
        """Put batches in place of the messages of an older format that are next."""
        rest = self._records[self._position :]
        converted = up_convert(rest, check_crc=self._check_crcs, keeps_codecs=False)
        self._records = memoryview(converted.batches + rest[converted.consumed_bytes :])
        self._position, self._end = 0, len(self._records)

    def _close_batch(self) -> None:
        assert self._header is not None, "no batch is open"
        self.next_offset = max(self.next_offset, self._header.next_offset)
        self._decoder = self._header = None


class BatchScan(NamedTuple):
    """The result of `scan_batches`."""

    next_offset: int
    """The offset of the next fetch."""
    leader_epoch: int
    """That of the last whole batch; -1 without one."""
    whole_bytes: int
    """The bytes of whole batches; 0 where there is none."""


def scan_batches(records: memoryview, offset: int) -> BatchScan:
    """Return where the whole batches end, which is where the next fetch begins, without opening them.

    Example: a fetch from offset 3 returned batches of offsets 0-4 and 5-9, and half a batch: 10.
    """
    position = 0
    size = len(records)
    epoch = NO_LEADER_EPOCH
    whole_bytes = 0
    while position + BATCH_FRONT.size <= size:
        base_offset, length, leader_epoch, magic, last_offset_delta = BATCH_FRONT.unpack_from(
            records, position
        )
        position += LOG_OVERHEAD + max(length, 0)
        if position > size:
            break
        whole_bytes = position
        if magic == MAGIC:
            epoch = leader_epoch
            offset = max(offset, base_offset + last_offset_delta + 1)
        else:
            # Older message sets have one offset for each message, or that of the last one inside.
            offset = max(offset, base_offset + 1)
    return BatchScan(offset, epoch, whole_bytes)
