"""A lost checkpoint goes on where the group and the target say, without a gap."""

import json
import uuid
from pathlib import Path
from uuid import UUID

import pytest

from kalda.clients.errors import BrokerResponseError
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.checkpoint import Checkpoint, CheckpointError
from kalda.pipelines.repair import (
    RestartPoint,
    check_topics,
    ends_of,
    rebuild_checkpoint,
    rebuild_group,
    restart_points,
)
from kalda.spark.source.group_offsets import Committed
from tests.unit.spark.source.cluster_fakes import FakeGroup

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=1), UUID(int=2)
NOW_MS = 1_700_000_000_000


def test_the_further_of_group_and_target_counts() -> None:
    points = restart_points({P0: Committed(100), P1: Committed(50)}, {P0: 150, P1: 40})

    assert {P0: RestartPoint(150, "target"), P1: RestartPoint(50, "group")} == points


def test_a_partition_that_only_the_target_knows() -> None:
    assert {P1: RestartPoint(5, "target")} == restart_points({}, {P1: 5})


def test_ends_of_accounts() -> None:
    accounts = [RangeAccount("t", 0, 5, 10, 5, 5), RangeAccount("t", 0, 0, 5, 5, 5)]

    assert {P0: 10} == ends_of(accounts)


def test_the_checkpoint_is_sparks(tmp_path: Path) -> None:
    """Compare with the files that Spark 4.3 writes."""
    checkpoint = Checkpoint(str(tmp_path / "checkpoint"))

    query_id = rebuild_checkpoint(
        checkpoint,
        restart_points({P0: Committed(7), TopicPartition("t", 10): Committed(9), P1: Committed(8)}, {}),
        {"t": NEW},
        group_id="g",
        now_ms=NOW_MS,
    )

    assert f'{{"id":"{query_id}"}}' == (tmp_path / "checkpoint" / "metadata").read_text()
    assert [
        "v1",
        '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}',
        f'{{"t": {{"0": 7, "1": 8, "10": 9}}, "t@{NEW}": {{}}}}',
    ] == (tmp_path / "checkpoint" / "offsets" / "0").read_text().split("\n")
    assert 'v1\n{"nextBatchWatermarkMs":0}' == (tmp_path / "checkpoint" / "commits" / "0").read_text()
    assert str(query_id) == Checkpoint(checkpoint.location).query_id()
    assert 0 == checkpoint.last_committed()
    assert {P0: 7, P1: 8, TopicPartition("t", 10): 9} == checkpoint.committed_offsets()


def test_a_checkpoint_with_batches_is_not_replaced(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.create({P0: 7}, query_id=uuid.uuid4(), now_ms=NOW_MS)

    with pytest.raises(CheckpointError, match="is not lost"):
        checkpoint.create({P0: 8}, query_id=uuid.uuid4(), now_ms=NOW_MS)


def test_checksums_of_a_half_deleted_checkpoint_go(tmp_path: Path) -> None:
    """Spark refuses a file that does not fit the checksum which Hadoop wrote beside a former one."""
    (tmp_path / ".metadata.crc").write_bytes(b"crc")

    Checkpoint(str(tmp_path)).create({P0: 7}, query_id=uuid.uuid4(), now_ms=NOW_MS)

    assert not (tmp_path / ".metadata.crc").exists()


def test_nothing_committed_is_nothing_to_rebuild_from(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="group g has committed no offsets"):
        rebuild_checkpoint(Checkpoint(str(tmp_path)), {}, {}, group_id="g", now_ms=NOW_MS)


def test_offsets_of_a_former_topic_are_refused() -> None:
    check_topics({P0: Committed(5, OLD)}, {"t": OLD}, group_id="g")
    with pytest.raises(CheckpointError, match="created again"):
        check_topics({P0: Committed(5, OLD)}, {"t": NEW}, group_id="g")


def write_batch(directory: Path, batch_id: int, source: str, *, is_committed: bool = True) -> None:
    for name in ("offsets", "commits"):
        (directory / name).mkdir(exist_ok=True)
    (directory / "offsets" / str(batch_id)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{source}')
    if is_committed:
        (directory / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_the_group_gets_the_last_complete_batch(tmp_path: Path) -> None:
    write_batch(tmp_path, 8, json.dumps({"t": {"0": 5}}))
    write_batch(tmp_path, 9, json.dumps({"t": {"0": 7}, f"t@{NEW}": {}}))
    write_batch(tmp_path, 10, '{"t":{"0":9}}', is_committed=False)
    (tmp_path / "offsets" / ".9.crc").write_bytes(b"crc")
    group = FakeGroup()

    assert {P0: Committed(7, NEW)} == rebuild_group(Checkpoint(str(tmp_path)), group)
    assert {P0: Committed(7, NEW)} == group.offsets


@pytest.mark.parametrize("source", ["-", '{"t":{"0":7}}\n{"u":{"0":7}}', '{"__start__": 1}', '{"t":7}'])
def test_logs_of_other_queries_are_refused(tmp_path: Path, source: str) -> None:
    write_batch(tmp_path, 0, source)

    with pytest.raises(CheckpointError, match="offsets/0"):
        rebuild_group(Checkpoint(str(tmp_path)), FakeGroup())


def test_a_group_with_members_is_an_error(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, '{"t":{"0":7}}')
    group = FakeGroup()
    group.refused = {P0: BrokerResponseError(ErrorCode.UNKNOWN_MEMBER_ID, "commit")}

    with pytest.raises(CheckpointError, match="t-0"):
        rebuild_group(Checkpoint(str(tmp_path)), group)
