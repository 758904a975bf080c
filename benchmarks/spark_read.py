"""Spark batch reads: this project's source against Spark's own Kafka connector.

Both run the same queries in a process of their own (`spark_read_child`), in local mode on two cores. Spark's
connector does not exist for the PySpark that this project uses, so it runs on PySpark 4.2.0 in a virtual
environment under `.cache/`, with its jars from Maven. Each figure is the median of several runs, after one
that is not counted.
"""

import json
import os
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import confluent_kafka

from benchmarks.apache_kafka import CACHE_DIRECTORY, NotAvailableError, maven_jars
from benchmarks.end_to_end import Figure, Workload, create_topic, delete_topic

OFFICIAL_SPARK_VERSION: Final = "4.2.0"

_RECORDS: Final = 4_000_000
_PARTITIONS: Final = 4
_VALUE_BYTES: Final = 100
_TOPIC: Final = "spark-read"
_RUNS: Final = 3
_CHILD: Final = Path(__file__).with_name("spark_read_child.py")
_CHILD_TIMEOUT_SECONDS: Final = 600.0
_INSTALL_TIMEOUT_SECONDS: Final = 1_800.0
# The token provider was not published for 4.2.0; the connector needs it only to load.
_CONNECTOR_COORDINATES: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{OFFICIAL_SPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


def run(bootstrap: str) -> list[Figure]:
    """Measure the source `kalda`, read from a broker at `bootstrap`."""
    return _measure(bootstrap, Path(sys.executable), "kalda", jars=None)


def run_official(bootstrap: str) -> list[Figure]:
    """Measure Spark's own connector, read from a broker at `bootstrap`.

    Raises:
        NotAvailableError: its PySpark or its jars cannot be had here.
    """
    python, jars = official_connector()
    return _measure(bootstrap, python, "kafka", jars=Path(jars[0]).parent)


def official_connector() -> tuple[Path, list[str]]:
    """Return a Python with the PySpark of Spark's own connector, and the connector's jars.

    Raises:
        NotAvailableError: its PySpark or its jars cannot be had here.
    """
    jars = maven_jars(f"spark-kafka-{OFFICIAL_SPARK_VERSION}", _CONNECTOR_COORDINATES, transitive=False)
    return _official_python(), [str(each) for each in sorted(jars.glob("*.jar"))]


def load(bootstrap: str, topic: str) -> None:
    """Fill a topic: keys that differ, values of 100 bytes, spread over the partitions."""
    create_topic(bootstrap, topic, Workload(partitions=_PARTITIONS))
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    value = b"v" * _VALUE_BYTES
    for number in range(_RECORDS):
        while True:
            try:
                producer.produce(topic, key=b"key-%d" % number, value=value, partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60):
        raise RuntimeError("the broker did not take all records of the benchmark")


def _measure(bootstrap: str, python: Path, source: str, *, jars: Path | None) -> list[Figure]:
    load(bootstrap, _TOPIC)
    arguments = [str(python), str(_CHILD), "--source", source, "--bootstrap", bootstrap]
    arguments += ["--topic", _TOPIC, "--runs", str(_RUNS + 1)]
    if jars is not None:
        arguments += ["--jars", ",".join(str(each) for each in sorted(jars.glob("*.jar")))]
    # Spark looks for workers and data sources with the Python that these name, not with the one that runs.
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=_CHILD_TIMEOUT_SECONDS,
        env=environment,
        check=False,
    )
    delete_topic(bootstrap, _TOPIC)
    if done.returncode != 0:
        raise RuntimeError(f"the Spark benchmark failed:\n{done.stderr[-3000:]}")
    seconds: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return [
        (f"Spark batch read, {query}", _RECORDS / statistics.median(times[1:]) / 1e6, "M rows/s")
        for query, times in seconds.items()
    ]


def _official_python() -> Path:
    directory = CACHE_DIRECTORY / f"pyspark-{OFFICIAL_SPARK_VERSION}"
    python = directory / "bin" / "python"
    stamp = directory / ".installed"
    if stamp.exists():
        return python
    print(f"installing pyspark {OFFICIAL_SPARK_VERSION} into {directory} (once, 450 MB)", file=sys.stderr)
    venv.create(directory, with_pip=True, clear=True)
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", f"pyspark=={OFFICIAL_SPARK_VERSION}"],
        capture_output=True,
        text=True,
        timeout=_INSTALL_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise NotAvailableError(f"pyspark {OFFICIAL_SPARK_VERSION} could not be installed: {last_line}")
    stamp.touch()
    return python
