"""The Spark side of `spark_read`: runs the queries and prints their times as one line of JSON.

Needs PySpark and nothing else, because Spark's own connector is measured in an environment without Kalda.
"""

import argparse
import json
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    """Parse the arguments, run each query so many times, print the seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--jars")
    options = parser.parse_args()

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if options.jars:
        builder = builder.config("spark.jars", options.jars)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def rows() -> DataFrame:
        reader = spark.read.format(options.source)
        return (
            reader.option("kafka.bootstrap.servers", options.bootstrap)
            .option("subscribe", options.topic)
            .load()
        )

    def aggregate() -> None:
        rows().selectExpr(
            "count(*)", "sum(length(key))", "sum(length(value))", "max(offset)", "max(timestamp)"
        ).collect()

    def discard() -> None:
        rows().write.format("noop").mode("overwrite").save()

    queries: dict[str, Callable[[], None]] = {"aggregate": aggregate, "noop sink": discard}
    seconds = {name: [_seconds(query) for _ in range(options.runs)] for name, query in queries.items()}
    spark.stop()
    print(json.dumps(seconds))


def _seconds(query: Callable[[], None]) -> float:
    begin = time.perf_counter()
    query()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
