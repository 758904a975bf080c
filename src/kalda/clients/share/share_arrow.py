"""Turns acquired batches into Arrow record batches; loaded on the first `poll_arrow`."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from kalda.clients.consumer.arrow_rows import ArrowRows
from kalda.clients.consumer.completed_fetch import DECODED_BYTES_MAX
from kalda.common.types import TopicPartition
from kalda.records.columnar import ColumnarBatch, decode_batches

_NAMES: Final = ("topic", "partition", "offset")


class ShareArrow:
    """The rows of one share consumer; used by the user's thread only."""

    def __init__(self, *, check_crcs: bool) -> None:
        self._check_crcs: Final = check_crcs
        self._rows: Final = ArrowRows()

    def decode(self, data: memoryview, start_offset: int) -> ColumnarBatch:
        """Decode batches from an offset on.

        Raises:
            RecordsError: a batch is damaged.
        """
        return decode_batches(
            data,
            start_offset=start_offset,
            check_crc=self._check_crcs,
            want_headers=True,
            decompressed_bytes=DECODED_BYTES_MAX,
        )

    def rows(
        self, partition: TopicPartition, decoded: ColumnarBatch, indices: Sequence[int], counts: Sequence[int]
    ) -> pa.RecordBatch:
        """Return the rows at some indices, in order, with their delivery counts."""
        rows = self._rows.of(partition, decoded)
        first, count = indices[0], len(indices)
        if indices[-1] - first + 1 == count:
            rows = rows.slice(first, count)
        else:
            rows = rows.take(pa.array(indices, pa.int64()))
        return rows.append_column("delivery_count", pa.array(counts, pa.int32()))

    @staticmethod
    def join(pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return one batch of several."""
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    @staticmethod
    def names(rows: object) -> Iterator[tuple[str, int, int]] | None:
        """Return topic, partition and offset of each row; None for what is not Arrow's.

        Raises:
            ValueError: a column is missing.
        """
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            return None
        missing = [name for name in _NAMES if name not in rows.schema.names]
        if missing:
            raise ValueError(
                f"the rows have no column {missing[0]!r}; acknowledge() takes rows of poll_arrow() with "
                f"their columns {', '.join(_NAMES)}"
            )
        return zip(*(rows.column(name).to_pylist() for name in _NAMES), strict=True)
