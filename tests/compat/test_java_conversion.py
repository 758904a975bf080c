"""Our conversion of message formats beside Apache Kafka's own, record by record."""

import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.records.batch import NO_TIMESTAMP, TimestampType, iter_headers
from kalda.records.compression import Compression
from kalda.records.format_conversion import down_convert, iter_any_records, new_builder
from kalda.storage.errors import UnsupportedForMessageFormatError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_validator import LogValidator
from tests.compat.java_releases import JavaRelease

PROGRAM = Path(__file__).parent / "java" / "Conversions.java"
CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
CASES = 3_000


class Case(NamedTuple):
    """Records in one format, and the format that they are to have."""

    kind: bytes
    """``p`` for a leader's append, ``f`` for a fetch."""
    records: bytes
    magic: int
    target: int

    def packed(self) -> bytes:
        return self.kind + struct.pack(">bi", self.target, len(self.records)) + self.records


def random_bytes(random: Random) -> bytes | None:
    return None if random.random() < 0.2 else random.randbytes(random.randrange(60))


def random_case(random: Random) -> Case:
    magic, codec, kind = random.randrange(3), random.choice(CODECS), random.choice([b"p", b"f"])
    target = random.randrange(3) if kind == b"p" else random.randrange(2)
    base = 0 if kind == b"p" else random.randrange(1 << 40)
    if kind == b"f" and magic < 2 and codec is not Compression.NONE and base == 0:
        base = 1
    builder = new_builder(
        magic, base_offset=base, compression=codec, timestamp_type=TimestampType.CREATE_TIME
    )
    offset = base
    for _ in range(random.randrange(1, 30)):
        time = random.choice([NO_TIMESTAMP, random.randrange(1 << 45)])
        headers = [("h", b"1")] if magic == 2 and random.random() < 0.2 else []
        # What producers send has no gaps; what compaction leaves may have some.
        offset += random.choice([0, 0, 0, 3]) if kind == b"f" else 0
        builder.append(random_bytes(random), random_bytes(random), time, headers, offset=offset)
        offset += 1
    return Case(kind, bytes(builder.build()), magic, target)


def ours(case: Case) -> Iterator[str]:
    if case.kind == b"f":
        converted: bytes | memoryview = down_convert(case.records, case.target).messages
    else:
        validator = LogValidator(LogConfig(message_magic=case.target))
        converted = validator.convert(bytearray(case.records), 0, 100, 5).records
    data = bytes(converted)
    for position, header in iter_headers(data):
        for record in iter_any_records(data, position, header):
            kind = -1 if header.magic == 0 else int(header.timestamp_type)
            names = "".join(f" {name}" for name, _ in record.headers)
            yield (
                f"{header.magic} {record.offset} {record.timestamp} {kind} "
                f"{shown(record.key)} {shown(record.value)}{names}"
            )


def shown(data: bytes | None) -> str:
    return "null" if data is None else f"x{data.hex()}"


def javas(release: JavaRelease, cases: Sequence[Case]) -> list[list[str]]:
    done = subprocess.run(
        release.command(str(PROGRAM)),
        input=b"".join(case.packed() for case in cases),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert 0 == done.returncode, done.stderr.decode()
    return [block.splitlines() for block in done.stdout.decode().split("\n\n")[:-1]]


@pytest.mark.timeout(240)
def test_every_direction_and_codec_gives_what_apache_kafka_gives() -> None:
    random = Random(int(os.environ.get("KALDA_SEED", "1")))
    try:
        release = JavaRelease("3.9.1")
    except NotAvailableError as error:
        pytest.skip(str(error))
    cases = [random_case(random) for _ in range(CASES)]

    results = javas(release, cases)

    assert len(cases) == len(results)
    for case, expected in zip(cases, results, strict=True):
        if expected == ["error IllegalArgumentException"]:
            # A producer's headers; Java's message names the magic.
            with pytest.raises(UnsupportedForMessageFormatError, match="has no headers"):
                list(ours(case))
        else:
            assert expected == list(ours(case)), case
