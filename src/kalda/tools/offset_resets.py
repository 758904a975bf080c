"""Decides to which offsets a group is reset, and reads and writes the files of `--export` and `--from-file`.

Sans-IO: `kalda.tools.groups` reads committed offsets and the ends of partitions, and commits what is decided
here. The rules are those of `kafka-consumer-groups --reset-offsets`.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.values import partitions_text
from kalda.common.types import TopicPartition

_FIELDS: Final = 3


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets that a partition holds: from `start` to just below `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NewOffset:
    """The offset for a partition, and the one that was asked for where it lies outside the log."""

    offset: int
    asked: int

    @property
    def is_moved(self) -> bool:
        """Whether the offset that was asked for is outside the log."""
        return self.offset != self.asked


Offsets = Mapping[TopicPartition, int]


def within(asked: Offsets, ranges: Mapping[TopicPartition, LogRange]) -> dict[TopicPartition, NewOffset]:
    """Return the offsets, moved to the nearer end of the log where they lie outside.

    Raises:
        ToolError: the range of a partition is not known.
    """
    unknown = asked.keys() - ranges.keys()
    if unknown:
        raise ToolError(
            f"the ends of {partitions_text(unknown)} are not known; check the names of the topics"
        )
    return {
        partition: NewOffset(min(max(offset, ranges[partition].start), ranges[partition].end), offset)
        for partition, offset in sorted(asked.items())
    }


def shifted(partitions: Iterable[TopicPartition], committed: Offsets, by: int) -> dict[TopicPartition, int]:
    """Return the committed offsets moved by a number of records, back if it is negative.

    Raises:
        ToolError: a partition has no committed offset.
    """
    wanted = set(partitions)
    missing = wanted - committed.keys()
    if missing:
        raise ToolError(
            f"--shift-by needs committed offsets, and {partitions_text(missing)} has none; "
            "use --to-earliest, --to-latest or --to-offset for it"
        )
    return {partition: committed[partition] + by for partition in wanted}


def current(
    partitions: Iterable[TopicPartition], committed: Offsets, ranges: Mapping[TopicPartition, LogRange]
) -> dict[TopicPartition, int]:
    """Return the committed offsets, and the end of the log for partitions without one."""
    return {
        partition: committed[partition] if partition in committed else ranges[partition].end
        for partition in partitions
    }


def by_time(
    found: Mapping[TopicPartition, int | None], ranges: Mapping[TopicPartition, LogRange]
) -> dict[TopicPartition, int]:
    """Return the first offsets at a time or after it; the end of the log where no record is that new."""
    return {
        partition: ranges[partition].end if offset is None else offset for partition, offset in found.items()
    }


def parse_reset_file(text: str, source: str, groups: list[str]) -> dict[str, dict[TopicPartition, int]]:
    """Read a reset plan, by group: lines ``group,topic,partition,offset``; one group needs no name.

    Raises:
        ToolUsageError: a line has another form, or there is no plan for one of `groups`.
    """
    plan: dict[str, dict[TopicPartition, int]] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text), skipinitialspace=True), 1):
        if not row:
            continue
        if len(row) == _FIELDS and len(groups) == 1:
            row = [groups[0], *row]
        try:
            group, topic, partition, offset = row
            plan.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            form = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise ToolUsageError(
                f"{source} line {number}: {','.join(row)!r} is not {form}, with numbers for the last two"
            ) from None
    missing = [group for group in groups if group not in plan]
    if missing:
        raise ToolUsageError(f"{source} has no plan for group {', '.join(missing)}")
    return {group: plan[group] for group in groups}


def reset_file(plans: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """Return the file for plans: without the group's name if there is one group, as Kafka's tool does."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for group, plan in plans.items():
        for partition, offset in sorted(plan.items()):
            row = [partition.topic, partition.partition, offset]
            writer.writerow(row if len(plans) == 1 else [group, *row])
    return written.getvalue()
