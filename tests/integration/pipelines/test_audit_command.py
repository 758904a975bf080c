"""`kalda pipeline audit` on a real log, ledger and table."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.ledger.audit_record import records_of
from kalda.pipelines.ledger.topic import LedgerTopic
from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables.model import TaskId
from kalda.pipelines.tables.opening import open_table
from kalda.spark.worker import close_readers
from tests.integration.pipelines.numbers import produce_numbers
from tests.integration.tools.commands import Commands


def commit(
    table: TableSpec,
    batch_id: int,
    start: int,
    end: int,
    pipeline: str,
    topic: str,
    bootstrap: str,
    query_id: str = "q",
) -> None:
    """Commit a batch and publish its account, as a pipeline does."""
    rows = pa.RecordBatch.from_pydict({"n": list(range(start, end))})
    opened = open_table(table)
    opened.prepare_schema(rows.schema)
    files = opened.writer(rows.schema).write([rows], TaskId(query_id, batch_id, 0))
    account = RangeAccount(
        topic,
        0,
        start,
        end,
        records=end - start,
        rows_out=end - start,
        event_time_min=1_700_000_000_000 + start,
        event_time_max=1_700_000_000_000 + end - 1,
    )
    batch = BatchAccount(query_id, batch_id, (account,))
    opened.commit(batch, files)
    with LedgerTopic({"bootstrap.servers": bootstrap}) as ledger:
        ledger.publish(records_of(pipeline, table.table, batch, batch_id))


UPSERT = "{table: lake.upserts, mode: upsert, keys: [id]}"


def test_an_audit_agrees_or_names_what_is_wrong(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("audited")
    produce_numbers(bootstrap, topic, 100)
    file = tmp_path / "pipelines.yaml"
    file.write_text(f"""
name: audited
storage: {tmp_path}/storage
cluster: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - name: {topic}
    from: {{topic: {topic}}}
    to: {{table: lake.rows, format: parquet}}
  - name: {topic}-sums
    from: {{topic: {topic}}}
    transform: ["select count(*) as n from input group by value"]
    to: {{table: lake.sums, format: parquet}}
  - name: {topic}-copy
    from: {{topic: {topic}}}
    to: {{topic: copied}}
""")
    (spec, *_) = read_pipeline_file(file).pipelines
    assert isinstance(spec.target, TableSpec)
    commit(spec.target, 0, 0, 40, topic, topic, bootstrap)
    commit(spec.target, 1, 40, 90, topic, topic, bootstrap)

    kalda = Commands(bootstrap)
    done = kalda("pipeline", "audit", file, topic, "--recount")
    expected = f"{topic} → lake.rows: everything agrees, 90 rows in the table, complete until 2023-11-14T"
    assert expected in done.stdout
    (report,) = kalda("pipeline", "audit", file, topic, "--json").json
    assert (True, 90, 10) == (report["good"], report["table_rows"], report["partitions"][0]["lag"])

    # A pipeline of another file writes the same table; another table has only its name.
    commit(spec.target, 0, 0, 20, f"{topic}-second", topic, bootstrap, "shared")
    other = replace(spec.target, path=f"file://{tmp_path}/elsewhere")
    commit(other, 0, 0, 10, f"{topic}-third", topic, bootstrap, "elsewhere")
    assert "everything agrees, 110 rows in the table" in kalda("pipeline", "audit", file, topic).stdout

    commit(spec.target, 2, 95, 99, topic, topic, bootstrap)
    done = kalda.run("pipeline", "audit", file, topic)
    assert 1 == done.code
    assert f"{topic}-0: offsets 90 to 94 are in no batch (seen at batch 2)" in done.stderr
    done = kalda.run("pipeline", "audit", file, "other")
    assert 2 == done.code
    assert f"has no pipeline other. It has {topic}" in done.stderr

    # What was read twice is twice in a topic; only rows of a table may replace each other.
    for query_id in ("a", "b"):
        batch = BatchAccount(query_id, 0, (RangeAccount(topic, 0, 0, 40, records=40, rows_out=40),))
        with LedgerTopic({"bootstrap.servers": bootstrap}) as ledger:
            ledger.publish(records_of(f"{topic}-copy", "copied", batch, 0))
    done = kalda.run("pipeline", "audit", file, f"{topic}-copy")
    assert f"{topic}-0: offsets 0 to 39 are in more than one batch" in done.stderr

    # Rows that a step aggregates are accounted for as they go in.
    batch = BatchAccount("s", 0, (RangeAccount(topic, 0, 0, 40, records=40, rows_out=40),))
    with LedgerTopic({"bootstrap.servers": bootstrap}) as ledger:
        ledger.publish(records_of(f"{topic}-sums", "lake.sums", batch, 0))
    done = kalda("pipeline", "audit", file, f"{topic}-sums")
    assert f"{topic}-sums → lake.sums: everything agrees; the table is not compared" in done.stdout

    # What rows that replace each other leave in a table depends on their order, which the ledger has not.
    upserts = file.read_text().replace("{table: lake.rows, format: parquet}", UPSERT)
    file.write_text(upserts)
    (report,) = kalda.run("pipeline", "audit", file, topic, "--values", "--json").json
    assert "its rows replace each other by key" in report["not_compared"]
    assert report["table_rows"] is None
    close_readers()
