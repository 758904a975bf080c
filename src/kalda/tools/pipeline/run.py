"""`kalda pipeline run` and `once`: run the pipelines of a file in one Spark application."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kalda.command.command import Tool, command
from kalda.command.errors import PartialFailureError, ToolError
from kalda.command.option_types import Integer
from kalda.common.logging import LogLevel
from kalda.tools.pipeline.arguments import (
    checked_master,
    chosen,
    file_error,
    missing_package,
    pipeline_arguments,
    read_file,
)
from kalda.tools.pipeline.noun import pipeline

_MASTER = click.option(
    "--master",
    metavar="URL",
    callback=checked_master,
    help="Spark's master, such as local[4] or spark://HOST:7077 (default: the file's, else local[*]).",
)
_METRICS = click.option(
    "--metrics-port",
    type=Integer(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus on this port of 127.0.0.1; 0 picks a free one.",
)


@command("run", pipeline, log_level=LogLevel.WARNING)
@pipeline_arguments
@_MASTER
@_METRICS
def run(tool: Tool, file: Path, names: tuple[str, ...], master: str | None, metrics_port: int | None) -> None:
    """Run pipelines until SIGTERM, SIGHUP or Ctrl-C, each by its trigger.

    Without names, all pipelines of the file run. A pipeline ends after its current batch; a failed one starts
    again. The command ends when all have ended.
    """
    _run(tool, file, names, master, metrics_port, is_once=False)


@command("once", pipeline, log_level=LogLevel.WARNING)
@pipeline_arguments
@_MASTER
def once(tool: Tool, file: Path, names: tuple[str, ...], master: str | None) -> None:
    """Process what is there now, then end.

    A pipeline that reads a table or a named topic which another one of them writes starts when that one has
    ended.
    """
    _run(tool, file, names, master, None, is_once=True)


def _run(
    tool: Tool,
    path: Path,
    names: tuple[str, ...],
    master: str | None,
    metrics_port: int | None,
    *,
    is_once: bool,
) -> None:
    file = read_file(tool, path)
    specs = chosen(file, names)
    try:
        from kalda.pipelines.engine.application import Application
        from kalda.pipelines.engine.run_lock import RunLockError
        from kalda.spark.java_output import JavaStartError
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    from kalda.clients.errors import ClientError
    from kalda.pipelines.spec.errors import PipelineFileError
    from kalda.tools.pipeline.progress import ProgressView

    view = ProgressView(tool.output)
    try:
        application = Application(file, specs, master=master, metrics_port=metrics_port, is_once=is_once)
    except PipelineFileError as error:
        raise file_error(tool, error) from None
    try:
        with stop_signals(application.request_stop):
            errors = application.run(view.show, note=tool.output.note)
    except (ClientError, JavaStartError, RunLockError) as error:
        raise ToolError(str(error)) from None
    view.finish(application.statuses())
    if errors:
        for each in errors:
            tool.output.failure(str(each))
        raise PartialFailureError


@contextmanager
def stop_signals(request_stop: Callable[[], None]) -> Iterator[None]:
    """Call a function at each signal that ends a command, also a repeated one.

    A terminal that closes sends SIGHUP; under `nohup` it is ignored, and stays so.
    """
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: request_stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
