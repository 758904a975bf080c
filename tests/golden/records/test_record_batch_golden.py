"""Batches as kafka-python 3.0.12 writes them, byte for byte; it agrees with the Java producer on these.

Its partition leader epoch is 0 where Java writes -1; the field lies outside the CRC.
"""

from typing import Final

import pytest

from kalda.records.batch import TimestampType, read_header, validate
from kalda.records.columnar import decode_batches
from kalda.records.compression import Compression
from kalda.records.record import Header, Record, RecordBatchBuilder, iter_records

PLAIN: Final = (
    "00000000000000000000006b0000000002b14d8d520000000000020000018bcfe568000000018bcfe568faffffffffffffffffff"
    "ffffffffff000000031a0000000441410a6669727374004600f40302010c7365636f6e64060a74726163650401020a656d707479"
    "00086e756c6c010e00cf0f04000100"
)
TRANSACTIONAL: Final = (
    "00000000000000000000003f00000000027e55ac350010000000000000018bcfe568000000018bcfe56800000000000000109200"
    "0700000063000000011a0000000441410a666972737400"
)
COMPRESSED: Final = {
    Compression.GZIP: (
        "00000000000000000000006c00000000026699a2970001000000050000018bcfe568000000018bcfe56805ffffffffffffff"
        "ffffffffffffff000000061f8b0800cf18016b02ffb362606060cb4eadd4284bcc294d452318ac189898f0c9b2b0e0936563"
        "c327cbc1814f968b0bb72c007a0b8c5db4000000"
    ),
    Compression.SNAPPY: (
        "00000000000000000000007b000000000215ebbeae0002000000050000018bcfe568000000018bcfe56805ffffffffffffff"
        "ffffffffffffff0000000682534e4150505900000000010000000100000036b401343a000000066b65792876616c75653a05"
        "0010003a0002026e1e000404046e1e00080606066a5a000408086e1e00040a0a661e00"
    ),
    Compression.LZ4: (
        "00000000000000000000008000000000024baecaa80003000000050000018bcfe568000000018bcfe56805ffffffffffffff"
        "ffffffffffffff0000000604224d186840b400000000000000b738000000eb3a000000066b65792876616c756505005f003a"
        "0002021e00092f04041e00092f06061e00092f08081e00092f0a0a1e000250616c75650000000000"
    ),
    Compression.ZSTD: (
        "0000000000000000000000660000000002313d539f0004000000050000018bcfe568000000018bcfe56805ffffffffffffff"
        "ffffffffffffff0000000628b52ffd20b4650100d83a000000066b65792876616c7565003a0002020404060608080a0a0600"
        "c0c680c180c180c141311abaa204"
    ),
}
START_MS: Final = 1_700_000_000_000

Row = tuple[int, bytes | None, bytes | None, list[Header]]
ROWS: Final[list[Row]] = [
    (START_MS, b"AA", b"first", []),
    (START_MS + 250, None, b"second", [("trace", b"\x01\x02"), ("empty", b""), ("null", None)]),
    (START_MS - 1_000, b"", None, []),
]


def test_plain_batch_is_built_byte_for_byte() -> None:
    builder = RecordBatchBuilder(partition_leader_epoch=0)
    for timestamp, key, value, headers in ROWS:
        builder.append(key, value, timestamp, headers)
    assert PLAIN == builder.build().hex()


def test_transactional_batch_is_built_byte_for_byte() -> None:
    builder = RecordBatchBuilder(
        partition_leader_epoch=0, is_transactional=True, producer_id=4242, producer_epoch=7, base_sequence=99
    )
    builder.append(b"AA", b"first", START_MS)
    assert TRANSACTIONAL == builder.build().hex()


def test_plain_batch_is_read() -> None:
    batch = bytes.fromhex(PLAIN)
    validate(batch, 0, read_header(batch))
    assert [
        Record(offset, timestamp, TimestampType.CREATE_TIME, key, value, headers)
        for offset, (timestamp, key, value, headers) in enumerate(ROWS)
    ] == list(iter_records(batch))


@pytest.mark.parametrize("codec", list(COMPRESSED))
def test_compressed_batches_are_read(codec: Compression) -> None:
    batch = bytes.fromhex(COMPRESSED[codec])
    header = read_header(batch)
    validate(batch, 0, header)
    assert header.compression is codec
    expected = [
        Record(index, START_MS + index, TimestampType.CREATE_TIME, b"key", b"value" * 4, [])
        for index in range(6)
    ]
    assert expected == list(iter_records(batch))
    assert [b"value" * 4] * 6 == decode_batches(batch, start_offset=0).values.to_pylist()
