"""Gathers groups and transactions for the checks of `kalda doctor`."""

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kalda.common.types import TopicPartition
from kalda.inspection.doctor.snapshot import GroupFacts, TransactionFacts
from kalda.inspection.hanging_transactions import OpenTransaction, candidates, hanging
from kalda.tools.doctor.questions import PART_TIMEOUT_MS, Questions

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

_GROUPS_MAX: Final = 1000
_TRANSACTIONS_MAX: Final = 1000
_PARTITIONS_MAX: Final = 2000
"""How many are looked at: the command has to end in seconds on any cluster."""

_PARTITIONS_AT_ONCE: Final = 500
_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Kafka's default of `transaction.max.timeout.ms`: a younger transaction cannot hang yet."""

_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")

Ends = Mapping[TopicPartition, tuple[int, int]]


async def read_groups(
    admin: "AsyncAdmin", questions: Questions, known: Container[TopicPartition]
) -> tuple[Sequence[GroupFacts], Ends]:
    """Return the groups with committed offsets, and the ends of those of their partitions that exist."""
    listing = await questions.ask("groups", admin.list_consumer_groups(timeout_ms=PART_TIMEOUT_MS), None)
    if listing is None:
        return (), {}
    for broker_id, error in listing.errors.items():
        questions.note(f"groups of broker {broker_id}: {error}")
    names = [each.group_id for each in listing.results]
    if len(names) > _GROUPS_MAX:
        questions.note(f"groups: only the first {_GROUPS_MAX} of {len(names)} were looked at")
        names = names[:_GROUPS_MAX]
    described = await questions.ask_of_each(
        "group", admin.describe_consumer_groups(names, outcomes=True, timeout_ms=PART_TIMEOUT_MS)
    )
    fetched = await questions.ask_of_each(
        "offsets of group",
        admin.list_consumer_group_offsets(names, outcomes=True, timeout_ms=PART_TIMEOUT_MS),
    )
    groups = [
        GroupFacts(
            group_id=name,
            state=found.state.value,
            committed={
                partition: each.offset
                for partition, each in (fetched[name].results if name in fetched else {}).items()
                if each is not None
            },
            assigned=frozenset(each for member in found.members for each in member.assignment),
        )
        for name, found in described.items()
    ]
    partitions = sorted({each for group in groups for each in group.committed if each in known})
    return groups, await _ends(admin, questions, partitions)


async def _ends(admin: "AsyncAdmin", questions: Questions, partitions: Sequence[TopicPartition]) -> Ends:
    from kalda.clients.admin.partitions import OffsetSpec
    from kalda.common.errors import ErrorCode

    found = {}
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        outcomes = await questions.ask(
            "ends of partitions",
            admin.list_offsets(dict.fromkeys(partitions, spec), outcomes=True, timeout_ms=PART_TIMEOUT_MS),
            None,
        )
        if outcomes is None:
            return {}
        for partition, error in outcomes.errors.items():
            # A topic that was deleted meanwhile is no gap of the reading.
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                questions.note(f"end of {partition}: {error}")
        found[spec] = outcomes.results
    first, last = found.values()
    return {
        each: (first[each].offset, last[each].offset) for each in partitions if each in first.keys() & last
    }


async def read_transactions(
    admin: "AsyncAdmin", questions: Questions, partitions: Iterable[TopicPartition]
) -> tuple[Sequence[TransactionFacts], Sequence[OpenTransaction]]:
    """Return the transactions that are open at coordinators, and those that hang in partitions."""
    from kalda.clients.admin.transactions import TransactionState

    states = [TransactionState.of(each) for each in _OPEN_STATES]
    listing = await questions.ask(
        "transactions", admin.list_transactions(states=states, timeout_ms=PART_TIMEOUT_MS), None
    )
    if listing is None:
        return (), ()
    for broker_id, error in listing.errors.items():
        questions.note(f"transactions of broker {broker_id}: {error}")
    names = [each.transactional_id for each in listing.results][:_TRANSACTIONS_MAX]
    described = await questions.ask_of_each(
        "transaction", admin.describe_transactions(names, outcomes=True, timeout_ms=PART_TIMEOUT_MS)
    )
    facts = [
        TransactionFacts(
            transactional_id=name,
            start_ms=found.transaction_start_time_ms,
            timeout_ms=found.transaction_timeout_ms,
        )
        for name, found in described.items()
        if found.transaction_start_time_ms is not None
    ]
    return facts, await _hanging(admin, questions, sorted(partitions))


async def _hanging(
    admin: "AsyncAdmin", questions: Questions, partitions: Sequence[TopicPartition]
) -> Sequence[OpenTransaction]:
    if len(partitions) > _PARTITIONS_MAX:
        questions.note(
            f"hanging transactions: only {_PARTITIONS_MAX} of {len(partitions)} partitions were looked at; "
            "`kalda transactions find-hanging --broker-id ID` looks at all"
        )
        partitions = partitions[:_PARTITIONS_MAX]
    opened: list[OpenTransaction] = []
    for first in range(0, len(partitions), _PARTITIONS_AT_ONCE):
        chosen = partitions[first : first + _PARTITIONS_AT_ONCE]
        described = await questions.ask_of_each(
            "producers", admin.describe_producers(chosen, outcomes=True, timeout_ms=PART_TIMEOUT_MS)
        )
        opened += [
            OpenTransaction(
                partition,
                each.producer_id,
                each.producer_epoch,
                -1 if each.coordinator_epoch is None else each.coordinator_epoch,
                each.current_transaction_start_offset,
                each.last_timestamp_ms,
            )
            for partition, producers in described.items()
            for each in producers
            if each.current_transaction_start_offset is not None
        ]
    old = candidates(opened, int(time.time() * 1000), _TRANSACTION_TIMEOUT_MS)
    if not old:
        return ()
    listing = await questions.ask(
        "transactions of old producers",
        admin.list_transactions(producer_ids={each.producer_id for each in old}, timeout_ms=PART_TIMEOUT_MS),
        None,
    )
    if listing is None or listing.errors:
        # A coordinator that did not answer could know the transaction.
        return ()
    ids = {each.producer_id: each.transactional_id for each in listing.results}
    described_ids = await questions.ask_of_each(
        "transaction",
        admin.describe_transactions(sorted(set(ids.values())), outcomes=True, timeout_ms=PART_TIMEOUT_MS),
    )
    return hanging(old, ids, {name: each.topic_partitions for name, each in described_ids.items()})
