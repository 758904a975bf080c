"""Reading Spark's checkpoint."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.checkpoint import Checkpoint, CheckpointError

TOPIC_ID = UUID(int=7)
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "metadata").write_text('{"id":"3a1"}')
    for batch_id, offset in enumerate(({"t": {"0": 5}}, {"t": {"0": 9, "1": 2}, f"t@{TOPIC_ID}": {}})):
        (tmp_path / "offsets" / str(batch_id)).write_text(f"v1\n{METADATA}\n{json.dumps(offset)}")
        (tmp_path / "offsets" / f".{batch_id}.crc").write_bytes(b"x")
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    return Checkpoint(f"file://{tmp_path}")


def test_the_offset_log_says_what_a_batch_reads(checkpoint: Checkpoint) -> None:
    """So a replay reads the same, whatever the topics have become."""
    assert "3a1" == checkpoint.query_id()
    assert (1, 0) == (checkpoint.last_planned(), checkpoint.last_committed())
    assert {TopicPartition("t", 0): 5} == checkpoint.offsets(0)
    assert {TopicPartition("t", 0): 9, TopicPartition("t", 1): 2} == checkpoint.offsets(1)
    assert checkpoint.offsets(2) is None
    assert [{}, {"t": TOPIC_ID}, {}] == [checkpoint.topic_ids(number) for number in range(3)]


def test_a_query_that_never_ran_has_no_checkpoint(tmp_path: Path) -> None:
    """`lag` and `status` work before the first run."""
    checkpoint = Checkpoint(f"file://{tmp_path}/none")
    assert (None, None, None) == (
        checkpoint.query_id(),
        checkpoint.last_planned(),
        checkpoint.last_committed(),
    )


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}\n{}\n{}", "v1\n{}\nx", "v1\n{}\n[]"])
def test_another_log_is_refused(checkpoint: Checkpoint, tmp_path: Path, text: str) -> None:
    """For example the checkpoint of a query with two sources."""
    (tmp_path / "offsets" / "1").write_text(text)
    with pytest.raises(CheckpointError):
        checkpoint.offsets(1)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("metadata", None, "has batches, but lacks the file metadata"),
        ("metadata", "", "/metadata is not that of a Spark query"),
        ("offsets/1", "", "/offsets/1 is not the log of a query with one source"),
        ("offsets/1", f'v1\n{METADATA}\n{{"t": {{"0', "/offsets/1 has no offsets of topics"),
        ("offsets/0", None, "/offsets has batch 1, but lacks batch 0"),
        ("commits/0", "", "/commits/0 is damaged: b''"),
    ],
)
def test_damage_is_named(
    checkpoint: Checkpoint, tmp_path: Path, path: str, text: str | None, message: str
) -> None:
    """Spark says "assertion failed" to some of these, five times."""
    checkpoint.check()
    if text is None:
        (tmp_path / path).unlink()
    else:
        (tmp_path / path).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.check()


def test_commits_without_offsets_are_damage(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for path in (tmp_path / "offsets").iterdir():
        path.unlink()
    with pytest.raises(CheckpointError, match="has commits of batches, but offsets of none"):
        checkpoint.check()


def test_a_query_that_never_ran_is_whole(tmp_path: Path) -> None:
    Checkpoint(f"file://{tmp_path}/none").check()
