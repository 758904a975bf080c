"""The Spark application of `spark_sink_rounds`: copies a topic to another until it is killed.

A query that fails is started again from its checkpoint, in the same session.
"""

import argparse
import os
import sys
import time

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from pyspark.sql import SparkSession  # the environment comes first
from pyspark.sql.streaming.query import StreamingQuery


def main() -> None:
    """Run the query for ever."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "target", "checkpoint", "delivery"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--per-trigger", required=True)
    parser.add_argument("--speculation", action="store_true")
    options = parser.parse_args()
    builder = (
        # Tasks are retried, so that attempts meet.
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        # The check of partial batches needs the offsets of all of them.
        .config("spark.sql.streaming.minBatchesToRetain", "1000000")
    )
    if options.speculation:
        builder = (
            builder.config("spark.speculation", "true")
            .config("spark.speculation.interval", "50ms")
            .config("spark.speculation.multiplier", "1.05")
            .config("spark.speculation.quantile", "0.25")
            .config("spark.speculation.minTaskRuntime", "50ms")
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

    def start() -> StreamingQuery:
        servers = {"kafka.bootstrap.servers": options.bootstrap}
        reader = spark.readStream.format("kalda").options(**servers, subscribe=options.source)
        rows = reader.option("startingOffsets", "earliest").option(
            "maxOffsetsPerTrigger", options.per_trigger
        )
        frame = rows.load().selectExpr(
            "CAST(concat(partition, ':', offset, ':', CAST(value AS STRING)) AS BINARY) AS value"
        )
        writer = frame.writeStream.format("kalda").options(
            **servers, topic=options.target, delivery=options.delivery
        )
        return (
            writer.option("checkpointLocation", options.checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )

    while True:
        query = start()
        print("started", flush=True)
        try:
            query.awaitTermination()
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            print("failed:", lines[0][:200], "|", lines[-1][:300], flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
