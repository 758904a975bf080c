"""Defines the values that identify a producer: its id and epoch, and the token of a prepared transaction.

It holds no state and asks no broker. `NO_PRODUCER` stands for "no id yet" everywhere, with -1 and -1 as on
the wire; do not use None for it.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from kalda.common.public import public

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
"""The base sequence of a batch that has none yet."""
EPOCH_MAX: Final = 2**15 - 1
SEQUENCE_MAX: Final = 2**31 - 1
PRODUCER_ID_MAX: Final = 2**63 - 1


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch; brokers refuse a lower epoch than the last one they saw (KIP-98)."""

    producer_id: int
    epoch: int

    @property
    def is_valid(self) -> bool:
        """Whether a broker gave this identity."""
        return self.producer_id > NO_PRODUCER_ID

    def __str__(self) -> str:
        return f"producer id {self.producer_id} with epoch {self.epoch}"


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sequence number `increment` records later; after 2147483647 comes 0, as in brokers."""
    return (sequence + increment) & SEQUENCE_MAX


def decrement_sequence(sequence: int, decrement: int) -> int:
    """Return the sequence number `decrement` records earlier; before 0 comes 2147483647."""
    return (sequence - decrement) & SEQUENCE_MAX


def is_later_sequence(sequence: int, other: int) -> bool:
    """Return whether `sequence` comes after `other`: less than half of the number range lies between them."""
    return 0 < ((sequence - other) & SEQUENCE_MAX) <= SEQUENCE_MAX // 2


@public
@dataclass(frozen=True, slots=True)
class PreparedTxnState:
    """The token of a prepared transaction (KIP-939): store it with the decision of the other resource.

    Its text is ``producerId:epoch``, as in Java's client, or empty where no transaction is prepared.
    """

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text that `str` of a token gave.

        Raises:
            ValueError: the text is neither empty nor ``producerId:epoch``.
        """
        if not text:
            return cls()
        producer_id, separator, epoch = text.partition(":")
        is_number = producer_id.isascii() and producer_id.isdigit() and epoch.isascii() and epoch.isdigit()
        if not separator or not is_number or int(producer_id) > PRODUCER_ID_MAX or int(epoch) > EPOCH_MAX:
            raise ValueError(
                f"{text!r} is not the state of a prepared transaction; expected 'producerId:epoch', "
                "for example '4711:3', or an empty text"
            )
        return cls(int(producer_id), int(epoch))

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is prepared."""
        return self.producer_id != NO_PRODUCER_ID

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}" if self.has_transaction else ""
