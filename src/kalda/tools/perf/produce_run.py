"""Runs `kalda perf produce`: sends as fast as it may, and reports acknowledgements as they come."""

import time
from typing import TYPE_CHECKING

from kalda.tools.framework.command import Tool
from kalda.tools.framework.errors import ToolError
from kalda.tools.perf.payloads import Payload
from kalda.tools.perf.produce_statistics import ProduceReport, ProduceStatistics, Throttle

if TYPE_CHECKING:
    from kalda.clients.producer.record_metadata import RecordMetadata


def run_produce(
    tool: Tool, topic: str, record_count: int, payload: Payload, throughput: float, interval_s: float
) -> None:
    """Send the records and print the reports.

    Raises:
        ToolError: some records were not acknowledged; the report counts the others.
    """
    from kalda.clients.producer.producer import Producer
    from kalda.clients.producer.producer_config import ProducerConfig

    output = tool.output
    clock = time.monotonic
    failures = 0
    first_failure: Exception | None = None
    with Producer.from_config(
        {"client.id": "perf-producer-client", **tool.settings_for(ProducerConfig)}
    ) as producer:
        producer.partitions_for(topic)  # the first record must not measure the look-up of the topic
        start_s = clock()
        statistics = ProduceStatistics(record_count, start_s, interval_s)
        throttle = Throttle(throughput, start_s)
        send = producer.send

        record = statistics.record

        def show(report: ProduceReport) -> None:
            output.item({"window": report.json}, report.line)
            output.flush()

        for number in range(record_count):
            value = payload(number)
            sent_s = clock()

            def delivered(
                _: "RecordMetadata", error: Exception | None, size: int = len(value), sent_s: float = sent_s
            ) -> None:
                nonlocal failures, first_failure
                if error is not None:
                    failures += 1
                    first_failure = first_failure or error
                    return
                now_s = clock()
                report = record((now_s - sent_s) * 1000, size, now_s)
                if report is not None:
                    show(report)

            send(topic, value, on_delivery=delivered)
            if throughput > 0:
                delay_s = throttle.delay_s(number + 1, clock())
                if delay_s > 0:
                    time.sleep(delay_s)
        producer.flush()
        total = statistics.total(clock())
    output.item({"total": total.json}, total.line)
    if failures:
        raise ToolError(f"{failures} of {record_count} records were not acknowledged: {first_failure}")
