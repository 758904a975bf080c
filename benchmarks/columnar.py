"""Record batches alone, read and written: no broker, no sockets; one core, best of many runs."""

import random
import time
from collections.abc import Callable
from typing import Final

from kalda.records.batch import read_header, validate
from kalda.records.columnar import decode_batches
from kalda.records.columnar_encode import encode_batches
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder, iter_records

_RECORDS: Final = 2_000
_RUNS: Final = 150
_START_MS: Final = 1_700_000_000_000

Figure = tuple[str, float, str]


def run() -> list[Figure]:
    """Measure the columnar decoder over what changes its cost, and the row iterator beside it."""
    plain = _batches()
    small = _batches(records_per_batch=10)
    figures = [
        _rate("columnar decode, 100 B records, binary", lambda: decode_batches(plain, start_offset=0)),
        _rate(
            "columnar decode, 100 B records, views",
            lambda: decode_batches(plain, start_offset=0, as_binary=False),
        ),
        _rate("columnar decode, batches of 10 records", lambda: decode_batches(small, start_offset=0)),
    ]
    large = _batches(value_size=1_000)
    figures.append(_rate("columnar decode, 1 KB records", lambda: decode_batches(large, start_offset=0)))
    with_headers = _batches(header_count=2)
    figures.append(
        _rate(
            "columnar decode, 100 B records, 2 headers each",
            lambda: decode_batches(with_headers, start_offset=0, want_headers=True),
        )
    )
    figures.extend(_decode_compressed(codec) for codec in Compression if codec is not Compression.NONE)
    columns = decode_batches(plain, start_offset=0)
    figures.append(
        _rate(
            "columnar encode, 100 B records",
            lambda: list(encode_batches(columns.keys, columns.values, columns.timestamps_ms)),
        )
    )
    figures.append(_rate("row iterator, 100 B records", lambda: list(iter_records(plain))))
    figures.append(_headers_per_second(_batches(records_per_batch=1, count=1)))
    return figures


def _decode_compressed(codec: Compression) -> Figure:
    packed = _batches(codec)
    return _rate(
        f"columnar decode, 100 B records, {codec.name.lower()}",
        lambda: decode_batches(packed, start_offset=0),
    )


def _batches(
    codec: Compression = Compression.NONE,
    *,
    records_per_batch: int = _RECORDS,
    count: int = _RECORDS,
    value_size: int = 85,
    header_count: int = 0,
) -> bytes:
    """Return `count` records of a 10-byte key and a half-compressible value of `value_size`."""
    source = random.Random(0)
    headers = [(f"header-{number}", b"value") for number in range(header_count)]
    batches = []
    for base_offset in range(0, count, records_per_batch):
        builder = RecordBatchBuilder(base_offset=base_offset, compression=codec)
        for offset in range(base_offset, base_offset + records_per_batch):
            value = source.randbytes(value_size // 2).ljust(value_size, b"x")
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
