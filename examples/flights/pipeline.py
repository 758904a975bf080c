"""Runs the pipelines of `pipeline.yml`, as `kalda pipeline once` does."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import deltalake
import pyarrow as pa

from kalda.pipelines.engine.application import Application
from kalda.pipelines.engine.status import PipelineStatus
from kalda.pipelines.spec.model import PipelineFile
from kalda.pipelines.spec.parser import read_pipeline_file

FILE = Path(__file__).with_name("pipeline.yml")


class PipelineError(Exception):
    """A pipeline stopped; the message says why."""


def read_file(bootstrap: str, storage: Path) -> PipelineFile:
    """Read the pipeline file for a broker and a directory."""
    variables = {**os.environ, "FLIGHTS_BROKERS": bootstrap, "FLIGHTS_STORAGE": str(storage)}
    return read_pipeline_file(FILE, variables=variables)


def write_airlines(file: PipelineFile, airlines: Sequence[tuple[str, str]]) -> None:
    """Write the table of airlines, which a pipeline joins."""
    columns = {"carrier": [code for code, _ in airlines], "name": [name for _, name in airlines]}
    deltalake.write_deltalake(f"{file.warehouse}/flights/airlines".removeprefix("file://"), pa.table(columns))


def run_pipelines(
    file: PipelineFile, log: Path, report: Callable[[Sequence[PipelineStatus]], None]
) -> dict[str, PipelineStatus]:
    """Process the records that the topic has now; return the status of each pipeline.

    Raises:
        PipelineError: a pipeline stopped.
    """
    application = Application(file, file.pipelines, is_once=True)
    with _stderr_to(log):
        errors = application.run(report, note=lambda _: None)
    if errors:
        raise PipelineError("; ".join(map(str, errors)))
    return {each.pipeline: each for each in application.statuses()}


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the process's stderr to a file, which children that start meanwhile inherit."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
