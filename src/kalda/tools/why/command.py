"""`kalda why`: the commands, one for each kind of subject."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from kalda.clients.errors import ClientError
from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.names import GroupName, TopicName
from kalda.command.option_types import INT32_MAX, INT64_MAX, Integer
from kalda.common.log_text import counted
from kalda.common.types import TopicPartition
from kalda.events.causes import Evidence
from kalda.events.chains import (
    ROUTINE_OF_LOGS,
    Select,
    explain,
    of_broker,
    of_names,
    of_partition,
    of_record,
)
from kalda.events.event import CausalEvent, EventKind
from kalda.tools.why.answers import Collected, collect, print_answer, since_ms_of

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

F = TypeVar("F", bound=Callable[..., object])

why = noun("Say why a partition, group or record is as it is.")


def _since(function: F) -> F:
    return click.option(
        "--since",
        default="1d",
        show_default=True,
        metavar="TIME",
        help="A date and time, or how long before now: 2h, PT30M.",
    )(function)


@command("partition", why)
@click.argument("partition", metavar="TOPIC-PARTITION")
@_since
async def partition_(tool: Tool, partition: str, since: str) -> None:
    """Say why a partition has its leader and its in-sync replicas.

    The newest incident comes first, and in it the first cause.
    """
    name = parse_partition(partition)
    since_ms = since_ms_of(since)
    async with tool.admin() as admin:
        described = await admin.describe_topics([name.topic], outcomes=True)
        topic = described.results.get(name.topic)
        replicas: Sequence[int] = ()
        if topic is None:
            # Its deletion is an event.
            facts = [f"topic {name.topic}: {described.errors[name.topic]}"]
        else:
            found = [each for each in topic.partitions if each.partition == name.partition]
            if not found:
                raise ToolUsageError(f"topic {name.topic} has no partition {name.partition}")
            (info,) = found
            replicas = info.replicas
            leader = f"leader {info.leader_id}" if info.has_leader else "no leader"
            facts = [f"{name}: {leader}, in-sync replicas {_ids(info.isr)} of {_ids(info.replicas)}"]
            facts += await _moves(admin, name)
        collected = await collect(admin, since_ms, {"topic": name.topic}, replicas)
    _answer(tool, f"partition {name}", collected, of_partition(name.topic, name.partition), facts)


async def _moves(admin: "AsyncAdmin", partition: TopicPartition) -> list[str]:
    """Return that a partition is being moved, if it is."""
    try:
        move = (await admin.list_partition_reassignments([partition])).get(partition)
    except ClientError:
        # The user may not see moves, or there is no controller to ask.
        return []
    if move is None:
        return []
    to, off = _ids(move.adding_replicas), _ids(move.removing_replicas)
    return [f"{partition} is being moved: replicas come to brokers {to}, and leave brokers {off}"]


@command("topic", why)
@click.argument("topic", type=TopicName())
@_since
async def topic_(tool: Tool, topic: str, since: str) -> None:
    """Say why a topic's partitions, settings and records are as they are."""
    async with tool.admin() as admin:
        described = await admin.describe_topics([topic], outcomes=True)
        found = described.results.get(topic)
        replicas = () if found is None else [r for each in found.partitions for r in each.replicas]
        collected = await collect(admin, since_ms_of(since), {"topic": topic}, replicas)
    if found is None:
        facts = [f"{topic}: {described.errors[topic]}"]
    else:
        leaderless = [each.partition for each in found.partitions if not each.has_leader]
        behind = [each.partition for each in found.partitions if len(each.isr) < len(each.replicas)]
        state = (
            f"{topic}: {counted(len(found.partitions), 'partition')}, without a leader {_ids(leaderless)}, "
            f"with fewer in-sync replicas than assigned {_ids(behind)}"
        )
        facts = [state]
    _answer(tool, f"topic {topic}", collected, of_names(topic=topic), facts, ROUTINE_OF_LOGS)


@command("group", why)
@click.argument("group", type=GroupName())
@_since
async def group_(tool: Tool, group: str, since: str) -> None:
    """Say why a group rebalanced, and which member did what."""
    async with tool.admin() as admin:
        described = await admin.describe_consumer_groups([group], outcomes=True)
        collected = await collect(admin, since_ms_of(since), {"group": group})
    found = described.results.get(group)
    facts = [
        f"{group}: {described.errors[group]}"
        if found is None
        else f"{group}: {found.state.value}, {counted(len(found.members), 'member')}"
    ]
    _answer(tool, f"group {group}", collected, of_names(group=group), facts)


@command("producer", why)
@click.argument("producer", metavar="PRODUCER-ID|TRANSACTIONAL-ID")
@_since
async def producer_(tool: Tool, producer: str, since: str) -> None:
    """Say why a producer was fenced or refused, or why its transaction was aborted."""
    subjects = {"transactional_id": producer, "producer": producer}
    async with tool.admin() as admin:
        collected = await collect(admin, since_ms_of(since), subjects)
        # Logs know producer ids only, and the coordinator knows both.
        ids = {
            str(event.subject["producer"])
            for event in collected.evidence.events
            if event.subject.get("transactional_id") == producer and "producer" in event.subject
        } - {producer}
        others = [await collect(admin, since_ms_of(since), {"producer": each}) for each in sorted(ids)[:5]]
    names = {producer, *ids}
    events = {event.id: event for each in (collected, *others) for event in each.evidence.events}
    collected = Collected(Evidence(events.values()), collected.silent, collected.remarks)

    def select(event: CausalEvent) -> bool:
        return any(str(event.subject.get(key)) in names for key in ("producer", "transactional_id"))

    _answer(tool, f"producer {producer}", collected, select, [])


@command("client", why)
@click.argument("client", metavar="CLIENT-ID|USER|ADDRESS")
@_since
async def client_(tool: Tool, client: str, since: str) -> None:
    """Say why a client was throttled, denied, refused, or removed from a group.

    A client is known by its client id, by its user, or by its address where it could not log in.
    """
    async with tool.admin() as admin:
        collected = await collect(admin, since_ms_of(since), {})

    def select(event: CausalEvent) -> bool:
        return any(event.subject.get(key) == client for key in ("client", "user", "host"))

    _answer(tool, f"client {client}", collected, select, [])


@command("broker", why)
@click.argument("broker", type=Integer(0, INT32_MAX))
@_since
async def broker_(tool: Tool, broker: int, since: str) -> None:
    """Say why a broker stopped, left the cluster, or lost the partitions that it led."""
    async with tool.admin() as admin:
        nodes = {node.id for node in (await admin.describe_cluster()).nodes}
        collected = await collect(admin, since_ms_of(since), {}, [broker])
    facts = [f"broker {broker} is {'registered' if broker in nodes else 'not registered'}"]
    _answer(tool, f"broker {broker}", collected, of_broker(broker), facts)


@command("record", why)
@click.argument("record", metavar="TOPIC-PARTITION@OFFSET")
@_since
async def record_(tool: Tool, record: str, since: str) -> None:
    """Say where a record is, or why it is gone.

    Retention, a DeleteRecords request, compaction, a truncation and the deletion of the topic take records
    away; a record may also be that of an aborted transaction, or never have been written.
    """
    from kalda.tools.why.records import whereabouts

    name, offset = parse_record(record)
    async with tool.admin() as admin:
        described = await admin.describe_topics([name.topic], outcomes=True)
        facts: list[str]
        is_there = False
        if name.topic in described.results:
            facts, is_there = await whereabouts(tool, admin, name, offset)
        else:
            facts = [f"topic {name.topic}: {described.errors[name.topic]}"]
        is_hidden = is_there and "read_committed" in facts[0]
        # A transaction that was aborted is an event of its transactional id.
        subjects = {} if is_hidden else {"topic": name.topic}
        collected = await collect(admin, since_ms_of(since), subjects)
    select = of_record(name.topic, name.partition, offset)
    if is_there and not is_hidden:
        # What took an earlier record with this offset away says nothing about this one.
        facts.append("Nothing took it away.")
        print_answer(tool, explain(f"record {record}", collected.evidence, [], facts=facts))
        return
    _answer(tool, f"record {record}", collected, _or_aborted(select, name, is_there=is_there), facts)


def _or_aborted(select: Select, name: TopicPartition, *, is_there: bool) -> Select:
    """Select aborted transactions with the partition too, for a record that is there and not committed."""

    def selected(event: CausalEvent) -> bool:
        if is_there and event.kind == EventKind.TRANSACTION_ABORTED:
            listed = event.details.get("partitions_of")
            return isinstance(listed, list) and str(name) in listed
        return not is_there and select(event)

    return selected


def _answer(
    tool: Tool,
    subject: str,
    collected: Collected,
    select: Select,
    facts: Sequence[str],
    routine: Collection[str] = (),
) -> None:
    evidence = collected.evidence
    effects = [event for event in evidence.events if select(event)]
    print_answer(
        tool,
        explain(
            subject,
            evidence,
            effects,
            facts=facts,
            silent=collected.silent,
            remarks=collected.remarks,
            routine=routine,
        ),
    )


def parse_record(text: str) -> tuple[TopicPartition, int]:
    """Return the partition and the offset that ``orders-3@1234`` names.

    Raises:
        ToolUsageError: the text has another form.
    """
    partition, _, offset = text.rpartition("@")
    number = _number(offset, INT64_MAX)
    if not partition or number is None:
        raise ToolUsageError(f"{text} is no record: expected TOPIC-PARTITION@OFFSET, such as orders-3@1234")
    return parse_partition(partition), number


def parse_partition(text: str) -> TopicPartition:
    """Return the partition that ``orders-3`` names.

    Raises:
        ToolUsageError: the text has no number behind its last dash.
    """
    topic, _, digits = text.rpartition("-")
    number = _number(digits, INT32_MAX)
    if not topic or number is None:
        raise ToolUsageError(f"{text} is no partition: expected TOPIC-PARTITION, such as orders-3")
    return TopicPartition(topic, number)


def _number(digits: str, most: int) -> int | None:
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


def _ids(brokers: object) -> str:
    return ", ".join(map(str, brokers)) if isinstance(brokers, (list, tuple)) and brokers else "none"
