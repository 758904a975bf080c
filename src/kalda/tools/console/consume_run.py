"""Runs `kalda consume`: chooses partitions and where they start, prints records, notices the end."""

import time
from collections.abc import Mapping
from typing import Any, Final

from kalda.clients.consumer.consumer import Consumer
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.values import ConsumerRecord
from kalda.command.command import Tool
from kalda.command.errors import ToolError
from kalda.command.output import Form
from kalda.common.log_text import counted
from kalda.common.nearest import DATA_CUTOFF, did_you_mean
from kalda.common.types import TopicPartition
from kalda.tools.console.byte_formats import ByteFormatError
from kalda.tools.console.consume_plan import ConsumePlan, StartKind
from kalda.tools.console.record_lines import LineForm, record_json_line, record_line

_POLL_S: Final = 0.1
"""How long a poll waits before the end is looked at; also the longest delay of Ctrl-C."""

_NOTICE_S: Final = 1.0
"""How long a run waits before it writes what for."""

_DEFAULTS: Final = {"client.id": "kalda-consume", "default.api.timeout.ms": "15000"}
"""A person waits for the result: a wrong address must not take a minute."""

_ESCAPED: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"
}
"""Control characters, which a terminal would execute: records come from anybody."""


def run_consume(tool: Tool, plan: ConsumePlan, form: LineForm) -> None:
    """Print records as the plan says.

    Raises:
        ToolError: a topic does not exist, or a record is not of the format.
    """
    with Consumer.from_config(
        {**_DEFAULTS, **tool.settings_for(ConsumerConfig), **plan.properties()}
    ) as consumer:
        run = _Run(tool, plan, form, consumer)
        try:
            run.start()
            run.read()
        except KeyboardInterrupt:
            pass  # the usual end with --follow
        count = run.count
    tool.output.note(f"{counted(count, 'record')} consumed")


class _Run:
    def __init__(self, tool: Tool, plan: ConsumePlan, form: LineForm, consumer: Consumer) -> None:
        self._tool: Final = tool
        self._plan: Final = plan
        self._form: Final = form
        self._consumer: Final = consumer
        self._ends: dict[TopicPartition, int] = {}
        """Where the run is over, by partition; empty where it waits at the end."""
        self.count = 0
        self._notes: Final[set[str]] = set()

    def start(self) -> None:
        """Subscribe, or assign all partitions and seek."""
        consumer, plan = self._consumer, self._plan
        partitions = self._partitions()
        if not plan.is_endless:
            self._ends = consumer.end_offsets(partitions)
        if plan.group is not None:
            consumer.subscribe(
                sorted({each.topic for each in partitions}) if plan.include is None else plan.include
            )
            return
        consumer.assign(partitions)
        if plan.start.kind is StartKind.LATEST:
            consumer.seek_to_end()
            for each in partitions:
                consumer.position(each)  # looked up now: what is written from now on is read
        elif plan.start.kind is not StartKind.EARLIEST:
            for each, offset in self._start_offsets(partitions).items():
                consumer.seek(each, offset)

    def _partitions(self) -> list[TopicPartition]:
        """Return the partitions to read; raises `ToolError` where one does not exist."""
        plan = self._plan
        topics = plan.topics
        if plan.include is not None:
            topics = tuple(name for name in sorted(self._consumer.topics()) if plan.include.fullmatch(name))
            if not topics:
                raise ToolError(f"no topic matches --include={plan.include.pattern}")
        found: list[TopicPartition] = []
        for topic in topics:
            numbers = [each.topic_partition.partition for each in self._consumer.partitions_for(topic)]
            if not numbers:
                hint = did_you_mean(topic, self._consumer.topics(), DATA_CUTOFF)
                raise ToolError(f"topic {topic} does not exist{hint}")
            missing = [each for each in plan.partitions if each not in numbers]
            if missing:
                raise ToolError(f"topic {topic} has no partition {missing[0]}; it has {len(numbers)}")
            found += [TopicPartition(topic, each) for each in plan.partitions or numbers]
        return found

    def _start_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        consumer, start = self._consumer, self._plan.start
        beginnings = consumer.beginning_offsets(partitions)
        ends = consumer.end_offsets(partitions)
        at_time: Mapping[TopicPartition, Any] = {}
        if start.kind is StartKind.TIME:
            at_time = consumer.offsets_for_times(dict.fromkeys(partitions, start.value))
        offsets: dict[TopicPartition, int] = {}
        for each in partitions:
            found = at_time.get(each)
            wanted = start.offset(beginnings[each], ends[each], None if found is None else found.offset)
            offsets[each] = min(max(wanted, beginnings[each]), ends[each])
            if offsets[each] != wanted:
                # The consumer would reset the position to where it starts without an offset.
                self._tool.output.note(
                    f"offset {wanted} is outside the log of {each}; reading starts at its nearer end, "
                    f"{offsets[each]}"
                )
        return offsets

    def read(self) -> None:
        """Print records until the end, a limit, or for ever."""
        plan, consumer = self._plan, self._consumer
        last_s = time.monotonic()
        while True:
            remaining = None if plan.max_messages is None else plan.max_messages - self.count
            records = consumer.poll(_POLL_S, remaining)
            if records:
                last_s = time.monotonic()
                self._print(records)
                if self.count == plan.max_messages:
                    return
            # Positions are asked for only where they can have reached the ends.
            if (not records or self._is_behind_end(records[-1])) and self._is_at_end():
                return
            idle_s = time.monotonic() - last_s
            if plan.timeout_ms is not None and idle_s * 1000 >= plan.timeout_ms:
                return
            if idle_s >= _NOTICE_S:
                self._report_wait(remaining)

    def _report_wait(self, remaining: int | None) -> None:
        """Write what the run waits for, once each: it would look as if it did not work."""
        plan = self._plan
        topics = ", ".join(sorted({each.topic for each in self._consumer.assignment()}))
        if plan.group is not None and not topics:
            note = (
                f"waiting for partitions of group {plan.group}: "
                f"`kalda groups describe {plan.group} --members` shows who has them"
            )
        elif remaining is not None and plan.is_endless:
            more = counted(remaining, "more record")
            note = f"waiting at the end of {topics} for {more}; Ctrl-C ends"
        else:
            return
        if note not in self._notes:
            self._notes.add(note)
            self._tool.output.note(note)

    def _is_behind_end(self, record: ConsumerRecord[Any, Any]) -> bool:
        end = self._ends.get(record.topic_partition)
        return end is not None and record.offset >= end - 1

    def _is_at_end(self) -> bool:
        if self._plan.is_endless:
            return False
        assigned = self._consumer.assignment()
        if not assigned and any(self._ends.values()):
            return False  # the group has not assigned partitions yet
        return all(self._consumer.position(each) >= self._ends.get(each, 0) for each in assigned)

    def _print(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        output = self._tool.output
        lines: list[bytes] = []
        ends, is_json = self._ends, output.form is Form.JSON
        for record in records:
            if ends and record.offset >= ends.get(record.topic_partition, record.offset + 1):
                continue  # written after the start
            try:
                lines.append(record_json_line(record) if is_json else record_line(record, self._form))
            except ByteFormatError as error:
                self._skip_or_raise(lines, record, error)
                continue
            self.count += 1
        self._write(lines)

    def _skip_or_raise(
        self, lines: list[bytes], record: ConsumerRecord[Any, Any], error: ByteFormatError
    ) -> None:
        message = f"the record at offset {record.offset} of {record.topic_partition}: {error}"
        if not self._plan.skips_errors:
            self._write(lines)
            raise ToolError(f"{message}; --skip-message-on-error leaves such records out")
        self._tool.output.failure(message)

    def _write(self, lines: list[bytes]) -> None:
        output = self._tool.output
        data = b"".join(lines)
        if output.form is Form.TERMINAL:
            data = data.decode(errors="replace").translate(_ESCAPED).encode()
        output.write_bytes(data)
        output.flush()
