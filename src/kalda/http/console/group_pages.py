"""Serves the pages of groups: list, members, lag, offset resets, deletion; not that of their history."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from kalda.clients.admin.groups import ClassicGroupDescription, ConsumerGroupDescription, GroupState
from kalda.clients.admin.partitions import OffsetSpec
from kalda.common.errors import ErrorCode
from kalda.common.received_json import loads_received
from kalda.common.types import TopicPartition
from kalda.http.console import command_lines
from kalda.http.console.changes import (
    Change,
    ChangeForm,
    FactTable,
    Field,
    Fields,
    Form,
    FormError,
    integer_of,
)
from kalda.http.console.group_views import lag_of, lag_rows, reset_rows
from kalda.http.console.listing_pages import Part, listing_page
from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.reading import Reading
from kalda.http.console.record_views import time_ms_of
from kalda.http.console.texts import UNKNOWN, count_text, counted
from kalda.http.console.visits import Visit, path_of
from kalda.http.errors import HttpError

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

TRAIL: Final = (("Groups", "/groups"),)
_COLUMNS: Final = (
    Column("name", "Group"),
    Column("state", "State"),
    Column("type", "Type", is_secondary=True),
    Column("topics", "Topics", is_secondary=True),
    Column("lag", "Lag", is_number=True),
)
_MEMBERS: Final = (
    Column("member", "Member"),
    Column("client", "Client id"),
    Column("host", "Host", is_secondary=True),
    Column("partitions", "Partitions"),
)
_OFFSETS: Final = (
    Column("topic", "Topic"),
    Column("partition", "Partition", is_number=True),
    Column("committed", "Committed", is_number=True, is_secondary=True),
    Column("end", "End", is_number=True, is_secondary=True),
    Column("lag", "Lag", is_number=True),
    Column("client", "Client id", is_secondary=True),
)
_BADGES: Final = {"Stable": "good", "Empty": "plain", "Dead": "bad"}
_DURATION: Final = re.compile(r"(\d{1,9})\s*([smhd])")
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Description = ConsumerGroupDescription | ClassicGroupDescription


def group_tabs(name: str) -> list[tuple[str, str]]:
    """Return the parts of a group's pages, with their paths."""
    base = path_of("groups", name)
    return [("Offsets", base), ("History", f"{base}/history")]


async def groups(visit: Visit, reading: Reading) -> Response:
    """List the groups with their lag."""
    listed, committed = await asyncio.gather(reading.groups(visit.caller), reading.committed(visit.caller))
    wanted = {partition for offsets in committed.offsets.values() for partition in offsets}
    present, _ = await reading.ends(visit.caller, "groups", sorted(wanted))
    rows = []
    for each in listed:
        offsets = committed.offsets.get(each.group_id, {})
        lag = lag_of(offsets, present.ends)
        topics = sorted({partition.topic for partition in offsets})
        state = UNKNOWN if each.state is None else each.state.value
        kind = each.protocol_type or "offsets only"
        if each.type is not None:
            kind = f"{each.type.value.lower()} {'' if kind == 'consumer' else kind}".strip()
        rows.append(
            Row(
                [
                    Cell(each.group_id, path_of("groups", each.group_id)),
                    Cell(state, badge=_BADGES.get(state, "warn")),
                    Cell(kind),
                    Cell(", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")),
                    Cell(count_text(lag), value=lag),
                ]
            )
        )
    table = listing(
        "/groups",
        visit.parameters,
        _COLUMNS,
        rows,
        one="group",
        many="groups",
        empty=("No groups", "A consumer with a group.id makes one."),
    )
    return listing_page(
        visit, [Part(table)], title="Groups", section="Groups", command=command_lines.line("groups", "list")
    )


async def group(visit: Visit, reading: Reading) -> Response:
    """Show members, committed offsets and lag of a group."""
    name = visit.request.path_params["group"]
    admin = await visit.admin()
    description, fetched = await asyncio.gather(
        describe(admin, name), admin.list_consumer_group_offsets([name], outcomes=True)
    )
    committed = {
        partition: each
        for partition, each in (fetched[name].results.items() if name in fetched.results else ())
        if each is not None
    }
    if description is None and not committed:
        raise HttpError(404, f"there is no group {name}")
    members = () if description is None else description.members
    wanted = {*committed, *(partition for member in members for partition in member.assignment)}
    present, _ = await reading.ends(visit.caller, f"group {name}", sorted(wanted))
    lags = lag_rows(committed, members, present.ends)
    state = UNKNOWN if description is None else description.state.value
    base = path_of("groups", name)
    offsets = listing(
        base,
        visit.parameters,
        _OFFSETS,
        [
            Row(
                [
                    Cell(each.partition.topic, path_of("topics", each.partition.topic)),
                    Cell(str(each.partition.partition), value=each.partition.partition),
                    Cell(count_text(each.committed), value=each.committed),
                    Cell(count_text(each.end), value=each.end),
                    Cell(count_text(each.lag), value=each.lag),
                    Cell(each.client_id, note=each.metadata),
                ]
            )
            for each in lags
        ],
        one="partition",
        many="partitions",
        empty=("Nothing is committed", "The group has no committed offsets."),
    )
    table = listing(
        base,
        {},
        _MEMBERS,
        [
            Row(
                [
                    Cell(
                        each.member_id,
                        note=f"static: {each.group_instance_id}" if each.group_instance_id else "",
                        is_code=True,
                    ),
                    Cell(each.client_id),
                    Cell(each.host, is_code=True),
                    Cell(_assignment(each.assignment)),
                ]
            )
            for each in members
        ],
        one="member",
        many="members",
        empty=("No members", "Nothing reads for this group now, so its offsets can be reset."),
    )
    lag = lag_of(committed, present.ends)
    return listing_page(
        visit,
        [Part(offsets, "Offsets", has_search=len(lags) > 20), Part(table, "Members", has_search=False)],
        title=name,
        section="Groups",
        trail=TRAIL,
        tabs=group_tabs(name),
        tab="Offsets",
        command=command_lines.line("groups", "describe", name),
        tiles=[
            ("State", state),
            ("Lag", count_text(lag)),
            ("Members", count_text(len(members))),
            ("Assignor", _assignor(description)),
            ("Coordinator", UNKNOWN if description is None else f"broker {description.coordinator_id}"),
        ],
        actions=[("Reset offsets", f"{base}/reset"), ("Delete", f"{base}/delete")],
    )


async def describe(admin: "AsyncAdmin", name: str) -> Description | None:
    """Return a group of any protocol; None if there is none."""
    found = await admin.describe_consumer_groups([name], outcomes=True)
    if name in found.results:
        return found[name]
    error = found.errors[name]
    if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    if error.code is not ErrorCode.INVALID_GROUP_ID:
        raise error
    return (await admin.describe_classic_groups([name]))[name]


def group_forms(reading: Reading) -> dict[str, ChangeForm]:
    """Return the forms by their paths."""
    return {
        "/groups/{group:path}/reset": ChangeForm(_show_reset, _plan_reset),
        "/groups/{group:path}/delete": ChangeForm(_show_delete, _plan_delete),
    }


async def _show_reset(visit: Visit, values: Fields) -> Form:
    name = visit.request.path_params["group"]
    committed = await _committed(visit, name)
    topics = sorted({each.topic for each in committed})
    base = path_of("groups", name)
    return Form(
        title=f"Reset offsets of {name}",
        path=f"{base}/reset",
        back=base,
        section="Groups",
        trail=(*TRAIL, (name, base)),
        intro="The group must have no members. The next page shows each offset before and after.",
        fields=[
            Field(
                "topic",
                "Topic",
                "select",
                values.get("topic", ""),
                options=[("", "All with committed offsets"), *((each, each) for each in topics)],
            ),
            Field(
                "to",
                "Reset to",
                "select",
                values.get("to", "time"),
                options=[
                    ("earliest", "the beginning"),
                    ("latest", "the end"),
                    ("time", "a time"),
                    ("ago", "a while ago"),
                    ("shift", "so many records on, or back"),
                    ("offset", "an offset"),
                ],
            ),
            Field(
                "value",
                "Which",
                value=values.get("value", ""),
                hint="A time as 2026-11-22T14:30 (UTC), a while as 30m, 2h or 1d, a number as -100; "
                "nothing for beginning and end.",
                is_wide=True,
            ),
        ],
    )


async def _committed(visit: Visit, name: str) -> dict[TopicPartition, int]:
    fetched = (await (await visit.admin()).list_consumer_group_offsets([name]))[name]
    return {partition: each.offset for partition, each in fetched.results.items() if each is not None}


async def _plan_reset(visit: Visit, values: Fields) -> Change:
    name = visit.request.path_params["group"]
    admin = await visit.admin()
    description = await describe(admin, name)
    if description is not None and description.state not in (GroupState.EMPTY, GroupState.DEAD):
        count = len(description.members)
        raise FormError(
            f"Group {name} has {count} member{'s' * (count != 1)} (it is {description.state.value}); stop "
            "them first, else they commit their own offsets over the new ones."
        )
    committed = await _committed(visit, name)
    topic = values.get("topic", "")
    partitions = [each for each in committed if topic in ("", each.topic)]
    if not partitions:
        raise FormError(f"Group {name} has no committed offsets{f' of {topic}' if topic else ''}.")
    starts, ends = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.earliest())),
        admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest())),
    )
    logs = {each: (starts[each].offset, ends[each].offset) for each in partitions}
    asked, option = await _asked(admin, values, committed, logs)
    if "offsets" in values:  # a question was confirmed; its offsets are those of then
        asked = _pinned_offsets(values["offsets"], logs)
    rows = reset_rows(asked, committed, logs)
    offsets = {row.partition: row.then for row in rows}

    async def perform() -> str:
        done = await admin.alter_consumer_group_offsets({name: offsets})
        done[name].raise_for_errors()
        return f"Reset {counted(len(offsets), 'offset')} of group {name}."

    base = path_of("groups", name)
    scope: tuple[str, str | int | bool | None] = ("topic", topic) if topic else ("all-topics", True)
    return Change(
        question=f"Reset {counted(len(offsets), 'offset')} of {name}?",
        button="Reset",
        command=command_lines.line(
            "groups", "reset-offsets", name, options=[scope, option, ("execute", True)]
        ),
        perform=perform,
        done=base,
        back=base,
        operation="OffsetCommit",
        resource=f"Group:{name}",
        table=FactTable.of(
            ("Partition", "Now", "Then", "Moves by", ""),
            [
                (
                    str(row.partition),
                    count_text(row.now),
                    count_text(row.then),
                    UNKNOWN if row.now is None else f"{row.then - row.now:+}",
                    "moved to the nearer end of the log" if row.is_moved else "",
                )
                for row in rows
            ],
            (1, 2, 3),
        ),
        warning="The group reads records again, or passes over some, as the table shows.",
        pinned={"offsets": json.dumps([[*row.partition, row.then] for row in rows])},
    )


def _pinned_offsets(text: str, logs: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    """Return the offsets that a question showed.

    Raises:
        FormError: the text is not one of a question, or partitions were added or deleted since.
    """
    try:
        offsets = {
            TopicPartition(str(topic), int(number)): int(offset)
            for topic, number, offset in loads_received(text)
        }
    except (ValueError, TypeError):
        raise FormError("The offsets are malformed; send the form again.") from None
    if offsets.keys() != logs.keys():
        raise FormError("The group has offsets of other partitions now; look at the reset again.")
    return offsets


async def _asked(
    admin: "AsyncAdmin",
    values: Fields,
    committed: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, tuple[int, int]],
) -> tuple[dict[TopicPartition, int], tuple[str, str | int | bool | None]]:
    """Return the offsets that are asked for, and the option of the command line for it."""
    import time

    to, text = values.get("to", ""), values.get("value", "").strip()
    if to == "earliest":
        return {each: first for each, (first, _) in logs.items()}, ("to-earliest", True)
    if to == "latest":
        return {each: end for each, (_, end) in logs.items()}, ("to-latest", True)
    if to == "offset":
        offset = integer_of(values, "value", "Which", 0, 2**63 - 1)
        return dict.fromkeys(logs, offset), ("to-offset", offset)
    if to == "shift":
        by = integer_of(values, "value", "Which", -(2**63), 2**63 - 1)
        return {each: committed[each] + by for each in logs}, ("shift-by", by)
    option: tuple[str, str | int | bool | None]
    if to == "ago":
        match = _DURATION.fullmatch(text)
        if match is None:
            raise FormError(f"Which: {text[:40]!r} is no while: write 30m, 2h or 1d", "value")
        time_ms: int | None = time.time_ns() // 1_000_000 - int(match[1]) * _UNITS_MS[match[2]]
        unit = match[2].upper()
        option = ("by-duration", f"P{match[1]}D" if unit == "D" else f"PT{match[1]}{unit}")
    elif to == "time":
        time_ms = time_ms_of(text)
        option = ("to-datetime", text)
    else:
        raise FormError("Reset to: choose where to", "to")
    if time_ms is None or time_ms < 0:
        raise FormError(f"Which: {text[:40]!r} is no time: write 2026-11-22T14:30 (UTC)", "value")
    found = await admin.list_offsets(dict.fromkeys(logs, OffsetSpec.for_timestamp(time_ms)))
    return {
        each: info.offset if info.is_found else logs[each][1] for each, info in found.results.items()
    }, option


async def _show_delete(visit: Visit, values: Fields) -> Form:
    name = visit.request.path_params["group"]
    base = path_of("groups", name)
    return Form(
        title=f"Delete {name}",
        path=f"{base}/delete",
        back=base,
        section="Groups",
        trail=(*TRAIL, (name, base)),
        intro="A group without members can be deleted, with its committed offsets.",
    )


async def _plan_delete(visit: Visit, values: Fields) -> Change:
    name = visit.request.path_params["group"]
    admin = await visit.admin()
    committed = await _committed(visit, name)
    description = await describe(admin, name)
    if description is None and not committed:
        raise HttpError(404, f"there is no group {name}")

    async def perform() -> str:
        await admin.delete_consumer_groups([name])
        return f"Group {name} was deleted."

    base = path_of("groups", name)
    return Change(
        question=f"Delete the group {name} with its committed offsets?",
        button="Delete group",
        command=command_lines.line("groups", "delete", name),
        perform=perform,
        done="/groups",
        back=base,
        operation="DeleteGroups",
        resource=f"Group:{name}",
        facts=[
            ("State", UNKNOWN if description is None else description.state.value),
            ("Committed offsets", str(len(committed))),
        ],
        warning="Consumers that come back begin where auto.offset.reset says.",
        is_dangerous=True,
        word=name,
    )


def _assignment(partitions: "frozenset[TopicPartition]") -> str:
    numbers: dict[str, list[int]] = {}
    for each in sorted(partitions):
        numbers.setdefault(each.topic, []).append(each.partition)
    return "; ".join(f"{topic}: {_numbers(found)}" for topic, found in numbers.items()) or "none"


def _numbers(found: Sequence[int]) -> str:
    """Return numbers in order as text, with ranges: ``0-2, 5``."""
    parts: list[list[int]] = []
    for number in found:
        if parts and parts[-1][-1] + 1 == number:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(
        f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts
    )


def _assignor(description: Description | None) -> str:
    if description is None:
        return UNKNOWN
    if isinstance(description, ConsumerGroupDescription):
        return description.partition_assignor or UNKNOWN
    return description.protocol_data or UNKNOWN
