"""Defines the request of a `kalda consume` as values, and refuses contradictory options. Pure."""

import re
from dataclasses import dataclass
from enum import Enum

from kalda.command.errors import ToolUsageError


class StartKind(Enum):
    """Where reading starts."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    FROM_END = "from end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading starts; `value` is an offset, a number of records before the end, or milliseconds."""

    kind: StartKind
    value: int = 0

    def offset(self, beginning: int, end: int, at_time: int | None) -> int:
        """Return the offset for a partition; `at_time` is its first offset at the time, if there is one."""
        match self.kind:
            case StartKind.EARLIEST:
                return beginning
            case StartKind.LATEST:
                return end
            case StartKind.OFFSET:
                return self.value
            case StartKind.FROM_END:
                return max(beginning, end - self.value)
            case StartKind.TIME:
                return end if at_time is None else at_time


def parse_start(text: str) -> Start:
    """Return the meaning of ``--offset``.

    Raises:
        ToolUsageError: it has none.
    """
    if text in ("earliest", "latest"):
        return Start(StartKind(text))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise ToolUsageError(
            f"--offset={text} is not allowed: it takes a number, earliest, latest, or -N for N before the end"
        )
    return Start(StartKind.FROM_END if text.startswith("-") else StartKind.OFFSET, int(digits))


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """One run of the command."""

    topics: tuple[str, ...]
    include: re.Pattern[str] | None
    partitions: tuple[int, ...]
    start: Start
    is_endless: bool
    """Whether to wait at the end of the partitions."""

    max_messages: int | None
    timeout_ms: int | None
    group: str | None
    isolation_level: str | None
    skips_errors: bool

    def check(self) -> None:
        """Raise `ToolUsageError` for options that contradict each other."""
        if bool(self.topics) == (self.include is not None):
            raise ToolUsageError("name the topics: kalda consume TOPIC..., or --include REGEX")
        if self.partitions and len(self.topics) != 1:
            raise ToolUsageError("--partition needs exactly one topic")
        if self.start.kind is StartKind.OFFSET and not self.partitions:
            raise ToolUsageError(
                "--offset with a number needs --partition: each partition has its own offsets"
            )
        if self.group is None:
            return
        if self.partitions:
            raise ToolUsageError("--partition and --group exclude each other: the group assigns partitions")
        if self.start.kind not in (StartKind.EARLIEST, StartKind.LATEST):
            raise ToolUsageError(
                "--offset and --from-time exclude --group: the group has its position; "
                "`kalda groups reset-offsets` changes it"
            )

    def properties(self) -> dict[str, str]:
        """Return the settings of the consumer that the plan needs."""
        found = {"auto.offset.reset": "latest" if self.start.kind is StartKind.LATEST else "earliest"}
        if self.group is None:
            found["enable.auto.commit"] = "false"
        else:
            found["group.id"] = self.group
        if self.isolation_level is not None:
            found["isolation.level"] = self.isolation_level
        return found
