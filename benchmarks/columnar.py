"""Record batches alone, read and written: no broker, no sockets; one core, best of many runs."""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final
from unittest.mock import patch

from kalda.clients.consumer.record_decoder import BatchDecoder, Deserializers
from kalda.common.types import TopicPartition
from kalda.records import implementation, record
from kalda.records.batch import read_header, validate
from kalda.records.columnar import ColumnarBatch, decode_batches
from kalda.records.columnar_encode import encode_batches
from kalda.records.compression import Compression
from kalda.records.record import Record, RecordBatchBuilder, iter_records, record_bytes

if implementation.is_built:
    from kalda.records import _records

_RECORDS: Final = 2_000
_RUNS: Final = 150
_START_MS: Final = 1_700_000_000_000

Figure = tuple[str, float, str]


def run() -> list[Figure]:
    """Measure the columnar decoder and encoder in both implementations, and rows beside them."""
    figures = []
    for name in ("compiled", "numpy"):
        if name == "compiled" and not implementation.is_built:
            continue
        with patch.object(implementation, "_is_used", name == "compiled"):
            figures += [(f"columnar {label}, {name}", rate, unit) for label, rate, unit in _column_figures()]
    plain = _batches()
    rows = list(iter_records(plain))
    for name in ("compiled", "python"):
        if name == "compiled" and not implementation.is_built:
            continue
        with patch.object(implementation, "_is_used", name == "compiled"):
            figures.append(_rate(f"row iterator, 100 B, {name}", lambda: list(iter_records(plain))))
            figures.append(_rate(f"consumer's records, 100 B, {name}", partial(_consumer_records, plain)))
        append = _records.append_record if name == "compiled" else record._append_in_python
        with patch.object(record, "_append_record", append):
            figures.append(_rate(f"row builder, 100 B, {name}", partial(_build, rows)))
    figures.append(_headers_per_second(_batches(records_per_batch=1, count=1)))
    return figures


def _column_figures() -> list[Figure]:
    plain = _batches()
    figures = [
        _rate("decode, 100 B, binary", lambda: decode_batches(plain, start_offset=0)),
        _rate("decode, 100 B, views", lambda: decode_batches(plain, start_offset=0, as_binary=False)),
    ]
    for label, data in (
        ("decode, 20 to 180 B", _batches(varies=True)),
        ("decode, batches of 10 records", _batches(records_per_batch=10)),
        ("decode, 1 KB", _batches(value_size=1_000)),
    ):
        figures.append(_rate(label, partial(decode_batches, data, start_offset=0)))
    with_headers = _batches(header_count=2)
    figures.append(
        _rate(
            "decode, 100 B, 2 headers each",
            lambda: decode_batches(with_headers, start_offset=0, want_headers=True),
        )
    )
    figures.extend(_decode_compressed(codec) for codec in Compression if codec is not Compression.NONE)
    for label, data in (
        ("encode, 100 B", plain),
        ("encode, 20 to 180 B", _batches(varies=True)),
        ("encode, 1 KB", _batches(value_size=1_000)),
        ("encode, 100 B, 2 headers each", with_headers),
    ):
        columns = decode_batches(data, start_offset=0, want_headers=data is with_headers)
        figures.append(_rate(label, partial(_encode, columns)))
    return figures


def _consumer_records(batch: bytes) -> None:
    header = read_header(batch)
    BatchDecoder(TopicPartition("topic", 0), header, record_bytes(batch, 0, header), Deserializers()).take(
        _RECORDS
    )


def _build(rows: list[Record]) -> None:
    append = RecordBatchBuilder().append_next
    for row in rows:
        append(row.key, row.value, row.timestamp)


def _encode(columns: ColumnarBatch) -> None:
    list(encode_batches(columns.keys, columns.values, columns.timestamps_ms, columns.headers))


def _decode_compressed(codec: Compression) -> Figure:
    packed = _batches(codec)
    return _rate(
        f"decode, 100 B, {codec.name.lower()}",
        lambda: decode_batches(packed, start_offset=0),
    )


def _batches(
    codec: Compression = Compression.NONE,
    *,
    records_per_batch: int = _RECORDS,
    count: int = _RECORDS,
    value_size: int = 85,
    header_count: int = 0,
    varies: bool = False,
) -> bytes:
    """Return `count` records of a 10-byte key and a half-compressible value of `value_size`.

    If it `varies`, values have from 5 to 165 bytes.
    """
    source = random.Random(0)
    headers = [(f"header-{number}", b"value") for number in range(header_count)]
    batches = []
    for base_offset in range(0, count, records_per_batch):
        builder = RecordBatchBuilder(base_offset=base_offset, compression=codec)
        for offset in range(base_offset, base_offset + records_per_batch):
            size = source.randint(5, 165) if varies else value_size
            value = source.randbytes(size // 2).ljust(size, b"x")
            builder.append(b"key-%06d" % offset, value, _START_MS + offset, headers)
        batches.append(bytes(builder.build()))
    return b"".join(batches)


def _rate(label: str, decode: Callable[[], object]) -> Figure:
    return label, _RECORDS / _best_seconds(decode) / 1e6, "M rec/s"


def _headers_per_second(batch: bytes) -> Figure:
    def check() -> None:
        for _ in range(100):
            validate(batch, 0, read_header(batch))

    return "batch header read and checked, one 100 B record", 100 / _best_seconds(check) / 1e6, "M/s"


def _best_seconds(action: Callable[[], object]) -> float:
    """The fastest of many runs: on a shared machine the others measure the neighbours."""
    best = float("inf")
    for _ in range(_RUNS):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best
