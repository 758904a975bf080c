"""Kill a pipeline's driver and tasks at each step of its batches, and count what is in the table.

Run ``python -m tests.chaos.table_rounds --rounds 200``. Each round starts a driver
(`tests.chaos.table_driver`), alone, beside a second one for the same query, or with compactions, and kills
it: at a random moment, or before or after the n-th call of a step (moving, replacing and
deleting files, the library's commit). In some rounds it kills tasks instead. Formats and modes take
turns; the seed is printed and ``--seed`` replays the choices, not the moments.

After each kill a reader of the table must see whole batches alone. At the end each id is in the table once,
also for readers of the directory (plain Parquet); an upserted table equals the last change of each key; the
ledger's ranges follow each other and their rows add up to the table's; after a compaction nothing is left in
staging.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.dataset as ds

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.tables import CompactPolicy, Table, open_table
from tests.chaos.table_driver import QUERY, deletes, key_of, spec_of

STEPS = ("replace", "move", "delete", "delete_directory", "open_output", "log", "rename")
READY_SECONDS_MAX = 60.0
RUN_SECONDS_MAX = 3.0

FINISH_SECONDS_MAX = 300.0


@dataclass
class Run:
    """One table through its rounds."""

    root: Path
    kind: TableFormat
    upsert: bool
    random: random.Random
    batches: int = 0
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The run in messages."""
        return f"{self.kind.value}{' upsert' if self.upsert else ''}"

    def open(self) -> Table:
        """Return the table."""
        return open_table(spec_of(self.root, self.kind, self.upsert))

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a driver."""
        command = [sys.executable, "-m", "tests.chaos.table_driver", str(self.root), self.kind.value]
        command += ["--batches", str(self.batches), "--seed", str(self.random.randrange(2**30)), *options]
        if self.upsert:
            command.append("--upsert")
        log = (self.root / "driver.log").open("ab")
        with log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def round(self) -> None:
        """Start a driver, kill it or a part of it, and check what a reader sees."""
        self.batches = len(list(self.root.glob("commits/*.json"))) + self.random.randrange(4, 12)
        fault = self.random.choice(("moment", "step", "step", "task", "twin", "compact"))
        self.kills[fault] += 1
        options = ["--compact"] if fault == "compact" or self.random.random() < 0.3 else []
        if fault == "step":
            when, step = self.random.choice(("before", "after")), self.random.choice(STEPS)
            self.kills[f"{when} {step}"] += 1
            options += ["--crash", f"{when}:{step}:{self.random.randrange(1, 12)}"]
        drivers = [self.start(*options)]
        if fault == "twin":
            drivers.append(self.start())
        self.wait_ready(drivers[-1])
        deadline = time.monotonic() + self.random.random() * RUN_SECONDS_MAX
        while time.monotonic() < deadline and any(driver.poll() is None for driver in drivers):
            time.sleep(0.02)
            if fault == "task" and self.random.random() < 0.1:
                self.kill_task()
        for driver in drivers:
            kill(driver)
        self.check_batches()

    def wait_ready(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait until a driver begins with its first batch, or has ended before."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not (self.root / f"ready-{driver.pid}").exists() and driver.poll() is None:
            assert time.monotonic() < deadline, f"{self.name}: no batch begins"
            time.sleep(0.02)

    def kill_task(self) -> None:
        """Kill the process of one task, which its driver has to start again."""
        pids = self.root / "pids"
        found = pids.read_text().split() if pids.exists() else []
        for pid in found[-2:]:
            command = Path(f"/proc/{pid}/cmdline")
            # The number may belong to another process by now.
            if command.exists() and b"multiprocessing" in command.read_bytes() and self.random.random() < 0.5:
                os.kill(int(pid), signal.SIGKILL)

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the planned offset ranges by batch."""
        plans = self.root.glob("offsets/*.json")
        return {int(path.stem): tuple(json.loads(path.read_text())) for path in plans}

    def check_batches(self) -> None:
        """Check that a reader sees batches as a whole."""
        table = self.open()
        if table.schema() is None:
            return
        if self.upsert:
            self.check_keys(table)
            return
        ids = [number for batch in table.read(["id"]) for number in batch.column(0).to_pylist()]
        assert len(set(ids)) == len(ids), f"{self.name}: {len(ids) - len(set(ids))} rows twice"
        last = table.committed_batch(QUERY)
        expected = 0 if last is None else self.ranges()[last][1]
        assert list(range(expected)) == sorted(ids), (
            f"{self.name}: {len(ids)} rows up to batch {last}, not {expected}"
        )

    def check_keys(self, table: Table) -> None:
        """Check that the table has the last change of each key of the committed batches."""
        last = table.committed_batch(QUERY)
        expected: dict[int, int] = {}
        for offset in range(0 if last is None else self.ranges()[last][1]):
            expected[key_of(offset)] = -1 if deletes(offset) else offset
        rows = [row for batch in table.read() for row in batch.to_pylist()]
        assert len(rows) == len({row["id"] for row in rows}), f"{self.name}: a key twice"
        wanted = {key: lsn for key, lsn in expected.items() if lsn >= 0}
        assert wanted == {row["id"]: row["lsn"] for row in rows}, (
            f"{self.name}: wrong rows after batch {last}"
        )

    def finish(self) -> str:
        """Let a driver come to its end, check everything and return a line for the report."""
        self.batches = max(self.batches, len(self.ranges())) + 1
        driver = self.start("--compact")
        code = driver.wait(FINISH_SECONDS_MAX)
        log = (self.root / "driver.log").read_text()
        assert 0 == code, f"{self.name}: the last driver ended with {code}: {log[-3000:]}"
        table = self.open()
        assert table.committed_batch(QUERY) == self.batches - 1
        self.check_batches()
        ledger = [
            json.loads((self.root / f"ledger/{number}.json").read_text()) for number in range(self.batches)
        ]
        at = 0
        for row in ledger:
            assert row["start"] == at, row
            assert row["rows"] == row["end"] - row["start"], row
            at = row["end"]
        rows = sum(batch.num_rows for batch in table.read())
        if not self.upsert:
            assert at == rows, (at, rows)
        directory = self.root / "lake/chaos"
        if self.kind is TableFormat.PARQUET:
            found = ds.dataset(directory, partitioning="hive").to_table(columns=["id"]).column(0).to_pylist()
            assert list(range(at)) == sorted(found), f"{len(found)} rows in the directory, not {at}"
        # A compaction that was killed leaves its files to the next one behind the retention.
        table.compact(CompactPolicy(newest_kept_s=0, retention_s=0))
        self.check_batches()
        staged = [str(path) for path in (directory / "_kalda/staging").rglob("*") if path.is_file()]
        assert not staged, f"{self.name}: {len(staged)} files are left in staging: {staged[:5]}"
        return f"{self.name}: {self.batches} batches, {at} offsets, {rows} rows, {dict(self.kills)}"


def kill(driver: subprocess.Popen[bytes]) -> None:
    """Kill a driver and what it started, and wait for the end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait(10)


def main() -> None:
    """Run the rounds and print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--only", choices=[kind.value for kind in TableFormat])
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    random_ = random.Random(options.seed)
    modes = [(kind, False) for kind in TableFormat] + [(TableFormat.DELTA, True), (TableFormat.ICEBERG, True)]
    with tempfile.TemporaryDirectory(prefix="kalda-table-rounds-") as directory:
        runs = []
        for kind, upsert in modes:
            if options.only in (None, kind.value):
                root = Path(directory) / f"{kind.value}{'-upsert' if upsert else ''}"
                root.mkdir()
                runs.append(Run(root, kind, upsert, random.Random(random_.randrange(2**31))))
        for number in range(options.rounds):
            run = runs[number % len(runs)]
            run.round()
            if number % 20 == 19:
                print(f"{number + 1} rounds", flush=True)
        for run in runs:
            print(run.finish(), flush=True)


if __name__ == "__main__":
    main()
