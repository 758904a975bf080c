"""Runs pipeline files on the session of these tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kalda import Consumer
from kalda.pipelines.engine.status import PipelineStatus
from kalda.pipelines.engine.supervisor import Supervisor
from kalda.pipelines.spec.model import PipelineFile, TableSpec
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.pipelines.tables import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kalda.clients.values import ConsumerRecord


def read_pipelines(text: str, bootstrap: str, directory: Path, **variables: str) -> PipelineFile:
    """Return the file of a text, with its storage below a directory."""
    given: Mapping[str, str] = {"STORAGE": f"file://{directory}/state", **variables}
    return parse_pipeline_file(
        text,
        str(directory / "p.yml"),
        directory=directory,
        settings={"bootstrap.servers": bootstrap},
        variables=given,
    )


def run_once(spark: "SparkSession", file: PipelineFile, *names: str) -> dict[str, PipelineStatus]:
    """Process what is there; return the status of each pipeline, none of which may have failed."""
    specs = [each for each in file.pipelines if not names or each.name in names]
    supervisor = Supervisor(spark, file, specs, is_once=True)
    errors = supervisor.run()
    assert not errors, [str(each) for each in errors]
    return {each.pipeline: each for each in supervisor.statuses()}


def rows_of(file: PipelineFile, pipeline: str) -> list[dict[str, object]]:
    """Return the rows of a pipeline's table."""
    (target,) = (each.target for each in file.pipelines if each.name == pipeline)
    assert isinstance(target, TableSpec)
    table = open_table(target)
    schema = table.schema()
    assert schema is not None
    rows: list[dict[str, object]] = pa.Table.from_batches(table.read(), schema).to_pylist()
    return rows


def records_of(bootstrap: str, topic: str, count: int) -> "list[ConsumerRecord[bytes | None, bytes | None]]":
    """Return the committed records of a topic, at least `count` of them if they come in time."""
    found: list[ConsumerRecord[bytes | None, bytes | None]] = []
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-reader",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        for _ in range(20):
            found += consumer.poll(timeout_s=1.0)
            if len(found) >= count:
                break
    return found
