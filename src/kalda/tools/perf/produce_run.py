"""Runs `kalda perf produce`: sends as fast as it may, and reports acknowledgements as they come."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda.command.command import Tool
from kalda.command.errors import ToolError
from kalda.command.output import Output
from kalda.tools.perf.metric_lines import show_metrics
from kalda.tools.perf.payloads import Payload
from kalda.tools.perf.produce_statistics import ProduceReport, ProduceStatistics, Throttle

if TYPE_CHECKING:
    from kalda.clients.producer.producer import Producer
    from kalda.clients.producer.record_metadata import RecordMetadata


@dataclass(frozen=True, slots=True)
class ProduceRun:
    """What is sent, and how it is reported."""

    topic: str
    record_count: int
    payload: Payload
    throughput: float
    """Records a second; 0 or less for no limit."""
    interval_s: float
    shows_metrics: bool


def run_produce(tool: Tool, run: ProduceRun, settings: Mapping[str, str], *, transaction_s: float) -> None:
    """Send the records and print the reports.

    Args:
        tool: the output, and settings of the producer.
        run: what to send.
        settings: settings of the producer that win over those of the tool.
        transaction_s: how long a transaction lasts, for a producer that has `transactional.id`.

    Raises:
        ToolError: some records were not acknowledged; the report counts the others.
    """
    from kalda.clients.producer.producer import Producer
    from kalda.clients.producer.producer_config import ProducerConfig

    output, clock = tool.output, time.monotonic
    properties = {"client.id": "perf-producer-client", **tool.settings_for(ProducerConfig), **settings}
    with Producer.from_config(properties) as producer:
        producer.partitions_for(run.topic)  # the first record must not measure the look-up of the topic
        transactions = _Transactions(producer, transaction_s) if properties.get("transactional.id") else None
        start_s = clock()
        deliveries = _Deliveries(output, ProduceStatistics(run.record_count, start_s, run.interval_s))
        throttle = Throttle(run.throughput, start_s)
        for number in range(run.record_count):
            value = run.payload(number)
            sent_s = clock()
            if transactions is not None:
                transactions.before_send(sent_s)
            producer.send(run.topic, value, on_delivery=deliveries.callback(len(value), sent_s))
            if transactions is not None:
                transactions.after_send(sent_s)
            if run.throughput > 0 and (delay_s := throttle.delay_s(number + 1, clock())) > 0:
                time.sleep(delay_s)
        if transactions is not None:
            transactions.end()
        producer.flush()
        total = deliveries.statistics.total(clock())
        metrics = producer.metrics()
    output.item({"total": total.json}, total.line)
    if run.shows_metrics:
        show_metrics(output, metrics)
    if deliveries.failures:
        raise ToolError(
            f"{deliveries.failures} of {run.record_count} records were not acknowledged: "
            f"{deliveries.first_failure}"
        )


class _Deliveries:
    """Counts acknowledgements, and prints a line when an interval is over."""

    def __init__(self, output: Output, statistics: ProduceStatistics) -> None:
        self.statistics: Final = statistics
        self.failures = 0
        self.first_failure: Exception | None = None
        self._output: Final = output

    def callback(self, size: int, sent_s: float) -> "Callable[[RecordMetadata, Exception | None], None]":
        """Return the callback of a record."""
        clock, record = time.monotonic, self.statistics.record

        def delivered(_: "RecordMetadata", error: Exception | None) -> None:
            if error is not None:
                self.failures += 1
                self.first_failure = self.first_failure or error
                return
            now_s = clock()
            report = record((now_s - sent_s) * 1000, size, now_s)
            if report is not None:
                self._show(report)

        return delivered

    def _show(self, report: ProduceReport) -> None:
        self._output.item({"window": report.json}, report.line)
        self._output.flush()


class _Transactions:
    """Begins and commits transactions as records are sent; a commit waits for their acknowledgements."""

    def __init__(self, producer: "Producer", duration_s: float) -> None:
        self._producer: Final = producer
        self._duration_s: Final = duration_s
        self._began_s: float | None = None
        producer.init_transactions()

    def before_send(self, now_s: float) -> None:
        """Begin a transaction if none is open."""
        if self._began_s is None:
            self._producer.begin_transaction()
            self._began_s = now_s

    def after_send(self, now_s: float) -> None:
        """Commit when the transaction is old enough."""
        if self._began_s is not None and now_s - self._began_s >= self._duration_s:
            self.end()

    def end(self) -> None:
        """Commit the open transaction."""
        if self._began_s is not None:
            self._producer.commit_transaction()
            self._began_s = None
