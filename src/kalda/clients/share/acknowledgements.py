"""Defines the acknowledgements of a worker, and joins them to ranges of offsets. Sans-IO."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from kalda.clients.errors import ClientError
from kalda.common.public import public
from kalda.common.types import UUID, TopicPartition
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY, REJECT_REASON_MAX

GAP: Final = 0
"""An acquired offset without a record. The group gives it up; a user never sees it."""


@public
class AcknowledgeType(IntEnum):
    """The kinds of acknowledgement of a delivered record; the numbers are the protocol's."""

    ACCEPT = 1
    """It is done and is not delivered again."""
    RELEASE = 2
    """It is delivered again, to any member of the group."""
    REJECT = 3
    """It cannot be processed and is not delivered again."""
    RENEW = 4
    """It stays with this consumer: the time of its lock begins again (KIP-1222)."""


class Decision(NamedTuple):
    """The acknowledgement of a record, with its delay or its reason."""

    kind: int
    delay_ms: int = GROUPS_DELAY
    """How long a released record is not delivered; `GROUPS_DELAY`: as the group's settings say."""
    reason: str = ""
    """Why a record is rejected; empty: the dead letter has a general reason."""


ACCEPTED: Final = Decision(AcknowledgeType.ACCEPT)
RELEASED: Final = Decision(AcknowledgeType.RELEASE)


class Range(NamedTuple):
    """Neighbouring offsets with one decision."""

    first: int
    last: int
    kind: int
    delay_ms: int = GROUPS_DELAY
    reason: str = ""


class SharePartition(NamedTuple):
    """A partition in a share session: the wire names its topic by id."""

    topic_id: UUID
    partition: TopicPartition


class CommitTicket:
    """The result that a caller waits for after acknowledging: the outcome of each partition."""

    def __init__(self) -> None:
        self.outcomes: Final[dict[TopicPartition, ClientError | None]] = {}
        self.open_count = 0
        """Acknowledgements of partitions that have no outcome yet."""
        self.done: Final = asyncio.Event()

    def finished(self, partition: TopicPartition, error: ClientError | None) -> None:
        """Take the outcome of one partition; the first error of a partition stays."""
        self.outcomes[partition] = self.outcomes.get(partition) or error
        self.open_count -= 1
        if not self.open_count:
            self.done.set()


@dataclass(slots=True, eq=False)
class PartitionAcknowledgements:
    """Acknowledgements of one partition that go to one broker; `offsets` are those that the user decided."""

    ranges: list[Range] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    tickets: list[CommitTicket] = field(default_factory=list)
    """Who waits for the outcome."""

    def add(self, other: "PartitionAcknowledgements") -> None:
        """Add those of other offsets."""
        self.ranges = ranges_of({}, (*self.ranges, *other.ranges))
        self.offsets += other.offsets
        for ticket in other.tickets:
            if ticket in self.tickets:
                ticket.open_count -= 1
            else:
                self.tickets.append(ticket)

    def await_by(self, ticket: CommitTicket) -> None:
        """Have a caller get the outcome, too."""
        if ticket not in self.tickets:
            self.tickets.append(ticket)
            ticket.open_count += 1

    @property
    def count(self) -> int:
        """The number of offsets that are acknowledged."""
        return sum(each.last - each.first + 1 for each in self.ranges)

    @property
    def renews(self) -> bool:
        """Whether some locks are to be renewed."""
        return any(each.kind == AcknowledgeType.RENEW for each in self.ranges)


Acknowledgements = dict[SharePartition, PartitionAcknowledgements]


def ranges_of(decisions: Mapping[int, Decision], others: Iterable[Range] = ()) -> list[Range]:
    """Return offsets with their decisions, and ranges, in order; neighbours of one decision are joined.

    >>> found = ranges_of({5: ACCEPTED, 4: ACCEPTED}, [Range(6, 6, 1), Range(7, 7, 2, 500)])
    >>> [(each.first, each.last, int(each.kind)) for each in found]
    [(4, 6, 1), (7, 7, 2)]
    """
    found: list[Range] = []
    for each in sorted((*_runs(decisions), *others)):
        before = found[-1] if found else None
        if before is not None and before[1:] == (each.first - 1, *each[2:]):
            found[-1] = before._replace(last=each.last)
        else:
            found.append(each)
    return found


def reason_of(error: BaseException) -> str:
    """Return the type and the message of an exception, as far as a reason may be long.

    >>> reason_of(ValueError("too late"))
    'ValueError: too late'
    """
    try:
        message = str(error)
    except Exception:
        # It is the program's class, and its fault must not keep the record.
        message = ""
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    cut = text[:REJECT_REASON_MAX].encode(errors="backslashreplace")[:REJECT_REASON_MAX]
    return cut.decode(errors="ignore")


def _runs(decisions: Mapping[int, Decision]) -> Iterator[Range]:
    """Yield neighbouring offsets with one decision, in order: of a poll's records most have the same."""
    first = last = -1
    present: Decision | None = None
    for offset in sorted(decisions):
        decision = decisions[offset]
        if present is not None:
            if offset == last + 1 and (decision is present or decision == present):
                last = offset
                continue
            yield Range(first, last, *present)
        first = last = offset
        present = decision
    if present is not None:
        yield Range(first, last, *present)
