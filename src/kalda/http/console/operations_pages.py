"""Serves the pages of transactions, moves of partitions, and clients."""

import asyncio
import time
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from kalda.clients.admin.groups import MemberDescription
from kalda.clients.admin.log_dirs import LogDirDescription
from kalda.clients.admin.transactions import TransactionState
from kalda.common.types import TopicPartition
from kalda.http.console import command_lines
from kalda.http.console.changes import Change, ChangeForm, Field, Fields, Form, FormError
from kalda.http.console.listing_pages import Part, listing_page
from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.reading import Reading
from kalda.http.console.texts import UNKNOWN, age_text, counted, size_text
from kalda.http.console.visits import Visit, path_of

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

_OPEN: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_DESCRIBED_MAX: Final = 500
_GROUPS_MAX: Final = 300

_TRANSACTIONS: Final = (
    Column("id", "Transactional id"),
    Column("state", "State"),
    Column("age", "Open for", is_number=True),
    Column("timeout", "Time-out", is_number=True, is_secondary=True),
    Column("producer", "Producer id", is_number=True, is_secondary=True),
    Column("partitions", "Partitions", is_secondary=True),
)


async def transactions(visit: Visit, reading: Reading) -> Response:
    """List transactional ids; those with an open transaction first."""
    admin = await visit.admin()
    listed = (await admin.list_transactions()).results
    is_all = visit.parameter("all") == "1"
    shown = [each for each in listed if is_all or each.state in _OPEN]
    described = await admin.describe_transactions(
        [each.transactional_id for each in shown[:_DESCRIBED_MAX]], outcomes=True
    )
    now_ms = time.time_ns() // 1_000_000
    rows = []
    for each in shown:
        details = described.results.get(each.transactional_id)
        started = None if details is None else details.transaction_start_time_ms
        age = None if started is None or each.state not in _OPEN else max(0, now_ms - started) / 1000
        is_late = age is not None and details is not None and age * 1000 > details.transaction_timeout_ms
        partitions = [] if details is None else sorted(map(str, details.topic_partitions))
        rows.append(
            Row(
                [
                    Cell(each.transactional_id, is_code=True),
                    Cell(each.state.value, badge="warn" if each.state in _OPEN else "plain"),
                    Cell(age_text(age), value=age, note="over its time-out" if is_late else ""),
                    Cell(UNKNOWN if details is None else age_text(details.transaction_timeout_ms / 1000)),
                    Cell(str(each.producer_id), value=each.producer_id),
                    Cell(
                        ", ".join(partitions[:5])
                        + (f" and {len(partitions) - 5} more" if len(partitions) > 5 else "")
                    ),
                ],
                [("Abort", f"{path_of('transactions', each.transactional_id)}/abort")]
                if visit.may_change and each.state in _OPEN
                else [],
            )
        )
    table = listing(
        "/transactions",
        visit.parameters,
        _TRANSACTIONS,
        rows,
        one="transactional id",
        many="transactional ids",
        kept=("all",),
        empty=("No open transactions", f"Of {counted(len(listed), 'transactional id')} none has one now."),
    )
    return listing_page(
        visit,
        [Part(table)],
        title="Transactions",
        section="Transactions",
        command=command_lines.line("transactions", "list", options=() if is_all else [("state", "Ongoing")]),
        tabs=[("Open", "/transactions"), ("All", "/transactions?all=1")],
        tab="All" if is_all else "Open",
    )


async def moves(visit: Visit, reading: Reading) -> Response:
    """List the partitions that move, with how far the new replicas are."""
    admin = await visit.admin()
    ongoing, dirs = await asyncio.gather(admin.list_partition_reassignments(), reading.log_dirs(visit.caller))
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for broker_id, of_broker in dirs.items():
        for directory in of_broker.values():
            _add_sizes(sizes, broker_id, directory)
    rows = []
    for partition, move in sorted(ongoing.items()):
        whole = max((sizes.get((partition, each), 0) for each in move.replicas), default=0)
        copied = [sizes.get((partition, each), 0) for each in move.adding_replicas]
        percent = min(100, round(100 * sum(copied) / (whole * len(copied)))) if whole and copied else None
        rows.append(
            Row(
                [
                    Cell(str(partition), path_of("topics", partition.topic)),
                    Cell(", ".join(map(str, move.replicas))),
                    Cell(", ".join(map(str, move.adding_replicas)) or "none"),
                    Cell(", ".join(map(str, move.removing_replicas)) or "none"),
                    Cell(
                        UNKNOWN if percent is None else f"{percent} %",
                        value=percent,
                        note=f"of {size_text(whole)}",
                    ),
                ],
                [("Cancel", f"{path_of('reassignments', partition.topic, partition.partition)}/cancel")]
                if visit.may_change
                else [],
            )
        )
    columns = (
        Column("partition", "Partition"),
        Column("replicas", "Replicas"),
        Column("adding", "Adding"),
        Column("removing", "Removing", is_secondary=True),
        Column("progress", "Copied", is_number=True),
    )
    table = listing(
        "/reassignments",
        visit.parameters,
        columns,
        rows,
        one="partition",
        many="partitions",
        empty=(
            "Nothing moves",
            "A move is begun for one partition here, for many by kalda reassign execute.",
        ),
    )
    return listing_page(
        visit,
        [Part(table)],
        title="Moves",
        section="Moves",
        command=command_lines.line("reassign", "list"),
        actions=[("Move a partition", "/reassignments/begin")],
    )


def _add_sizes(
    sizes: dict[tuple[TopicPartition, int], int], broker_id: int, directory: LogDirDescription
) -> None:
    for partition, replica in directory.replica_infos.items():
        if not replica.is_future:
            sizes[partition, broker_id] = replica.size


async def clients(visit: Visit, reading: Reading) -> Response:
    """List the clients that appear in groups and transactions."""
    admin = await visit.admin()
    listed = [each.group_id for each in await reading.groups(visit.caller)]
    members = await _members(admin, listed[:_GROUPS_MAX])
    rows = [
        Row(
            [
                Cell(each.client_id or UNKNOWN),
                Cell(each.host.removeprefix("/"), is_code=True),
                Cell(group, path_of("groups", group)),
                Cell(_protocol(each)),
                Cell(str(len(each.assignment)), value=len(each.assignment)),
            ]
        )
        for group, each in members
    ]
    columns = (
        Column("client", "Client id"),
        Column("host", "Host"),
        Column("group", "Group"),
        Column("protocol", "Protocol", is_secondary=True),
        Column("partitions", "Partitions", is_number=True, is_secondary=True),
    )
    table = listing(
        "/clients",
        visit.parameters,
        columns,
        rows,
        one="client",
        many="clients",
        empty=("No clients to see", "Members of groups show here."),
    )
    return listing_page(
        visit,
        [Part(table)],
        title="Clients",
        section="Clients",
        command=command_lines.line("groups", "describe", options={"all-groups": True, "members": True}),
        intro="Members of groups, with what the brokers say of them. Kafka's protocol names neither "
        "producers, nor consumers without a group, nor the release of a client to an administrator: brokers "
        "keep these in their own metrics and logs. The protocol of a member says at least whether it knows "
        "KIP-848.",
    )


async def _members(admin: "AsyncAdmin", groups: list[str]) -> list[tuple[str, MemberDescription]]:
    found = await admin.describe_consumer_groups(groups, outcomes=True)
    return [(name, member) for name, each in sorted(found.results.items()) for member in each.members]


def _protocol(member: MemberDescription) -> str:
    if member.member_epoch is None or member.is_classic:
        return "classic"
    return "consumer (KIP-848)"


def operations_forms() -> dict[str, ChangeForm]:
    """Return the forms by their paths."""
    return {
        "/transactions/{id:path}/abort": ChangeForm(_show_abort, _plan_abort),
        "/reassignments/begin": ChangeForm(_show_move, _plan_move),
        "/reassignments/{topic}/{partition:int}/cancel": ChangeForm(_show_cancel, _plan_cancel),
    }


async def _show_abort(visit: Visit, values: Fields) -> Form:
    name = visit.request.path_params["id"]
    return Form(
        title=f"Abort the transaction of {name}",
        path=f"{path_of('transactions', name)}/abort",
        back="/transactions",
        section="Transactions",
        trail=(("Transactions", "/transactions"),),
        intro="Its producer is fenced: it cannot go on with this transaction or begin another one.",
    )


async def _plan_abort(visit: Visit, values: Fields) -> Change:
    name = visit.request.path_params["id"]
    admin = await visit.admin()
    details = (await admin.describe_transactions([name]))[name]
    if details.state not in _OPEN:
        raise FormError(f"{name} has no open transaction (it is {details.state.value}).")

    async def perform() -> str:
        await admin.force_terminate_transaction([name])
        return f"The transaction of {name} was aborted."

    return Change(
        question=f"Abort the open transaction of {name}?",
        button="Abort",
        command=command_lines.line("transactions", "force-terminate", name),
        perform=perform,
        done="/transactions",
        back="/transactions",
        operation="InitProducerId",
        resource=f"TransactionalId:{name}",
        facts=[
            ("State", details.state.value),
            ("Producer", f"{details.producer_id}, epoch {details.producer_epoch}"),
            ("Partitions", ", ".join(sorted(map(str, details.topic_partitions))[:20]) or "none"),
        ],
        warning="What the transaction wrote is never seen by readers of committed records.",
        is_dangerous=True,
    )


async def _show_move(visit: Visit, values: Fields) -> Form:
    return Form(
        title="Move a partition",
        path="/reassignments/begin",
        back="/reassignments",
        section="Moves",
        trail=(("Moves", "/reassignments"),),
        fields=[
            Field("topic", "Topic", value=values.get("topic", ""), is_required=True),
            Field("partition", "Partition", "number", values.get("partition", "0")),
            Field(
                "replicas",
                "Replicas then",
                value=values.get("replicas", ""),
                placeholder="1,2,3",
                hint="Ids of brokers, the preferred leader first.",
                is_wide=True,
            ),
        ],
    )


async def _plan_move(visit: Visit, values: Fields) -> Change:
    topic = values.get("topic", "").strip()
    admin = await visit.admin()
    described = (await admin.describe_topics([topic]))[topic]
    try:
        number = int(values.get("partition", ""))
        replicas = [int(each) for each in values.get("replicas", "").split(",")]
    except ValueError:
        raise FormError("Replicas then: ids of brokers with commas between, as 1,2,3", "replicas") from None
    if not 0 <= number < len(described.partitions):
        raise FormError(
            f"Partition: {topic} has the partitions 0 to {len(described.partitions) - 1}", "partition"
        )
    known = {node.id for node in (await admin.describe_cluster()).nodes}
    if len(set(replicas)) != len(replicas) or not set(replicas) <= known:
        raise FormError(f"Replicas then: different ones of the brokers {sorted(known)}", "replicas")
    partition = TopicPartition(topic, number)
    present = described.partitions[number].replicas

    async def perform() -> str:
        await admin.alter_partition_reassignments({partition: replicas})
        return f"{partition} moves to {replicas}."

    plan = f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":{number},"replicas":{replicas}}}]}}'
    return Change(
        question=f"Move {partition} to the brokers {', '.join(map(str, replicas))}?",
        button="Move",
        command=f"echo {command_lines.quoted(plan)} > plan.json && "
        + command_lines.line("reassign", "execute", options={"reassignment-json-file": "plan.json"}),
        perform=perform,
        done="/reassignments",
        back="/reassignments",
        operation="AlterPartitionReassignments",
        resource=f"Topic:{topic}",
        facts=[
            ("Replicas now", ", ".join(map(str, present))),
            ("Replicas then", ", ".join(map(str, replicas))),
        ],
        warning="New replicas copy the whole partition, without a throttle."
        if set(replicas) - set(present)
        else "",
    )


async def _show_cancel(visit: Visit, values: Fields) -> Form:
    topic, number = visit.request.path_params["topic"], visit.request.path_params["partition"]
    return Form(
        title=f"Cancel the move of {topic}-{number}",
        path=f"{path_of('reassignments', topic, number)}/cancel",
        back="/reassignments",
        section="Moves",
        trail=(("Moves", "/reassignments"),),
        intro="The partition stays where it was; what was copied is deleted.",
    )


async def _plan_cancel(visit: Visit, values: Fields) -> Change:
    partition = TopicPartition(visit.request.path_params["topic"], visit.request.path_params["partition"])
    admin = await visit.admin()
    if partition not in await admin.list_partition_reassignments([partition]):
        raise FormError(f"{partition} does not move.")

    async def perform() -> str:
        await admin.alter_partition_reassignments({partition: None})
        return f"The move of {partition} was cancelled."

    return Change(
        question=f"Cancel the move of {partition}?",
        button="Cancel the move",
        command=command_lines.line("reassign", "cancel", options={"reassignment-json-file": "plan.json"}),
        perform=perform,
        done="/reassignments",
        back="/reassignments",
        operation="AlterPartitionReassignments",
        resource=f"Topic:{partition.topic}",
    )
