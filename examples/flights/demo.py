"""Implements `make demo`: sends a year of flights through a broker and Spark, and checks the totals.

Everything runs on this machine: the broker is a `kalda start` process, the producer is confluent-kafka, and
the pipelines of `pipeline.yml` run on Spark. With ``MASTER=spark://HOST:PORT`` they run on a Spark cluster
that sees this directory. The demo fails unless the counts of all steps agree.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.flights.console_process import console_of
from examples.flights.events import FLIGHTS, DataMissingError, Event, read_airlines, read_events
from kalda.testing import KaldaProcess, KaldaProcessError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kalda.pipelines.engine.status import PipelineStatus
    from kalda.pipelines.spec.model import PipelineFile

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
    with (
        KaldaProcess(DIRECTORY / "broker") as kalda,
        console_of(kalda.bootstrap, DIRECTORY / "http.log") as page,
    ):
        console.print(f"broker ready at {kalda.bootstrap} after {kalda.start_seconds:.2f} s")
        if page is not None:
            console.print(f"watch it at {page}", soft_wrap=True)
        with console.status("reading the flights of 2013"):
            events = read_events()
            airlines = read_airlines()
        produced = _replay(console, kalda.bootstrap, events)
        file, found = _pipelines(console, kalda.bootstrap, airlines, produced)
    rows = _check(events, produced, file, found)

    from examples.flights.summary import print_summary

    print_summary(console, rows)
    aggregated = sum(row["flights"] for row in rows)
    console.print(
        f"checked: {produced:,} produced = {found['departures'].rows_out:,} rows in the table of departures "
        f"= {aggregated:,} in that of delays"
    )
    console.print(f"tables: {file.warehouse.removeprefix('file://')}/flights", soft_wrap=True)
    console.print(f"done in {time.monotonic() - begin:.0f} s; the broker is stopped")


def _replay(console: Console, bootstrap: str, events: list[Event]) -> int:
    from examples.flights.replay import create_topic, replay

    create_topic(bootstrap, TOPIC)
    with _progress(console) as progress:
        bar = progress.add_task("produced with confluent-kafka", total=len(events))
        return replay(bootstrap, TOPIC, events, lambda count: progress.update(bar, completed=count))


def _pipelines(
    console: Console, bootstrap: str, airlines: list[tuple[str, str]], produced: int
) -> "tuple[PipelineFile, dict[str, PipelineStatus]]":
    from examples.flights.pipeline import read_file, run_pipelines, write_airlines

    file = read_file(bootstrap, DIRECTORY / "pipelines")
    write_airlines(file, airlines)
    with _progress(console) as progress:
        bars = {
            each.name: progress.add_task(f"pipeline {each.name}", total=produced) for each in file.pipelines
        }

        def report(statuses: "Sequence[PipelineStatus]") -> None:
            for each in statuses:
                progress.update(bars[each.pipeline], completed=each.records)

        return file, run_pipelines(file, DIRECTORY / "spark.log", report)


def _check(
    events: list[Event], produced: int, file: "PipelineFile", found: "dict[str, PipelineStatus]"
) -> list[dict[str, Any]]:
    from examples.flights.summary import read_delays, read_departures, totals

    rows = read_delays(file)
    sums = totals(rows)
    delay_minutes = sum(event.dep_delay or 0 for event in events)
    for what, expected, actual in (
        ("flights in the data set", FLIGHTS, len(events)),
        ("produced", len(events), produced),
        ("read by the pipeline of departures", produced, found["departures"].records),
        ("read by the pipeline of delays", produced, found["delays"].records),
        ("dead letters", 0, found["departures"].dlq + found["delays"].dlq),
        ("rows in the table of departures", produced, read_departures(file)),
        ("flights in the table of delays", produced, sums.flights),
        ("minutes of delay in the table", delay_minutes, sums.delay_minutes),
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
