"""What the transaction coordinator needs from its surroundings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_metadata import TransactionMetadata


@dataclass(eq=False, slots=True)
class MarkerWork:
    """The markers of one transaction that are to be written; `remaining` shrinks as they are."""

    state_partition: int
    """The partition of ``__transaction_state`` that the transaction belongs to."""
    coordinator_epoch: int
    """The leader epoch of that partition: logs refuse markers of an earlier one."""
    metadata: TransactionMetadata
    on_done: Callable[["MarkerWork"], None]
    """Called once, when nothing remains; never for a transaction that somebody else took over."""
    remaining: set[TopicPartition] = field(init=False)

    def __post_init__(self) -> None:
        self.remaining = set(self.metadata.partitions)


class MarkerSender(Protocol):
    """Writes markers to the leaders of partitions, and tries until it has succeeded."""

    def send(self, work: MarkerWork) -> None:
        """Begin to write the markers; returns at once."""
        ...

    def drop(self, state_partition: int) -> None:
        """Give up the work of a partition that is no longer coordinated here."""
        ...


class ProducerIdSource(Protocol):
    """Gives out producer ids."""

    def take(self, on_done: Callable[[int | None], None]) -> None:
        """Call `on_done` with a new id, at once or later; with None if there is none to be had now."""
        ...
