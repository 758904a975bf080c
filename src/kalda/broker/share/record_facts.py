"""Reads what decides when records are delivered: keys, and times in headers ``kalda.delivery.at``.

Only groups that want this have batches decoded: small ones at once, others in the background, one at a time
for each share partition. The header's value is a time in milliseconds since 1970 in decimal digits.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from kalda.records.batch import MAGIC, BatchHeader
from kalda.records.compression import Compression
from kalda.records.errors import RecordsError
from kalda.records.format_conversion import iter_any_records
from kalda.records.record import iter_decompressed_records, record_bytes
from kalda.runtime.background import BackgroundExecutor
from kalda.storage.file_records import FileSlice

logger: Final = logging.getLogger(__name__)

HEADER_NAME: Final = "kalda.delivery.at"

WAIT_MAX_MS: Final = 7 * 86_400_000
"""How long after its timestamp a record is delivered at the latest: it is in flight until then."""

INLINE_BYTES: Final = 32 * 1024
"""Up to this size an uncompressed batch is decoded on the event loop, within about a millisecond."""

_KEPT_MAX: Final = 16
"""Parts of batches whose facts are kept until a fetch has given them to the share partition."""

_NO_KEYS: Final[Mapping[int, int]] = {}
_NAME_BYTES: Final = HEADER_NAME.encode()
_DIGITS_MAX: Final = 15


class RecordFacts(NamedTuple):
    """The delivery times and keys of some records."""

    times: Sequence[tuple[int, int]] = ()
    """Offsets in order, each with the time at which it is due; those that are missing are due at once."""
    keys: Mapping[int, int] = _NO_KEYS
    """Hashes of keys by offset; records without a key are missing."""


class _Place(NamedTuple):
    batch: int
    first: int
    last: int
    has_keys: bool


class FactsReader:
    """Reads facts of records of one share partition."""

    def __init__(self, background: BackgroundExecutor, on_read: Callable[[], None]) -> None:
        """`on_read` is called when new facts are available."""
        self._background: Final = background
        self._on_read: Final = on_read
        self._kept: Final[dict[_Place, RecordFacts]] = {}
        self._is_reading = False
        self._is_asked = False

    def of(
        self, header: BatchHeader, records: FileSlice, first: int, last: int, *, has_keys: bool = False
    ) -> RecordFacts | None:
        """Return facts of some offsets of a batch, keys if `has_keys`; None if they are being read.

        Nothing is known of batches that cannot be decoded: their records are delivered at once.
        """
        key = _Place(header.base_offset, first, last, has_keys)
        found = self._kept.get(key)
        if found is not None:
            return found
        if header.size <= INLINE_BYTES and header.compression is Compression.NONE:
            return read_facts(header, records, first, last, has_keys=has_keys)
        if not self._is_reading:
            self._is_reading = self._is_asked = True
            result: list[RecordFacts] = []
            self._background.submit(
                lambda: result.append(read_facts(header, records, first, last, has_keys=has_keys)),
                partial(self._done, key, result),
            )
            self._is_asked = False
        return self._kept.get(key)

    def _done(self, key: _Place, result: list[RecordFacts], error: BaseException | None) -> None:
        self._is_reading = False
        if error is not None:
            logger.warning("records from offset %d on are not read: %s", key.first, error)
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[key] = result[0] if result else RecordFacts()
        if not self._is_asked:
            # Else the background has done it at once, and `of` returns it.
            self._on_read()

    def keep(self, is_needed: Callable[[int, int], bool]) -> None:
        """Drop the facts of those offsets, from the first to the last, that are not needed any more."""
        for key in [each for each in self._kept if not is_needed(each.first, each.last)]:
            del self._kept[key]


def read_facts(
    header: BatchHeader, records: FileSlice, first: int, last: int, *, has_keys: bool = False
) -> RecordFacts:
    """Read facts of some offsets of a batch; see `FactsReader.of`."""
    times: list[tuple[int, int]] = []
    keys: dict[int, int] = {}
    try:
        data = records.read_part(0, header.size)
        if header.magic == MAGIC:
            section = record_bytes(data, 0, header)
            if not has_keys and _NAME_BYTES not in section:
                return RecordFacts()
            found = iter_decompressed_records(section, header)
        else:
            found = iter_any_records(data, 0, header)
        for record in found:
            if record.offset > last:
                break
            if record.offset < first:
                continue
            if record.headers:
                time_ms = _time_of(record.headers, record.timestamp)
                if time_ms is not None:
                    times.append((record.offset, time_ms))
            if has_keys and record.key is not None:
                keys[record.offset] = hash(record.key)
    except RecordsError as error:
        logger.warning("records from offset %d on are not read: %s", header.base_offset, error)
        return RecordFacts()
    return RecordFacts(tuple(times), keys)


def _time_of(headers: list[tuple[str, bytes | None]], timestamp_ms: int) -> int | None:
    for name, value in headers:
        if name == HEADER_NAME and value and value.isdigit() and len(value) <= _DIGITS_MAX:
            return min(int(value), timestamp_ms + WAIT_MAX_MS)
    return None
