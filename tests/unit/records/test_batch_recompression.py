"""Recompression changes the codec and nothing else."""

import pytest

from kalda.records.batch import read_header, validate
from kalda.records.compression import Compression, compress
from kalda.records.recompression import repack
from kalda.records.record import RecordBatchBuilder, iter_records, record_bytes


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", list(Compression))
def test_batch_keeps_everything_but_its_codec(source: Compression, target: Compression) -> None:
    builder = RecordBatchBuilder(
        base_offset=10,
        compression=source,
        producer_id=4,
        producer_epoch=1,
        base_sequence=20,
        is_transactional=True,
        partition_leader_epoch=6,
    )
    builder.append(b"key", b"value" * 50, 1_000, [("h", b"1")])
    builder.append(None, None, 900, offset=14)
    buffer = b"before" + bytes(builder.build()) + b"behind"
    original = read_header(buffer, 6)
    converted = repack(original, compress(target, record_bytes(buffer, 6, original)), target)
    header = read_header(converted)
    validate(converted, 0, header)
    assert header.compression is target
    assert list(iter_records(converted)) == list(iter_records(buffer, 6))
    for field in set(header.__slots__) - {"attributes", "batch_length", "crc"}:
        assert getattr(header, field) == getattr(original, field)
    assert header.attributes & ~7 == original.attributes & ~7
