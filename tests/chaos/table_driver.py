"""The driver of a pipeline without Spark, for `tests.chaos.table_rounds`.

It keeps what Spark keeps in a checkpoint (the plan of a batch before it runs, a mark behind it) and a ledger,
runs tasks in processes of their own, some of them twice at once, and repeats the batch that has a plan and no
mark. `--crash before:move:7` kills the process with SIGKILL before the seventh call of a step.
"""

import argparse
import itertools
import json
import multiprocessing as mp
import multiprocessing.connection
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.spec.model import TableFormat, TableSpec, WriteMode
from kalda.pipelines.tables import CompactPolicy, DataFile, TableWriter, TaskId, open_table
from kalda.pipelines.tables.storage import TableStorage
from kalda.pipelines.tables.upsert import HIDDEN

QUERY = "7a1c-chaos"
TASKS = 3
KEYS = 400
ROWS = pa.schema([("id", pa.int64()), ("bucket", pa.string()), ("text", pa.string())])
CHANGES = pa.schema([("id", pa.int64()), ("lsn", pa.int64()), *HIDDEN])


def spec_of(root: Path, kind: TableFormat, upsert: bool) -> TableSpec:
    """Return the spec of the table of a run."""
    path = f"file://{root}/lake/chaos"
    if upsert:
        return TableSpec(
            table="lake.chaos", path=path, format=kind, mode=WriteMode.UPSERT, keys=("id",), order_by="lsn"
        )
    return TableSpec(table="lake.chaos", path=path, format=kind, partition_by=("bucket",))


def appended_rows(start: int, end: int) -> pa.RecordBatch:
    """Return the rows of an offset range; each offset is an id."""
    ids = range(start, end)
    return pa.record_batch(
        [
            pa.array(ids, pa.int64()),
            pa.array([f"b{number % 3}" for number in ids]),
            pa.array([f"text {number * 7919}" for number in ids]),
        ],
        schema=ROWS,
    )


def changed_rows(start: int, end: int) -> pa.RecordBatch:
    """Return the changes of an offset range: one in five deletes its key, `lsn` is the offset."""
    offsets = range(start, end)
    return pa.record_batch(
        [
            pa.array([key_of(offset) for offset in offsets], pa.int64()),
            pa.array(offsets, pa.int64()),
            pa.array([0] * len(offsets), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array([deletes(offset) for offset in offsets]),
        ],
        schema=CHANGES,
    )


def key_of(offset: int) -> int:
    """Return the key that the record at an offset changes."""
    return (offset * 7919 + offset // 1000) % KEYS


def deletes(offset: int) -> bool:
    """Return whether the record at an offset deletes its key."""
    return offset % 5 == 4


def work(pipe: multiprocessing.connection.Connection) -> None:
    """Run tasks until the pipe ends."""
    while True:
        try:
            writer, task, start, end, upsert = pipe.recv()
        except EOFError:
            return
        rows = changed_rows(start, end) if upsert else appended_rows(start, end)
        half = rows.num_rows // 2
        pipe.send(writer.write([rows.slice(0, half), rows.slice(half)], task))


class Workers:
    """Processes for tasks; one that dies is replaced, and its task runs again."""

    def __init__(self, pids: Path) -> None:
        self._context = mp.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.chaos.table_driver"])
        self._pids = pids
        self._opened: list[tuple[multiprocessing.connection.Connection, Any]] = []
        for _ in range(2):
            self._opened.append(self._start())

    def run(
        self, tasks: list[tuple[TableWriter, TaskId, int, int, bool]], random_: random.Random
    ) -> list[DataFile]:
        """Run each task to its end, every fourth twice at once, and return the files of one run of each."""
        files: list[DataFile] = []
        for task in tasks:
            while True:
                twice = random_.random() < 0.25
                for index in range(2 if twice else 1):
                    self._send(index, task)
                results = [self._receive(index) for index in range(2 if twice else 1)]
                done = [result for result in results if result is not None]
                if done:
                    files += random_.choice(done)
                    break
        return files

    def _start(self) -> tuple[multiprocessing.connection.Connection, Any]:
        own, its = mp.Pipe()
        process = self._context.Process(target=work, args=(its,), daemon=True)
        process.start()
        its.close()
        with self._pids.open("a") as file:
            file.write(f"{process.pid}\n")
        return own, process

    def _send(self, index: int, task: object) -> None:
        try:
            self._opened[index][0].send(task)
        except OSError:
            self._opened[index] = self._start()
            self._opened[index][0].send(task)

    def _receive(self, index: int) -> list[DataFile] | None:
        try:
            result: list[DataFile] = self._opened[index][0].recv()
        except (EOFError, OSError):
            self._opened[index] = self._start()
            return None
        return result


def crash_at(place: str) -> None:
    """Make the process kill itself around the n-th call of a step: `before|after:step:n`."""
    when, step, number = place.split(":")
    owners: list[tuple[Any, str]] = [(TableStorage, step)]
    if step == "log":
        import deltalake
        from pyiceberg.table import Table

        owners = [(deltalake.DeltaTable, "create_write_transaction"), (Table, "_do_commit")]
    elif step == "rename":
        owners = [(Path, "rename")]
    calls = itertools.count(1)
    for owner, name in owners:
        _wrap(owner, name, when, lambda: next(calls) == int(number))


def _wrap(owner: Any, name: str, when: str, is_last: Callable[[], bool]) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        last = is_last()
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def batch_rows(batch_id: int) -> int:
    """Return the rows of a batch, the same in each process: two drivers would plan one range, as in Spark."""
    return random.Random(batch_id).randrange(1, 400)


def put(path: Path, text: str) -> None:
    """Write a file at once."""
    staged = path.with_suffix(f".{os.getpid()}.tmp")
    staged.write_text(text)
    staged.rename(path)


def run(root: Path, kind: TableFormat, batches: int, seed: int, upsert: bool, compact: bool) -> None:
    """Run batches until `batches` are done."""
    random_ = random.Random(seed)
    plans, marks, ledger = root / "offsets", root / "commits", root / "ledger"
    for directory in (plans, marks, ledger):
        directory.mkdir(parents=True, exist_ok=True)
    table = open_table(spec_of(root, kind, upsert))
    schema = CHANGES if upsert else ROWS
    table.prepare_schema(schema)
    workers = Workers(root / "pids")
    put(root / f"ready-{os.getpid()}", "")
    batch_id = max((int(path.stem) for path in marks.glob("*.json")), default=-1) + 1
    while batch_id < batches:
        plan = plans / f"{batch_id}.json"
        if not plan.exists():
            before = plans / f"{batch_id - 1}.json"
            start = json.loads(before.read_text())[1] if batch_id else 0
            put(plan, json.dumps([start, start + batch_rows(batch_id)]))
        start, end = json.loads(plan.read_text())
        if (table.committed_batch(QUERY) or -1) < batch_id or table.committed_batch(QUERY) is None:
            writer = table.upsert_writer(schema) if upsert else table.writer(schema)
            bounds = [start + (end - start) * part // TASKS for part in range(TASKS + 1)]
            tasks = [
                (writer, TaskId(QUERY, batch_id, part), bounds[part], bounds[part + 1], upsert)
                for part in range(TASKS)
            ]
            files = workers.run(tasks, random_)
            rows = sum(file.rows for file in files)
            account = BatchAccount(QUERY, batch_id, (RangeAccount("t", 0, start, end, end - start, rows),))
            if upsert:
                table.upsert(account, files)
            else:
                table.commit(account, files)
        put(ledger / f"{batch_id}.json", json.dumps({"start": start, "end": end, "rows": end - start}))
        put(marks / f"{batch_id}.json", "{}")
        if compact and batch_id % 5 == 4:
            table.compact(CompactPolicy(newest_kept_s=0, retention_s=3600))
        batch_id += 1


def main() -> None:
    """Run the driver."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("format", type=TableFormat)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--upsert", action="store_true")
    parser.add_argument("--compact", action="store_true")
    parser.add_argument("--crash")
    options = parser.parse_args()
    if options.crash:
        crash_at(options.crash)
    run(options.root, options.format, options.batches, options.seed, options.upsert, options.compact)


if __name__ == "__main__":
    main()
