"""A query outlives the broker: connections are opened again, and no record is lost or read twice."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka

from kalda.testing import KaldaProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_SECONDS = 90


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in numbers:
        producer.produce(topic, b"%d" % number)
    assert 0 == producer.flush(60)


def test_a_stream_goes_on_after_its_broker_was_killed(spark: "SparkSession", tmp_path: Path) -> None:
    taken: list[int] = []

    def take(frame: "DataFrame", batch_id: int) -> None:
        taken.extend(int(row.value) for row in frame.select("value").collect())

    def wait_for(count: int) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while len(taken) < count:
            assert query.exception() is None
            assert time.monotonic() < deadline, f"{len(taken)} of {count} records; {query.lastProgress}"
            time.sleep(0.1)

    with KaldaProcess(tmp_path / "data") as kalda:
        produce(kalda.bootstrap, "restarted", range(100))
        query = (
            spark.readStream.format("kalda")
            .option("kafka.bootstrap.servers", kalda.bootstrap)
            .option("subscribe", "restarted")
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            wait_for(100)
            kalda.kill()
            # Long enough for triggers to meet a broker that is not there.
            time.sleep(1.0)
            kalda.start()
            produce(kalda.bootstrap, "restarted", range(100, 200))
            wait_for(200)
        finally:
            query.stop()

    assert list(range(200)) == sorted(taken)
