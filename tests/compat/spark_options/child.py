"""Runs queries for `test_spark_options` in a Spark session of its own and prints what came of them as JSON.

It needs PySpark and nothing else, because Spark's own connector runs in an environment without Kalda. It
reads one JSON object from stdin: the source's name, its jars, and the cases.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

_ROWS_MAX = 2000
_QUERY_SECONDS = 240


def main() -> None:
    """Run the cases in order and print their outcomes by name."""
    request = json.load(sys.stdin)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
    )
    if request["jars"]:
        builder = builder.config("spark.jars", ",".join(request["jars"]))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    outcomes = {}
    for case in request["cases"]:
        run = _run_stream if case["kind"] == "stream" else _run_batch
        begin = time.monotonic()
        outcomes[case["name"]] = run(spark, request["source"], case)
        print(f"{time.monotonic() - begin:6.1f} s  {case['name']}", file=sys.stderr, flush=True)
    spark.stop()
    sys.stdout.write("\n" + json.dumps(outcomes) + "\n")


def _run_batch(spark: SparkSession, source: str, case: dict[str, Any]) -> dict[str, Any]:
    try:
        reader = spark.read.format(source).options(**case["options"])
        if "schema" in case:
            reader = reader.schema(case["schema"])
        frame = reader.load()
        if "where" in case:
            frame = frame.where(case["where"])
        return {"rows": _rows(frame), "tasks": frame.rdd.getNumPartitions(), "schema": _schema(frame)}
    except Exception as error:  # The kind of failure is the outcome.
        return _failure(error)


def _run_stream(spark: SparkSession, source: str, case: dict[str, Any]) -> dict[str, Any]:
    """Run the steps one after the other on one checkpoint, each until it has read what there is."""
    given = case.get("checkpoint")
    directory = given or tempfile.mkdtemp(prefix="spark-options-")
    batches: dict[int, list[list[Any]]] = {}
    try:
        for options in case["steps"]:
            frame = spark.readStream.format(source).options(**options).load()
            query = (
                frame.writeStream.foreachBatch(
                    lambda part, batch_id: batches.__setitem__(batch_id, _rows(_wanted(part, case)))
                )
                .option("checkpointLocation", f"{directory}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            try:
                if not query.awaitTermination(_QUERY_SECONDS):
                    return {"error": "hangs"}
            finally:
                query.stop()
    except Exception as error:
        return _failure(error)
    finally:
        offsets = _logged_offsets(Path(directory) / "checkpoint" / "offsets")
        if given is None:
            shutil.rmtree(directory, ignore_errors=True)
    rows = sorted((row for batch in batches.values() for row in batch), key=repr)
    # This source logs where a query starts with an empty batch.
    sizes = [len(batches[number]) for number in sorted(batches) if batches[number]]
    return {"rows": rows, "batches": sizes, "offsets": offsets}


def _wanted(frame: DataFrame, case: dict[str, Any]) -> DataFrame:
    """Return the rows, or only which offsets they have where there are too many to compare."""
    if not case.get("spans"):
        return frame
    spans = ("count(*)", "min(offset)", "max(offset)", "count(DISTINCT offset)")
    return frame.groupBy("partition").agg(*map(expr, spans))


def _rows(frame: DataFrame) -> list[list[Any]]:
    rows = sorted(([_plain(value) for value in row] for row in frame.collect()), key=repr)
    if len(rows) > _ROWS_MAX:
        import hashlib

        return [[len(rows), hashlib.sha256(json.dumps(rows).encode()).hexdigest()]]
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, int | str) else str(value)


def _schema(frame: DataFrame) -> list[list[Any]]:
    return [[field.name, field.dataType.simpleString(), field.nullable] for field in frame.schema]


def _logged_offsets(directory: Path) -> Any:
    """Return what the last entry of the offset log says; numbers of partitions as numbers."""
    numbers = [int(each.name) for each in directory.glob("*") if each.name.isdigit()]
    if not numbers:
        return None
    logged = json.loads((directory / str(max(numbers))).read_text().splitlines()[-1])
    # This source adds an entry without partitions for the id of each topic, which both sources read as none.
    return {topic: offsets for topic, offsets in logged.items() if offsets}


_KINDS = (
    # In order: a message may hold the words of several.
    ("refused", ("OptionError", 'For input string: "')),
    ("data loss", ("DataLossError", "KAFKA_DATA_LOSS", "failOnDataLoss", "OffsetOutOfRange")),
    ("no topic", ("UnknownTopicOrPartition",)),
    (
        "refused",
        (
            "OptionError",
            "IllegalArgumentException",
            "NumberFormatException",
            "NoSuchElementException",
            "AssertionError",
            "ConfigException",
            "requirement failed",
            "PatternSyntaxException",
            "assertion failed",
            "START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
            "TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED",
            "USER_SPECIFIED_AND_ACTUAL_SCHEMA_MISMATCH",
            "No offset matched",
            "Time must be specified",
            "IllegalStateException",
            "For input string",
            "Invalid pattern",
            "KAFKA_",
            "UNMATCHED_TOPIC_PARTITIONS",
            "UNRESOLVED_START",
        ),
    ),
)


def _failure(error: Exception) -> dict[str, Any]:
    # The JVM's exception is not always in the text of Python's.
    text = f"{type(error).__name__}: {error} {getattr(error, 'java_exception', '')}"
    kind = next((kind for kind, words in _KINDS if any(word in text for word in words)), "other")
    return {
        "error": kind,
        "text": text[:600],
        "lines": len(str(error).split("=== Streaming Query")[0].splitlines()),
    }


if __name__ == "__main__":
    main()
