"""`kalda reassign`: moves partitions to other brokers and directories, as `kafka-reassign-partitions` does.

`kalda.tools.reassignment_plan` decides; `kalda.tools.reassignment_progress` reads how far moves are. This
module reads the cluster, sends what was decided, and shows it. The files are those of Kafka's tool.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import INT32_MAX, Integer
from kalda.command.output import Json, json_line
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import distinct, parse_ids, partitions_text, read_json
from kalda.common.log_text import counted
from kalda.common.types import TopicPartition
from kalda.inspection.cluster_health import RESPONSE_TIMEOUT_MS
from kalda.tools.reassignment_plan import (
    BROKER_THROTTLES,
    TOPIC_THROTTLES,
    Assignment,
    OngoingReassignment,
    ReassignmentFile,
    Replica,
    Throttles,
    check_current,
    check_replication_factors,
    moves,
    parse_reassignment,
    parse_topics_to_move,
    propose,
    reassignment_json,
    throttles,
    usable_racks,
)
from kalda.tools.reassignment_progress import Progress, read_progress
from kalda.tools.replica_balance import changes, check_all_run, moved_replicas, rebalance

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.errors import ClientError

_POLL_INTERVAL_S: Final = 0.5
"""How often `--wait` looks: a move of one small partition takes about as long."""

reassign = noun("Move partitions to other brokers and directories.")

_file_option = click.option(
    "--reassignment-json-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="The file with the assignment, as `generate` and Kafka's tool write it.",
)
_preserve_option = click.option(
    "--preserve-throttles", is_flag=True, help="Leave the settings that bound the traffic as they are."
)


@command("generate", reassign)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, type=TopicName())
@click.option(
    "--topics-to-move-json-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='The topics, in Kafka\'s form: {"topics": [{"topic": "flights"}], "version": 1}.',
)
@click.option(
    "--all-topics", is_flag=True, help="Balance all topics, internal ones too, with as few moves as possible."
)
@click.option(
    "--broker-list",
    metavar="ID,...",
    help="The brokers that shall have the partitions. With --all-topics all brokers, unless they are given.",
)
@click.option("--disable-rack-aware", is_flag=True, help="Ignore the racks of brokers.")
async def generate(
    tool: Tool,
    topics: tuple[str, ...],
    topics_to_move_json_file: Path | None,
    all_topics: bool,
    broker_list: str | None,
    disable_rack_aware: bool,
) -> None:
    """Propose an assignment of topics to brokers; nothing is moved.

    Replicas are spread as for new topics, from a start at random. With --all-topics only as many are moved
    as it takes for brokers to have equally many, and the proposal has the partitions that change. stdout has
    only the proposal, ready to be saved for `execute`; the present assignment, to go back to, is on stderr.
    """
    named = list(topics)
    if topics_to_move_json_file is not None:
        option = "--topics-to-move-json-file"
        named += parse_topics_to_move(
            read_json(option, topics_to_move_json_file), str(topics_to_move_json_file)
        )
    if all_topics and named:
        raise ToolUsageError("--all-topics excludes names of topics; use one of the two")
    if broker_list is None and not all_topics:
        raise ToolUsageError(
            "--broker-list is missing: the ids of the brokers, or --all-topics for all of them"
        )
    chosen = [] if all_topics else distinct("--topics-to-move-json-file", named)
    async with tool.admin() as admin:
        if all_topics:
            chosen = list(await admin.list_topics(include_internal=True))
        current = await read_current(admin, chosen)
        found = await running_brokers(admin)
    wanted = sorted(found) if broker_list is None else parse_ids("--broker-list", broker_list)
    missing = [broker_id for broker_id in wanted if broker_id not in found]
    if missing:
        raise ToolError(
            f"the cluster has no broker {', '.join(map(str, missing))}; its brokers are "
            f"{', '.join(map(str, sorted(found)))}"
        )
    racks = usable_racks({broker_id: found[broker_id] for broker_id in wanted}, not disable_rack_aware)
    if all_topics:
        if broker_list is None:
            check_all_run(current, found)
        current, proposed = changes(current, rebalance(current, racks))
        moved = moved_replicas(current, proposed)
        tool.output.note(
            f"To change: {counted(len(proposed), 'partition')}; to copy: {counted(moved, 'replica')}."
        )
    else:
        proposed = propose(current, racks, chance=random.Random())
    before, after = reassignment_json(current), reassignment_json(proposed)
    tool.output.note(
        f"Current partition replica assignment:\n{json_line(before)}".replace("\n", " ").rstrip()
    )
    tool.output.result({"current": before, "proposed": after}, json_line(after).rstrip())


@command("execute", reassign)
@_file_option
@click.option(
    "--throttle", type=Integer(1), metavar="BYTES", help="At most this many bytes a second between brokers."
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    type=Integer(1),
    metavar="BYTES",
    help="At most this many bytes a second between directories of a broker.",
)
@click.option("--additional", is_flag=True, help="Begin even though other partitions are being reassigned.")
@click.option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="Refuse a file that gives a partition more or fewer replicas than it has.",
)
@click.option("--wait", is_flag=True, help="Show progress until all is moved, then lift the throttles.")
@click.option("--timeout", type=Integer(0, INT32_MAX), default=10_000, show_default=True, metavar="MS",
              help="How long a replica may take to exist before its directory can be chosen.")  # fmt: skip
async def execute(
    tool: Tool,
    reassignment_json_file: Path,
    throttle: int | None,
    replica_alter_log_dirs_throttle: int | None,
    additional: bool,
    disallow_replication_factor_change: bool,
    wait: bool,
    timeout: int,
) -> None:
    """Begin to move partitions to the replicas in a file.

    The moves go on in the background. With a throttle, run `verify` until they are done: it lifts it.
    """
    file = _read(reassignment_json_file)
    async with tool.admin() as admin:
        current, ongoing = await _check(admin, file, is_additional=additional)
        if disallow_replication_factor_change:
            check_replication_factors(file.assignment, current)
        tool.output.note(
            "Save the current assignment to be able to go back: "
            + json_line(reassignment_json(current)).rstrip()
        )
        bounded = throttles(
            moves(ongoing, file.assignment, current),
            file.log_dirs,
            rate=throttle,
            log_dir_rate=replica_alter_log_dirs_throttle,
        )
        await set_throttles(admin, bounded)
        altered = await admin.alter_partition_reassignments(
            file.assignment,
            allow_replication_factor_change=not disallow_replication_factor_change,
            outcomes=True,
        )
        started = [each for each in file.assignment if each in altered.results]
        if not altered.errors and file.log_dirs:
            await _move_directories(admin, file.log_dirs, timeout_ms=timeout)
        if wait and not altered.errors:
            await wait_for_moves(tool, admin, file)
            await clear_throttles(admin, file)
    if bounded.brokers and not wait:
        tool.output.note("Run `kalda reassign verify` until the moves are done; it lifts the throttle.")
    word = "Moved" if wait and not altered.errors else "Started to move"
    tool.output.result(
        {
            "current": reassignment_json(current),
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "replicas": file.assignment[each],
                    "error": error_json(altered.errors.get(each)),
                }
                for each in file.assignment
            ],
        },
        *([f"{word} {partitions_text(started)}."] if started else []),
    )
    raise_for(tool.output, altered.errors.values())


@command("verify", reassign)
@_file_option
@_preserve_option
async def verify(tool: Tool, reassignment_json_file: Path, preserve_throttles: bool) -> None:
    """Show how far the moves in a file are; lift the throttles when all moves of the cluster are done.

    The exit code is 0 whether or not the moves are done; the column STATUS shows it.
    """
    file = _read(reassignment_json_file)
    async with tool.admin() as admin:
        progress = await read_progress(admin, file)
        is_lifted = not preserve_throttles and not progress.is_ongoing
        if is_lifted:
            await clear_throttles(admin, file)
    _show(tool, progress, is_lifted=is_lifted)


@command("cancel", reassign)
@_file_option
@_preserve_option
async def cancel(tool: Tool, reassignment_json_file: Path, preserve_throttles: bool) -> None:
    """Cancel the moves in a file that are under way: the partitions stay where they were.

    Moves between directories are cancelled by moving the replica back.
    """
    file = _read(reassignment_json_file)
    async with tool.admin() as admin:
        ongoing = await read_ongoing(admin, file.assignment)
        cancelled = await admin.alter_partition_reassignments(dict.fromkeys(ongoing), outcomes=True)
        progress = await read_progress(admin, file)
        back = {each.replica: each.current_dir for each in progress.directories if each.is_ongoing}
        if back:
            await _move_directories(admin, back, timeout_ms=0)
        if not preserve_throttles:
            await clear_throttles(admin, file)
    lines = (
        [f"Cancelled the reassignment of {partitions_text(cancelled.results)}."] if cancelled.results else []
    )
    lines += [f"Cancelled the move of replica {replica} to another directory." for replica in sorted(back)]
    tool.output.result(
        {
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "error": error_json(cancelled.errors.get(each)),
                }
                for each in ongoing
            ],
            "directories": [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "broker": each.broker_id,
                }
                for each in sorted(back)
            ],
        },
        *(lines or ["None of the moves is under way."]),
    )
    raise_for(tool.output, cancelled.errors.values())


@command("list", reassign)
async def list_reassignments(tool: Tool) -> None:
    """List the partitions that are being reassigned."""
    async with tool.admin() as admin:
        ongoing = await read_ongoing(admin, None)
    rows = [
        (each.topic, each.partition, found.replicas, found.adding, found.removing)
        for each, found in sorted(ongoing.items())
    ]
    names = ("topic", "partition", "replicas", "adding", "removing")
    tool.output.result(
        {"reassignments": [dict(zip(names, row, strict=True)) for row in rows]},
        Table(
            ("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"),
            rows,
            empty="No partition is being reassigned.",
        ),
    )


async def set_throttles(admin: "AsyncAdmin", bounded: Throttles) -> None:
    """Set the settings that bound the traffic of moves.

    Raises:
        ClientError: a broker refused them; nothing has moved yet.
    """
    from kalda.clients.admin.configs import AlterConfigOp, ConfigResource

    changes = {
        ConfigResource.topic(topic): settings for topic, settings in bounded.topics.items() if settings
    }
    changes |= {ConfigResource.broker(broker_id): settings for broker_id, settings in bounded.brokers.items()}
    await admin.incremental_alter_configs(
        {
            resource: [AlterConfigOp.set(name, value) for name, value in settings.items()]
            for resource, settings in changes.items()
        }
    )


async def clear_throttles(admin: "AsyncAdmin", file: ReassignmentFile) -> None:
    """Delete the throttles of all brokers and of the file's topics, as Kafka's tool does.

    It takes all brokers that run: which of them took part in former moves is not known.

    Raises:
        ClientError: a broker refused it.
    """
    from kalda.clients.admin.configs import AlterConfigOp, ConfigResource

    brokers = await running_brokers(admin)
    existing = await admin.list_topics(include_internal=True)
    changes: dict[ConfigResource, tuple[str, ...]] = {
        ConfigResource.broker(broker_id): BROKER_THROTTLES for broker_id in sorted(brokers)
    }
    changes |= {ConfigResource.topic(topic): TOPIC_THROTTLES for topic in file.topics if topic in existing}
    await admin.incremental_alter_configs(
        {resource: [AlterConfigOp.delete(name) for name in names] for resource, names in changes.items()}
    )


def _read(path: Path) -> ReassignmentFile:
    return parse_reassignment(read_json("--reassignment-json-file", path), str(path))


async def _check(
    admin: "AsyncAdmin", file: ReassignmentFile, *, is_additional: bool
) -> tuple[Assignment, dict[TopicPartition, OngoingReassignment]]:
    """Return the present replicas of the file's partitions, and every ongoing reassignment.

    Raises:
        ToolError: the plan names what does not exist, or others are under way.
    """
    ongoing = await read_ongoing(admin, None)
    if ongoing and not is_additional:
        raise ToolError(
            f"partitions are being reassigned already: {partitions_text(ongoing)}; wait for them, cancel "
            "them, or use --additional, which also changes the throttle of what is under way"
        )
    current = await read_current(admin, file.topics)
    check_current(file.assignment, current, sorted(await running_brokers(admin)))
    return {each: current[each] for each in sorted(file.assignment)}, ongoing


async def running_brokers(admin: "AsyncAdmin") -> dict[int, str | None]:
    """Return the racks of the brokers that respond, by id.

    The cluster lists a killed broker until its session expires. Nothing can be moved to it or set on it.

    Raises:
        ClientError: the cluster cannot be described.
    """
    racks = {broker.id: broker.rack for broker in (await admin.describe_cluster()).nodes}
    responded = (
        await admin.describe_api_versions(racks, outcomes=True, timeout_ms=RESPONSE_TIMEOUT_MS)
    ).results
    return {broker_id: rack for broker_id, rack in racks.items() if broker_id in responded}


async def read_current(admin: "AsyncAdmin", topics: Iterable[str]) -> Assignment:
    """Return the replicas of the topics' partitions.

    Raises:
        ClientError: a topic cannot be described.
    """
    described = await admin.describe_topics(topics)
    return {
        TopicPartition(topic.name, partition.partition): partition.replicas
        for topic in described.results.values()
        for partition in topic.partitions
    }


async def read_ongoing(
    admin: "AsyncAdmin", partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, OngoingReassignment]:
    """Return the reassignments of some partitions, None for all, that the controller works on."""
    found = await admin.list_partition_reassignments(partitions)
    return {
        each: OngoingReassignment(one.replicas, one.adding_replicas, one.removing_replicas)
        for each, one in found.items()
    }


async def _move_directories(admin: "AsyncAdmin", log_dirs: Mapping[Replica, str], *, timeout_ms: int) -> None:
    """Choose the directories of replicas, waiting for replicas that are only now being created.

    Raises:
        ToolError: a replica did not exist in time, or a broker refused its directory.
    """
    from kalda.clients.admin.log_dirs import TopicPartitionReplica
    from kalda.common.errors import ErrorCode

    waiting = dict(log_dirs)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    while True:
        keys = {TopicPartitionReplica(*each.partition, each.broker_id): each for each in waiting}
        altered = await admin.alter_replica_log_dirs(
            {key: waiting[each] for key, each in keys.items()}, outcomes=True
        )
        late: dict[Replica, ClientError] = {keys[key]: error for key, error in altered.errors.items()}
        # A replica that is new on its broker can only move when the broker has created it.
        refused = [error for error in late.values() if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE]
        if refused:
            names = ", ".join(str(each) for each, error in sorted(late.items()) if error in refused)
            raise ToolError(
                f"the directory of replica {names} could not be chosen: {refused[0]}; "
                "moves between brokers go on"
            ) from refused[0]
        waiting = {each: waiting[each] for each in late}
        if not waiting:
            return
        if loop.time() >= deadline:
            raise ToolError(
                f"replicas {', '.join(map(str, sorted(waiting)))} did not exist within {timeout_ms} ms, so "
                "they could not be moved to their directories; run the command again with a longer --timeout"
            )
        await asyncio.sleep(0.1)


async def wait_for_moves(tool: Tool, admin: "AsyncAdmin", file: ReassignmentFile) -> None:
    """Show progress until no move of the file is under way.

    Raises:
        ToolError: a partition or a directory is not where the file wants it.
    """
    total = len(file.assignment) + len(file.log_dirs)
    with tool.output.progress("Moving", total, "partitions and directories") as bar:
        while True:
            progress = await read_progress(admin, file)
            bar.update(progress.done_count)
            if not progress.is_own_ongoing:
                break
            await asyncio.sleep(_POLL_INTERVAL_S)
    failed = progress.failed_texts()
    if failed:
        raise ToolError("; ".join(failed))


def _show(tool: Tool, progress: Progress, *, is_lifted: bool) -> None:
    rows = [
        (each.partition.topic, each.partition.partition, each.status.value, each.current, each.target)
        for each in progress.partitions
    ]
    tables: list[Table | str] = [Table(("TOPIC", "PARTITION", "STATUS", "REPLICAS", "TARGET"), rows)]
    document: dict[str, Json] = {
        "is_ongoing": progress.is_ongoing,
        "throttles_lifted": is_lifted,
        "partitions": [
            dict(zip(("topic", "partition", "status", "replicas", "target"), row, strict=True))
            for row in rows
        ],
    }
    if progress.directories:
        moved = [
            (each.replica.partition.topic, each.replica.partition.partition, each.replica.broker_id,
             each.status.value, each.current_dir, each.target_dir)
            for each in progress.directories
        ]  # fmt: skip
        tables += ["", Table(("TOPIC", "PARTITION", "BROKER", "STATUS", "DIRECTORY", "TARGET"), moved)]
        names = ("topic", "partition", "broker", "status", "directory", "target")
        document["directories"] = [dict(zip(names, row, strict=True)) for row in moved]
    tool.output.result(document, *tables)
    if is_lifted:
        tool.output.note("The moves are done; the throttles are lifted.")
