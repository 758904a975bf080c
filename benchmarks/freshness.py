"""How long a record takes from its producer into a table, by `kalda pipeline run` with a trigger of 5 s.

Run ``python -m benchmarks.freshness``. A process runs the pipeline of one topic with four partitions into a
Delta table; records with the time of their production arrive at a steady rate. A reader asks for the table's
version every 50 ms, and a record is visible from the version that has it. The first seconds are not counted,
for they are those of Spark's start.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import confluent_kafka
import numpy as np

from kalda import Admin, NewTopic
from kalda.pipelines.spec.model import TableFormat, TableSpec
from kalda.pipelines.tables import Table, open_table
from kalda.testing import KaldaProcess

_POLL_SECONDS: Final = 0.05
_START_SECONDS: Final = 120.0
_FILE: Final = """\
name: freshness
storage: {storage}
cluster: {{bootstrap.servers: "{bootstrap}"}}
defaults: {{trigger: {trigger}}}
pipelines:
  - name: freshness
    from: {{topic: events, start: latest, value: {{format: json, schema: "sent double, text string"}}}}
    to: {{table: lake.events, format: delta}}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit with 1 if no row became visible."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freshness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=90.0, help="time that is measured (90)")
    parser.add_argument("--rate", type=int, default=5_000, help="records a second (5,000)")
    parser.add_argument("--trigger", default="5s", help="the pipeline's trigger (5s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, KaldaProcess(Path(directory, "broker")) as kalda:
        ages = _measure(Path(directory), kalda.bootstrap, options.seconds, options.rate, options.trigger)
    if not len(ages):
        print("no row became visible", file=sys.stderr)
        return 1
    p50, p95, p99 = np.percentile(ages, (50, 95, 99))
    print(
        f"produced to visible in the table, trigger {options.trigger}, {options.rate} records/s, {len(ages)} "
        f"rows: p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s, at most {ages.max():.2f} s"
    )
    return 0


def _measure(directory: Path, bootstrap: str, seconds: float, rate: int, trigger: str) -> np.ndarray:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("events", partitions=4)])
    file, log = directory / "freshness.yml", directory / "run.log"
    storage = directory / "state"
    file.write_text(_FILE.format(storage=storage, bootstrap=bootstrap, trigger=trigger))
    table = open_table(
        TableSpec(
            table="lake.events", path=f"{storage.as_uri()}/tables/lake/events", format=TableFormat.DELTA
        )
    )
    with log.open("w") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "kalda", "pipeline", "run", str(file)],
            stdout=output,
            stderr=output,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    stop = threading.Event()
    load = threading.Thread(target=_produce, args=(bootstrap, rate, stop))
    load.start()
    try:
        deadline = time.monotonic() + _START_SECONDS
        while (table.version() or 0) < 3:
            if run.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the pipeline does not run: {log.read_text()[-2000:]}")
            time.sleep(_POLL_SECONDS)
        return _watch(table, seconds)
    finally:
        stop.set()
        load.join()
        run.terminate()
        run.wait()


def _watch(table: Table, seconds: float) -> np.ndarray:
    """Return the ages of all rows at the moment when their version was there."""
    ages, seen = [], table.version()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        version, now = table.version(), time.time()
        if version != seen:
            ages += [
                now - np.asarray(each.rows.column("sent"))
                for each in table.read_changes(seen, version)
                if each.kind == "insert"
            ]
            seen = version
        time.sleep(_POLL_SECONDS)
    return np.concatenate(ages) if ages else np.array([])


def _produce(bootstrap: str, rate: int, stop: threading.Event) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    began, count = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - began) * rate)
        for _ in range(due - count):
            producer.produce("events", json.dumps({"sent": time.time(), "text": "x" * 60}))
        count = due
        producer.poll(0)
        time.sleep(0.01)
    producer.flush(30)


if __name__ == "__main__":
    sys.exit(main())
