"""Implements `make demo`: sends a year of flights through a broker and Spark, and checks the totals.

Everything runs on this machine: the broker is a `kalda start` process, the producer is confluent-kafka, and
the pipeline runs on Spark with the data source `kalda`. The demo fails unless the counts of all steps agree.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights.events import FLIGHTS, DataMissingError, Event, read_airlines, read_events
from kalda.testing import KaldaProcess, KaldaProcessError

DIRECTORY = Path(__file__).resolve().parents[2] / ".cache" / "demo"
TOPIC = "flights"


class CheckError(Exception):
    """Two steps of the demo processed different numbers of events."""


def main() -> int:
    """Run the demo; return the exit code."""
    console = Console()
    # `make` and supervisors end programs with SIGTERM; handle it like Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    missing = _missing()
    if missing:
        console.print(f"[red]{missing}[/]", soft_wrap=True)
        return 1
    try:
        _run(console)
    except KeyboardInterrupt:
        console.print("interrupted; the broker and Spark are stopped")
        return 130
    except (CheckError, DataMissingError, KaldaProcessError) as error:
        console.print(f"[red]the demo failed:[/] {error}", soft_wrap=True)
        return 1
    finally:
        shutil.rmtree(DIRECTORY / "broker", ignore_errors=True)
    return 0


def _run(console: Console) -> None:
    begin = time.monotonic()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    table = DIRECTORY / "delays_by_carrier_and_hour"
    with KaldaProcess(DIRECTORY / "broker") as kalda:
        console.print(f"broker ready at {kalda.bootstrap} after {kalda.start_seconds:.2f} s")
        with console.status("reading the flights of 2013"):
            events = read_events()
            airlines = read_airlines()
        produced = _replay(console, kalda.bootstrap, events)
        read = _pipeline(console, kalda.bootstrap, airlines, produced, table)
    rows = _check(events, produced, read, table)

    from examples.flights.summary import print_summary

    print_summary(console, rows)
    aggregated = sum(row["flights"] for row in rows)
    console.print(f"checked: {produced:,} produced = {read:,} read by Spark = {aggregated:,} in the table")
    console.print(f"Parquet files: {table}", soft_wrap=True)
    console.print(f"done in {time.monotonic() - begin:.0f} s; the broker is stopped")


def _replay(console: Console, bootstrap: str, events: list[Event]) -> int:
    from examples.flights.replay import create_topic, replay

    create_topic(bootstrap, TOPIC)
    with _progress(console) as progress:
        bar = progress.add_task("produced with confluent-kafka", total=len(events))
        return replay(bootstrap, TOPIC, events, lambda count: progress.update(bar, completed=count))


def _pipeline(
    console: Console, bootstrap: str, airlines: list[tuple[str, str]], produced: int, table: Path
) -> int:
    with contextlib.ExitStack() as stack:
        with console.status("starting Spark"):
            from examples.flights.pipeline import run_pipeline, spark_session

            session = stack.enter_context(spark_session(DIRECTORY / "spark.log"))
        progress = stack.enter_context(_progress(console))
        bar = progress.add_task("read by Spark, source kalda", total=produced)
        return run_pipeline(
            session,
            bootstrap,
            TOPIC,
            airlines,
            table,
            DIRECTORY / "checkpoint",
            lambda count: progress.update(bar, completed=count),
        )


def _check(events: list[Event], produced: int, read: int, table: Path) -> list[dict[str, Any]]:
    from examples.flights.summary import read_table, totals

    rows = read_table(table)
    found = totals(rows)
    delay_minutes = sum(event.dep_delay or 0 for event in events)
    for what, expected, actual in (
        ("flights in the data set", FLIGHTS, len(events)),
        ("produced", len(events), produced),
        ("read by Spark", produced, read),
        ("not parsed", 0, found.unparsed),
        ("flights in the table", produced, found.flights),
        ("minutes of delay in the table", delay_minutes, found.delay_minutes),
    ):
        if expected != actual:
            raise CheckError(f"{what}: {actual:,} instead of {expected:,}")
    return rows


def _missing() -> str | None:
    java_home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (java_home and Path(java_home, "bin", "java").exists()):
        return (
            "Spark needs Java 17 or 21 and none was found: install one, "
            "e.g. 'sudo apt-get install openjdk-17-jre-headless'"
        )
    return None


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<30}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
