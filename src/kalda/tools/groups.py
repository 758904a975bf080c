"""`kalda groups`: lists, describes, resets and deletes groups, as `kafka-consumer-groups` does.

`kalda.tools.group_views` shows groups; `kalda.tools.group_offsets` has the verbs that change offsets.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolUsageError
from kalda.command.names import GroupName
from kalda.command.option_types import one_of
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import distinct
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.tools.group_offsets import GROUP_SETTINGS, chosen_groups, group_arguments, groups
from kalda.tools.group_views import (
    GroupView,
    group_json,
    group_view,
    members_table,
    offsets_table,
    states_table,
)

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.groups import (
        ClassicGroupDescription,
        ConsumerGroupDescription,
        GroupState,
        GroupType,
    )
    from kalda.clients.errors import ClientError

    GroupDescription = ConsumerGroupDescription | ClassicGroupDescription


@command("list", groups, settings=GROUP_SETTINGS)
@click.option(
    "--state", multiple=True, metavar="STATE,...", help="Only groups in one of these states; repeatable."
)
@click.option(
    "--type",
    "--group-type",
    "types",
    multiple=True,
    metavar="TYPE,...",
    help="Only classic or consumer groups.",
)
async def list_groups(tool: Tool, state: tuple[str, ...], types: tuple[str, ...]) -> None:
    """List groups, of consumers and of others."""
    states, kinds = _states(state), _types(types)
    async with tool.admin() as admin:
        listing = await admin.list_groups(states=states, types=kinds)
    rows = [
        (
            each.group_id,
            each.type.value if each.type is not None else None,
            each.protocol_type or None,
            each.state.value if each.state is not None else None,
        )
        for each in listing.results
    ]
    names = ("group", "type", "protocol", "state")
    tool.output.result(
        {"groups": [dict(zip(names, row, strict=True)) for row in rows]},
        Table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows, empty="There are no such groups."),
    )
    raise_for(tool.output, listing.errors.values())


@command("describe", groups, settings=GROUP_SETTINGS)
@group_arguments
@click.option("--offsets", is_flag=True, help="Show committed offsets and lag; this is the default.")
@click.option("--members", is_flag=True, help="Show members.")
@click.option("--state", is_flag=True, help="Show the state of each group.")
@click.option("--verbose", is_flag=True, help="With --members, show the partitions of each member.")
async def describe(
    tool: Tool,
    names: tuple[str, ...],
    group: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
) -> None:
    """Describe groups: offsets with lag, members, or states.

    With --json, all of it is shown. A lag is the number of offsets from the committed one to the end of the
    log; it is - where nothing was committed.
    """
    if offsets + members + state > 1:
        raise ToolUsageError("--offsets, --members and --state exclude each other; --json shows all of them")
    async with tool.admin() as admin:
        chosen = await chosen_groups(admin, names, group, all_groups)
        views, errors = await group_views(admin, chosen)
    if members:
        table = members_table(views, is_verbose=verbose)
    elif state:
        table = states_table(views)
    else:
        table = offsets_table(views)
    tool.output.result({"groups": [group_json(view) for view in views]}, table)
    for view in views:
        remark = _remark(view)
        if remark is not None:
            tool.output.note(remark)
    raise_for(tool.output, errors)


@command("delete", groups, settings=GROUP_SETTINGS)
@group_arguments
async def delete(tool: Tool, names: tuple[str, ...], group: tuple[str, ...], all_groups: bool) -> None:
    """Delete groups without members, and their committed offsets."""
    async with tool.admin() as admin:
        chosen = await chosen_groups(admin, names, group, all_groups)
        deleted = await admin.delete_consumer_groups(chosen, outcomes=True)
    tool.output.result(
        {"groups": [{"group": each, "error": error_json(deleted.errors.get(each))} for each in chosen]},
        *(f"Deleted group {each}." for each in chosen if each in deleted.results),
    )
    raise_for(tool.output, deleted.errors.values())


@command("remove-members", groups, settings=GROUP_SETTINGS)
@click.argument("names", metavar="[GROUP]...", nargs=-1, type=GroupName())
@click.option("--group", multiple=True, type=GroupName(), metavar="GROUP", help="A group; repeatable.")
@click.option("--member", multiple=True, metavar="ID", help="A member, by its consumer id; repeatable.")
@click.option(
    "--group-instance-id", multiple=True, metavar="ID", help="A static member, by its id; repeatable."
)
@click.option("--all-members", is_flag=True, help="All members of the group.")
@click.option("--reason", metavar="TEXT", help="A text for the coordinator's log.")
async def remove_members(
    tool: Tool,
    names: tuple[str, ...],
    group: tuple[str, ...],
    member: tuple[str, ...],
    group_instance_id: tuple[str, ...],
    all_members: bool,
    reason: str | None,
) -> None:
    """Remove members from groups of the classic protocol.

    The others get their partitions. A member that still runs joins again, unless it is static.
    """
    from kalda.clients.admin.groups import MemberToRemove

    chosen = distinct("--group", names, group)
    if bool(member or group_instance_id) is all_members:
        raise ToolUsageError("name members by --member or --group-instance-id, or use --all-members")
    wanted = [
        *(MemberToRemove(member_id=each) for each in member),
        *(MemberToRemove(group_instance_id=each) for each in group_instance_id),
    ]
    async with tool.admin() as admin:
        removed = await admin.remove_members_from_consumer_group(
            dict.fromkeys(chosen, None if all_members else wanted), reason=reason, outcomes=True
        )
    lines = []
    errors: list[ClientError] = list(removed.errors.values())
    document = []
    for name, outcomes in removed.results.items():
        errors += outcomes.errors.values()
        lines += [f"Removed {each} from group {name}." for each in outcomes.results]
        document += [
            {
                "group": name,
                "consumer_id": each.member_id or None,
                "group_instance_id": each.group_instance_id,
                "error": error_json(outcomes.errors.get(each)),
            }
            for each in outcomes
        ]
    tool.output.result({"members": document}, *lines)
    raise_for(tool.output, errors)


async def group_views(
    admin: "AsyncAdmin", group_ids: Sequence[str]
) -> "tuple[list[GroupView], list[ClientError]]":
    """Read groups with their offsets and the ends of their partitions; also return the errors of groups."""
    from kalda.clients.admin.partitions import OffsetSpec

    descriptions, errors = await _descriptions(admin, group_ids)
    committed = await admin.list_consumer_group_offsets(list(descriptions), outcomes=True)
    errors += committed.errors.values()
    offsets = {group_id: fetched.results for group_id, fetched in committed.results.items()}
    wanted = {
        *(partition for each in offsets.values() for partition in each),
        *(part for each in descriptions.values() for member in each.members for part in member.assignment),
    }
    ends = await admin.list_offsets(dict.fromkeys(sorted(wanted), OffsetSpec.latest()), outcomes=True)
    end_offsets: dict[TopicPartition, int] = {part: each.offset for part, each in ends.results.items()}
    brokers: dict[int, BrokerEndpoint] = {each.id: each for each in (await admin.describe_cluster()).nodes}
    return [
        group_view(each, offsets.get(group_id, {}), end_offsets, brokers.get(each.coordinator_id))
        for group_id, each in sorted(descriptions.items())
    ], errors


async def _descriptions(
    admin: "AsyncAdmin", group_ids: Iterable[str]
) -> "tuple[dict[str, GroupDescription], list[ClientError]]":
    from kalda.common.errors import ErrorCode

    consumers = await admin.describe_consumer_groups(group_ids, outcomes=True)
    # A group of another protocol type, for example of Kafka Connect.
    others = [name for name, error in consumers.errors.items() if error.code is ErrorCode.INVALID_GROUP_ID]
    classic = await admin.describe_classic_groups(others, outcomes=True)
    errors = [error for name, error in consumers.errors.items() if name not in others]
    return {**consumers.results, **classic.results}, [*errors, *classic.errors.values()]


def _remark(view: GroupView) -> str | None:
    """Return what the reader should know about the state of a group."""
    from kalda.clients.admin.groups import GroupState

    match view.description.state:
        case GroupState.STABLE:
            return None
        case GroupState.EMPTY:
            return f"Group {view.group_id} has no members."
        case GroupState.DEAD:
            return f"Group {view.group_id} does not exist."
    return f"Group {view.group_id} is rebalancing ({view.description.state.value}); the result may change."


def _states(words: Iterable[str]) -> "Collection[GroupState]":
    from kalda.clients.admin.groups import GroupState

    return [_member_of(GroupState, "--state", word) for each in words for word in each.split(",") if word]


def _types(words: Iterable[str]) -> "Collection[GroupType]":
    from kalda.clients.admin.groups import GroupType

    return [_member_of(GroupType, "--type", word) for each in words for word in each.split(",") if word]


def _member_of(kind: "type[GroupState] | type[GroupType]", option: str, word: str):  # type: ignore[no-untyped-def]  # of the kind
    found = kind.of(word)
    if found is kind.UNKNOWN:
        allowed = [each.value for each in kind if each is not kind.UNKNOWN]
        raise ToolUsageError(f"{option}={word} is not allowed: it takes {one_of(allowed)}")
    return found
