"""What a failing pipeline prints: one line, and no frames of Java, Py4J or PySpark."""

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kalda.pipelines.engine import application
from kalda.pipelines.engine.application import Application
from tests.spark.pipelines import read_pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topics

FILE = """
name: quiet
storage: ${STORAGE}
defaults: {restart: {tries: 1}, value: {format: json, schema: "id bigint"}}
pipelines:
  - name: ${TOPIC}-sql
    from: {topic: "${TOPIC}"}
    transform: [select sum(id) div (count(*) - count(*)) as quotient from input]
    to: {table: lake.sql, format: parquet}
  - name: ${TOPIC}-python
    from: {topic: "${TOPIC}"}
    transform: [{python: quiet_steps:nothing}]
    to: {table: lake.python, format: parquet}
"""
NOISE = re.compile(r"Traceback|java\.|py4j|org\.apache|\n\s+at ")


def test_a_failed_batch_is_one_line(
    spark: "SparkSession",
    topics: "Topics",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SQL fails in Spark's engine, and a function of the user returns nothing."""
    topic = topics.create("quiet")
    topics.fill(topic, [json.dumps({"id": 1}).encode()])
    (tmp_path / "quiet_steps.py").write_text(
        "def nothing(batch):\n    return None if batch.num_rows else batch\n"
    )
    monkeypatch.setattr(application, "build_session", lambda *_, **__: spark)
    monkeypatch.setattr(application, "_stop_session", lambda _: None)
    file = read_pipelines(FILE, topics.bootstrap, tmp_path, TOPIC=topic)
    caplog.set_level(logging.INFO)
    capfd.readouterr()
    errors = Application(file, file.pipelines, is_once=True).run(lambda _: None, note=lambda _: None)

    found = sorted(map(str, errors))
    assert f"{topic}-python failed in batch 1, with: quiet_steps:nothing returned None" in found[0]
    assert f"{topic}-sql failed in batch 1, with: [DIVIDE_BY_ZERO] Division by zero" in found[1]
    printed = "\n".join([*capfd.readouterr(), *found, *(each.getMessage() for each in caplog.records)])
    assert NOISE.search(printed) is None, printed
    assert [] == [each for each in caplog.records if each.exc_info]
