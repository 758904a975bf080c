"""One side of the Spark benchmarks: a Spark session that runs the queries which the parent names.

Commands come as lines of JSON on standard input, answers go as lines of JSON to standard output. The side of
Spark's own connector runs in an environment that has PySpark and nothing else.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

Arguments = Mapping[str, Any]

_WARM_BATCHES: Final = 10
_STREAM_TIMEOUT_SECONDS: Final = 300.0
_PIPELINE: Final = """\
name: benchmark
storage: {directory}/storage
pipelines:
  - name: copy
    from: {{topic: {topic}, start: earliest, value: {{format: raw}}}}
    to: {{table: {directory}/table, format: parquet}}
"""
_TEXT_BYTES: Final = 8_000
"""What values are parts of."""


class Side:
    """A session and the name of the format that it reads and writes topics with."""

    def __init__(self, spark: SparkSession, source: str, bootstrap: str, directory: Path) -> None:
        self._spark: Final = spark
        self._source: Final = source
        self._servers: Final = {"kafka.bootstrap.servers": bootstrap}
        self._directory: Final = directory
        self._made_rows: Final[dict[str, DataFrame]] = {}
        self._transactions = 0

    def batch_read(self, arguments: Arguments) -> float:
        """Read a topic to nothing; seconds."""
        return _seconds(lambda: _discard(self._rows(arguments)))

    def to_parquet(self, arguments: Arguments) -> float:
        """Copy a topic to Parquet files with Spark's writer; seconds."""
        rows = self._rows(arguments)
        target = str(self._directory / "parquet")
        return _seconds(lambda: rows.write.mode("overwrite").parquet(target))

    def stream_to_parquet(self, arguments: Arguments) -> float:
        """Copy a topic to Parquet files as a stream that ends, with a new checkpoint; seconds."""
        directory = Path(tempfile.mkdtemp(dir=self._directory))
        rows = self._stream(arguments)

        def run() -> None:
            writer = rows.writeStream.format("parquet").option(
                "checkpointLocation", str(directory / "progress")
            )
            writer.trigger(availableNow=True).start(str(directory / "table")).awaitTermination()

        took = _seconds(run)
        shutil.rmtree(directory)
        return took

    def available_now(self, arguments: Arguments) -> float:
        """Read a topic as a stream that ends, to nothing, with a new checkpoint; seconds."""
        checkpoint = tempfile.mkdtemp(dir=self._directory)
        rows = self._stream(arguments)

        def run() -> None:
            writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()

        took = _seconds(run)
        shutil.rmtree(checkpoint)
        return took

    def micro_batch(self, arguments: Arguments) -> float:
        """Read a topic as a stream in small batches; the median of `triggerExecution`, in seconds."""
        checkpoint = tempfile.mkdtemp(dir=self._directory)
        wanted = _WARM_BATCHES + arguments["batches"]
        writer = self._stream(arguments).writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.start()
        deadline = time.monotonic() + _STREAM_TIMEOUT_SECONDS
        while (query.lastProgress is None or query.lastProgress.batchId < wanted) and query.isActive:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{wanted} batches took over {_STREAM_TIMEOUT_SECONDS} s")
            time.sleep(0.2)
        progress = [each for each in query.recentProgress if _WARM_BATCHES <= each.batchId <= wanted]
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
        return statistics.median(each.durationMs["triggerExecution"] for each in progress) / 1000

    def write(self, arguments: Arguments) -> float:
        """Write rows that are ready in Spark's memory to a topic; seconds."""
        rows = self._ready_rows(arguments["count"], arguments["value_bytes"])
        options = dict(arguments["options"])
        if options.get("delivery") == "exactly-once":
            # A batch write has no query id and batch number of its own.
            self._transactions += 1
            options |= {"txn.id": "benchmark", "txn.version": str(self._transactions)}
        writer = rows.write.format(self._source).options(**self._servers, **options)
        return _seconds(lambda: writer.mode("append").save())

    def pipeline(self, arguments: Arguments) -> float:
        """Copy a topic to a Parquet table as `kalda pipeline once` does, in this session; seconds."""
        # Not at the top: the side of Spark's own connector has no Kalda.
        from kalda.pipelines.engine.supervisor import Supervisor
        from kalda.pipelines.spec.parser import parse_pipeline_file

        directory = Path(tempfile.mkdtemp(dir=self._directory))
        text = _PIPELINE.format(directory=directory, topic=arguments["options"]["subscribe"])

        def run() -> None:
            file = parse_pipeline_file(
                text,
                "benchmark.yml",
                directory=directory,
                settings={"bootstrap.servers": self._servers["kafka.bootstrap.servers"]},
                variables={},
            )
            errors = Supervisor(
                self._spark, file, list(file.pipelines), is_once=True, show=lambda _: None
            ).run()
            if errors:
                raise errors[0]

        took = _seconds(run)
        shutil.rmtree(directory)
        return took

    def _rows(self, arguments: Arguments) -> DataFrame:
        reader = self._spark.read.format(self._source).options(**self._servers, **arguments["options"])
        return reader.load()

    def _stream(self, arguments: Arguments) -> DataFrame:
        reader = self._spark.readStream.format(self._source).option("startingOffsets", "earliest")
        return reader.options(**self._servers, **arguments["options"]).load()

    def _ready_rows(self, count: int, value_bytes: int) -> DataFrame:
        """Return cached rows of key and value, the values of a size that varies by 40 %."""
        name = f"{count}x{value_bytes}"
        if name not in self._made_rows:
            for rows in self._made_rows.values():
                rows.unpersist()
            self._made_rows.clear()
            chooser = random.Random(1)
            text = "".join(f"{chooser.getrandbits(32):08x}" for _ in range(_TEXT_BYTES // 8))
            shortest, span = round(value_bytes * 0.6), round(value_bytes * 0.8)
            start = f"1 + int(pmod(id * 7919, {_TEXT_BYTES - 2 * value_bytes}))"
            size = f"{shortest} + int(pmod(xxhash64(id), {span}))"
            rows = (
                self._spark.range(count, numPartitions=4)
                .selectExpr(
                    "cast(concat('key-', id) AS binary) AS key",
                    f"cast(substring('{text}', {start}, {size}) AS binary) AS value",
                )
                .cache()
            )
            rows.count()
            self._made_rows[name] = rows
        return self._made_rows[name]


def main() -> None:
    """Start the session, then answer commands until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--directory", required=True, type=Path)
    parser.add_argument("--settings", required=True, type=json.loads)
    parser.add_argument("--has-kalda", action="store_true")
    options = parser.parse_args()
    spark = _session(options.settings, has_kalda=options.has_kalda)
    spark.sparkContext.setLogLevel("ERROR")
    side = Side(spark, options.source, options.bootstrap, options.directory)
    _answer({"ready": True})
    for line in sys.stdin:
        command = json.loads(line)
        measure: Callable[[Arguments], float] = getattr(side, command["measure"])
        try:
            cpu_before = _cpu_seconds()
            seconds = measure(command["arguments"])
            _answer({"seconds": seconds, "cpu_seconds": _cpu_seconds() - cpu_before})
        except Exception as error:  # the parent reports it beside the row and goes on with the next one
            _answer({"error": f"{type(error).__name__}: {error}"[:2_000]})
    spark.stop()


def _session(settings: Mapping[str, str], *, has_kalda: bool) -> SparkSession:
    if has_kalda:
        from kalda.spark.session import build_session

        return build_session("benchmark", "local[2]", settings)
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _seconds(query: Callable[[], None]) -> float:
    begin = time.perf_counter()
    query()
    return time.perf_counter() - begin


def _cpu_seconds() -> float:
    """Return the CPU time of this process and all below it: the virtual machine and Python workers."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(entry.name)
        # User and system time, of the process and of children that have ended.
        ticks[pid] = sum(int(each) for each in fields[11:15])
        children.setdefault(int(fields[1]), []).append(pid)
    below = [os.getpid()]
    for pid in below:
        below += children.get(pid, [])
    return sum(ticks[pid] for pid in below) / os.sysconf("SC_CLK_TCK")


def _answer(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
