"""Spark with this project's source and sink beside Spark's own Kafka connector, side by side in one run.

Each side is a process with a session in local mode on two cores (`spark_child`), both with the settings that
`kalda.spark.session` recommends, and both read from and write to one Kalda broker. The runs of a row
alternate between the sides. A figure is the median, after a first run of each side that is not counted. The
CPU time beside it is that of the session's processes, without the broker's; a busy machine changes it least.
`python -m benchmarks.spark --rows batch,sink` measures some groups of rows.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.apache_kafka import NotAvailableError
from benchmarks.end_to_end import Workload, create_topic, delete_topic
from benchmarks.spark_official import official_connector
from benchmarks.spark_rows import Query, Row, rows, topics, topics_of
from benchmarks.spark_topics import PARTITIONS, load
from kalda.spark.session import recommended_settings
from kalda.testing import KaldaProcess

RUNS: Final = 3
_CHILD: Final = Path(__file__).with_name("spark_child.py")
_STOP_TIMEOUT_SECONDS: Final = 60.0
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


class QueryFailedError(Exception):
    """A query of a row failed; the message is Spark's."""


class Side:
    """The process of one side."""

    def __init__(
        self, python: Path, jars: Sequence[str], source: str, bootstrap: str, directory: Path, log: Path
    ) -> None:
        settings = dict(_SETTINGS) | recommended_settings()
        arguments = [str(python), str(_CHILD), "--source", source, "--bootstrap", bootstrap]
        arguments += ["--directory", str(directory)]
        if source == "kalda":
            arguments.append("--has-kalda")
        if jars:
            settings["spark.jars"] = ",".join(jars)
        arguments += ["--settings", json.dumps(settings)]
        # Spark looks for workers and data sources with the Python that these name.
        environment = os.environ | {
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._log: Final = log.open("wb")
        self._process: Final = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self._log_path: Final = log
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None, "opened as a pipe"
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def measure(self, query: Query) -> tuple[float, float]:
        """Run a query; return its seconds, and the CPU seconds of Spark's processes on this side.

        Raises:
            QueryFailedError: it failed.
        """
        assert self._process.stdin is not None, "opened as a pipe"
        name, arguments = query
        print(json.dumps({"measure": name, "arguments": arguments}), file=self._process.stdin, flush=True)
        answer = self._read()
        if "error" in answer:
            raise QueryFailedError(answer["error"])
        return answer["seconds"], answer["cpu_seconds"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "opened as a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side of the Spark benchmark ended:\n{self._log_path.read_text()[-3_000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def run(
    *, with_official: bool, groups: frozenset[str] | None = None, runs: int = RUNS, scale: int = 1
) -> None:
    """Measure the rows of the named groups, or all, and print a line for each."""
    wanted = [row for row in rows(scale) if groups is None or row.group in groups]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kalda-bench-")))
        broker = stack.enter_context(KaldaProcess(directory / "data"))
        known = topics(scale)
        for name in sorted(topics_of(wanted, known)):
            load(broker.bootstrap, known[name])

        def side(source: str, python: Path, jars: Sequence[str] = ()) -> Side:
            log = directory / f"{source}.log"
            (directory / source).mkdir()
            return stack.enter_context(Side(python, jars, source, broker.bootstrap, directory / source, log))

        ours = side("kalda", Path(sys.executable))
        theirs = None
        if with_official:
            try:
                theirs = side("kafka", *official_connector())
            except NotAvailableError as error:
                print(f"Spark's own connector is not compared: {error}", file=sys.stderr)
        for row in wanted:
            _report(row, ours, ours if row.theirs_is_kalda else theirs, broker.bootstrap, runs)


def _report(row: Row, ours: Side, theirs: Side | None, bootstrap: str, runs: int) -> None:
    sides = [(ours, row.ours)]
    if theirs is not None and row.theirs is not None:
        sides.append((theirs, row.theirs))
    runs_taken: list[list[tuple[float, float]]] = [[] for _ in sides]
    try:
        for _ in range(runs + 1):
            for (side, query), taken in zip(sides, runs_taken, strict=True):
                # Else one side waits for the disk to take what the other has written.
                os.sync()
                with _topic(bootstrap, row.creates_topic):
                    taken.append(side.measure(query))
    except QueryFailedError as error:
        print(f"{row.label:<52} failed: {str(error).splitlines()[0][:200]}", flush=True)
        return
    medians = [statistics.median(seconds for seconds, _ in taken[1:]) for taken in runs_taken]
    cpu = [statistics.median(cpu_seconds for _, cpu_seconds in taken[1:]) for taken in runs_taken]
    values = [median if row.count is None else row.count / median / 1e6 for median in medians]
    unit = "s" if row.count is None else "M rows/s"
    line = f"{row.label:<52} {values[0]:>8.3f} {unit:<8} cpu {cpu[0]:>6.2f} s"
    if len(values) == 2:
        speedup = medians[1] / medians[0]
        verdict = "" if speedup >= row.target else "  BELOW"
        line += f"  other {values[1]:>8.3f} cpu {cpu[1]:>6.2f} s"
        line += f"  {speedup:>6.2f}x as fast, wanted {row.target:.2f}x{verdict}"
    print(line, flush=True)


@contextlib.contextmanager
def _topic(bootstrap: str, name: str | None) -> Iterator[None]:
    if name is None:
        yield
        return
    create_topic(bootstrap, name, Workload(partitions=PARTITIONS))
    try:
        yield
    finally:
        delete_topic(bootstrap, name)


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark")
    names = sorted({row.group for row in rows(1)})
    parser.add_argument("--rows", help=f"groups of rows, separated by commas: {', '.join(names)}")
    parser.add_argument("--runs", type=int, default=RUNS, help="counted runs of each side and row")
    parser.add_argument("--scale", type=int, default=1, help="times as many records as usual")
    parser.add_argument("--without-official", action="store_true", help="measure Kalda alone")
    options = parser.parse_args()
    groups = frozenset(options.rows.split(",")) if options.rows else None
    if groups is not None and (unknown := groups - set(names)):
        parser.error(f"--rows: {', '.join(sorted(unknown))}; allowed are {', '.join(names)}")
    os.environ["KALDA_CHECK_INVARIANTS"] = "0"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    run(with_official=not options.without_official, groups=groups, runs=options.runs, scale=options.scale)


if __name__ == "__main__":
    main()
