"""How far a pipeline is behind its topics."""

from collections.abc import Collection, Mapping
from pathlib import Path
from uuid import UUID

import pytest

pytest.importorskip("sqlglot")

from kalda.common.types import TopicPartition
from kalda.pipelines.checkpoint import Checkpoint
from kalda.pipelines.engine import lag as module
from kalda.pipelines.engine.lag import PartitionLag, lag_of
from kalda.pipelines.engine.planner import plans_of
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.spark.source.discovery import Found

FILE = """
name: p
storage: {storage}
cluster: {{bootstrap.servers: "h:1"}}
pipelines:
  - {{name: a, from: {{topic: [t, u]}}, to: {{topic: v}}}}
"""
T, U = TopicPartition("t", 0), TopicPartition("u", 0)
FORMER, PRESENT = UUID(int=1), UUID(int=2)


class Cluster:
    """A cluster where `t` was created again and has 5 records, and `u` has 10."""

    def find_partitions(self) -> Found:
        return Found((T, U), (), {"t": PRESENT, "u": FORMER})

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {T: 5, U: 10}

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def close(self) -> None:
        pass


def test_offsets_of_a_former_topic_are_no_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lag of 0 would say that the five records of the new topic were processed."""
    monkeypatch.setattr(module, "quick_discovery", lambda _: Cluster())
    text = FILE.format(storage=tmp_path / "state")
    file = parse_pipeline_file(text, str(tmp_path / "p.yml"), directory=tmp_path, variables={})
    checkpoint = Checkpoint(file.checkpoint("a"))
    checkpoint.create({T: 40, U: 7}, {"t": FORMER, "u": FORMER}, query_id=UUID(int=3), now_ms=1)
    assert [PartitionLag(T, None, 5, 5), PartitionLag(U, 7, 10, 3)] == lag_of(plans_of(file)[0], file)
