"""Corrupts some of many records, and follows them through the dead-letter queue into the table.

Run ``python -m tests.chaos.dead_letters --records 1000000``. A topic gets JSON values of which one in a
hundred has a text where the declared schema has a number. `kalda pipeline once` writes the others to a Delta
table; each corrupt record must be a dead letter with its cause, partition and offset. Then the pipeline file
is corrected, `kalda pipeline dlq retry` and `once` run, and the table must hold each id exactly once, with no
letter left.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.producer.producer import Producer
from kalda.pipelines.dlq.replay import open_letters
from kalda.testing import ProcessCluster

PARTITIONS = 4
CORRUPT_EVERY = 100
SETTINGS = {"transaction.two.phase.commit.enable": "true"}
BROKEN = 'value: {format: json, schema: "id bigint, amount double"}'
FIXED = 'value: {format: json, schema: "id bigint, amount string"}'
FILE = """\
name: letters
storage: {storage}
cluster: {{bootstrap.servers: "{servers}"}}
pipelines:
  - name: orders
    from: {{topic: orders, {value}}}
    transform: ["select id, {amount} as amount"]
    to: {{table: lake.orders, format: delta}}
"""


def is_corrupt(number: int) -> bool:
    """Return whether a record's amount is a text."""
    return number % CORRUPT_EVERY == 37


def fill(servers: str, records: int) -> None:
    """Write the records, round robin over the partitions, so that offset and partition follow from the id."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("orders", partitions=PARTITIONS)])
    with Producer(bootstrap_servers=servers, linger_ms=20) as producer:
        futures = []
        for start in range(0, records, 50_000):
            numbers = range(start, min(start + 50_000, records))
            values = [
                f'{{"id":{n},"amount":"12.5 EUR"}}'
                if is_corrupt(n)
                else f'{{"id":{n},"amount":{n % 1000}.5}}'
                for n in numbers
            ]
            batch = pa.RecordBatch.from_pydict(
                {
                    "value": pa.array([value.encode() for value in values], pa.binary()),
                    "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
                }
            )
            futures.append(producer.send_arrow("orders", batch))
        for future in futures:
            future.result(60)


def kalda(*words: str) -> str:
    """Run a command of `kalda pipeline`; return its output.

    Raises:
        SystemExit: It fails.
    """
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "kalda", "pipeline", *words],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    if done.returncode:
        raise SystemExit(
            f"kalda pipeline {' '.join(words)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    name = " ".join(words[:2] if words[0] == "dlq" else words[:1])
    print(f"kalda pipeline {name} took {time.monotonic() - started:.1f} s", flush=True)
    return done.stdout


def ids_of(root: Path) -> list[int]:
    """Return the ids of the table's rows."""
    table = next(path.parent for path in root.rglob("_delta_log"))
    ids: list[int] = DeltaTable(str(table)).to_pyarrow_table(columns=["id"]).column("id").to_pylist()
    return ids


def check(records: int, root: Path, servers: str) -> None:
    """Run the whole story and check each step.

    Raises:
        AssertionError: A record is lost, twice, or without its cause.
    """
    file = root / "letters.yml"

    def write(value: str, amount: str) -> None:
        file.write_text(FILE.format(storage=root / "state", servers=servers, value=value, amount=amount))

    corrupt = {n for n in range(records) if is_corrupt(n)}
    fill(servers, records)
    write(BROKEN, "amount")
    kalda("once", str(file))

    good = ids_of(root)
    assert len(good) == len(set(good)) == records - len(corrupt), f"{len(good)} good rows"
    assert not corrupt & set(good)
    letters = [each.letter for each in open_letters({"bootstrap.servers": servers}, "orders.dlq")]
    places = {(each.partition, each.offset) for each in letters if each is not None}
    assert places == {(n % PARTITIONS, n // PARTITIONS) for n in corrupt}, "letters name other places"
    assert len(letters) == len(corrupt), f"{len(letters)} letters of {len(corrupt)}"
    causes = {(each.stage, each.error_class) for each in letters if each is not None}
    assert {("decode", "TypeMismatch")} == causes, causes
    listed = json.loads(kalda("dlq", "list", str(file), "orders", "--json"))
    assert listed["open"] == len(corrupt), listed["open"]

    # The fix: the amount is a text, of which the number is the first word.
    write(FIXED, "try_cast(replace(amount, ' EUR', '') as double)")
    replayed = json.loads(kalda("dlq", "retry", str(file), "orders", "--json"))
    assert (len(corrupt), 0) == (replayed["replayed"], replayed["open"]), replayed
    kalda("once", str(file))
    kalda("once", str(file))

    every = ids_of(root)
    assert len(every) == len(set(every)) == records, f"{len(every)} rows, {len(set(every))} ids of {records}"
    assert not list(open_letters({"bootstrap.servers": servers}, "orders.dlq"))
    print(f"{records} records: {len(good)} good, {len(corrupt)} dead letters, all replayed once", flush=True)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        ProcessCluster(Path(directory) / "cluster", brokers=1, settings=SETTINGS) as cluster,
    ):
        check(arguments.records, Path(directory), cluster.bootstrap)


if __name__ == "__main__":
    main()
