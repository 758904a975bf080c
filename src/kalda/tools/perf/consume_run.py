"""Runs `kalda perf consume`: polls until enough records were read, and reports rates."""

import time
from collections.abc import Collection, Mapping
from typing import Final

from kalda.clients.consumer.consumer import Consumer
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from kalda.command.command import Tool
from kalda.command.errors import ToolError
from kalda.command.output import Form
from kalda.common.types import TopicPartition
from kalda.tools.perf.consume_statistics import (
    DETAILED_HEADER,
    HEADER,
    ConsumeReport,
    ConsumeStatistics,
)
from kalda.tools.perf.metric_lines import show_metrics

_POLL_S: Final = 0.1


class ConsumeRun(ConsumerRebalanceListener):
    """One run; as the listener of its consumer it measures the rebalances."""

    def __init__(
        self, tool: Tool, count: int, timeout_ms: int, interval_ms: int, *, shows_intervals: bool
    ) -> None:
        self._tool: Final = tool
        self._count: Final = count
        self._timeout_ms: Final = timeout_ms
        self._shows_intervals: Final = shows_intervals
        self._statistics: Final = ConsumeStatistics(_now_ms(), interval_ms)

    def consume(
        self, topic: str, settings: Mapping[str, str], *, shows_header: bool, shows_metrics: bool
    ) -> None:
        """Read the records and print the reports.

        Raises:
            ToolError: records stopped coming before there were enough.
        """
        output, statistics = self._tool.output, self._statistics
        if shows_header and output.form is not Form.JSON:
            output.item(None, DETAILED_HEADER if self._shows_intervals else HEADER)
        properties = {
            "client.id": "perf-consumer-client",
            **settings,
            **self._tool.settings_for(ConsumerConfig),
        }
        with Consumer.from_config(properties, topic, listener=self) as consumer:
            last_ms = _now_ms()
            while statistics.count < self._count:
                records = consumer.poll(_POLL_S)
                now_ms = _now_ms()
                if not records:
                    if now_ms - last_ms > self._timeout_ms:
                        break
                    continue
                last_ms = now_ms
                size = 0
                for record in records:
                    # -1 stands for no key and no value.
                    size += max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
                report = statistics.add(len(records), size, now_ms)
                if report is not None and self._shows_intervals:
                    output.item({"interval": report.json}, report.detailed_line)
                    output.flush()
            end_ms = _now_ms()
            metrics = consumer.metrics()
        self._show_total(statistics.total(end_ms))
        if shows_metrics:
            show_metrics(output, metrics)
        if statistics.count < self._count:
            raise ToolError(
                f"only {statistics.count} of {self._count} records came: there was none for "
                f"{self._timeout_ms} ms (--timeout)"
            )

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Note that a rebalance begins."""
        self._statistics.on_revoked(_now_ms())

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Note that a rebalance has ended."""
        self._statistics.on_assigned(_now_ms())

    def _show_total(self, total: ConsumeReport) -> None:
        output = self._tool.output
        if output.form is Form.JSON or not self._shows_intervals:
            output.item({"total": total.json}, total.line)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
