"""Runs the Spark part: a Structured Streaming query that aggregates the events into Parquet files."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

BATCH_OFFSETS_MAX = 120_000
"""Small enough that the year arrives in several batches, as it would from a live topic."""

_POLL_SECONDS = 0.2
_EVENT_SCHEMA = (
    "scheduled_ms bigint, hour int, carrier string, flight int, tailnum string, origin string, dest string, "
    "distance int, dep_delay int, arr_delay int, air_time int"
)


@contextlib.contextmanager
def spark_session(log: Path) -> Iterator[SparkSession]:
    """Run Spark on this machine's cores; the output of the JVM goes to the log file."""
    # Spark starts workers, and looks for data sources, with the Python interpreter that these variables name.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _stderr_to(log):
        session = (
            SparkSession.builder.master("local[*]")
            .appName("flights")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def run_pipeline(
    session: SparkSession,
    bootstrap: str,
    topic: str,
    airlines: list[tuple[str, str]],
    table: Path,
    checkpoint: Path,
    report: Callable[[int], None],
) -> int:
    """Read the records that the topic has now and write the table; return how many records Spark read."""
    records = (
        session.readStream.format("kalda")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_OFFSETS_MAX)
        .load()
    )
    query = (
        delays_by_carrier_and_hour(
            records, session.createDataFrame(airlines, "carrier string, airline string")
        )
        .writeStream.outputMode("complete")
        .foreachBatch(lambda frame, _: frame.coalesce(1).write.mode("overwrite").parquet(str(table)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        while query.isActive:
            report(_rows_read(query))
            time.sleep(_POLL_SECONDS)
        query.awaitTermination()
    finally:
        query.stop()
    read = _rows_read(query)
    report(read)
    return read


def delays_by_carrier_and_hour(records: DataFrame, airlines: DataFrame) -> DataFrame:
    """Parse the events, add the airlines' names, and aggregate by carrier and scheduled hour of the day.

    Records that cannot be parsed are counted in the group without a carrier, so that no record is lost.
    """
    event = sf.from_json(sf.col("value").cast("string"), _EVENT_SCHEMA)
    flights = records.select(event.alias("event")).select("event.*")
    return (
        flights.join(sf.broadcast(airlines), "carrier", "left")
        .groupBy("carrier", "airline", "hour")
        .agg(
            sf.count("*").alias("flights"),
            sf.count("dep_delay").alias("departed"),
            sf.sum("dep_delay").alias("delay_minutes"),
            sf.sum(sf.when(sf.col("dep_delay") > 15, 1).otherwise(0)).alias("late"),
            sf.max("dep_delay").alias("delay_max"),
        )
    )


def _rows_read(query: StreamingQuery) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the process's stderr to a file, which children that start meanwhile inherit."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
