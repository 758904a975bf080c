"""While a query runs, Kafka's own group tool and ours show its lag, within one batch of the truth."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.compat.conftest import JavaTool
from tests.shared_broker import shared_broker

pytestmark = pytest.mark.timeout(600)

GROUP = "spark-lag"
TOPIC = "lag"
BATCH = 100
_QUERY = """
import sys, time
from pyspark.sql import SparkSession
bootstrap, directory = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "1g").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
spark.sparkContext.setLogLevel("OFF")
frame = (spark.readStream.format("kalda").option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", "lag").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "100")
    .option("kafka.group.id", "spark-lag").load())
def sink(part, number):
    time.sleep(1)
    with open(directory + "/done", "a") as file:
        file.write(f"{part.count()}\\n")
writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", directory + "/checkpoint")
writer.start().awaitTermination()
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker with 3,000 records in one partition."""
    with shared_broker(tmp_path / "broker") as bootstrap:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        for number in range(3000):
            producer.produce(TOPIC, b"%d" % number, partition=0)
        assert 0 == producer.flush(30)
        yield bootstrap


def shown_lag(tool: Callable[[], str]) -> int:
    """The number in the column LAG of the line of the topic; -1 before the first commit."""
    lines = [line.split() for line in tool().splitlines()]
    header = next((line for line in lines if "LAG" in line), None)
    row = next((line for line in lines if TOPIC in line), None)
    return -1 if header is None or row is None else int(row[header.index("LAG")])


def test_the_lag_is_shown_within_one_batch_of_the_truth(
    address: str, java_tool: JavaTool, tmp_path: Path
) -> None:
    """One batch of 100 takes a second: what the sink has taken, and what the tools show, are compared."""
    done = tmp_path / "done"
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    query = subprocess.Popen(
        [sys.executable, "-c", _QUERY, address, str(tmp_path)], env=environment, stderr=subprocess.DEVNULL
    )

    def theirs() -> str:
        return java_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", address, "--describe", "--group", GROUP),
        )

    def ours() -> str:
        command = [sys.executable, "-m", "kalda", "groups", "describe", GROUP, "--bootstrap-server", address]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def truth() -> int:
        return 3000 - (sum(map(int, done.read_text().split())) if done.exists() else 0)

    try:
        deadline = time.monotonic() + 240
        while truth() > 2700:
            assert query.poll() is None, "the query ended"
            assert time.monotonic() < deadline, "the query reads nothing"
            time.sleep(0.5)
        for tool in (theirs, ours):
            before = truth()
            shown = shown_lag(tool)
            # While the tool ran, the sink went on; the batch that is being written counts as lag.
            assert truth() - BATCH <= shown <= before + BATCH, (tool.__name__, before, shown, truth())
    finally:
        query.terminate()
        query.wait(60)
    assert json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])
