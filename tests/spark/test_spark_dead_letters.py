"""Dead letters of a pipeline: written with the batch, replayed after the fix."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kalda.pipelines.dlq.replay import LetterFilter, open_letters, replay
from kalda.pipelines.engine.errors import BreakerOpenError
from kalda.pipelines.engine.spark_batch import SparkBatch
from kalda.pipelines.engine.supervisor import Supervisor
from tests.spark.pipelines import read_pipelines, rows_of, run_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Topics

COUNT = 2_000
FILE = """\
name: letters
storage: ${STORAGE}
defaults: {breaker: {bad_max: 20%}}
pipelines:
  - name: ${NAME}
    from: {topic: "${TOPIC}", value: {format: json, schema: "id bigint, amount ${TYPE}"}}
    transform: ["select id, ${AMOUNT} as amount"]
    to: {table: lake.letters, format: delta}
    execution: ${EXECUTION}
"""


@pytest.mark.parametrize("execution", ["direct", "spark"])
def test_good_rows_and_replayed_letters_are_all_records(
    spark: "SparkSession", topics: "Topics", tmp_path: Path, execution: str
) -> None:
    """One of a hundred records is corrupt; after the fix one command replays it, exactly once."""
    topic = topics.create("letters", partitions=2)
    corrupt = set(range(7, COUNT, 100))
    for partition in (0, 1):
        topics.fill(
            topic,
            [
                json.dumps({"id": n, "amount": "12.5 EUR" if n in corrupt else n / 4}).encode()
                for n in range(partition, COUNT, 2)
            ],
            partition=partition,
        )
    properties = {"bootstrap.servers": topics.bootstrap}
    names = {"TOPIC": topic, "NAME": topic, "EXECUTION": execution}
    file = read_pipelines(FILE, topics.bootstrap, tmp_path, TYPE="double", AMOUNT="amount", **names)

    run_once(spark, file)

    assert set(range(COUNT)) - corrupt == {row["id"] for row in rows_of(file, topic)}
    letters = [each.letter for each in open_letters(properties, f"{topic}.dlq")]
    assert {(topic, n % 2, n // 2) for n in corrupt} == {
        (each.topic, each.partition, each.offset) for each in letters if each
    }
    assert {"TypeMismatch"} == {each.error_class for each in letters if each}

    fixed = "try_cast(replace(amount, ' EUR', '') as double)"
    file = read_pipelines(FILE, topics.bootstrap, tmp_path, TYPE="string", AMOUNT=fixed, **names)
    assert len(corrupt) == replay(properties, f"{topic}.dlq", LetterFilter()).taken
    run_once(spark, file)

    assert sorted(range(COUNT)) == sorted(int(str(row["id"])) for row in rows_of(file, topic))
    assert [] == list(open_letters(properties, f"{topic}.dlq"))


STEPS = """\
name: steps
storage: ${STORAGE}
defaults: {ledger: false}
pipelines:
  - name: ${NAME}
    from: {topic: "${TOPIC}", value: {format: json, schema: "id bigint, n bigint"}}
    transform: ["select id, 10 div n as n, md5(cast(id as string)) as h"]
    expect: {known: {check: "100 div (id - 7) <> 100", on_fail: dlq}}
    to: {table: lake.steps, format: delta}
    execution: spark
"""


@pytest.mark.parametrize("fails", [frozenset({3, 150}), frozenset(range(200))], ids=["two", "all"])
def test_failing_records_are_found_with_few_jobs(
    spark: "SparkSession", topics: "Topics", tmp_path: Path, fails: frozenset[int]
) -> None:
    """Two become dead letters; where everything fails the breaker opens after a sample, at the first try."""
    topic = topics.create("steps")
    topics.fill(topic, [json.dumps({"id": n, "n": int(n not in fails)}).encode() for n in range(200)])
    file = read_pipelines(STEPS, topics.bootstrap, tmp_path, TOPIC=topic, NAME=topic)
    trials: list[tuple[int, int, int]] = []
    attempt = SparkBatch._failure_of

    def counted(
        batch: SparkBatch, decoded: "DataFrame", part: int, start: int, end: int, **options: bool
    ) -> str | None:
        trials.append((part, start, end))
        return attempt(batch, decoded, part, start, end, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkBatch, "_failure_of", counted)
        errors = Supervisor(spark, file, file.pipelines, is_once=True).run()

    if len(fails) == 2:
        assert [] == [str(each) for each in errors]
        assert set(range(200)) - fails - {7, 8} == {row["id"] for row in rows_of(file, topic)}
        letters = open_letters({"bootstrap.servers": topics.bootstrap}, f"{topic}.dlq")
        found = [each.letter for each in letters]
        assert [
            (3, "transform", "StepFailed"),
            (7, "expect", "ExpectationFailed"),
            (8, "expect", "ExpectationFailed"),
            (150, "transform", "StepFailed"),
        ] == sorted((each.offset, each.stage, each.error_class) for each in found if each)
        assert len(trials) <= 60
        return
    (error,) = errors
    assert isinstance(error, BreakerOpenError)
    assert "a step fails for 8 of 8 records tried of batch 1, more than 5.00% of it" in str(error)
    assert 8 == len(trials)
