"""A process that finds data of a newer release ends with a line that says what it found; nothing changes."""

from pathlib import Path

import pytest

from kalda import Producer
from kalda.testing import KaldaProcess
from kalda.testing.process import KaldaProcessError


def write_version(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def test_a_start_is_refused_until_the_file_is_as_before(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    process = KaldaProcess(directory)
    process.start()
    with Producer(bootstrap_servers=process.bootstrap) as producer:
        producer.send("numbers", b"1").result(30)
    process.stop()
    broker = directory / "broker-0"
    cases = (
        (
            broker / "meta.properties",
            b"version=0",
            b"version=7",
            "7, and this release of Kalda reads versions 0",
        ),
        (
            broker / "replication-offset-checkpoint",
            b"0\n",
            b"1\n",
            "1, and this release of Kalda reads version 0",
        ),
        (broker / "numbers-0/leader-epoch-checkpoint", b"0\n", b"1\n", "1, and this release of Kalda reads"),
        (
            broker / "numbers-0/partition.metadata",
            b"version: 0",
            b"version: 1",
            "1, and this release of Kalda",
        ),
    )
    for path, old, new, message in cases:
        write_version(path, old, new)
        with pytest.raises(KaldaProcessError, match=f"{path} has format version {message}"):
            process.start()
        assert (broker / ".kafka_cleanshutdown").exists(), "the newer release need not recover"
        write_version(path, new, old)
    process.start()
    process.stop()
    process.check_log()
