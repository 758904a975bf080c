"""A record that cannot be read costs itself, never the groups beside it."""

import logging

import pytest

from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.group_shard import SKIPPED_LOGGED_MAX
from kalda.coordinator.group.offset_records import OffsetAndMetadata, offset_commit_record
from kalda.coordinator.runtime.coordinator_runtime import PartitionState
from tests.unit.coordinator.group.group_simulation import GROUP, GroupSimulation

JUNK = (
    CoordinatorRecord(b"", b"z"),
    CoordinatorRecord(b"\0", b"y"),
    CoordinatorRecord(b"\0\x63newer", b"x"),
    CoordinatorRecord(b"\xff\xff\0\1", b""),
    CoordinatorRecord(b"\0\1\x7f\xff", b"\0\3"),
    CoordinatorRecord(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3\0"),
    CoordinatorRecord(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x79"),
    CoordinatorRecord(b"\0\2\0\1g", b"\0\x79"),
    CoordinatorRecord(b"\0\2\0\1g", b""),
    CoordinatorRecord(b"\0\2\0\1g", b"\0\3\0\1"),
)
GOOD = offset_commit_record(GROUP, "t", 0, OffsetAndMetadata(7, -1, "", 1000))


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_does_not_keep_groups_from_loading(junk: CoordinatorRecord) -> None:
    simulation = GroupSimulation()
    simulation.log.add(0, junk, GOOD, junk)
    simulation.fail_over()
    assert {0: PartitionState.ACTIVE} == simulation.runtime.states()
    committed = simulation.shard.offsets.get(GROUP, "t", 0)
    assert committed is not None
    assert 7 == committed.offset


def test_very_much_junk_is_told_of_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    simulation = GroupSimulation()
    simulation.log.add(0, *[CoordinatorRecord(b"\0", b"")] * 1000, GOOD)
    simulation.fail_over()
    assert SKIPPED_LOGGED_MAX + 1 == len(caplog.records)
    assert "1000 records are skipped" in caplog.records[-1].getMessage()
    assert simulation.shard.offsets.get(GROUP, "t", 0) is not None


@pytest.mark.parametrize("key", [GOOD.key, b"\0\2\0\1g"], ids=repr)
def test_a_value_of_a_newer_version_keeps_the_partition_from_loading(
    key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the record the group would go on from an older offset, and read records twice."""
    simulation = GroupSimulation()
    simulation.log.add(0, GOOD, CoordinatorRecord(key, b"\0\x09"))
    simulation.fail_over()
    assert {0: PartitionState.FAILED} == simulation.runtime.states()
    assert "the record at offset 1 of __consumer_offsets-0 is a " in caplog.text
    assert "of version 9, and this release of Kalda reads 0-4: a newer release wrote it" in caplog.text
