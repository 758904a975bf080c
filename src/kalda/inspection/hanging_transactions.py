"""Decides which open transactions hang: no coordinator will ever write their marker. Sans-IO.

A partition keeps a transaction open until its marker arrives, and readers of committed records wait for that.
The rule is Kafka's (KIP-664): a transaction that is older than any may be hangs if no transactional id has
its producer, or the coordinator does not count the partition to the transaction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kalda.common.types import TopicPartition


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a partition keeps open."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """-1 if the producer has not ended a transaction on the partition yet."""
    start_offset: int
    last_timestamp_ms: int


def candidates(
    open_transactions: Iterable[OpenTransaction], now_ms: int, timeout_ms: int
) -> list[OpenTransaction]:
    """Return the transactions whose last record is older than transactions may be."""
    return [each for each in open_transactions if now_ms - each.last_timestamp_ms > timeout_ms]


def hanging(
    found: Iterable[OpenTransaction],
    transactional_ids: Mapping[int, str],
    partitions: Mapping[str, Iterable[TopicPartition]],
) -> list[OpenTransaction]:
    """Return the candidates that hang, sorted by partition.

    Args:
        found: the candidates.
        transactional_ids: by producer id, as coordinators list them.
        partitions: by transactional id, the partitions of its transaction that wait for a marker; an id that
            no coordinator knows any more is not here.
    """
    known = {name: set(each) for name, each in partitions.items()}

    def hangs(transaction: OpenTransaction) -> bool:
        name = transactional_ids.get(transaction.producer_id)
        return name is None or transaction.partition not in known.get(name, ())

    return sorted(
        (each for each in found if hangs(each)), key=lambda each: (each.partition, each.start_offset)
    )
