"""Turns fetched batches into Arrow record batches, without an object for each record.

`kalda.records.columnar` decodes; this module takes from the buffer and moves positions. It is loaded on the
first `poll_arrow`, because pyarrow and numpy are an optional extra.

Rows are those that `poll` would return, keys and values as bytes, in the same order and with the same
position after them. A test compares the two.
"""

from typing import Final

import pyarrow as pa

from kalda.clients.consumer.arrow_rows import ArrowRows
from kalda.clients.consumer.completed_fetch import (
    DECODED_BYTES_MAX,
    CompletedFetch,
    DecodeBound,
    scan_batches,
)
from kalda.clients.consumer.consumer_errors import FetchCorruptionError
from kalda.clients.consumer.fetch_buffer import FetchBuffer
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.fetch_position import FetchPosition
from kalda.records.batch import iter_headers
from kalda.records.columnar import ColumnarBatch, decode_batches
from kalda.records.errors import RecordsError

_JOINED_BYTES_MAX: Final = 256 * 1024
"""Rows of several fetches are joined up to here. Joining copies them, and costs more than another call."""


class _Rest:
    """Rows of a fetch that did not fit into the batch that was asked for."""

    __slots__ = ("epoch", "fetch", "next_offset", "position", "rows")

    def __init__(
        self,
        fetch: CompletedFetch,
        rows: pa.RecordBatch,
        next_offset: int,
        epoch: int,
        position: FetchPosition,
    ) -> None:
        self.fetch: Final = fetch
        self.rows = rows
        self.next_offset: Final = next_offset
        """The position behind all rows."""
        self.epoch: Final = epoch
        """The leader epoch of the last batch. A row's own may be lower, which a validation does not mind."""
        self.position = position
        """The position before the first row."""


class ArrowPoll:
    """The rows of one consumer; used by the user's thread only."""

    def __init__(self, buffer: FetchBuffer, subscription: SubscriptionState, *, check_crcs: bool) -> None:
        self._buffer: Final = buffer
        self._subscription: Final = subscription
        self._check_crcs: Final = check_crcs
        self._rest: _Rest | None = None
        self._rows: Final = ArrowRows()

    def take(self, count: int) -> pa.RecordBatch | None:
        """Return up to `count` rows and move the positions behind them; None if there are none.

        Rows of small fetches are joined; a large fetch ends the batch.

        Raises:
            FetchCorruptionError: the first batch is damaged.
        """
        pieces: list[pa.RecordBatch] = []
        rows = size = 0
        bound = DecodeBound()
        self._buffer.is_cut_short = False
        while rows < count and size < _JOINED_BYTES_MAX:
            try:
                piece = self._next(count - rows, bound)
            except FetchCorruptionError:
                # The rows before are good; the next call reports the damage.
                if not pieces:
                    raise
                break
            if piece is None:
                break
            pieces.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
        if len(pieces) < 2:
            return pieces[0] if pieces else None
        return pa.concat_batches(pieces)

    def give_up(self) -> None:
        """Have rows that were decoded and not returned fetched again: records are asked for instead."""
        rest, self._rest = self._rest, None
        if rest is not None:
            self._subscription.refetch(rest.fetch.partition, rest.fetch.generation)

    def _next(self, count: int, bound: DecodeBound) -> pa.RecordBatch | None:
        while True:
            rest = self._rest
            if rest is not None:
                self._rest = None
                piece = self._take_rest(rest, count)
            else:
                fetch = self._buffer.next_fetch()
                if fetch is None:
                    return None
                if bound.is_reached:
                    self._buffer.is_cut_short = True
                    return None
                piece = self._decode(fetch, count, bound)
            if piece is not None:
                return piece

    def _take_rest(self, rest: _Rest, count: int) -> pa.RecordBatch | None:
        fetch = rest.fetch
        position = self._subscription.next_position(fetch.partition, fetch.generation)
        if position is None or position.offset != rest.position.offset:
            self._subscription.refetch(fetch.partition, fetch.generation)
            return None
        return self._split(rest, count)

    def _decode(self, fetch: CompletedFetch, count: int, bound: DecodeBound) -> pa.RecordBatch | None:
        position = self._subscription.next_position(fetch.partition, fetch.generation)
        if position is None or position.offset != fetch.next_offset:
            self._buffer.drop(fetch)
            return None
        decoded = self._decode_good(fetch)
        fetch.consumed_count += len(decoded)
        scan = scan_batches(fetch.records, fetch.fetch_offset)
        rest = _Rest(
            fetch, self._rows.of(fetch.partition, decoded), decoded.next_offset, scan.leader_epoch, position
        )
        bound.opened(rest.rows.nbytes)
        is_whole = decoded.consumed_bytes >= scan.whole_bytes
        if not is_whole and decoded.next_offset > fetch.next_offset:
            # Damaged, or larger than one decode may be: what follows is decoded by another call.
            fetch.next_offset = decoded.next_offset
            return self._split(rest, count)
        self._buffer.remove(fetch)
        piece = self._split(rest, count)
        if not is_whole:
            # Batches behind messages of an older format are fetched again.
            self._rest = None
            self._subscription.refetch(fetch.partition, fetch.generation)
        return piece

    def _split(self, rest: _Rest, count: int) -> pa.RecordBatch | None:
        """Return up to `count` rows, move the position, and keep what is left."""
        fetch, rows = rest.fetch, rest.rows
        is_all = rows.num_rows <= count
        taken = rows if is_all else rows.slice(0, count)
        offset = rest.next_offset if is_all else taken.column(2)[count - 1].as_py() + 1
        moved = FetchPosition(offset, rest.epoch, rest.position.leader)
        if moved.offset != rest.position.offset and not self._subscription.advance(
            fetch.partition, fetch.generation, moved
        ):
            self._subscription.refetch(fetch.partition, fetch.generation)
            return None
        self._buffer.count_lag(fetch.partition)
        if not is_all:
            rest.rows, rest.position = rows.slice(count), moved
            self._rest = rest
        return taken if taken.num_rows else None

    def _decode_good(self, fetch: CompletedFetch) -> ColumnarBatch:
        """Decode all batches, or those before a damaged one.

        Raises:
            FetchCorruptionError: the first batch from the position on is damaged.
        """
        data = fetch.records
        try:
            return self._decode_bytes(fetch, data)
        except RecordsError as error:
            good = 0
            for position, header in iter_headers(data):
                if header.next_offset > fetch.next_offset:
                    try:
                        self._decode_bytes(fetch, data[position : position + header.size])
                    except RecordsError:
                        break
                good = position + header.size
            decoded = self._decode_bytes(fetch, data[:good])
            if decoded.next_offset == fetch.next_offset:
                raise FetchCorruptionError(fetch.partition, fetch.next_offset, error) from error
            return decoded

    def _decode_bytes(self, fetch: CompletedFetch, data: memoryview) -> ColumnarBatch:
        return decode_batches(
            data,
            start_offset=fetch.next_offset,
            aborted=fetch.aborted,
            check_crc=self._check_crcs,
            want_headers=True,
            decompressed_bytes=DECODED_BYTES_MAX,
        )
