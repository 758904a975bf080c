"""`kalda groups reset-offsets` and `delete-offsets`: change what groups have committed.

The rules of resets are pure functions in `kalda.tools.offset_resets`. A reset without `--execute` changes
nothing, as in Kafka's tool.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kalda.command.command import SettingOption, Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import GroupName, TopicName
from kalda.command.option_types import Integer
from kalda.command.output import Json
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import distinct, parse_duration, parse_time_ms, parse_topic_partitions
from kalda.common.log_text import counted
from kalda.common.types import TopicPartition
from kalda.tools.offset_resets import (
    LogRange,
    NewOffset,
    by_time,
    current,
    parse_reset_file,
    reset_file,
    shifted,
    within,
)

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.errors import ClientError

_Function = TypeVar("_Function", bound=Callable[..., object])

GROUP_SETTINGS = (
    SettingOption("--timeout", "default.api.timeout.ms", "MS", "How long the cluster may take for a call."),
)
"""What kafka-consumer-groups has for all of its actions."""

groups = noun("List, describe, reset and delete groups.")


def group_arguments(function: _Function) -> _Function:
    """Add the names of groups, as arguments and as Kafka's options; `chosen_groups` reads them."""
    decorators = (
        click.argument("names", metavar="[GROUP]...", nargs=-1, type=GroupName()),
        click.option(
            "--group", multiple=True, type=GroupName(), metavar="GROUP", help="A group; repeatable."
        ),
        click.option("--all-groups", is_flag=True, help="All groups of consumers."),
    )
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


async def chosen_groups(
    admin: "AsyncAdmin", names: Sequence[str], group: Sequence[str], is_all: bool
) -> list[str]:
    """Return the groups that the options of `group_arguments` mean.

    Raises:
        ToolUsageError: none, or names besides `--all-groups`.
    """
    if is_all:
        if names or group:
            raise ToolUsageError("--all-groups means every group; name no group beside it")
        return [each.group_id for each in (await admin.list_consumer_groups()).all()]
    return distinct("--group or --all-groups", names, group)


_SCENARIOS = {
    "to_offset": click.option("--to-offset", type=Integer(), metavar="OFFSET", help="To an offset."),
    "to_datetime": click.option(
        "--to-datetime",
        metavar="TIME",
        help="To the first record at a time or after it, e.g. 2026-11-22T14:30:00.000 (UTC).",
    ),
    "by_duration": click.option(
        "--by-duration",
        metavar="DURATION",
        help="To the first record of the last while, e.g. PT1H30M or P7D.",
    ),
    "to_earliest": click.option("--to-earliest", is_flag=True, default=None, help="To the start of the log."),
    "to_latest": click.option("--to-latest", is_flag=True, default=None, help="To the end of the log."),
    "shift_by": click.option(
        "--shift-by",
        type=Integer(),
        metavar="N",
        help="By N offsets from the committed one; negative is back.",
    ),
    "from_file": click.option(
        "--from-file", metavar="FILE", help="To the offsets in a file that --export wrote."
    ),
    "to_current": click.option(
        "--to-current", is_flag=True, default=None, help="To the committed offset, else the end of the log."
    ),
}


def _scenario_options(function: _Function) -> _Function:
    for decorate in reversed(_SCENARIOS.values()):
        function = decorate(function)
    return function


@command("reset-offsets", groups, settings=GROUP_SETTINGS)
@group_arguments
@click.option(
    "--topic",
    multiple=True,
    type=TopicName(),
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="All partitions for which the group has committed offsets.")
@_scenario_options
@click.option("--execute", is_flag=True, help="Carry the reset out; without it, the plan is only shown.")
@click.option("--dry-run", is_flag=True, help="Only show the plan; this is the default.")
@click.option("--export", is_flag=True, help="Print the plan as a file for --from-file (CSV).")
async def reset_offsets(
    tool: Tool,
    /,
    names: tuple[str, ...],
    group: tuple[str, ...],
    all_groups: bool,
    topic: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    **scenarios: object,
) -> None:
    """Reset the committed offsets of groups without members.

    Choose partitions by --topic or --all-topics, and where to by one of the options below them. An offset
    outside the log is moved to its nearer end.
    """
    given = {name: value for name, value in scenarios.items() if value is not None}
    _check_reset(given, topic, all_topics, is_contradiction=execute and dry_run)
    async with tool.admin() as admin:
        chosen = await chosen_groups(admin, names, group, all_groups)
        await _check_inactive(admin, chosen)
        plans: dict[str, dict[TopicPartition, NewOffset]] = {}
        before: dict[str, dict[TopicPartition, int]] = {}
        asked_of_file = _read_plan(given, chosen)
        for group_id in chosen:
            before[group_id] = await _committed(admin, group_id)
            if asked_of_file is not None:
                partitions: Iterable[TopicPartition] = asked_of_file[group_id]
            elif all_topics:
                partitions = before[group_id]
            else:
                partitions = await partitions_of(admin, "--topic", topic)
            ranges = await log_ranges(admin, partitions)
            asked = asked_of_file[group_id] if asked_of_file is not None else None
            if asked is None:
                asked = await _asked(admin, given, partitions, before[group_id], ranges)
            plans[group_id] = within(asked, ranges)
        errors = await _commit(admin, plans) if execute else []
    for group_id, plan in plans.items():
        for partition, new in plan.items():
            if new.is_moved:
                tool.output.note(
                    f"Group {group_id}: offset {new.asked} is outside the log of {partition}; "
                    f"{new.offset} is its nearer end."
                )
    _show_reset(tool, plans, before, is_executed=execute, is_export=export)
    raise_for(tool.output, errors)


@command("delete-offsets", groups, settings=GROUP_SETTINGS)
@click.argument("name", metavar="[GROUP]", required=False, type=GroupName())
@click.option("--group", metavar="GROUP", type=GroupName(), help="The group.")
@click.option(
    "--topic",
    multiple=True,
    type=TopicName(),
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)
async def delete_offsets(tool: Tool, name: str | None, group: str | None, topic: tuple[str, ...]) -> None:
    """Delete committed offsets of a group, of topics that no member subscribes to."""
    (group_id,) = distinct("--group", [name] if name else [], [group] if group else []) or [""]
    if not topic:
        raise ToolUsageError(
            "name the topics whose offsets to delete: --topic flights, or --topic flights:0,1"
        )
    async with tool.admin() as admin:
        partitions = await partitions_of(admin, "--topic", topic)
        deleted = await admin.delete_consumer_group_offsets({group_id: partitions}, outcomes=True)
    outcomes = deleted[group_id]
    rows = [
        (each.topic, each.partition, "error" if each in outcomes.errors else "deleted") for each in partitions
    ]
    tool.output.result(
        {
            "group": group_id,
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "error": error_json(outcomes.errors.get(each)),
                }
                for each in partitions
            ],
        },
        Table(("TOPIC", "PARTITION", "STATUS"), rows),
    )
    raise_for(tool.output, outcomes.errors.values())


async def partitions_of(admin: "AsyncAdmin", option: str, words: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that ``topic`` and ``topic:0,1`` stand for, sorted.

    Raises:
        ClientError: a topic without partitions cannot be described.
    """
    topics = parse_topic_partitions(option, words)
    whole = [topic for topic, numbers in topics.items() if numbers is None]
    found = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers or ()]
    described = await admin.describe_topics(whole)
    for description in described.results.values():
        found += [TopicPartition(description.name, each.partition) for each in description.partitions]
    return sorted(found)


async def log_ranges(
    admin: "AsyncAdmin", partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogRange]:
    """Return the offsets that partitions hold.

    Raises:
        ClientError: the ends of a partition cannot be read.
    """
    from kalda.clients.admin.partitions import OffsetSpec

    wanted = list(partitions)
    starts = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.earliest()), outcomes=True)
    ends = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.latest()), outcomes=True)
    return {each: LogRange(starts[each].offset, ends[each].offset) for each in wanted}


def _check_reset(
    given: Mapping[str, object], topic: Sequence[str], all_topics: bool, *, is_contradiction: bool
) -> None:
    options = [f"--{name.replace('_', '-')}" for name in _SCENARIOS]
    if len(given) != 1:
        fault = "where to is not given" if not given else "several places to reset to are given"
        raise ToolUsageError(f"{fault}; use one of {', '.join(options)}")
    if is_contradiction:
        raise ToolUsageError("--execute and --dry-run exclude each other")
    if "from_file" in given:
        if topic or all_topics:
            raise ToolUsageError("--from-file names the partitions; leave out --topic and --all-topics")
    elif bool(topic) is all_topics:
        raise ToolUsageError("choose the partitions by either --topic or --all-topics")


async def _check_inactive(admin: "AsyncAdmin", group_ids: Iterable[str]) -> None:
    """Refuse groups that have members; a group that does not exist is created by its offsets."""
    from kalda.clients.admin.groups import GroupState
    from kalda.common.errors import ErrorCode

    described = await admin.describe_consumer_groups(group_ids, outcomes=True)
    for group_id, error in described.errors.items():
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise ToolError(f"group {group_id}: {error}") from error
    for group_id, group in described.results.items():
        if group.state not in (GroupState.EMPTY, GroupState.DEAD):
            raise ToolError(
                f"group {group_id} is {group.state.value} with {counted(len(group.members), 'member')}; "
                "stop its consumers, then reset its offsets"
            )


async def _committed(admin: "AsyncAdmin", group_id: str) -> dict[TopicPartition, int]:
    fetched = (await admin.list_consumer_group_offsets([group_id]))[group_id]
    return {part: each.offset for part, each in sorted(fetched.results.items()) if each is not None}


def _read_plan(
    given: Mapping[str, object], group_ids: list[str]
) -> dict[str, dict[TopicPartition, int]] | None:
    path = given.get("from_file")
    if not isinstance(path, str):
        return None
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ToolUsageError(f"--from-file={path}: {reason}") from error
    return parse_reset_file(text, f"--from-file={path}", group_ids)


async def _asked(
    admin: "AsyncAdmin",
    given: Mapping[str, object],
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, LogRange],
) -> dict[TopicPartition, int]:
    """Return the offsets that the one scenario in `given` asks for."""
    ((scenario, value),) = given.items()
    match scenario:
        case "to_earliest":
            return {each: ranges[each].start for each in partitions}
        case "to_latest":
            return {each: ranges[each].end for each in partitions}
        case "to_current":
            return current(partitions, committed, ranges)
        case "to_offset":
            return dict.fromkeys(partitions, int(str(value)))
        case "shift_by":
            return shifted(partitions, committed, int(str(value)))
        case "to_datetime":
            time_ms = parse_time_ms("--to-datetime", str(value))
        case "by_duration":
            time_ms = int(time.time() * 1000) - parse_duration("--by-duration", str(value))
        case _:
            raise AssertionError(scenario)
    return by_time(await _offsets_at(admin, partitions, time_ms), ranges)


async def _offsets_at(
    admin: "AsyncAdmin", partitions: Iterable[TopicPartition], time_ms: int
) -> dict[TopicPartition, int | None]:
    from kalda.clients.admin.partitions import OffsetSpec

    wanted = list(partitions)
    found = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.for_timestamp(time_ms)), outcomes=True)
    return {each: found[each].offset if found[each].offset >= 0 else None for each in wanted}


async def _commit(
    admin: "AsyncAdmin", plans: Mapping[str, Mapping[TopicPartition, NewOffset]]
) -> "list[ClientError]":
    altered = await admin.alter_consumer_group_offsets(
        {
            group_id: {part: new.offset for part, new in plan.items()}
            for group_id, plan in plans.items()
            if plan
        },
        outcomes=True,
    )
    errors = list(altered.errors.values())
    for outcomes in altered.results.values():
        errors += outcomes.errors.values()
    return errors


def _show_reset(
    tool: Tool,
    plans: Mapping[str, Mapping[TopicPartition, NewOffset]],
    before: Mapping[str, Mapping[TopicPartition, int]],
    *,
    is_executed: bool,
    is_export: bool,
) -> None:
    document: list[Json] = [
        {
            "group": group_id,
            "topic": partition.topic,
            "partition": partition.partition,
            "new_offset": new.offset,
            "current_offset": before[group_id].get(partition),
        }
        for group_id, plan in plans.items()
        for partition, new in plan.items()
    ]
    if is_export:
        text = reset_file(
            {name: {part: new.offset for part, new in plan.items()} for name, plan in plans.items()}
        )
        tool.output.result({"is_executed": is_executed, "offsets": document}, *text.splitlines())
    else:
        rows = [
            (group_id, partition.topic, partition.partition, new.offset, before[group_id].get(partition))
            for group_id, plan in plans.items()
            for partition, new in plan.items()
        ]
        columns = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "CURRENT-OFFSET")
        tool.output.result({"is_executed": is_executed, "offsets": document}, Table(columns, rows))
    if not is_executed:
        tool.output.note("Nothing was changed: this is the plan; --execute carries it out.")
