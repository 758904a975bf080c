"""Holds the records of one partition that one ShareFetch acquired, and hands out those inside the ranges.

A response has whole batches, of which the broker may have acquired only some records. Each acquired offset
ends in exactly one acknowledgement: the user's; GAP where its batch has no record for the user; REJECT where
the batch is damaged, as in Java's consumer; RELEASE where a deserializer failed or the batch did not arrive.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kalda.clients.consumer.completed_fetch import BATCH_FRONT, CompletedFetch, DecodeBound
from kalda.clients.consumer.consumer_errors import (
    FetchCorruptionError,
    RecordDeserializationError,
    replace_remedy,
)
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.serde import LoadRequiredError
from kalda.clients.share.acknowledgements import (
    GAP,
    RELEASED,
    AcknowledgeType,
    Decision,
    PartitionAcknowledgements,
    Range,
    SharePartition,
    ranges_of,
    reason_of,
)
from kalda.clients.share.share_record import ShareRecord
from kalda.clients.values import ConsumerRecord
from kalda.records.batch import LOG_OVERHEAD, MAGIC, read_header
from kalda.records.errors import NeedMoreBytes, RecordsError

if TYPE_CHECKING:
    import pyarrow as pa

    from kalda.clients.share.share_arrow import ShareArrow
    from kalda.records.columnar import ColumnarBatch

_RELEASED: Final = "the records are released and come again"
_REJECTED: Final = "the records of the batch are rejected"
_UNREAD: Final = (
    "the record is released and comes again; acknowledge(error, AcknowledgeType.REJECT) gives it up instead"
)


class AcquiredRecords:
    """The acquired records of one partition from one response.

    Args:
        source: The partition.
        node: The broker that they were acquired from.
        session_number: The session that they belong to; acknowledgements go to that session only.
        ranges: First offset, last offset and delivery count, in order and without overlaps.
        records: The batches.
        expires_at: When the locks end, by the monotonic clock.
        check_crcs: Whether to check the CRC of each batch.
    """

    def __init__(
        self,
        source: SharePartition,
        node: int,
        session_number: int,
        ranges: Sequence[tuple[int, int, int]],
        records: memoryview,
        *,
        expires_at: float,
        check_crcs: bool,
    ) -> None:
        self.source: Final = source
        self.node: Final = node
        self.session_number: Final = session_number
        self.expires_at = expires_at
        self.size: Final = len(records)
        self._ranges: Final = deque(ranges)
        self._records: Final = records
        self._check_crcs: Final = check_crcs
        self._position = self._batch_start = 0
        self._reader: CompletedFetch | None = None
        self._has_run = False
        """Whether the reader has more than one batch."""
        self._columns: ColumnarBatch | None = None
        """The columns of the batch that is open, and how many of its rows were passed."""
        self._row = 0
        self._offsets: list[int] = []
        self._batch_last = -1
        self._decided: dict[int, Decision] = {}
        self._decided_ranges: list[Range] = []
        self._settled: list[Range] = []

    @property
    def ranges(self) -> Sequence[tuple[int, int, int]]:
        """The ranges not handed out yet: first offset, last offset and delivery count."""
        return tuple(self._ranges)

    @property
    def is_read(self) -> bool:
        """Whether no acquired offset is left to hand out."""
        return not self._ranges

    def take(
        self, count: int, deserializers: Deserializers, bound: DecodeBound, *, raises: bool = True
    ) -> list[ShareRecord[Any, Any]]:
        """Return up to `count` records; fewer at the end, before one that cannot be read, or at `bound`.

        With `raises` False it returns none before one that cannot be read, and goes no further.

        Raises:
            FetchCorruptionError: a batch is damaged; the next call goes on behind it.
            RecordDeserializationError: a deserializer failed for the next record; the next call goes on
                behind it, unless its cause is a `LoadRequiredError`.
        """
        taken: list[ShareRecord[Any, Any]] = []
        while len(taken) < count and self._ranges and not bound.is_reached:
            reader = self._reader
            try:
                if reader is None:
                    reader = self._open_next()
                    if reader is None:
                        break
                first, last, _ = self._ranges[0]
                records = reader.take(min(count - len(taken), last - first + 1), deserializers, bound)
            except (FetchCorruptionError, RecordDeserializationError) as error:
                if taken or not raises:
                    break
                if self._has_run and isinstance(error, FetchCorruptionError):
                    self._reader = self._open_one()
                    continue
                if self._passes_over(error):
                    raise
                continue
            except RecordsError as error:
                if taken or not raises:
                    break
                raise self._give_up(error) from error
            taken += self._claim_all(records)
            if reader.is_consumed:
                self._settle_below(self._batch_last + 1, GAP)
                self._close_batch()
        return taken

    def take_rows(
        self, count: int, arrow: "ShareArrow", bound: DecodeBound, *, raises: bool = True
    ) -> "pa.RecordBatch | None":
        """Return up to `count` rows of the next batch; None at the end, or at `bound`.

        With `raises` False it returns None before a batch that is damaged, and goes no further.

        Raises:
            FetchCorruptionError: a batch is damaged; the next call goes on behind it.
        """
        while self._ranges and not bound.is_reached:
            try:
                # Rows are of one batch.
                opened = self._open_one() if self._has_run else self._reader or self._open_next(joins=False)
                if opened is None:
                    return None
            except RecordsError as error:
                if not raises:
                    return None
                raise self._give_up(error) from error
            if self._columns is None:
                data = self._records[self._batch_start : self._position]
                try:
                    self._columns = arrow.decode(data, self._ranges[0][0])
                except RecordsError as error:
                    if not raises:
                        return None
                    corruption = FetchCorruptionError(self.source.partition, self._ranges[0][0], error)
                    self._passes_over(corruption)
                    raise corruption from error
                # Once for all calls that take some of its rows.
                self._offsets = self._columns.offsets.to_pylist()
                bound.opened(len(data))
            if (rows := self._rows(self._columns, count, arrow)) is not None:
                return rows
        return None

    def put_back(self, offset: int, deliveries: int) -> None:
        """Take back the last record that was returned; the next call returns it again."""
        self._ranges.appendleft((offset, offset, deliveries))
        self._close_batch()
        # `_open_next` passes over the batches before it.
        self._position = 0

    def decide(self, offset: int, decision: Decision) -> None:
        """Keep the user's acknowledgement of a record until `drain`."""
        self._decided[offset] = decision

    def decide_range(self, first: int, last: int, decision: Decision) -> None:
        """Keep the acknowledgement of neighbouring records that have none."""
        self._decided_ranges.append(Range(first, last, *decision))

    def release(self) -> None:
        """Release the records that were not handed out."""
        self._settle_below(None, AcknowledgeType.RELEASE)
        self._close_batch()

    def drain(self) -> PartitionAcknowledgements:
        """Return the acknowledgements since the last call."""
        offsets = list(self._decided)
        for each in self._decided_ranges:
            offsets += range(each.first, each.last + 1)
        ranges = ranges_of(self._decided, (*self._decided_ranges, *self._settled))
        self._decided.clear()
        self._decided_ranges.clear()
        self._settled.clear()
        return PartitionAcknowledgements(ranges, offsets)

    def _open_next(self, *, joins: bool = True) -> CompletedFetch | None:
        """Open the batch with the next acquired offset; None if it did not arrive.

        With `joins` the batches behind it are opened, too, as far as they are acquired like it.
        """
        records = self._records
        while self._ranges:
            position = self._position
            try:
                header = read_header(records, position)
            except NeedMoreBytes:
                break
            end = position + header.size
            if end > len(records):
                break
            if header.magic == MAGIC:
                self._batch_last = header.last_offset
            else:
                # Messages of older formats are converted together, and wrap each other.
                end, self._batch_last = len(records), self._ranges[-1][1]
            self._batch_start, self._position = position, end
            if self._batch_last < self._ranges[0][0]:
                continue
            if header.magic == MAGIC:
                self._settle_below(header.base_offset, GAP)
                if not self._ranges or self._ranges[0][0] > self._batch_last:
                    continue
                if joins:
                    self._join()
            self._has_run = self._position > end
            self._reader = self._fetch_from(self._ranges[0][0], records[position : self._position])
            return self._reader
        self.release()
        return None

    def _open_one(self) -> CompletedFetch | None:
        """Open a batch of those that are open alone: the one with the next acquired offset."""
        self._close_batch()
        self._position = self._batch_start
        return self._open_next(joins=False)

    def _join(self) -> None:
        """Go on behind the open batch where batches follow each other inside one range."""
        records, last_acquired = self._records, self._ranges[0][1]
        position, last = self._position, self._batch_last
        while last < last_acquired and position + BATCH_FRONT.size <= len(records):
            first, length, _, magic, last_delta = BATCH_FRONT.unpack_from(records, position)
            end = position + LOG_OVERHEAD + length
            if magic != MAGIC or first != last + 1 or not position < end <= len(records):
                break
            if not 0 <= last_delta <= last_acquired - first:
                break
            position, last = end, first + last_delta
        self._position, self._batch_last = position, last

    def _rows(self, columns: "ColumnarBatch", count: int, arrow: "ShareArrow") -> "pa.RecordBatch | None":
        """Return up to `count` of the rows of the open batch that are left; close it at its end."""
        indices: list[int] = []
        counts: list[int] = []
        for index in range(self._row, len(self._offsets)):
            if len(indices) == count:
                break
            self._row = index + 1
            if deliveries := self._claim(self._offsets[index]):
                indices.append(index)
                counts.append(deliveries)
        if self._row == len(columns):
            # Batches behind messages of an older format are opened by another call.
            self._settle_below(columns.next_offset, GAP)
            self._position = self._batch_start + columns.consumed_bytes
            self._close_batch()
            if not columns.consumed_bytes:
                self.release()
        return arrow.rows(self.source.partition, columns, indices, counts) if indices else None

    def _close_batch(self) -> None:
        self._reader = self._columns = None
        self._has_run = False
        self._row, self._offsets = 0, []

    def _give_up(self, error: RecordsError) -> FetchCorruptionError:
        """Release the rest: without a length, nothing behind the batch can be found."""
        corruption = FetchCorruptionError(self.source.partition, self._ranges[0][0], error)
        replace_remedy(corruption, _RELEASED)
        self.release()
        return corruption

    def _fetch_from(self, offset: int, batch: memoryview) -> CompletedFetch:
        return CompletedFetch(self.source.partition, 0, offset, batch, (), check_crcs=self._check_crcs)

    def _passes_over(self, error: FetchCorruptionError | RecordDeserializationError) -> bool:
        """Go on behind what cannot be read; return whether it was acquired, and so concerns the user."""
        reader = self._reader
        assert reader is not None, "an error without a batch"
        if isinstance(error, FetchCorruptionError):
            reason = reason_of(error.__cause__ or error)
            self._settle_below(self._batch_last + 1, AcknowledgeType.REJECT, reason)
            self._close_batch()
            replace_remedy(error, _REJECTED)
            return True
        if isinstance(error.__cause__, LoadRequiredError):
            return True
        is_acquired = bool(self._claim(error.offset))
        if is_acquired:
            self.decide(error.offset, RELEASED)
            replace_remedy(error, _UNREAD)
        self._reader = (
            self._open_one() if self._has_run else self._fetch_from(error.offset + 1, reader.records)
        )
        return is_acquired

    def _claim_all(self, records: list[ConsumerRecord[Any, Any]]) -> list[ShareRecord[Any, Any]]:
        """Return those of the next records that were acquired."""
        if not records:
            return []
        new = tuple.__new__
        ranges = self._ranges
        first, last, deliveries = ranges[0]
        end = first + len(records)
        if records[0].offset == first and records[-1].offset == end - 1 <= last:
            # Neighbours in one range, as most are.
            if end > last:
                ranges.popleft()
            else:
                ranges[0] = end, last, deliveries
            count = (deliveries,)
            return [new(ShareRecord, record + count) for record in records]
        return [
            new(ShareRecord, (*record, deliveries))
            for record in records
            if (deliveries := self._claim(record.offset))
        ]

    def _claim(self, offset: int) -> int:
        """Return how often an offset was delivered; 0 for one that was not acquired."""
        ranges = self._ranges
        self._settle_below(offset, GAP)
        if not ranges or ranges[0][0] > offset:
            return 0
        first, last, deliveries = ranges[0]
        assert first == offset, f"offset {offset} was not reached: {first}"
        if first == last:
            ranges.popleft()
        else:
            ranges[0] = (first + 1, last, deliveries)
        return deliveries

    def _settle_below(self, end: int | None, kind: int, reason: str = "") -> None:
        """Acknowledge the remaining records below an offset, or all of them."""
        ranges = self._ranges
        while ranges and (end is None or ranges[0][0] < end):
            first, last, deliveries = ranges.popleft()
            if end is None or last < end:
                self._settled.append(Range(first, last, kind, reason=reason))
            else:
                self._settled.append(Range(first, end - 1, kind, reason=reason))
                ranges.appendleft((end, last, deliveries))
