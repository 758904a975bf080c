"""Dead letters between the task that finds them and the transaction that publishes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("sqlglot")

from kalda.common.types import TopicPartition
from kalda.formats import DecodeFailure
from kalda.pipelines.dlq.letters import DECODE, OMITTED, TIMESTAMP
from kalda.pipelines.engine import dead_letters
from kalda.pipelines.engine.dead_letters import DeadLetterOutput
from kalda.pipelines.spec.model import Cluster
from tests.unit.pipelines.engine.batches import columnar

PLACE = TopicPartition("orders", 0)


class Limits:
    """What a topic takes."""

    def __init__(self, bytes_max: int | None = None, refused: dict[int, str] | None = None) -> None:
        self.record_bytes_max = bytes_max
        self._refused = refused or {}

    def refused_times(self, times: pa.Array, now_ms: int) -> dict[int, str]:
        return {row: why for row, why in self._refused.items() if row < len(times)}


@pytest.fixture
def output(tmp_path: Path) -> DeadLetterOutput:
    cluster = Cluster(name="main", properties={"bootstrap.servers": "127.0.0.1:1"})
    return DeadLetterOutput("orders", "orders.dlq", "orders-group", cluster, f"file://{tmp_path}/state")


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is published; the topic takes everything."""
    found: list[dict[str, Any]] = []

    def publish(properties: object, *, batches: Iterator[pa.RecordBatch], **where: Any) -> bool:
        found.append(where | {"rows": [row for batch in batches for row in batch.to_pylist()]})
        return True

    monkeypatch.setattr(dead_letters, "publish_once", publish)
    monkeypatch.setattr(dead_letters, "read_limits", lambda *given: Limits())
    return found


def stage(output: DeadLetterOutput, batch_id: int, part: int, *values: bytes) -> list[str]:
    """Write a bad record of each value in a task; return the names of its files."""
    letters = output.open("query", batch_id, part)
    records = columnar(0, values)
    for row in range(len(values)):
        letters.add(records, PLACE, [DecodeFailure(row, "Malformed", "it is bad")], DECODE)
    written = letters.finish()
    assert len(values) == written.rows
    return [str(name) for name in written.files]


def staged(output: DeadLetterOutput) -> list[str]:
    directory = Path(output.directory()[1])
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_a_batch_publishes_the_files_that_it_names(
    output: DeadLetterOutput, published: list[dict[str, Any]]
) -> None:
    """Another attempt of a task has files too, which the decision does not name."""
    stage(output, 7, 0, b"attempt")
    files = stage(output, 7, 0, b"a", b"b") + stage(output, 7, 1, b"c") + stage(output, 7, 2)
    assert 3 == len(staged(output))
    output.publish("query", 7, files)
    ((sent),) = published
    assert [b"a", b"b", b"c"] == [row["value"] for row in sent["rows"]]
    assert ("orders.dlq", "orders-group-dlq", "query", 7) == tuple(
        sent[name] for name in ("topic", "name", "query_id", "batch_id")
    )
    output.publish("query", 8, [])
    assert 1 == len(published), "a batch without letters sends nothing"


def test_what_is_staged_goes_with_the_next_batch(output: DeadLetterOutput) -> None:
    output.clean()
    stage(output, 7, 0, b"a")
    letters = output.open("query", 7, 1)
    letters.add(columnar(0, [b"x"]), PLACE, [DecodeFailure(0, "Malformed", "bad")], DECODE)
    letters.abandon()
    output.open("query", 7, 2).abandon()
    assert 2 == len(staged(output))
    output.clean()
    assert [] == staged(output)


def test_a_record_that_the_topic_has_no_room_for_leaves_its_letter(
    output: DeadLetterOutput,
    published: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The batch is decided, so that a letter which cannot be written would stop the pipeline for good."""
    monkeypatch.setattr(dead_letters, "read_limits", lambda *given: Limits(bytes_max=1_000))
    files = stage(output, 7, 0, b"small", b"x" * 5_000)
    output.publish("query", 7, files)
    rows = published[0]["rows"]
    assert [b"small", None] == [row["value"] for row in rows]
    names = [[header["key"] for header in row["headers"]] for row in rows]
    assert OMITTED not in names[0]
    assert OMITTED in names[1]
    assert "1 dead letters are without their records" in caplog.text


def test_a_timestamp_that_the_topic_refuses_becomes_a_header(
    output: DeadLetterOutput, published: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "read_limits", lambda *given: Limits(refused={1: "too old"}))
    output.publish("query", 7, stage(output, 7, 0, b"a") + stage(output, 7, 1, b"b", b"c"))
    names = [{header["key"] for header in row["headers"]} for row in published[0]["rows"]]
    assert [False, False, True] == [TIMESTAMP in each for each in names]
