"""`kalda pipeline replay` and `backfill` as far as they need no Spark: what they would do, and refuse."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.checkpoint import Checkpoint
from kalda.pipelines.engine.run_lock import RunLock
from kalda.pipelines.ledger.audit_record import records_of
from kalda.pipelines.ledger.topic import LedgerTopic
from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables import TaskId, open_table
from tests.integration.pipelines.numbers import produce_numbers
from tests.integration.tools.commands import Commands
from tests.unit.pipelines.tables.table_cases import account


def test_a_rebuild_refuses_a_table_with_rows(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Its rows would be there twice; the command says what to delete, in one line."""
    topic = topic_name("refilled")
    produce_numbers(bootstrap, topic, 30)
    file = tmp_path / "pipelines.yml"
    file.write_text(f"""
name: refilled
storage: state
cluster: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - {{name: {topic}, from: {{topic: {topic}}}, to: {{table: lake.rows, format: parquet}}}}
  - {{name: without, from: {{topic: {topic}}}, to: {{table: lake.rows, format: parquet}}, ledger: false}}
""")
    kalda = Commands(bootstrap)

    done = kalda("pipeline", "replay", file, topic, "--from", 10, "--to", 25, "--dry-run", "--json")
    assert (15, 0) == (done.json["offsets"], done.json["skipped_offsets"])

    target = read_pipeline_file(file).pipelines[0].target
    assert isinstance(target, TableSpec)
    table, rows = open_table(target), pa.RecordBatch.from_pydict({"value": [b"1"]})
    table.prepare_schema(rows.schema)
    table.commit(account(0, 1), table.writer(rows.schema).write([rows], TaskId("q", 0, 0)))
    done = kalda.run("pipeline", "backfill", file, topic, "--rebuild")
    assert (
        1,
        f"kalda: lake.rows has rows; delete {target.path}, or name another table, before it is rebuilt",
    ) == (
        done.code,
        done.stderr.strip(),
    )
    done = kalda.run("pipeline", "backfill", file, "without", "--dry-run")
    assert 1 == done.code
    assert (
        "without has `ledger: false`, and the ledger says which offsets the table has already" in done.stderr
    )


def test_an_older_part_does_not_replace_newer_rows(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A replay of offsets 0 to 19 would undo what 20 to 39 changed, and so would one beside the pipeline."""
    topic = topic_name("upserted")
    produce_numbers(bootstrap, topic, 50)
    path = tmp_path / "pipelines.yml"
    path.write_text(f"""
name: upserted
storage: state
cluster: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - name: {topic}
    from: {{topic: {topic}}}
    to: {{table: lake.rows, mode: upsert, keys: [value]}}
""")
    file, kalda = read_pipeline_file(path), Commands(bootstrap)
    place = TopicPartition(topic, 0)
    Checkpoint(file.checkpoint(topic)).create({place: 30}, query_id=UUID(int=1), now_ms=1)
    # The batch behind 30 was killed before Spark's commit.
    ranges = (RangeAccount(topic, 0, 0, 40, records=40, rows_out=40),)
    with LedgerTopic({"bootstrap.servers": bootstrap}) as ledger:
        ledger.publish(records_of(topic, "lake.rows", BatchAccount("q", 0, ranges), 1))

    done = kalda.refused("pipeline", "replay", path, topic, "--to", 20, "--dry-run")
    assert f"its table has {topic}-0 up to offset 40: rows up to 20 would replace newer ones" in done.stderr
    done = kalda("pipeline", "replay", path, topic, "--from", 10, "--dry-run", "--json")
    assert 30 == done.json["offsets"]
    with RunLock(file.storage, topic):
        done = kalda.refused("pipeline", "replay", path, topic, "--from", 10, "--dry-run")
    assert f"{topic} is being run by process" in done.stderr
