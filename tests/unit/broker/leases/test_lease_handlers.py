"""AcquireReadLease and ReleaseReadLease over real logs: what a reader gets, and what waits for it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kalda.broker.leases.lease_grants import SEGMENTS_MAX, LeaseGrants
from kalda.broker.leases.read_leases import LeaseLimits
from kalda.broker.requests.handlers import acquire_read_lease, release_read_lease
from kalda.common.errors import ErrorCode
from kalda.common.metrics import Metrics
from kalda.protocol.messages.acquire_read_lease import (
    AcquireReadLeaseRequest,
    LeasedPartition,
    LeasePartition,
    LeaseTopic,
)
from kalda.protocol.messages.release_read_lease import ReleasedLease, ReleaseReadLeaseRequest, ReleaseResult
from kalda.records.batch import iter_headers
from kalda.records.control import ControlRecordType
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.storage.file_names import READ_NONCE_FILE
from kalda.storage.producer_state_manager import AppendOrigin
from tests.runtimes import seeded
from tests.unit.broker.data_path_fakes import TOPIC_ID, DataPath, batch, leadership
from tests.unit.broker.handler_parts import finished
from tests.unit.storage.log_fixtures import marker

LIMITS = LeaseLimits(leases_max=20, lease_ms=60_000, lifetime_ms=600_000)


class Broker(DataPath):
    """A data path that grants leases."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.grants: LeaseGrants | None = None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    path = Broker(tmp_path / "a")
    provide_leases(path)
    path.host(leadership(0))
    path.configure(segment_bytes=1000, retention_ms=-1)
    yield path
    path.close()


def provide_leases(path: Broker, limits: LeaseLimits = LIMITS) -> LeaseGrants:
    grants = LeaseGrants(path.replicas, OsFileSystem(), path.clock, seeded(), limits)
    path.logs.resources.read_leases = grants
    path.grants = grants
    return grants


def acquire(
    broker: Broker, start: int, end: int, isolation: int = 0, topic_id: Any = TOPIC_ID, **fields: Any
) -> LeasedPartition:
    wanted = LeasePartition(partition=0, start_offset=start, end_offset=end, **fields)
    request = AcquireReadLeaseRequest(
        isolation_level=isolation, topics=[LeaseTopic(topic="orders", topic_id=topic_id, partitions=[wanted])]
    )
    response = acquire_read_lease.handle(broker.grants, broker.replicas, request, broker.context(0))
    return response.topics[0].partitions[0]


def release(broker: Broker, lease_id: int, **fields: Any) -> ReleaseResult:
    request = ReleaseReadLeaseRequest(leases=[ReleasedLease(lease_id=lease_id, **fields)])
    return finished(
        release_read_lease.handle(broker.grants, broker.replicas, request, broker.context(0))
    ).leases[0]


def produce(broker: Broker, batches: int, records: int = 4) -> None:
    for number in range(batches):
        broker.produce(batch(*(b"%d-%d" % (number, each) for each in range(records))))


def in_transaction(producer_id: int) -> bytearray:
    fields: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    return bytearray(batch(b"a", producer_id=producer_id, **fields))


def offsets_in(granted: LeasedPartition) -> list[tuple[int, int]]:
    """Read the leased bytes as a client does: the first and last offset of each batch."""
    found = []
    for segment in granted.segments:
        data = Path(granted.directory, segment.file).read_bytes()
        part = data[segment.start_position : segment.end_position]
        found += [(header.base_offset, header.last_offset) for _, header in iter_headers(part)]
    return found


@pytest.mark.parametrize(("start", "end"), [(0, 200), (0, 4), (3, 5), (17, 100), (90, 91), (199, 200)])
def test_the_leased_bytes_hold_exactly_the_batches_of_the_range(broker: Broker, start: int, end: int) -> None:
    produce(broker, 50)
    assert len(broker.partition().log.segments) > 3

    granted = acquire(broker, start, end)

    assert (ErrorCode.NONE, end) == (granted.error_code, granted.end_offset)
    expected = [(base, base + 3) for base in range(0, 200, 4) if base < end and base + 3 >= start]
    assert expected == offsets_in(granted)


def test_the_files_can_be_identified(broker: Broker) -> None:
    produce(broker, 50)

    granted = acquire(broker, 0, 200)

    assert granted.nonce == Path(granted.nonce_file).read_text()
    assert os.path.dirname(granted.directory) == os.path.dirname(granted.nonce_file)
    assert READ_NONCE_FILE == os.path.basename(granted.nonce_file)
    for segment in granted.segments:
        found = os.stat(os.path.join(granted.directory, segment.file))
        assert (found.st_dev, found.st_ino) == (segment.device, segment.inode)
        assert segment.end_position <= found.st_size
    assert [True] * (len(granted.segments) - 1) + [False] == [each.is_sealed for each in granted.segments]


def test_only_what_was_synced_counts_as_flushed(broker: Broker) -> None:
    """A reader on another host sees nothing else for certain."""
    produce(broker, 50)
    broker.partition().log.flush()
    produce(broker, 1)

    granted = acquire(broker, 0, 204)

    assert all(each.flushed_position == each.end_position for each in granted.segments[:-1])
    active = granted.segments[-1]
    assert active.start_position < active.flushed_position < active.end_position


def test_a_lease_ends_at_the_high_watermark(broker: Broker) -> None:
    broker.host(leadership(0, leader_epoch=4, replicas=(1, 2)))
    produce(broker, 2)
    assert 0 == broker.partition().log.high_watermark

    assert ErrorCode.OFFSET_NOT_AVAILABLE == acquire(broker, 0, 8).error_code

    broker.partition().log.advance_high_watermark(4)
    granted = acquire(broker, 0, 8)
    assert (4, [(0, 3)]) == (granted.end_offset, offsets_in(granted))


def test_read_committed_ends_at_the_last_stable_offset_and_lists_aborted_transactions(
    broker: Broker,
) -> None:
    log = broker.partition().log
    produce(broker, 2)
    log.append_as_leader(in_transaction(5), 3)
    log.append_as_leader(marker(ControlRecordType.ABORT, 5), 3, origin=AppendOrigin.COORDINATOR)
    log.append_as_leader(in_transaction(6), 3)
    produce(broker, 1)

    committed, uncommitted = acquire(broker, 0, 15, isolation=1), acquire(broker, 0, 15)

    assert (10, 10) == (committed.end_offset, committed.last_stable_offset)
    (aborted,) = committed.aborted_transactions
    assert (5, 8, 9) == (aborted.producer_id, aborted.first_offset, aborted.last_offset)
    assert (15, []) == (uncommitted.end_offset, uncommitted.aborted_transactions)


def test_long_ranges_take_several_leases(broker: Broker) -> None:
    broker.configure(segment_bytes=300)
    produce(broker, 150)
    found, start = [], 0
    while start < 600:
        granted = acquire(broker, start, 600)
        assert len(granted.segments) <= SEGMENTS_MAX
        found += offsets_in(granted)
        assert granted.end_offset > start
        start = granted.end_offset

    assert [(base, base + 3) for base in range(0, 600, 4)] == found


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"current_leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"lease_id": 4}, ErrorCode.INVALID_REQUEST),
        ({"start": 99}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"topic_id": UUID(int=8)}, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_what_cannot_be_leased_has_an_error(broker: Broker, fields: dict[str, Any], code: ErrorCode) -> None:
    produce(broker, 1)
    start = fields.pop("start", 0)

    assert code == acquire(broker, start, 100, **fields).error_code


def test_a_request_for_very_many_partitions_is_refused(broker: Broker) -> None:
    """It would hold the event loop, and every other client with it."""
    wanted = [LeasePartition(partition=0, start_offset=0, end_offset=1)] * (
        acquire_read_lease.PARTITIONS_MAX + 1
    )
    topic = LeaseTopic(topic="orders", topic_id=TOPIC_ID, partitions=wanted)
    response = acquire_read_lease.handle(
        broker.grants, broker.replicas, AcquireReadLeaseRequest(topics=[topic]), broker.context(0)
    )

    assert {ErrorCode.INVALID_REQUEST} == {each.error_code for each in response.topics[0].partitions}


def test_a_follower_grants_nothing(broker: Broker) -> None:
    broker.host(leadership(0, leader=2, leader_epoch=4, replicas=(1, 2)))

    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == acquire(broker, 0, 1).error_code


def test_a_broker_that_grants_none_says_why(broker: Broker) -> None:
    broker.grants = None

    answer = acquire(broker, 0, 1)

    assert ErrorCode.POLICY_VIOLATION == answer.error_code
    assert "kalda.read.lease.enable" in str(answer.error_message)
    assert ErrorCode.INVALID_REQUEST == release(broker, 1).error_code


def test_retention_waits_for_the_release(broker: Broker) -> None:
    produce(broker, 50)
    granted = acquire(broker, 60, 200)
    broker.configure(retention_bytes=0)
    log = broker.partition().log

    log.delete_old_segments()
    assert log.log_start_offset <= 60
    assert [(base, base + 3) for base in range(60, 200, 4)] == offsets_in(granted)

    assert release(broker, granted.lease_id).has_held
    log.delete_old_segments()
    assert 200 == log.log_start_offset


def test_delete_records_takes_effect_at_once_and_its_files_wait(broker: Broker) -> None:
    """The caller wants the records out of sight; the reader began before."""
    produce(broker, 50)
    granted = acquire(broker, 0, 200)
    log = broker.partition().log

    log.delete_records_before(150)
    log.delete_old_segments()
    assert [(base, base + 3) for base in range(0, 200, 4)] == offsets_in(granted)
    assert ErrorCode.OFFSET_OUT_OF_RANGE == acquire(broker, 0, 200).error_code

    broker.advance(60_000)
    log.delete_old_segments()
    assert 100 < log.segments[0].base_offset <= 150


def test_a_full_disk_does_not_wait(broker: Broker) -> None:
    """The broker needs the room; readers keep the files that they have open."""
    produce(broker, 50)
    acquire(broker, 0, 200)
    broker.configure(retention_bytes=0)
    broker.logs.resources.failures.full[broker.logs.directories[0]] = "no space"

    broker.partition().log.delete_old_segments()

    assert 200 == broker.partition().log.log_start_offset


def test_a_truncation_below_the_leased_end_shows_in_the_release(broker: Broker) -> None:
    produce(broker, 50)
    cut, kept = acquire(broker, 0, 200), acquire(broker, 0, 100)

    broker.partition().log.truncate_to(150)

    assert ErrorCode.INVALID_REQUEST == acquire(broker, 0, 200, lease_id=cut.lease_id).error_code
    assert [False, True] == [release(broker, each.lease_id).has_held for each in (cut, kept)]


def test_a_new_leader_epoch_alone_breaks_no_lease(broker: Broker) -> None:
    produce(broker, 5)
    granted = acquire(broker, 0, 20)

    broker.host(leadership(0, leader_epoch=4))

    result = release(broker, granted.lease_id)
    assert (True, 4) == (result.has_held, result.leader_epoch)


def test_what_readers_report_is_in_the_metrics(broker: Broker) -> None:
    metrics = Metrics()
    grants = provide_leases(broker)
    grants.register_metrics(metrics)
    produce(broker, 5)
    first, second = acquire(broker, 0, 20), acquire(broker, 0, 20)

    release(broker, first.lease_id, bytes_read=1000)
    release(broker, second.lease_id, bytes_read=24, fallback_reason="corrupt")
    release(broker, second.lease_id, bytes_read=1_000_000, fallback_reason="never heard of it")
    acquire(broker, 0, 20)

    assert 1024 == grants.bytes_read
    assert (1, 1, 0) == (
        grants.fallbacks["corrupt"],
        grants.fallbacks["other"],
        grants.fallbacks["truncated"],
    )
    found = {family.name for family in metrics.families()}
    assert {"kalda_broker_readleases", "kalda_broker_readleases_fallbacks"} <= found


def test_a_full_table_sends_readers_to_fetch(broker: Broker) -> None:
    provide_leases(broker, LeaseLimits(1, 60_000, 60_000))
    produce(broker, 1)
    assert ErrorCode.NONE == acquire(broker, 0, 4).error_code

    answer = acquire(broker, 0, 4)

    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED == answer.error_code
    assert "`kalda.read.lease.max`=1" in str(answer.error_message)


def test_a_deleted_partition_ends_its_leases(broker: Broker) -> None:
    produce(broker, 1)
    granted = acquire(broker, 0, 4)

    broker.logs.delete(broker.partition().topic_partition)

    assert ErrorCode.INVALID_REQUEST == release(broker, granted.lease_id).error_code
