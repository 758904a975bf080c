"""Commits what a mirror writes: in transactions, or at least once where the target has none.

Without transactions, progress is committed only when every record before it is acknowledged.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Final, Protocol

from kalda.clients.admin.admin import Admin
from kalda.clients.errors import ClientError, ProducerFencedError
from kalda.clients.producer.producer import Producer
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition

logger: Final = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

_DELIVERY_TIMEOUT_S: Final = 180.0


class DeliveryMode(Enum):
    """What a mirror promises of each record."""

    EXACTLY_ONCE = "exactly once"
    """An error where the target cannot."""
    EXACTLY_ONCE_IF_POSSIBLE = "exactly once if possible"
    """At least once where the target is older than Kafka 2.5."""
    AT_LEAST_ONCE = "at least once"


def check_transactions(target: Admin, group: str) -> None:
    """Check that a cluster has the transactions that exactly-once delivery needs.

    Brokers have them since 2.5, with the answers without pending offsets (KIP-447).

    Raises:
        UnsupportedApiError: it has not.
        ClientError: it cannot be reached.
    """
    target.list_consumer_group_offsets([group], require_stable=True, outcomes=True).get(group)


class _EndedEarlyError(Exception):
    """Ends an empty transaction by an abort."""


class Delivery(Protocol):
    """Commits the records and the progress of one unit after the other."""

    def unit(self) -> AbstractContextManager[object]:
        """Return a block whose records and progress are committed at its end; an error drops the progress."""
        ...

    def commit(self, offsets: Offsets) -> None:
        """Make offsets of the mirror's group part of the unit."""
        ...

    def open_seconds(self) -> float | None:
        """Return for how long the unit is open, or was when it failed; None if it was committed."""
        ...


class ExactlyOnce:
    """Commits each unit as a transaction of the producer."""

    def __init__(
        self, producer: Producer, group: str, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Take a producer whose transactions are initialized."""
        self._producer: Final = producer
        self._group: Final = group
        self._monotonic: Final = monotonic
        self._began: float | None = None

    @contextmanager
    def unit(self) -> Iterator[None]:
        """Return a block that is a transaction."""
        self._began = self._monotonic()
        try:
            with self._producer.transaction():
                yield
        except ClientError as error:
            self._fail_if_fenced(error)
            raise
        self._began = None

    def _fail_if_fenced(self, error: ClientError) -> None:
        """Raise an error of its own where the failure of a record hides that the producer was replaced.

        Raises:
            ProducerFencedError: it was.
        """
        try:
            with contextlib.suppress(_EndedEarlyError), self._producer.transaction():
                raise _EndedEarlyError
        except ProducerFencedError as fenced:
            raise fenced from error
        except ClientError as later:
            logger.debug("the producer cannot go on either: %s", later)

    def commit(self, offsets: Offsets) -> None:
        """Send offsets to the transaction."""
        assert self._began is not None, "offsets are sent within a unit"
        self._producer.send_offsets_to_transaction(offsets, self._group)

    def open_seconds(self) -> float | None:
        """Return for how long the transaction is open; it stays open when the producer is fenced."""
        return None if self._began is None else self._monotonic() - self._began


class AtLeastOnce:
    """Commits the progress of a unit when all its records are acknowledged."""

    def __init__(self, producer: Producer, group: str, target: Admin) -> None:
        self._producer: Final = producer
        self._group: Final = group
        self._target: Final = target
        self._offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    @contextmanager
    def unit(self) -> Iterator[None]:
        """Return a block that ends with a flush and a commit of the group's offsets."""
        self._offsets = {}
        yield
        self._producer.flush(_DELIVERY_TIMEOUT_S)
        if self._offsets:
            self._target.alter_consumer_group_offsets({self._group: self._offsets})

    def commit(self, offsets: Offsets) -> None:
        """Keep offsets for the end of the unit."""
        self._offsets |= offsets

    def open_seconds(self) -> float | None:
        """Return None: no other process takes a producer without transactions over."""
        return None
