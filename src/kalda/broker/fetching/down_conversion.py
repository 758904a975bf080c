"""Converts fetched records to the older message format of the client while they are sent (KIP-283).

A response begins with its size, so the size of the records is fixed before they are converted: what is stored
of them, or the first piece if that is larger. What does not fit is left out, and what is left over is filled
with the front of a message that passes the end; clients ignore such a message and fetch again. Pieces are
converted in the background, one ahead of what is sent, so memory stays bounded by two of them and the event
loop is free.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Final

from kalda.broker.replicas.topic_stats import BrokerTopicMetrics
from kalda.common.metrics import RequestMetrics
from kalda.net.reply import PieceSource
from kalda.records.batch import HEADER_SIZE, read_header
from kalda.records.compression import Checkpoint
from kalda.records.errors import NeedMoreBytes, RecordsError
from kalda.records.format_conversion import down_convert
from kalda.records.message_set import MESSAGE_OVERHEAD
from kalda.runtime.error_text import without_frames
from kalda.runtime.system.clock import monotonic
from kalda.storage.conversions import ConversionOwner, Conversions
from kalda.storage.file_records import FileSlice

logger: Final = logging.getLogger(__name__)

PIECE_BYTES: Final = 256 * 1024
"""Stored bytes that are converted at once; a larger batch is converted whole."""

_FILL: Final = Struct(">qi")


class DownConvertedRecords(PieceSource):
    """The records of one partition for one response, in the format `magic` at most."""

    __slots__ = (
        "_conversions",
        "_failure",
        "_first_offset",
        "_magic",
        "_memory_bytes",
        "_metrics",
        "_owner",
        "_piece",
        "_position",
        "_record_count",
        "_request_metrics",
        "_seconds",
        "_sent",
        "_stored",
    )

    def __init__(
        self,
        stored: FileSlice,
        magic: int,
        first_offset: int,
        conversions: Conversions,
        owner: ConversionOwner,
        metrics: BrokerTopicMetrics,
        request_metrics: RequestMetrics,
    ) -> None:
        super().__init__()
        self._stored: Final = stored
        self._magic: Final = magic
        self._first_offset: Final = first_offset
        self._conversions: Final = conversions
        self._owner: Final = owner
        self._metrics: Final = metrics
        self._request_metrics: Final = request_metrics
        self._seconds = 0.0
        self._memory_bytes = 0
        self._record_count = 0
        """Of the piece; counted on the event loop when it is done."""
        self._position = 0
        self._sent = 0
        # Converted and not taken; empty at the end of what is stored, None while it is converted.
        self._piece: bytes | None = None
        self._failure: RecordsError | None = None

    def prepare(self, done: Callable[[Exception | None], None]) -> None:
        """Convert the first piece, then call `done` with None, or with why the records cannot be converted.

        With nothing to convert, `size` stays 0.
        """

        def prepared(error: BaseException | None) -> None:
            self._count()
            failure = error or self._failure
            if isinstance(failure, Exception):
                done(failure)
                return
            if self._piece:
                self.size = max(self._stored.size, len(self._piece))
            done(None)

        self._conversions.submit(self._owner, 0, self._convert, prepared)

    def take(self) -> bytes | None:
        """Return the next bytes, or None if they are not ready; `size` bytes in all."""
        piece = self._piece
        if piece is None:
            return None
        left = self.size - self._sent
        if not piece:
            piece = _filling(left)
        elif len(piece) >= left:
            piece = piece[:left]
        else:
            self._piece = None
            self._conversions.submit(self._owner, 0, self._convert, self._converted)
        self._sent += len(piece)
        if self._sent == self.size:
            self._request_metrics.observe_conversion(self._seconds, self._memory_bytes)
        return piece

    def _converted(self, error: BaseException | None) -> None:
        self._count()
        failure = error or self._failure
        if failure is not None:
            # The size is sent already. The client gets the same error as its first, when it fetches again.
            logger.warning("Down-conversion ends early: %s", failure)
            self._piece = b""
        self._signal()

    def _count(self) -> None:
        self._metrics.fetch_conversions += self._record_count
        self._record_count = 0

    def _convert(self, checkpoint: Checkpoint) -> None:
        """Convert the next piece; runs in the background."""
        started = monotonic()
        converted = b""
        wanted = PIECE_BYTES
        while not converted and self._position < self._stored.size:
            chunk = self._stored.read_part(self._position, wanted)
            try:
                whole = down_convert(chunk, self._magic, self._first_offset, checkpoint)
            except RecordsError as error:
                without_frames(error)
                self._failure = error
                return
            converted = whole.messages
            self._memory_bytes += len(chunk) + len(converted)
            self._record_count += whole.record_count
            self._position += whole.consumed_bytes
            if not whole.consumed_bytes:
                wanted = _size_of_first(chunk)
                if wanted <= len(chunk) or self._position + wanted > self._stored.size:
                    # The slice ends inside a batch.
                    self._position = self._stored.size
        self._seconds += monotonic() - started
        self._piece = converted


def _size_of_first(chunk: bytes) -> int:
    try:
        return max(read_header(chunk).size, HEADER_SIZE)
    except NeedMoreBytes:
        return 0


def _filling(size: int) -> bytes:
    """Return `size` bytes that begin a message which passes their end and has a length that messages have."""
    if size < _FILL.size:
        return bytes(size)
    return _FILL.pack(0, size + MESSAGE_OVERHEAD[0]).ljust(size, b"\0")


def prepare_all(
    records: Sequence[DownConvertedRecords], done: Callable[[Sequence[Exception | None]], None]
) -> None:
    """Convert the first piece of each, then call `done` with the error of each, None where there is none."""
    errors: list[Exception | None] = [None] * len(records)
    left = len(records)

    def prepared(index: int, error: Exception | None) -> None:
        nonlocal left
        errors[index] = error
        left -= 1
        if not left:
            done(errors)

    if not records:
        done(errors)
    for index, each in enumerate(records):
        each.prepare(partial(prepared, index))
