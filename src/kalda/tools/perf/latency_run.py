"""Runs `kalda perf end-to-end`: sends a record, waits until it is consumed, sends the next one."""

import random
import time
from typing import Final

from kalda.clients.consumer.consumer import Consumer
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.producer.producer import Producer
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.command.command import Tool
from kalda.command.errors import ToolError
from kalda.command.output import Form
from kalda.runtime.system.event_loop import run_on_new_loop
from kalda.tools.perf.latency_report import LatencyReport
from kalda.tools.perf.payloads import random_payload

_POLL_S: Final = 60.0
_PROGRESS_RECORDS: Final = 1000


def run_end_to_end(tool: Tool, topic: str, count: int, acks: str, size: int) -> None:
    """Measure `count` records and print average and percentiles.

    Raises:
        ToolError: a record did not arrive, or another one came in its place.
    """
    run_on_new_loop(_create_topic(tool, topic))
    output = tool.output
    payload = random_payload(size, random.Random(0))
    produced = {**tool.settings_for(ProducerConfig), "acks": acks, "linger.ms": "0"}
    if acks == "1":
        produced["enable.idempotence"] = "false"
    consumed = {
        **tool.settings_for(ConsumerConfig),
        "enable.auto.commit": "false",
        "fetch.max.wait.ms": "500",
    }
    latencies: list[float] = []
    with Consumer.from_config(consumed) as consumer, Producer.from_config(produced) as producer:
        partitions = [each.topic_partition for each in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_end()
        for each in partitions:
            consumer.position(each)
        for number in range(count):
            value = payload(number)
            begin_s = time.perf_counter()
            producer.send(topic, value).result()
            records = consumer.poll(_POLL_S)
            latency_ms = (time.perf_counter() - begin_s) * 1000
            _check([each.value for each in records], value, number)
            latencies.append(latency_ms)
            if number % _PROGRESS_RECORDS == 0 and output.form is not Form.JSON:
                output.item(None, f"{number}\t{latency_ms:.4f}")
                output.flush()
    report = LatencyReport.of(latencies)
    output.item(report.json, "\n".join(report.lines))


def _check(values: list[bytes | None], expected: bytes, number: int) -> None:
    if not values:
        raise ToolError(f"record {number} was not consumed within {_POLL_S:.0f} s")
    if values != [expected]:
        raise ToolError(
            f"record {number} came with others, or another one came: nothing else may write to the topic"
        )


async def _create_topic(tool: Tool, topic: str) -> None:
    from kalda.clients.admin.topics import NewTopic

    async with tool.admin() as admin:
        if topic in await admin.list_topics():
            return
        tool.output.note(f'Topic "{topic}" does not exist. It is created with 1 partition and 1 replica')
        await admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
