"""`kalda share-groups`: lists, describes, resets and deletes share groups, as `kafka-share-groups` does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.names import GroupName, TopicName
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import distinct, parse_time_ms
from kalda.common.types import TopicPartition
from kalda.tools.group_offsets import GROUP_SETTINGS, log_ranges, partitions_of

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.errors import ClientError

share_groups = noun("List, describe, reset and delete share groups.")

_OFFSET_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG")
_MEMBER_COLUMNS = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
_STATE_COLUMNS = ("GROUP", "COORDINATOR", "STATE", "#MEMBERS")


@command("list", share_groups, settings=GROUP_SETTINGS)
async def list_share_groups(tool: Tool) -> None:
    """List share groups."""
    from kalda.clients.admin.groups import GroupType

    async with tool.admin() as admin:
        listing = await admin.list_groups(types=(GroupType.SHARE,))
    rows = [(each.group_id, each.state.value if each.state is not None else None) for each in listing.results]
    tool.output.result(
        {"groups": [{"group": group, "state": state} for group, state in rows]},
        Table(("GROUP", "STATE"), rows, empty="There are no share groups."),
    )
    raise_for(tool.output, listing.errors.values())


@command("describe", share_groups, settings=GROUP_SETTINGS)
@click.argument("names", metavar="[GROUP]...", nargs=-1, type=GroupName())
@click.option("--group", multiple=True, type=GroupName(), metavar="GROUP", help="A group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All share groups.")
@click.option("--offsets", is_flag=True, help="Show start offsets and lag; this is the default.")
@click.option("--members", is_flag=True, help="Show members.")
@click.option("--state", is_flag=True, help="Show the state of each group.")
async def describe(
    tool: Tool,
    names: tuple[str, ...],
    group: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
) -> None:
    """Describe share groups: start offsets with lag, members, or states.

    With --json, all of it is shown. Every record below the start offset is done. A lag is the number of
    records from there to the end of the log that are not done.
    """
    if offsets + members + state > 1:
        raise ToolUsageError("--offsets, --members and --state exclude each other; --json shows all of them")
    async with tool.admin() as admin:
        chosen = await _chosen(admin, names, group, all_groups)
        described = await admin.describe_share_groups(chosen, outcomes=True)
        found = [described.results[each] for each in chosen if each in described.results]
        starts = await admin.list_share_group_offsets([each.group_id for each in found], outcomes=True)
    if members:
        table = Table(
            _MEMBER_COLUMNS,
            [
                (
                    each.group_id,
                    member.member_id,
                    member.host,
                    member.client_id,
                    len(member.partitions),
                    ", ".join(map(str, sorted(member.partitions))),
                )
                for each in found
                for member in each.members
            ],
        )
    elif state:
        rows = [(each.group_id, each.coordinator_id, each.state.value, len(each.members)) for each in found]
        table = Table(_STATE_COLUMNS, rows)
    else:
        table = Table(
            _OFFSET_COLUMNS,
            [
                (
                    group_id,
                    partition.topic,
                    partition.partition,
                    None if start is None else start.start_offset,
                    None if start is None else start.lag,
                )
                for group_id, of_group in starts.results.items()
                for partition, start in sorted(of_group.items())
            ],
        )
    tool.output.result(
        {
            "groups": [
                {
                    "group": each.group_id,
                    "state": each.state.value,
                    "coordinator": each.coordinator_id,
                    "members": [
                        {
                            "member": member.member_id,
                            "client": member.client_id,
                            "host": member.host,
                            "topics": list(member.topics),
                            "partitions": [str(partition) for partition in sorted(member.partitions)],
                        }
                        for member in each.members
                    ],
                    "partitions": [
                        {
                            "topic": partition.topic,
                            "partition": partition.partition,
                            "start_offset": None if start is None else start.start_offset,
                            "lag": None if start is None else start.lag,
                        }
                        for partition, start in sorted(starts.results.get(each.group_id, {}).items())
                    ],
                }
                for each in found
            ]
        },
        table,
    )
    raise_for(tool.output, [*described.errors.values(), *starts.errors.values()])


@command("delete", share_groups, settings=GROUP_SETTINGS)
@click.argument("names", metavar="[GROUP]...", nargs=-1, type=GroupName())
@click.option("--group", multiple=True, type=GroupName(), metavar="GROUP", help="A group; repeatable.")
@click.option("--all-groups", is_flag=True, help="All share groups.")
async def delete(tool: Tool, names: tuple[str, ...], group: tuple[str, ...], all_groups: bool) -> None:
    """Delete share groups without members, and what they keep of their topics."""
    async with tool.admin() as admin:
        chosen = await _chosen(admin, names, group, all_groups)
        # A group of another type is not deleted by mistake.
        described = await admin.describe_share_groups(chosen, outcomes=True)
        deleted = await admin.delete_consumer_groups(list(described.results), outcomes=True)
    errors = {**described.errors, **deleted.errors}
    tool.output.result(
        {"groups": [{"group": each, "error": error_json(errors.get(each))} for each in chosen]},
        *(f"Deleted share group {each}." for each in chosen if each in deleted.results),
    )
    raise_for(tool.output, errors.values())


@command("reset-offsets", share_groups, settings=GROUP_SETTINGS)
@click.argument("name", metavar="GROUP", type=GroupName())
@click.option(
    "--topic",
    multiple=True,
    type=TopicName(),
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="All partitions that the group has read.")
@click.option("--to-earliest", is_flag=True, help="To the beginning of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-datetime", metavar="TIME", help="To the first record of a time or later.")
@click.option("--execute", is_flag=True, help="Carry the reset out; without it, the plan is only shown.")
@click.option("--dry-run", is_flag=True, help="Only show the plan; this is the default.")
async def reset_offsets(
    tool: Tool,
    name: str,
    topic: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    execute: bool,
    dry_run: bool,
) -> None:
    """Reset where a share group without members begins.

    What its members have acknowledged above the new offset is delivered again.
    """
    if to_earliest + to_latest + (to_datetime is not None) != 1:
        raise ToolUsageError("use one of --to-earliest, --to-latest and --to-datetime")
    if bool(topic) == all_topics:
        raise ToolUsageError("choose the partitions by either --topic or --all-topics")
    if execute and dry_run:
        raise ToolUsageError("--execute and --dry-run exclude each other")
    errors: Sequence[ClientError] = ()
    async with tool.admin() as admin:
        if all_topics:
            partitions = sorted((await admin.list_share_group_offsets([name]))[name])
        else:
            partitions = await partitions_of(admin, "--topic", topic)
        plan = await _plan(admin, partitions, to_earliest=to_earliest, to_datetime=to_datetime)
        if execute and plan:
            altered = await admin.alter_share_group_offsets({name: plan})
            errors = list(altered[name].errors.values())
    rows = [(name, each.topic, each.partition, offset) for each, offset in plan.items()]
    tool.output.result(
        {
            "group": name,
            "executed": execute,
            "partitions": [
                {"topic": each.topic, "partition": each.partition, "new_offset": offset}
                for each, offset in plan.items()
            ],
        },
        Table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows),
    )
    if not execute:
        tool.output.note("Nothing was changed; --execute carries the reset out.")
    raise_for(tool.output, errors)


@command("delete-offsets", share_groups, settings=GROUP_SETTINGS)
@click.argument("name", metavar="GROUP", type=GroupName())
@click.option("--topic", multiple=True, type=TopicName(), metavar="TOPIC", help="A topic; repeatable.")
async def delete_offsets(tool: Tool, name: str, topic: tuple[str, ...]) -> None:
    """Delete what a share group without members keeps of topics."""
    if not topic:
        raise ToolUsageError("name the topics: --topic flights")
    async with tool.admin() as admin:
        deleted = await admin.delete_share_group_offsets({name: topic}, outcomes=True)
        outcomes = deleted[name]
    rows = [(each, "error" if each in outcomes.errors else "deleted") for each in topic]
    tool.output.result(
        {
            "group": name,
            "topics": [{"topic": each, "error": error_json(outcomes.errors.get(each))} for each in topic],
        },
        Table(("TOPIC", "STATUS"), rows),
    )
    raise_for(tool.output, outcomes.errors.values())


async def _chosen(admin: "AsyncAdmin", names: Sequence[str], group: Sequence[str], is_all: bool) -> list[str]:
    if not is_all:
        return distinct("--group or --all-groups", names, group)
    if names or group:
        raise ToolUsageError("--all-groups means every group; name no group beside it")
    from kalda.clients.admin.groups import GroupType

    return [each.group_id for each in (await admin.list_groups(types=(GroupType.SHARE,))).all()]


async def _plan(
    admin: "AsyncAdmin", partitions: Sequence[TopicPartition], *, to_earliest: bool, to_datetime: str | None
) -> dict[TopicPartition, int]:
    from kalda.clients.admin.partitions import OffsetSpec

    ranges = await log_ranges(admin, partitions)
    if to_datetime is None:
        return {each: found.start if to_earliest else found.end for each, found in ranges.items()}
    spec = OffsetSpec.for_timestamp(parse_time_ms("--to-datetime", to_datetime))
    found = await admin.list_offsets(dict.fromkeys(partitions, spec))
    return {each: found[each].offset if found[each].offset >= 0 else ranges[each].end for each in partitions}
