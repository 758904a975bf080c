"""Pipelines from a file to tables and topics, on real brokers and Spark."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("sqlglot")

from kalda import Producer
from kalda.common.types import TopicPartition
from kalda.pipelines.engine.passed import PassedRecords
from kalda.pipelines.spec.model import PipelineFile, TopicSource
from tests.spark.pipelines import read_pipelines, records_of, rows_of, run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topics

COUNT = 400

FILE = """\
name: orders
storage: ${STORAGE}
defaults:
  value: {format: json, schema: "id bigint, amount double, ts timestamp"}
  breaker: {bad_max: 20%}
  restart: {tries: 6}
pipelines:
  - name: direct
    from: {topic: "${TOPIC}", keep: [offset]}
    transform:
      - select *, to_date(ts) as day, 1 div (id - 101) as part where amount > 0
      - python: shop_steps:mark
    expect: {even: {check: "id % 100 <> 99", on_fail: dlq}}
    to: {table: lake.direct, format: delta, partition_by: [day], event_time: ts}
  - name: spark
    from: {topic: "${TOPIC}", keep: [offset]}
    transform:
      - select *, to_date(ts) as day, 1 div (id - 101) as part where amount > 0
      - python: shop_steps:mark
    expect: {even: {check: "id % 100 <> 99", on_fail: dlq}}
    to: {table: lake.spark, format: parquet, partition_by: [day], event_time: ts}
    execution: spark
  - name: sums
    from: {topic: "${TOPIC}"}
    transform: ["where amount > 0", "select id % 10 as digit, count(*) as n from input group by id % 10"]
    to: {table: lake.sums, format: parquet}
  - name: alerts
    from: {topic: "${TOPIC}"}
    transform: ["select cast(id as string) as key, to_json(struct(*)) as value where amount > 500"]
    to: {topic: "${TOPIC}.alerts"}
"""


STEPS = """\
import pyarrow as pa
import pyarrow.compute as pc


def mark(batch):
    rows = batch.filter(pc.not_equal(batch.column("id"), 7))
    return rows.append_column("seen", pa.repeat(pa.scalar("yes"), rows.num_rows))
"""


def shop(topics: "Topics", directory: Path) -> PipelineFile:
    """Return the pipelines of a new topic with `COUNT` records, of which each fiftieth is bad."""
    topic = topics.create("orders", partitions=2)
    for partition in (0, 1):
        topics.fill(
            topic,
            [
                b"bad"
                if each % 50 == 0
                else json.dumps(
                    {"id": each, "amount": each * 1.5 - 15, "ts": "2026-01-01T10:00:00Z"}
                ).encode()
                for each in range(partition, COUNT, 2)
            ],
            partition=partition,
        )
    (directory / "shop_steps.py").write_text(STEPS)
    return read_pipelines(FILE, topics.bootstrap, directory, TOPIC=topic)


def topic_of(file: PipelineFile) -> str:
    source = file.pipelines[0].source
    assert isinstance(source, TopicSource)
    return source.topics[0]


def test_both_ways_of_execution_write_the_same_and_account_for_every_record(
    spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """Direct execution is a matter of speed only; a second run changes nothing."""
    file = shop(topics, tmp_path)
    topic = topic_of(file)

    for name in ("direct", "spark"):
        # Offset 102 of partition 1 is the record 205.
        PassedRecords(file.storage, name).add([(TopicPartition(topic, 1), 102)], "by hand")

    found = run_once(spark, file, "direct", "spark")

    def by_id(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return sorted(rows, key=lambda row: str(row["id"]))

    direct, through_spark = by_id(rows_of(file, "direct")), by_id(rows_of(file, "spark"))
    assert direct == through_spark
    failing = (101, 205)
    good = [
        each for each in range(COUNT) if each % 50 and each > 10 and each % 100 != 99 and each not in failing
    ]
    assert sorted(map(str, good)) == [str(row["id"]) for row in direct]
    assert ("direct", "spark") == (found["direct"].execution, found["spark"].execution)
    for name in ("direct", "spark"):
        status = found[name]
        assert (COUNT, len(good), 8 + 4 + 2) == (status.records, status.rows_out, status.dlq), name
        assert COUNT - len(good) - 14 == status.filtered
        letters = records_of(topics.bootstrap, f"{name}.dlq", 14)
        stages = Counter(dict(each.headers)["dlq.stage"] for each in letters)
        assert {b"decode": 9, b"expect": 4, b"transform": 1} == stages
    again = run_once(spark, file, "direct", "spark")
    assert [0, 0] == [again[name].records for name in ("direct", "spark")]
    assert direct == by_id(rows_of(file, "direct"))


def test_sums_and_topics_are_written(spark: "SparkSession", topics: "Topics", tmp_path: Path) -> None:
    file = shop(topics, tmp_path)

    run_once(spark, file, "sums", "alerts")

    assert dict.fromkeys(range(1, 10), 39) | {0: 31} == {
        row["digit"]: row["n"] for row in rows_of(file, "sums")
    }
    alerts = records_of(topics.bootstrap, f"{topic_of(file)}.alerts", 1)
    assert {"id", "amount", "ts"} == set(json.loads(alerts[0].value or b""))


def test_a_tombstone_deletes_whatever_the_order(
    spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """It has no column of the value, neither `order_by` nor one that an expectation asks for."""
    topic = topics.create("versions")
    topics.fill(topic, [b'{"ver": 7}', b'{"ver": 1}', None], keys=[b"1", b"2", b"1"])
    each_way = [(kind, execution) for kind in ("delta", "iceberg") for execution in ("direct", "spark")]
    text = ["name: versions", "storage: ${STORAGE}", "pipelines:"]
    text += [
        f"""\
  - name: {kind}_{execution}
    from: {{topic: {topic}, value: {{format: json, schema: "ver bigint"}}, keep: [key]}}
    transform: ["select cast(cast(key as string) as bigint) as id, ver"]
    expect: {{versioned: {{check: ver is not null, on_fail: dlq}}}}
    to: {{table: lake.{kind}_{execution}, format: {kind}, mode: upsert, keys: [id], order_by: ver}}
    execution: {execution}"""
        for kind, execution in each_way
    ]
    file = read_pipelines("\n".join(text), topics.bootstrap, tmp_path)

    found = run_once(spark, file)

    for each in file.pipelines:
        assert each.name.endswith(found[each.name].execution)
        assert [{"id": 2, "ver": 1}] == rows_of(file, each.name), each.name


WITHOUT_SCHEMA = """\
name: shown
storage: ${STORAGE}
defaults: {value: json, restart: {tries: 2}}
pipelines:
  - name: shown-direct
    from: {topic: ["${TOPIC}", "${OTHER}"]}
    to: {table: lake.direct, schema: {evolve: add}}
  - name: shown-spark
    from: {topic: ["${TOPIC}", "${OTHER}"]}
    to: {table: lake.spark, schema: {evolve: add}}
    execution: spark
"""


def test_every_field_of_a_batch_is_a_column_either_way(
    spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """Whatever its name, its range or topic, and the order of keys; a batch may show no column."""
    topic, other = topics.create("shown", partitions=2), topics.create("shown")
    file = read_pipelines(WITHOUT_SCHEMA, topics.bootstrap, tmp_path, TOPIC=topic, OTHER=other)
    names = ("shown-direct", "shown-spark")
    topics.fill(topic, [b"junk", b"more junk"])
    found = run_once(spark, file)
    assert [(2, 0), (2, 0)] == [(found[name].dlq, found[name].rows_out) for name in names]

    topics.fill(topic, [b'{"id":1,"first-name":"Ada","last name":"Lovelace"}'] * 2)
    topics.fill(topic, [b'{"last name":"Hopper","id":2.5,"first-name":"Grace"}', b"junk"], partition=1)
    topics.fill(other, [b'{"user":{"na.me":"n"}}'])
    found = run_once(spark, file)

    assert [(1, 4), (1, 4)] == [(found[name].dlq, found[name].rows_out) for name in names]
    ada = {"id": 1.0, "first-name": "Ada", "last name": "Lovelace", "user": None}
    grace = {"id": 2.5, "first-name": "Grace", "last name": "Hopper", "user": None}
    third = {"id": None, "first-name": None, "last name": None, "user": {"na.me": "n"}}
    expected = sorted(map(repr, [ada, ada, grace, third]))
    for name in names:
        assert expected == sorted(repr({key: row[key] for key in ada}) for row in rows_of(file, name))


def test_names_that_differ_by_case_alone_are_one_column_either_way(
    spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """Spark has one column for both, and so have tables; one record with both stopped the pipeline."""
    topic = topics.create("case")
    topics.fill(topic, [b'{"id":1,"v":"a"}', b'{"id":2,"ID":20}', b'{"ID":3,"v":"c"}', b'{"Offset":4}'])
    values = {"inferred": "json", "declared": '{format: json, schema: "id bigint, ID bigint, v string"}'}
    each_way = [(kind, execution) for kind in values for execution in ("auto", "spark")]
    text = ["name: case", "storage: ${STORAGE}", "defaults: {breaker: {bad_max: 100%}, restart: {tries: 1}}"]
    text += ["pipelines:"]
    text += [
        f"""\
  - name: {kind}_{execution}
    from: {{topic: {topic}, value: {values[kind]}, keep: [offset]}}
    transform: [where iD is not null, "select id, v, offset"]
    to: {{table: lake.{kind}_{execution}}}
    execution: {execution}"""
        for kind, execution in each_way
    ]
    file = read_pipelines("\n".join(text), topics.bootstrap, tmp_path)

    found = run_once(spark, file)

    for kind, execution in each_way:
        name = f"{kind}_{execution}"
        assert ("direct" if execution == "auto" else "spark") == found[name].execution
        expected = [{"id": 1, "v": "a", "offset": 0}, {"id": 3, "v": "c", "offset": 2}]
        assert expected == sorted(rows_of(file, name), key=lambda row: str(row["id"])), name
        letters = records_of(topics.bootstrap, f"{name}.dlq", found[name].dlq)
        classes = [dict(each.headers)["dlq.error.class"] for each in letters]
        assert ([b"AmbiguousName", b"ReservedName"] if kind == "inferred" else [b"AmbiguousName"]) == classes


def test_a_record_whose_timestamp_the_topic_refuses_is_a_dead_letter_either_way(
    spark: "SparkSession", topics: "Topics", tmp_path: Path
) -> None:
    """The broker alone knows its clock; the refusal stopped the pipeline, and so did that of the letter."""
    source = topics.create("timed", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    with Producer(bootstrap_servers=topics.bootstrap) as producer:
        for value, time_ms in ((b"good", None), (b"late", 4_102_444_800_000), (b"good", None)):
            producer.send(source, value=value, timestamp_ms=time_ms).result(30)
    bounded = {"message.timestamp.after.max.ms": "3600000"}
    each_way = {
        execution: topics.create(f"timed-{execution}", config=bounded) for execution in ("auto", "spark")
    }
    text = ["name: timed", "storage: ${STORAGE}", "defaults: {breaker: {bad_max: 100%}, restart: {tries: 1}}"]
    text += ["pipelines:"]
    text += [
        f"""\
  - name: {target}
    from: {{topic: {source}, value: raw, keep: [timestamp]}}
    transform: ["select value, timestamp"]
    to: {{topic: {target}}}
    execution: {execution}"""
        for execution, target in each_way.items()
    ]
    file = read_pipelines("\n".join(text), topics.bootstrap, tmp_path)
    for target in each_way.values():
        topics.create_named(f"{target}.dlq", config=bounded)

    found = run_once(spark, file)

    for execution, target in each_way.items():
        assert ("direct" if execution == "auto" else "spark") == found[target].execution
        assert [b"good"] * 2 == [each.value for each in records_of(topics.bootstrap, target, 2)]
        (letter,) = records_of(topics.bootstrap, f"{target}.dlq", 1)
        headers = dict(letter.headers)
        assert (b"late", b"target", b"RecordRefused") == (
            letter.value,
            headers["dlq.stage"],
            headers["dlq.error.class"],
        )
        assert b"4102444800000 ms is later than `message.timestamp.after.max.ms`" in (
            headers["dlq.error.message"] or b""
        )
        assert (b"1", b"4102444800000") == (headers["dlq.offset"], headers["dlq.timestamp"])
