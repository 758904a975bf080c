"""`kalda transactions`: finds and aborts transactions, as `kafka-transactions` does (KIP-664).

`kalda.inspection.hanging_transactions` decides which ones hang.
"""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import INT16_MAX, INT32_MAX, Integer, one_of
from kalda.command.output import Json
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Cell, Table
from kalda.command.values import distinct, partitions_text
from kalda.common.types import TopicPartition
from kalda.inspection.hanging_transactions import OpenTransaction, candidates, hanging
from kalda.tools.group_offsets import partitions_of
from kalda.tools.group_views import assignment_text

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.transactions import AbortTransactionSpec, ProducerState, TransactionState

_MINUTE_MS: Final = 60_000
_BATCH: Final = 500
"""Partitions asked for at once in a search through the cluster, as in Kafka's tool."""

transactions = noun("List, describe and abort transactions; find hanging ones.")

_partition_option = click.option(
    "--partition", "number", type=Integer(0, INT32_MAX), metavar="N", help="The partition of the topic."
)


@command("list", transactions)
@click.option(
    "--state", multiple=True, metavar="STATE", help="Only transactions in one of these states; repeatable."
)
@click.option(
    "--producer-id", type=Integer(0), multiple=True, metavar="ID", help="Only of this producer; repeatable."
)
@click.option(
    "--duration-filter", type=Integer(0), metavar="MS", help="Only transactions that run for longer."
)
@click.option(
    "--transactional-id-pattern",
    metavar="REGEX",
    help="Only ids that match (RE2; Apache Kafka 4.1 and newer).",
)
async def list_transactions(
    tool: Tool,
    state: tuple[str, ...],
    producer_id: tuple[int, ...],
    duration_filter: int | None,
    transactional_id_pattern: str | None,
) -> None:
    """List transactional ids with the state of their last transaction."""
    states = [_state(word) for word in state]
    async with tool.admin() as admin:
        listing = await admin.list_transactions(
            states=states,
            producer_ids=producer_id,
            duration_ms=duration_filter,
            transactional_id_pattern=transactional_id_pattern,
        )
    rows = [(each.transactional_id, each.producer_id, each.state.value) for each in listing.results]
    names = ("transactional_id", "producer_id", "state")
    tool.output.result(
        {"transactions": _objects(names, rows)},
        Table(("TRANSACTIONAL-ID", "PRODUCER-ID", "STATE"), rows, empty="There are no such transactions."),
    )
    raise_for(tool.output, listing.errors.values())


@command("describe", transactions)
@click.argument("ids", metavar="[TRANSACTIONAL-ID]...", nargs=-1)
@click.option(
    "--transactional-id",
    "--transactionalId",
    "transactional_id",
    multiple=True,
    metavar="ID",
    help="A transactional id; repeatable.",
)
async def describe(tool: Tool, ids: tuple[str, ...], transactional_id: tuple[str, ...]) -> None:
    """Describe the last transaction of transactional ids."""
    chosen = distinct("--transactional-id", ids, transactional_id)
    async with tool.admin() as admin:
        described = await admin.describe_transactions(chosen, outcomes=True)
    now_ms = int(time.time() * 1000)
    rows: list[tuple[Cell, ...]] = []
    document: list[Json] = []
    for name in chosen:
        found = described.results.get(name)
        if found is None:
            continue
        start_ms = found.transaction_start_time_ms
        row = (
            name,
            found.coordinator_id,
            found.producer_id,
            found.producer_epoch,
            found.state.value,
            found.transaction_timeout_ms,
            start_ms,
            None if start_ms is None else now_ms - start_ms,
        )
        rows.append((*row, assignment_text(found.topic_partitions)))
        document.append(
            {**_object(_DESCRIPTION_FIELDS, row), "partitions": _partitions(found.topic_partitions)}
        )
    tool.output.result(
        {"transactions": document}, Table((*map(_heading, _DESCRIPTION_FIELDS), "TOPIC-PARTITIONS"), rows)
    )
    raise_for(tool.output, described.errors.values())


_DESCRIPTION_FIELDS = (
    "transactional_id",
    "coordinator_id",
    "producer_id",
    "producer_epoch",
    "state",
    "timeout_ms",
    "start_time_ms",
    "duration_ms",
)


@command("describe-producers", transactions)
@click.option("--topic", required=True, type=TopicName(), metavar="TOPIC[:0,1]", help="The topic.")
@_partition_option
@click.option(
    "--broker-id", type=Integer(0, INT32_MAX), metavar="ID", help="Ask this replica instead of the leader."
)
async def describe_producers(tool: Tool, topic: str, number: int | None, broker_id: int | None) -> None:
    """Describe the producers that wrote to partitions, with the transactions that are open there."""
    async with tool.admin() as admin:
        partitions = await partitions_of(admin, "--topic", [_with_partition(topic, number)])
        described = await admin.describe_producers(partitions, broker_id=broker_id, outcomes=True)
    rows = [
        (
            partition.topic,
            partition.partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            each.current_transaction_start_offset,
        )
        for partition, producers in sorted(described.results.items())
        for each in producers
    ]
    tool.output.result(
        {"producers": _objects(_PRODUCER_FIELDS, rows)}, Table(tuple(map(_heading, _PRODUCER_FIELDS)), rows)
    )
    raise_for(tool.output, described.errors.values())


_PRODUCER_FIELDS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_sequence",
    "last_timestamp_ms",
    "transaction_start_offset",
)


@command("find-hanging", transactions)
@click.option("--broker-id", type=Integer(0, INT32_MAX), metavar="ID", help="Only partitions of this broker.")
@click.option(
    "--max-transaction-timeout",
    type=Integer(0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="The brokers' transaction.max.timeout.ms: younger transactions cannot hang yet.",
)
@click.option("--topic", type=TopicName(), metavar="TOPIC[:0,1]", help="Only this topic.")
@_partition_option
async def find_hanging(
    tool: Tool, broker_id: int | None, max_transaction_timeout: int, topic: str | None, number: int | None
) -> None:
    """Find transactions that are open in a partition although no coordinator will ever end them.

    Readers of committed records wait for such a transaction. Abort it with `kalda transactions abort`.
    """
    if topic is None and broker_id is None:
        raise ToolUsageError("say where to search: use --broker-id, or --topic")
    if number is not None and topic is None:
        raise ToolUsageError("--partition needs --topic")
    async with tool.admin() as admin:
        words = [_with_partition(topic, number)] if topic is not None else None
        partitions = await _searched(admin, words, broker_id)
        now_ms = int(time.time() * 1000)
        found: list[OpenTransaction] = []
        for first in range(0, len(partitions), _BATCH):
            described = await admin.describe_producers(
                partitions[first : first + _BATCH], broker_id=broker_id
            )
            opened = [
                _open(partition, each)
                for partition, producers in described.results.items()
                for each in producers
                if each.current_transaction_start_offset is not None
            ]
            found += candidates(opened, now_ms, max_transaction_timeout * _MINUTE_MS)
        hung = await _hanging(admin, found) if found else []
    rows = [
        (
            each.partition.topic,
            each.partition.partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.start_offset,
            each.last_timestamp_ms,
            (now_ms - each.last_timestamp_ms) // _MINUTE_MS,
        )
        for each in hung
    ]
    tool.output.result(
        {"transactions": _objects(_HANGING_FIELDS, rows)},
        Table(tuple(map(_heading, _HANGING_FIELDS)), rows, empty="No transaction hangs."),
    )


_HANGING_FIELDS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "start_offset",
    "last_timestamp_ms",
    "duration_minutes",
)


@command("abort", transactions)
@click.option("--topic", required=True, type=TopicName(), metavar="TOPIC", help="The topic.")
@click.option(
    "--partition", "number", type=Integer(0, INT32_MAX), required=True, metavar="N", help="The partition."
)
@click.option(
    "--start-offset", type=Integer(0), metavar="OFFSET", help="The first offset of the transaction."
)
@click.option(
    "--producer-id",
    type=Integer(0),
    metavar="ID",
    help="In place of the offset, for brokers before 3.0: the producer.",
)
@click.option(
    "--producer-epoch", type=Integer(0, INT16_MAX), metavar="EPOCH", help="With --producer-id: its epoch."
)
@click.option(
    "--coordinator-epoch",
    type=Integer(-1, INT32_MAX),
    metavar="EPOCH",
    help="With --producer-id: that epoch.",
)
async def abort(
    tool: Tool,
    topic: str,
    number: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a transaction that hangs in a partition, as `find-hanging` shows it.

    A transaction that its coordinator still knows is ended by its producer or its time-out; aborting it here
    would be a fault. `kalda transactions force-terminate` ends one by its transactional id.
    """
    from kalda.clients.admin.transactions import AbortTransactionSpec

    partition = TopicPartition(topic, number)
    by_producer = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) is (None in by_producer) or (
        start_offset is not None and any(each is not None for each in by_producer)
    ):
        raise ToolUsageError(
            "name the transaction by --start-offset, or by all of --producer-id, --producer-epoch and "
            "--coordinator-epoch"
        )
    async with tool.admin() as admin:
        if start_offset is not None:
            spec = await _spec(admin, partition, start_offset)
        else:
            assert producer_id is not None
            assert producer_epoch is not None
            # Without a marker yet the epoch is -1, and 0 is below any that a coordinator can have.
            spec = AbortTransactionSpec(
                partition, producer_id, producer_epoch, max(coordinator_epoch or 0, 0)
            )
        await admin.abort_transaction([spec])
    tool.output.result(
        {**partition._asdict(), "producer_id": spec.producer_id, "producer_epoch": spec.producer_epoch},
        f"Aborted the transaction of producer {spec.producer_id} in {partition}.",
    )


@command("force-terminate", transactions)
@click.argument("ids", metavar="[TRANSACTIONAL-ID]...", nargs=-1)
@click.option(
    "--transactional-id",
    "--transactionalId",
    "transactional_id",
    multiple=True,
    metavar="ID",
    help="A transactional id; repeatable.",
)
async def force_terminate(tool: Tool, ids: tuple[str, ...], transactional_id: tuple[str, ...]) -> None:
    """Abort the open transactions of transactional ids and fence their producers.

    It also ends transactions that wait for the second phase of a commit.
    """
    chosen = distinct("--transactional-id", ids, transactional_id)
    async with tool.admin() as admin:
        ended = await admin.force_terminate_transaction(chosen, outcomes=True)
    tool.output.result(
        {
            "transactions": [
                {"transactional_id": each, "error": error_json(ended.errors.get(each))} for each in chosen
            ]
        },
        *(f"Terminated the transaction of {each}." for each in chosen if each in ended.results),
    )
    raise_for(tool.output, ended.errors.values())


async def _searched(
    admin: "AsyncAdmin", words: list[str] | None, broker_id: int | None
) -> list[TopicPartition]:
    if broker_id is not None and broker_id not in {
        each.id for each in (await admin.describe_cluster()).nodes
    }:
        raise ToolError(
            f"--broker-id={broker_id} is not in the cluster; `kalda cluster describe` shows the brokers"
        )
    if words is None:
        words = list(await admin.list_topics(include_internal=True))
    partitions = await partitions_of(admin, "--topic", words)
    if broker_id is None:
        return partitions
    described = await admin.describe_topics({each.topic for each in partitions})
    here = {
        TopicPartition(topic.name, partition.partition)
        for topic in described.results.values()
        for partition in topic.partitions
        if broker_id in partition.replicas
    }
    return [each for each in partitions if each in here]


async def _hanging(admin: "AsyncAdmin", found: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    from kalda.common.errors import ErrorCode

    found = list(found)
    listings = (await admin.list_transactions(producer_ids={each.producer_id for each in found})).all()
    ids = {each.producer_id: each.transactional_id for each in listings}
    described = await admin.describe_transactions(sorted(set(ids.values())), outcomes=True)
    for error in described.errors.values():
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise error
    return hanging(found, ids, {name: each.topic_partitions for name, each in described.results.items()})


async def _spec(admin: "AsyncAdmin", partition: TopicPartition, start_offset: int) -> "AbortTransactionSpec":
    from kalda.clients.admin.transactions import AbortTransactionSpec

    producers = (await admin.describe_producers([partition]))[partition]
    for each in producers:
        if each.current_transaction_start_offset == start_offset:
            epoch = 0 if each.coordinator_epoch is None else each.coordinator_epoch
            return AbortTransactionSpec(partition, each.producer_id, each.producer_epoch, epoch)
    raise ToolError(
        f"no open transaction starts at offset {start_offset} of {partitions_text([partition])}; "
        "`kalda transactions describe-producers` shows the open ones"
    )


def _open(partition: TopicPartition, producer: "ProducerState") -> OpenTransaction:
    start = producer.current_transaction_start_offset
    assert start is not None, producer
    epoch = -1 if producer.coordinator_epoch is None else producer.coordinator_epoch
    return OpenTransaction(
        partition, producer.producer_id, producer.producer_epoch, epoch, start, producer.last_timestamp_ms
    )


def _state(word: str) -> "TransactionState":
    from kalda.clients.admin.transactions import TransactionState

    for state in TransactionState:
        if state.value.lower() == word.lower() and state is not TransactionState.UNKNOWN:
            return state
    allowed = [each.value for each in TransactionState if each is not TransactionState.UNKNOWN]
    raise ToolUsageError(f"--state={word} is not allowed: it takes {one_of(allowed)}")


def _with_partition(topic: str, number: int | None) -> str:
    return topic if number is None else f"{topic}:{number}"


def _partitions(partitions: Iterable[TopicPartition]) -> Json:
    return [each._asdict() for each in sorted(partitions)]


def _object(names: tuple[str, ...], row: tuple[Cell, ...]) -> dict[str, Json]:
    return dict(zip(names, row, strict=True))


def _objects(names: tuple[str, ...], rows: Iterable[tuple[Cell, ...]]) -> list[Json]:
    return [_object(names, row) for row in rows]


def _heading(name: str) -> str:
    return name.upper().replace("_", "-")
