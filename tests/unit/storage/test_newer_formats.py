"""A log directory with a file in a newer format is refused, and stays as it is for the newer release."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kalda.broker.metadata.registration import read_stored_identities
from kalda.common.types import UUID, TopicPartition
from kalda.records.crc import crc32c
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.storage.errors import CorruptSnapshotError, NewerFormatError, StorageError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from kalda.storage.producer_snapshot import format_snapshot, parse_snapshot
from tests.unit.storage.log_fixtures import append

ORDERS = TopicPartition("orders", 0)


def open_logs(directory: Path) -> LogManager:
    manager = LogManager([str(directory)], lambda _: LogConfig(), SystemClock())
    manager.load()
    return manager


def newer_snapshot(_: bytes) -> bytes:
    body = format_snapshot(())[6:] + b"what version 2 adds"
    return b"\0\2" + crc32c(body).to_bytes(4) + body


def raise_version(data: bytes) -> bytes:
    """Write 1 in place of version 0, which is a line of a checkpoint or a property of the metadata."""
    return data.replace(b"0", b"1", 1)


@pytest.mark.parametrize(
    ("name", "content", "found", "known"),
    [
        ("recovery-point-offset-checkpoint", raise_version, 1, "version 0"),
        ("replication-offset-checkpoint", raise_version, 1, "version 0"),
        ("log-start-offset-checkpoint", raise_version, 1, "version 0"),
        ("orders-0/leader-epoch-checkpoint", lambda _: b"1\n1\n0 0 later\n", 1, "version 0"),
        ("orders-0/missing-offsets", lambda _: b"1\n0\n", 1, "version 0"),
        ("orders-0/partition.metadata", raise_version, 1, "version 0"),
        ("orders-0/00000000000000000001.snapshot", newer_snapshot, 2, "version 1"),
    ],
)
def test_a_newer_file_stops_the_start(
    tmp_path: Path, name: str, content: Callable[[bytes], bytes], found: int, known: str
) -> None:
    """Read as damaged, it would be made again from the log, without what the newer release had in it."""
    manager = open_logs(tmp_path)
    append(manager.get_or_create(ORDERS, UUID(int=7)), b"a")
    manager.close(42)
    path = tmp_path / name
    path.write_bytes(content(path.read_bytes() if path.exists() else b""))
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    with pytest.raises(StorageError) as caught:
        open_logs(tmp_path)
    message = str(caught.value)
    assert f"{path} has format version {found}, and this release of Kalda reads {known}" in message
    after = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    assert before == {each: after.get(each) for each in before}


def test_a_directory_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("version=2\ncluster.id=x\nbroker.id=1\n")
    with pytest.raises(NewerFormatError) as caught:
        read_stored_identities(OsFileSystem(), (str(tmp_path),))
    assert f"{path} has format version 2, and this release of Kalda reads versions 0 and 1" in str(
        caught.value
    )


def test_a_snapshot_whose_checksum_does_not_hold_is_damaged_not_newer() -> None:
    """A bit that turned in its version must not keep a broker from starting: the log makes it again."""
    damaged = b"\0\2" + format_snapshot(())[2:6] + b"\0\0\0\1"
    with pytest.raises(CorruptSnapshotError):
        parse_snapshot(damaged)
