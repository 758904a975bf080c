"""Spark Declarative Pipelines and Spark Connect use the source as it is, without registration."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.shared_broker import shared_broker

pytestmark = pytest.mark.timeout(900)

_RUN_SECONDS = 420
_TRANSFORMATIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

spark = SparkSession.active()


@dp.table(format="parquet")
def bronze():
    return (spark.readStream.format("kalda").option("kafka.bootstrap.servers", "{address}")
        .option("subscribe", "orders").option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "400").load())


@dp.table(format="parquet")
def silver():
    parsed = from_json(col("value").cast("string"), "id INT, amount INT")
    rows = spark.readStream.table("bronze").select("partition", "offset", parsed.alias("v"))
    return rows.select("partition", "offset", "v.*")
"""
_FILE = """
name: orders
storage: state
cluster: {{bootstrap.servers: "{address}"}}
defaults: {{on_error: skip, value: {{format: json, schema: "id bigint, amount bigint"}}}}
pipelines:
  - name: large
    from: {{topic: orders, keep: [offset]}}
    transform: ["select *, id % 2 as half", where amount >= 1000]
    to: {{table: large, format: parquet, partition_by: [half]}}
  - name: alerts
    from: {{topic: orders}}
    expect: {{last: {{check: length(value) > 0, on_fail: drop}}}}
    transform: ["select cast(id as string) as key, to_json(struct(*)) as value where id >= 990"]
    to: {{topic: alerts}}
"""
_CONNECT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
frame = (spark.read.format("kalda").option("kafka.bootstrap.servers", sys.argv[1])
    .option("subscribe", "orders").load())
print("rows", frame.count(), frame.selectExpr("count(DISTINCT partition, offset)").collect()[0][0])
spark.stop()
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with 1,000 orders in two partitions."""
    with shared_broker(tmp_path_factory.mktemp("broker")) as bootstrap:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([confluent_kafka.admin.NewTopic("orders", 2, 1)])["orders"].result(30)
        for number in range(1000):
            producer.produce("orders", json.dumps({"id": number, "amount": 2 * number}), partition=number % 2)
        assert 0 == producer.flush(30)
        yield bootstrap


def run(command: Sequence[str], directory: Path) -> str:
    """Run a program that starts a Spark of its own; return what it prints."""
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def test_a_declarative_project_runs(address: str, tmp_path: Path) -> None:
    """A project with a bronze and a silver table."""
    import pyarrow.dataset as ds

    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(_TRANSFORMATIONS.format(address=address))
    storage = (tmp_path / "storage").as_uri()
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: {storage}\nlibraries:\n  - glob:\n      include: transformations/**\n"
    )
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]

    run(command, tmp_path)

    # A directory of checkpoints has the same name.
    files = [str(each) for each in tmp_path.rglob("silver/*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table().to_pylist()
    assert list(range(1000)) == sorted(row["id"] for row in rows)
    assert all(row["amount"] == 2 * row["id"] for row in rows)


def test_an_exported_pipeline_file_runs(address: str, tmp_path: Path) -> None:
    """`kalda pipeline export-sdp` writes a project that Spark runs: a table and a topic."""
    import pyarrow.dataset as ds

    (tmp_path / "orders.yml").write_text(_FILE.format(address=address))
    run(
        [sys.executable, "-m", "kalda", "pipeline", "export-sdp", "orders.yml", "--output", "project"],
        tmp_path,
    )

    run([str(Path(sys.executable).with_name("spark-pipelines")), "run"], tmp_path / "project")

    files = [str(each) for each in tmp_path.rglob("spark-warehouse/large/**/*.parquet")]
    rows = ds.dataset(files, format="parquet").to_table().to_pylist()
    assert list(range(500, 1000)) == sorted(row["id"] for row in rows)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "alerts"})
    consumer.assign([confluent_kafka.TopicPartition("alerts", 0, 0)])
    alerts = {json.loads(each.value())["id"] for each in consumer.consume(10, timeout=60)}
    consumer.close()
    assert set(range(990, 1000)) == alerts


def test_spark_connect_reads(address: str, tmp_path: Path) -> None:
    """`remote("local")`: the client has no JVM of its own, and the server finds the source."""
    assert "rows 1000 1000" in run([sys.executable, "-c", _CONNECT, address], tmp_path)
