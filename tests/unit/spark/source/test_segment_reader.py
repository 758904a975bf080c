"""Reading in place: the rows are those of a fetch, and every doubt leads back to fetching."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kalda.clients.errors import BrokerResponseError, UnsupportedApiError
from kalda.clients.range_reader.read_lease import ReadLease
from kalda.common import host_identity
from kalda.common.errors import ErrorCode
from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType
from kalda.spark.source import mapped_segment, segment_reader
from kalda.spark.source.segment_reader import LeaseBrokenError, NotInPlaceError, unseen_leaders
from kalda.storage.file_names import READ_NONCE_FILE
from kalda.storage.producer_state_manager import AppendOrigin
from tests.unit.broker.data_path_fakes import batch
from tests.unit.spark.source.in_place_fixtures import (
    InPlaceBroker,
    InPlaceRead,
    InPlaceReader,
    fetched_rows,
    options,
)
from tests.unit.storage.log_fixtures import marker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InPlaceBroker]:
    unseen_leaders.clear()
    path = InPlaceBroker(tmp_path / "a")
    yield path
    path.close()
    unseen_leaders.clear()


def produce(broker: InPlaceBroker, batches: int = 50, records: int = 4, **fields: Any) -> None:
    for _ in range(batches):
        first = broker.log.log_end_offset
        broker.produce(batch(*(b"value %d" % (first + each) for each in range(records)), **fields))


def expected(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(offset, b"value %d" % offset) for offset in range(start, end)]


def files(broker: InPlaceBroker) -> list[Path]:
    return sorted(Path(broker.log.directory).glob("*.log"))


@pytest.mark.parametrize(("start", "end"), [(0, 200), (1, 199), (57, 58), (4, 8), (198, 200)])
def test_a_range_is_read_to_its_end(broker: InPlaceBroker, start: int, end: int) -> None:
    produce(broker)
    assert len(files(broker)) > 3

    read = InPlaceRead(broker, start, end).all()

    assert expected(start, end) == read.rows
    assert end <= read.position < end + 4
    assert ({}, 0) == (read.reasons, broker.leases())
    assert read.counters.bytes_in_place == broker.grants.bytes_read > 0


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_of_every_codec(broker: InPlaceBroker, codec: Compression) -> None:
    produce(broker, compression=codec)

    assert expected(0, 200) == InPlaceRead(broker, 0, 200).all().rows


def test_read_committed_leaves_out_what_was_aborted(broker: InPlaceBroker) -> None:
    log = broker.log
    fields = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    produce(broker, 3)
    log.append_as_leader(bytearray(batch(b"aborted", producer_id=5, **fields)), 3)
    produce(broker, 1)
    log.append_as_leader(marker(ControlRecordType.ABORT, 5), 3, origin=AppendOrigin.COORDINATOR)
    log.append_as_leader(bytearray(batch(b"committed", producer_id=6, **fields)), 3)
    log.append_as_leader(marker(ControlRecordType.COMMIT, 6), 3, origin=AppendOrigin.COORDINATOR)
    produce(broker, 1)

    for level, committed in (("read_committed", True), ("read_uncommitted", False)):
        read = InPlaceRead(broker, 0, 24, options(**{"kafka.isolation.level": level})).all()
        assert fetched_rows(broker, 0, 24, committed=committed) == read.rows
        assert committed != any(value == b"aborted" for _, value in read.rows)
        assert {} == read.reasons


def test_a_batch_larger_than_a_window(broker: InPlaceBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_segment, "WINDOW_BYTES", 64)
    produce(broker)

    read = InPlaceRead(broker, 0, 200)

    assert expected(0, 200) == read.all().rows


def test_windows_follow_each_other(broker: InPlaceBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions inside a page, pages given back, and read ahead: all with several windows in a file."""
    monkeypatch.setattr(mapped_segment, "WINDOW_BYTES", 10_000)
    broker.configure(segment_bytes=1 << 20)
    produce(broker, 1000)

    assert expected(3, 3999) == InPlaceRead(broker, 3, 3999).all().rows


def test_without_populate_of_newer_kernels(broker: InPlaceBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_segment, "_POPULATE_READ", 4711)
    produce(broker)

    assert expected(0, 200) == InPlaceRead(broker, 0, 200).all().rows


def test_a_flipped_bit_leads_to_fetching_from_that_batch_on(broker: InPlaceBroker) -> None:
    produce(broker)
    damaged = files(broker)[1]
    data = bytearray(damaged.read_bytes())
    data[-5] ^= 1
    damaged.write_bytes(data)

    read = InPlaceRead(broker, 0, 200).all()

    assert {"corrupt": 1} == read.reasons
    assert 0 < read.position < 200
    assert expected(0, read.position) == read.rows
    assert (1, 0) == (broker.grants.fallbacks["corrupt"], broker.leases())


def test_without_check_crcs_the_decoder_gets_all(broker: InPlaceBroker) -> None:
    produce(broker)
    chosen = options(**{"kafka.check.crcs": "false"})

    _, part = next(InPlaceRead(broker, 0, 200, chosen).parts)

    assert not part.is_checked


@pytest.mark.parametrize("keep", [0, 700])
def test_a_file_that_became_shorter_is_fetched(broker: InPlaceBroker, keep: int) -> None:
    produce(broker)
    read = InPlaceRead(broker, 0, 200)
    assert read.next()
    os.truncate(files(broker)[1], keep)

    read.all()

    assert {"truncated": 1} == read.reasons
    assert expected(0, read.position) == read.rows


def test_a_file_that_becomes_shorter_under_the_reader_does_not_kill_it(
    broker: InPlaceBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mapped page behind the end of a file raises SIGBUS in who reads it."""
    monkeypatch.setattr(mapped_segment, "WINDOW_BYTES", 5_000)
    broker.configure(segment_bytes=1 << 20)
    produce(broker, 1000)
    read = InPlaceRead(broker, 0, 4000)
    assert read.next()
    os.truncate(files(broker)[0], 6_000)

    read.all()

    assert {"truncated": 1} == read.reasons
    assert expected(0, read.position) == read.rows


def test_a_missing_file_is_fetched(broker: InPlaceBroker) -> None:
    produce(broker)
    files(broker)[2].rename(files(broker)[2].with_suffix(".away"))

    read = InPlaceRead(broker, 0, 200).all()

    assert {"not_visible": 1} == read.reasons
    assert expected(0, read.position) == read.rows


def test_a_file_of_the_same_name_is_not_taken_for_the_brokers(broker: InPlaceBroker) -> None:
    produce(broker)
    first = files(broker)[0]
    copy = first.with_suffix(".copy")
    copy.write_bytes(first.read_bytes())
    copy.rename(first)

    read = InPlaceRead(broker, 0, 200).all()

    assert ({"not_same_files": 1}, 0) == (read.reasons, read.position)


def test_another_hosts_directory_is_not_taken_for_the_brokers(broker: InPlaceBroker) -> None:
    """Two machines made from one image have the same paths, and perhaps the same inodes."""
    produce(broker)
    InPlaceRead(broker, 0, 1).all()
    Path(broker.logs.directories[0], "kalda-read-nonce").write_text("f" * 32)

    read = InPlaceRead(broker, 0, 200).all()

    assert ({"not_same_files": 1}, 0) == (read.reasons, read.position)


@pytest.mark.parametrize("name", ["link", "fifo", "directory", "passwd", "other-0", "relative", "nonce"])
def test_only_a_regular_segment_of_the_partition_is_opened(
    broker: InPlaceBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paths come from the broker: a FIFO would hold the task for ever, a link leads anywhere."""
    produce(broker)
    first, directory = files(broker)[0], Path(broker.log.directory)
    path, nonce_file = first, directory.parent / READ_NONCE_FILE
    if name in ("link", "fifo", "directory"):
        first.rename(first.with_suffix(".moved"))
    if name == "link":
        first.symlink_to(first.with_suffix(".moved"))
    elif name == "fifo":
        os.mkfifo(first)
    elif name == "directory":
        first.mkdir()
    elif name == "passwd":
        path = directory / "passwd"
    elif name == "other-0":
        path = directory.parent / "other-0" / first.name
    elif name == "relative":
        path = directory / ".." / directory.name / first.name
    else:
        nonce_file = directory.parent / "secret"
    acquire = InPlaceReader.acquire_lease

    def change(reader: InPlaceReader, *given: Any, **named: Any) -> ReadLease:
        lease = acquire(reader, *given, **named)
        changed = (replace(lease.files[0], path=str(path)), *lease.files[1:])
        return replace(lease, nonce_file=str(nonce_file), files=changed)

    monkeypatch.setattr(InPlaceReader, "acquire_lease", change)
    read = InPlaceRead(broker, 0, 200).all()

    assert (1, 0) == (sum(read.reasons.values()), read.position)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(PermissionError(13, "Permission denied"), "access_denied"), (OSError(5, "I/O error"), "not_visible")],
)
def test_a_directory_without_access_is_fetched_from(
    broker: InPlaceBroker, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    produce(broker)

    def refuse(*_: object, **__: object) -> int:
        raise error

    own = SimpleNamespace(**{name: getattr(os, name) for name in dir(os)} | {"open": refuse})
    monkeypatch.setattr("kalda.runtime.system.regular_file.os", own)
    read = InPlaceRead(broker, 0, 200).all()

    assert ({reason: 1}, 0) == (read.reasons, read.position)
    assert 1 == broker.grants.fallbacks[reason]


def test_a_leader_whose_files_cannot_be_seen_is_not_asked_for_each_range(broker: InPlaceBroker) -> None:
    """On most clusters executors and brokers have hosts of their own; short ranges must not pay for it."""
    produce(broker)
    Path(broker.logs.directories[0], "kalda-read-nonce").unlink(missing_ok=True)
    broker.grants._nonces[broker.logs.directories[0]] = "of another host"

    reasons = [InPlaceRead(broker, 0, 200).all().reasons for _ in range(3)]
    assert [{"not_visible": 1}] * 3 == reasons
    assert 1 == broker.requests.count("AcquireReadLeaseRequest")

    broker.clock.advance(segment_reader.RETRY_SECONDS)
    InPlaceRead(broker, 0, 200).all()
    assert 2 == broker.requests.count("AcquireReadLeaseRequest")


def test_another_kernel_reads_what_is_synced(broker: InPlaceBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a network file system nothing else is there for certain."""
    produce(broker, 40)
    broker.log.flush()
    produce(broker, 2)
    monkeypatch.setattr(segment_reader, "host_id", lambda: "another")

    read = InPlaceRead(broker, 0, 168).all()

    assert {"unflushed": 1} == read.reasons
    assert (160, expected(0, 160)) == (read.position, read.rows)
    assert {} == InPlaceRead(broker, 0, 160).all().reasons
    assert host_identity.host_id() != "another"


def test_apache_kafka_is_fetched_from_without_a_word(
    broker: InPlaceBroker, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker)
    broker.failure = UnsupportedApiError("broker 1 offers no version of AcquireReadLease")

    with caplog.at_level("INFO"):
        reasons = [InPlaceRead(broker, 0, 200).all().reasons for _ in range(2)]

    assert [{"unsupported": 1}] * 2 == reasons
    assert 1 == len(broker.requests)
    assert "" == caplog.text


def test_a_refusal_concerns_one_range(broker: InPlaceBroker) -> None:
    produce(broker)
    broker.failure = BrokerResponseError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "read lease of orders-0")
    assert {"refused": 1} == InPlaceRead(broker, 0, 200).all().reasons

    broker.failure = None
    assert expected(0, 200) == InPlaceRead(broker, 0, 200).all().rows


def test_files_only_fails_with_one_line(broker: InPlaceBroker) -> None:
    produce(broker)
    broker.failure = UnsupportedApiError("broker 1 offers no version of AcquireReadLease")

    with pytest.raises(NotInPlaceError, match=r"`readMode`=files: offsets 0 to 199 of orders-0") as raised:
        InPlaceRead(broker, 0, 200, options("files")).all()

    assert "\n" not in str(raised.value)


def test_files_only_fetches_after_a_doubt_on_the_way(broker: InPlaceBroker) -> None:
    """The choice is about the way of the bytes; a damaged batch must not end a query that could go on."""
    produce(broker)
    files(broker)[2].unlink()

    read = InPlaceRead(broker, 0, 200, options("files")).all()

    assert 0 < read.position < 200


def test_a_slow_reader_extends_its_lease(broker: InPlaceBroker) -> None:
    produce(broker)
    read = InPlaceRead(broker, 0, 200)
    while read.next():
        broker.clock.advance(40)

    assert (expected(0, 200), {}) == (read.rows, read.reasons)
    assert 0 == broker.grants._leases.expired


def test_a_reader_that_paused_for_too_long_gets_another_lease(broker: InPlaceBroker) -> None:
    """Spark may not ask for rows for minutes, while a join spills."""
    produce(broker)
    read = InPlaceRead(broker, 0, 200)
    assert read.next()
    broker.clock.advance(100)
    read.all()

    assert expected(0, 200) == read.rows
    assert {"lease_lost": 1} == read.reasons


def test_a_broker_that_died_is_not_asked_again(broker: InPlaceBroker) -> None:
    produce(broker)
    read = InPlaceRead(broker, 0, 200)
    assert read.next()
    broker.is_down = True
    broker.clock.advance(40)
    read.all()

    assert {"lease_lost": 1, "refused": 1} == read.reasons
    assert expected(0, read.position) == read.rows


def test_a_broker_that_dies_within_the_lease_costs_nothing(broker: InPlaceBroker) -> None:
    """The files are there; only the release fails, and the log has not become shorter."""
    produce(broker)
    read = InPlaceRead(broker, 0, 200)
    assert read.next()
    broker.is_down = True

    assert expected(0, 200) == read.all().rows
    assert (200, {"lease_lost": 1}) == (read.position, read.reasons)


def test_records_that_were_cut_off_meanwhile_fail_the_task(broker: InPlaceBroker) -> None:
    produce(broker)
    read = InPlaceRead(broker, 0, 20)
    assert read.next()
    broker.log.truncate_to(12)

    with pytest.raises(LeaseBrokenError, match="orders-0 was truncated while offsets 0 to 19"):
        read.all()


def test_a_log_that_was_cut_by_a_restart_fails_the_task(broker: InPlaceBroker) -> None:
    """The broker that comes back does not know the lease."""
    produce(broker)
    read = InPlaceRead(broker, 0, 20)
    assert read.next()
    broker.grants._leases.forget(broker.partition().topic_partition)
    broker.log.truncate_to(12)

    with pytest.raises(LeaseBrokenError):
        read.all()


def test_a_query_that_stops_early_releases_its_lease(broker: InPlaceBroker) -> None:
    produce(broker)
    read = InPlaceRead(broker, 0, 200)
    assert read.next()
    assert 1 == broker.leases()

    read.parts.close()

    assert 0 == broker.leases()
    assert 0 == sum(broker.grants.fallbacks.values())


def test_deletion_waits_for_the_reader(broker: InPlaceBroker) -> None:
    produce(broker)
    read = InPlaceRead(broker, 0, 200)
    assert read.next()
    broker.configure(retention_bytes=0)
    broker.log.delete_old_segments()

    assert expected(0, 200) == read.all().rows

    broker.log.delete_old_segments()
    assert 200 == broker.log.log_start_offset


def test_offsets_without_records_at_the_end_are_passed(broker: InPlaceBroker) -> None:
    """Compaction and markers leave offsets that no fetch returns a record of."""
    produce(broker, 2)
    fields = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    broker.log.append_as_leader(bytearray(batch(b"x", producer_id=6, **fields)), 3)
    broker.log.append_as_leader(marker(ControlRecordType.ABORT, 6), 3, origin=AppendOrigin.COORDINATOR)
    broker.log.advance_high_watermark(10)

    read = InPlaceRead(broker, 0, 10, options(**{"kafka.isolation.level": "read_committed"})).all()

    assert (10, expected(0, 8)) == (read.position, read.rows)


def test_thousands_of_ranges_leave_nothing_open(broker: InPlaceBroker, tmp_path: Path) -> None:
    produce(broker)
    before = files_open_below(tmp_path)

    for start in range(2000):
        read = InPlaceRead(broker, start % 199, start % 199 + 1).all()
        assert expected(start % 199, start % 199 + 1) == read.rows

    assert (before, 0) == (files_open_below(tmp_path), broker.leases())


def files_open_below(directory: Path) -> list[str]:
    """Return the files of the directory that this process has open, each as often as it is open."""
    opened = [os.path.realpath(each.path) for each in os.scandir("/proc/self/fd")]
    return sorted(path for path in opened if path.startswith(f"{directory}{os.sep}"))
