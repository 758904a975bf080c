"""`kalda mirror`: replication flows between clusters, from a file of MirrorMaker 2.

Modules that need Arrow are imported when a command runs, so that help stays quick and works without it.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import PartialFailureError, ToolError, ToolUsageError
from kalda.command.option_types import Integer
from kalda.command.output import Json
from kalda.command.tables import Cell, Table
from kalda.common.extras import install_hint
from kalda.common.logging import LogLevel

if TYPE_CHECKING:
    from kalda.pipelines.engine.status import PipelineStatus
    from kalda.pipelines.mirror_maker2.flow_file import Flow

_Function = TypeVar("_Function", bound=Callable[..., object])

_MISSING: Final = f"`kalda mirror` needs Arrow ({{name}} is missing); {install_hint('arrow')}"
_POLL_S: Final = 0.1
_STOP_WAIT_S: Final = 20.0
"""How long a stop waits for the transactions under way; what is interrupted is repeated by the next start."""

mirror: Final[click.Group] = noun(
    "Copy topics and groups between clusters.\n\nA file of MirrorMaker 2 declares the flows."
)
"""The group `kalda mirror`."""


def _flow_arguments(function: _Function) -> _Function:
    clusters = click.option(
        "--clusters",
        multiple=True,
        metavar="NAME",
        help="Only flows to these clusters; repeatable.",
    )
    file = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
    return file(clusters(function))


@command("run", mirror, connects=False, log_level=LogLevel.WARNING)
@_flow_arguments
@click.option(
    "--metrics-port",
    type=Integer(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus on this port of 127.0.0.1; 0 picks a free one.",
)
def run(tool: Tool, file: Path, clusters: tuple[str, ...], metrics_port: int | None) -> None:
    """Copy continuously, until SIGTERM, SIGHUP or Ctrl-C.

    FILE is a connect-mirror-maker.properties. A flow copies exactly once where its target is Kalda, or Kafka
    2.5 or newer, and goes on where it ended. A cluster that is away is waited for; a flow that cannot go on
    ends, and the others go on.
    """
    _run(tool, file, clusters, metrics_port, is_once=False)


@command("once", mirror, connects=False, log_level=LogLevel.WARNING)
@_flow_arguments
def once(tool: Tool, file: Path, clusters: tuple[str, ...]) -> None:
    """Copy what is there now, then end."""
    _run(tool, file, clusters, None, is_once=True)


@command("status", mirror, connects=False)
@_flow_arguments
def status(tool: Tool, file: Path, clusters: tuple[str, ...]) -> None:
    """Show how far each partition is copied, and how far that is behind its end.

    Flows commit this in their targets, so that it is known whether they run or not.
    """
    flows = _flows(tool, file, clusters)
    from kalda.clients.errors import ClientError
    from kalda.pipelines.mirror.policy import MirrorError
    from kalda.pipelines.mirror_maker2.flow_progress import progress_of

    document: list[Json] = []
    rows: list[tuple[Cell, ...]] = []
    names = ("flow", "topic", "partition", "copy", "copied", "end", "lag")
    has_failed = False
    for flow in flows:
        try:
            found = [] if flow.mirror is None else progress_of(flow.mirror)
        except (ClientError, MirrorError) as error:
            tool.output.failure(f"{flow.name}: {error}")
            has_failed = True
            continue
        for each in found:
            copy = each.target.topic
            row = (flow.name, each.source.topic, each.source.partition, copy, each.copied, each.end, each.lag)
            rows.append(row)
            document.append(dict(zip(names, row, strict=True)))
    columns = ("FLOW", "TOPIC", "PARTITION", "COPY", "COPIED", "LOG-END-OFFSET", "LAG")
    tool.output.result({"partitions": document}, Table(columns, rows))
    if has_failed:
        raise PartialFailureError


@command("validate", mirror, connects=False)
@_flow_arguments
def validate(tool: Tool, file: Path, clusters: tuple[str, ...]) -> None:
    """Check a file, and show its flows; no cluster is asked."""
    document: list[Json] = []
    rows: list[tuple[Cell, ...]] = []
    for flow in _flows(tool, file, clusters):
        options = flow.mirror
        copies = "nothing" if options is None else options.names.target_topic("TOPIC")
        delivery = None if options is None else options.delivery.value
        row = (flow.name, copies, delivery, flow.heartbeats is not None)
        rows.append(row)
        document.append(dict(zip(("flow", "copies", "delivery", "heartbeats"), row, strict=True)))
    tool.output.result({"flows": document}, Table(("FLOW", "COPIES", "DELIVERY", "HEARTBEATS"), rows))


def _flows(tool: Tool, path: Path, clusters: Sequence[str]) -> "list[Flow]":
    """Read the flows of a file to the given clusters, and say which of its settings have no effect.

    Raises:
        ToolError: Arrow is missing.
        ToolUsageError: the file is wrong, or has no flow to a cluster.
    """
    try:
        from kalda.pipelines.mirror_maker2.flow_file import FlowFileError, read_flow_file
    except ModuleNotFoundError as error:
        raise ToolError(_MISSING.format(name=error.name)) from error
    try:
        found = read_flow_file(path)
    except OSError as error:
        raise ToolUsageError(f"{path}: {error.strerror}") from error
    except FlowFileError as error:
        raise ToolUsageError(f"{path}: {error}") from error
    if found.without_effect:
        tool.output.note(f"{path}: without effect here: {', '.join(sorted(found.without_effect))}")
    targets = {each.target for each in found.flows}
    for name in clusters:
        if name not in targets:
            raise ToolUsageError(
                f"{path} has no flow to {name}; it has flows to {', '.join(sorted(targets))}"
            )
    return [each for each in found.flows if not clusters or each.target in clusters]


def _run(tool: Tool, path: Path, clusters: Sequence[str], metrics_port: int | None, *, is_once: bool) -> None:
    flows = _flows(tool, path, clusters)
    from contextlib import ExitStack

    from kalda.pipelines.engine.metrics import MetricsEndpoint
    from kalda.pipelines.mirror_maker2.flow_run import FlowRun
    from kalda.pipelines.mirror_maker2.heartbeats import Heartbeats
    from kalda.tools.pipeline.progress import ProgressView
    from kalda.tools.pipeline.run import stop_signals

    runs = [FlowRun(each, each.mirror, is_once=is_once) for each in flows if each.mirror is not None]
    beats = [
        Heartbeats(each, each.heartbeats) for each in flows if each.heartbeats is not None and not is_once
    ]
    started: list[FlowRun | Heartbeats] = [*runs, *beats]
    is_stopping = False
    statuses = [each.status for each in runs]

    def request_stop() -> None:
        nonlocal is_stopping
        is_stopping = True
        for each in started:
            each.request_stop()

    view = ProgressView(tool.output)
    with ExitStack() as stack:
        if metrics_port is not None:
            endpoint = stack.enter_context(MetricsEndpoint(lambda: statuses, metrics_port))
            tool.output.note(f"metrics: http://127.0.0.1:{endpoint.port}/metrics")
        stack.enter_context(stop_signals(request_stop))
        for each in started:
            each.start()
        # Without flows that copy, heartbeats are all there is to do.
        while not is_stopping and any(each.is_active for each in runs or beats):
            time.sleep(_POLL_S)
            view.show(statuses)
        request_stop()
        deadline = time.monotonic() + _STOP_WAIT_S
        for each in started:
            each.stop(max(deadline - time.monotonic(), 0.0))
    _finish(tool, statuses)
    failed = [each for each in started if each.error is not None]
    for each in failed:
        tool.output.failure(f"{each.name}: {each.error}")
    if failed:
        raise PartialFailureError


def _finish(tool: Tool, statuses: "Sequence[PipelineStatus]") -> None:
    rows = [
        (each.pipeline, str(each.state), each.records, each.batches, each.lag, each.restarts, each.error)
        for each in statuses
    ]
    columns = ("FLOW", "STATE", "RECORDS", "TRANSACTIONS", "LAG", "RESTARTS", "ERROR")
    names = ("flow", "state", "records", "transactions", "lag", "restarts", "error")
    document: list[Json] = [dict(zip(names, row, strict=True)) for row in rows]
    tool.output.result({"flows": document}, Table(columns, rows))
