"""`kalda mirror`: replication flows between clusters, from a file of MirrorMaker 2.

Modules that need Arrow are imported when a command runs, so that help stays quick and works without it.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kalda.command.command import Tool, command
from kalda.command.errors import PartialFailureError, ToolError, ToolUsageError
from kalda.command.groups import CONTEXT_SETTINGS, SuggestingGroup
from kalda.command.option_types import Integer
from kalda.command.output import Json
from kalda.command.tables import Cell, Table
from kalda.common.extras import install_hint
from kalda.common.logging import LogLevel

if TYPE_CHECKING:
    from kalda.pipelines.cutover.journal import JournalFile
    from kalda.pipelines.cutover.options import CutoverOptions
    from kalda.pipelines.engine.status import PipelineStatus
    from kalda.pipelines.mirror_maker2.flow_file import Flow

_Function = TypeVar("_Function", bound=Callable[..., object])

_MISSING: Final = f"`kalda mirror` needs Arrow ({{name}} is missing); {install_hint('arrow')}"
_POLL_S: Final = 0.1
_STOP_WAIT_S: Final = 20.0
"""How long a stop waits for the transactions under way; what is interrupted is repeated by the next start."""


class _MirrorGroup(SuggestingGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `--cutover` for the verb of this name."""
        return super().parse_args(ctx, ["cutover", *args[1:]] if args[:1] == ["--cutover"] else args)


mirror: Final[click.Group] = _MirrorGroup(
    help="Copy topics and groups between clusters.\n\nA file of MirrorMaker 2 declares the flows.",
    no_args_is_help=True,
    context_settings=CONTEXT_SETTINGS,
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


@command("cutover", mirror, connects=False, log_level=LogLevel.ERROR)
@_flow_arguments
@click.option("--back", is_flag=True, help="Bring clients back, by a flow that begins at the cut.")
@click.option("--abort", is_flag=True, help="Give up a cut-over under way: let writers go on in the source.")
@click.option("--dry-run", is_flag=True, help="Check, and list what cannot be carried; change nothing.")
@click.option(
    "--fence",
    type=click.Choice(["auto", "acl", "quota"]),
    default="auto",
    show_default=True,
    help="How writers are held: by ACLs that deny Write, or by quotas of a byte per second.",
)
@click.option(
    "--pause-max",
    type=Integer(1, 86_400),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="For how long writers are held before they are let go and the cut-over is given up.",
)
@click.option(
    "--lag-max",
    type=Integer(0),
    default=10_000,
    show_default=True,
    metavar="OFFSETS",
    help="How much may be left to copy when writers are held.",
)
@click.option(
    "--passwords",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A properties file, USER=PASSWORD, for users whose SCRAM credentials the target lacks.",
)
@click.option("--skip-comparison", is_flag=True, help="Compare records where groups stand, not all of them.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the state is kept; FILE.SOURCE-TARGET.cutover unless given.",
)
def cutover(
    tool: Tool,
    file: Path,
    clusters: tuple[str, ...],
    back: bool,
    abort: bool,
    dry_run: bool,
    fence: str,
    pause_max: int,
    lag_max: int,
    passwords: Path | None,
    skip_comparison: bool,
    journal: Path | None,
) -> None:
    """Move producers and consumers to the target of a flow.

    Copies until little is left, keeps writers from the source, copies the rest, commits the exact offsets of
    all groups in the target, compares both clusters, and prints the address that clients switch to. ACLs,
    quotas and users are carried; the report lists what is not. It goes on where it was when it is started
    again, and lets writers go on in the source when it cannot be completed.
    """
    flows = [each for each in _flows(tool, file, clusters) if each.mirror is not None]
    if len(flows) != 1 or flows[0].mirror is None:
        raise ToolUsageError(
            f"{file} has {len(flows)} flows that copy, and a cut-over takes one; choose it by --clusters"
        )
    from kalda.pipelines.cutover.journal import FenceMethod, JournalError, JournalFile
    from kalda.pipelines.cutover.options import CutoverOptions, backward, forward
    from kalda.pipelines.mirror.policy import MirrorError

    flow, options_of_flow = flows[0], flows[0].mirror
    there = journal or file.with_name(f"{file.name}.{flow.source}-{flow.target}.cutover")
    state = JournalFile(there.with_name(f"{there.name}.back") if back else there)
    try:
        former = JournalFile(there).read() if back else None
        if back and former is None:
            raise ToolUsageError(
                f"there is no way back: {there} does not exist; name the journal by --journal"
            )
        options = CutoverOptions(
            mirror=forward(options_of_flow) if former is None else backward(options_of_flow, former),
            method=None if fence == "auto" else FenceMethod(fence),
            pause_max_s=pause_max,
            lag_max=lag_max,
            compares_records=not skip_comparison,
            passwords=_passwords(passwords),
            former=former,
        )
        _cut_over(tool, options, state, is_abort=abort, is_dry_run=dry_run)
    except (MirrorError, JournalError) as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        raise ToolError(f"{state.path}: {error.strerror}") from error


def _passwords(path: Path | None) -> dict[str, str]:
    """Read the file of passwords.

    Raises:
        ToolUsageError: it cannot be read.
    """
    from kalda.common.properties import PropertiesError, read_properties

    if path is None:
        return {}
    try:
        return dict(read_properties(path))
    except (OSError, PropertiesError) as error:
        raise ToolUsageError(f"{path}: {error}") from error


def _cut_over(
    tool: Tool, options: "CutoverOptions", state: "JournalFile", *, is_abort: bool, is_dry_run: bool
) -> None:
    from kalda.pipelines.cutover.cutover import Cutover
    from kalda.pipelines.cutover.journal import Phase
    from kalda.pipelines.cutover.report import document_of, lines_of
    from kalda.tools.pipeline.run import stop_signals

    says = _Progress(tool)
    with state.lock(), Cutover(options, state, says) as running, stop_signals(running.stop):
        journal = running.check() if is_dry_run else running.abort() if is_abort else running.run()
    bootstrap = options.mirror.target.common.get("bootstrap.servers", "")
    tool.output.result(document_of(journal, bootstrap), *lines_of(journal, bootstrap))
    if journal.phase is Phase.ABORTED and not is_abort:
        raise PartialFailureError


class _Progress:
    """Writes a line for each thing that a cut-over does, and at most one a second for one that goes on."""

    def __init__(self, tool: Tool) -> None:
        self._tool: Final = tool
        self._what = ""
        self._next_s = 0.0

    def __call__(self, line: str) -> None:
        what, _, _ = line.partition(" lag ")
        now = time.monotonic()
        if what == self._what and now < self._next_s:
            return
        self._what, self._next_s = what, now + 1.0
        self._tool.output.note(line)


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
