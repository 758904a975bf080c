"""Runs a pipeline for a long time under a steady load and watches its memory.

Run ``python -m tests.chaos.pipeline_soak --minutes 20 --rate 5000``. A producer writes records at a steady
rate, one in a hundred corrupt; `kalda pipeline run` writes them to a Delta table. The resident memory of the
driver (Python and JVM) and of its Python workers is sampled. After a fourth of the time it may grow by less
than 5 %; at the end good rows and dead letters are all records.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import psutil
import pyarrow as pa
from deltalake import DeltaTable

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.producer.producer import Producer
from kalda.pipelines.dlq.replay import open_letters
from kalda.testing import ProcessCluster

GROWTH_MAX = 0.05
SAMPLE_SECONDS = 5.0
FILE = """\
name: soak
storage: {storage}
defaults: {{trigger: 5s}}
cluster: {{bootstrap.servers: "{servers}"}}
spark: {{master: "local[2]", settings: {{spark.driver.memory: 1g}}}}
pipelines:
  - name: soak
    from: {{topic: soak, value: {{format: json, schema: "id bigint, amount double, text string"}}}}
    transform: ["select *, amount * 2 as twice where amount >= 0"]
    to: {{table: lake.soak, format: delta}}
"""


class Load(threading.Thread):
    """Writes records at a steady rate until it is stopped."""

    def __init__(self, servers: str, rate: int) -> None:
        super().__init__(name="soak-load")
        self._servers, self._rate = servers, rate
        self.stopped = threading.Event()
        self.written = 0
        self.corrupt = 0

    def run(self) -> None:
        """Send a tenth of the rate each tenth of a second."""
        step = self._rate // 10
        due = time.monotonic()
        with Producer(bootstrap_servers=self._servers, linger_ms=20) as producer:
            while not self.stopped.is_set():
                numbers = range(self.written, self.written + step)
                values = [
                    b"corrupt"
                    if n % 100 == 7
                    else json.dumps({"id": n, "amount": n % 997, "text": "x" * (n % 80)}).encode()
                    for n in numbers
                ]
                producer.send_arrow(
                    "soak", pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
                ).result(60)
                self.written += step
                self.corrupt += sum(n % 100 == 7 for n in numbers)
                due += 0.1
                time.sleep(max(0.0, due - time.monotonic()))


def memory(process: psutil.Process) -> dict[str, int]:
    """Return the resident bytes of the driver's Python, of its JVM and of the Python workers."""
    found = {"python": 0, "jvm": 0, "workers": 0}
    for each in [process, *process.children(recursive=True)]:
        try:
            kind = "python" if each.pid == process.pid else "jvm" if "java" in each.name() else "workers"
            # Shared pages of forked workers count once: PSS is what each really adds.
            found[kind] += each.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return found


def soak(minutes: float, rate: int, root: Path, servers: str) -> bool:
    """Run load and pipeline; return whether the memory stayed within its bound."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("soak", partitions=4)])
    file = root / "soak.yml"
    file.write_text(FILE.format(storage=root / "state", servers=servers))
    load = Load(servers, rate)
    load.start()
    log = (root / "run.log").open("w")
    command = [sys.executable, "-m", "kalda", "pipeline", "run", str(file)]
    run = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
    samples: list[dict[str, int]] = []
    started = time.monotonic()
    try:
        while time.monotonic() - started < minutes * 60:
            time.sleep(SAMPLE_SECONDS)
            if run.poll() is not None:
                raise SystemExit(f"the pipeline ended: {(root / 'run.log').read_text()[-4000:]}")
            samples.append(memory(psutil.Process(run.pid)))
            if len(samples) % 12 == 0:
                shown = ", ".join(f"{name} {value >> 20} MB" for name, value in samples[-1].items())
                print(
                    f"{(time.monotonic() - started) / 60:.1f} min: {load.written} records, {shown}",
                    flush=True,
                )
    finally:
        load.stopped.set()
        load.join()
        time.sleep(15 if run.poll() is None else 0)
        run.send_signal(signal.SIGTERM)
        run.wait(120)
        log.close()
    table = next(path.parent for path in root.rglob("_delta_log"))
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["id"]).column("id")
    letters = sum(1 for _ in open_letters({"bootstrap.servers": servers}, "soak.dlq"))
    print(f"{load.written} records = {len(rows)} rows + {letters} dead letters", flush=True)
    assert len(rows) == len(rows.unique()), "a row is there twice"
    assert load.written == len(rows) + letters, "a record is lost"
    assert letters == load.corrupt, f"{letters} letters of {load.corrupt}"
    return is_bounded(samples)


def is_bounded(samples: list[dict[str, int]]) -> bool:
    """Return whether the last tenth needs less than 5 % more than the tenth behind the first fourth."""
    tenth, fourth = max(len(samples) // 10, 1), len(samples) // 4
    fine = True
    for name, parts in (("driver", ("python", "jvm")), ("workers", ("workers",))):
        sums = [sum(each[part] for part in parts) for each in samples]
        before, after = median(sums[fourth : fourth + tenth]), median(sums[-tenth:])
        growth = after / before - 1
        print(f"{name}: {before / 2**20:.0f} MB → {after / 2**20:.0f} MB, {growth:+.1%}", flush=True)
        fine = fine and growth < GROWTH_MAX
    return fine


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rate", type=int, default=5000)
    arguments = parser.parse_args()
    settings = {"transaction.two.phase.commit.enable": "true"}
    with (
        tempfile.TemporaryDirectory() as directory,
        ProcessCluster(Path(directory) / "cluster", brokers=1, settings=settings) as cluster,
    ):
        fine = soak(arguments.minutes, arguments.rate, Path(directory), cluster.bootstrap)
    raise SystemExit(0 if fine else "memory grew by 5 % or more")


if __name__ == "__main__":
    main()
