"""`kalda legacy ProducerPerformance`: kafka.tools.ProducerPerformance of 0.8.2, with its options and columns.

The lines of --show-detailed-stats are those of 0.7; 0.8 took the option and printed none.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.option_types import INT32_MAX, Integer
from kalda.command.output import Form
from kalda.tools.legacy.group import legacy
from kalda.tools.legacy.performance_options import output_options
from kalda.tools.legacy.producer_performance_run import (
    DETAILED_HEADER,
    HEADER,
    Load,
    NewSink,
    OldSink,
    Report,
    Sink,
    run_threads,
)
from kalda.tools.legacy.simple_date_format import SimpleDateFormat

_CODECS: Final = ("none", "gzip", "snappy", "lz4")
_QUEUE_SIZE: Final = 10_000
"""The default of `queue.buffering.max.messages`, which has to hold a batch."""


C = TypeVar("C", bound=Callable[..., object])


def _number(
    name: str, low: int, default: int | None, metavar: str, text: str, high: int = INT32_MAX
) -> Callable[[C], C]:
    shown = default is not None
    kind = Integer(low, high)
    return click.option(name, type=kind, default=default, show_default=shown, metavar=metavar, help=text)


@command("ProducerPerformance", legacy, connects=False)
@click.option("--broker-list", required=True, metavar="HOST:PORT,...", help="The brokers for bootstrap.")
@click.option("--topics", required=True, metavar="TOPIC,...", help="The topics to produce to.")
@click.option("--messages", type=Integer(1), required=True, metavar="COUNT", help="The messages to send.")
@_number("--message-size", 1, 100, "BYTES", "The size of each message.")
@click.option("--vary-message-size", is_flag=True, help="Sizes of messages vary up to that.")
@_number("--batch-size", 1, 200, "COUNT", "The messages of a batch.")
@_number("--compression-codec", 0, 0, "NUMBER", "0 none, 1 gzip, 2 snappy, 3 lz4.", 3)
@click.option("--sync", is_flag=True, help="Wait for each message before the next.")
@_number("--threads", 1, 1, "COUNT", "The threads that send.", 1000)
@click.option(
    "--request-num-acks",
    type=click.Choice(["-1", "0", "1"]),
    default="-1",
    show_default=True,
    help="The acknowledgements that complete a request.",
)
@_number("--request-timeout-ms", 1, 3000, "MS", "The time-out of a produce request.")
@_number("--producer-num-retries", 0, 3, "COUNT", "How often messages are sent again.")
@_number("--producer-retry-backoff-ms", 0, 100, "MS", "The pause before that.")
@_number("--initial-message-id", 0, None, "NUMBER", "Send text with ids from this one on, instead of zeros.")
@_number("--message-send-gap-ms", 0, 0, "MS", "A pause after each message.")
@click.option("--new-producer", is_flag=True, help="Use the new producer.")
@output_options
def producer_performance(tool: Tool, /, **options: Any) -> None:
    """Measure how fast the old producer sends, as kafka-producer-perf-test.sh of 0.8.

    Messages are divided among the threads, each of which has a producer of its own.
    """
    load = _load(options)
    interval = options["reporting_interval"] if options["show_detailed_stats"] else None
    settings = (options["compression_codec"], options["message_size"], options["batch_size"])
    dates = SimpleDateFormat(options["date_format"])
    sinks: list[Sink] = []
    try:
        sinks.extend(_sink(options) for _ in range(options["threads"]))
    except BaseException:
        for each in sinks:
            each.close()
        raise
    if not options["hide_header"] and tool.output.form is not Form.JSON:
        tool.output.item(None, HEADER if interval is None else DETAILED_HEADER)
    sent = run_threads(load, sinks, Report(tool.output.item, dates, settings, interval))
    failures = [each.last_failure for each in sent if each.last_failure is not None]
    if failures:
        raise ToolError(
            f"{sum(each.failures for each in sent)} messages were not sent; one of the errors: {failures[0]}"
        )


def _load(options: dict[str, Any]) -> Load:
    topics = tuple(name for each in options["topics"].split(",") if (name := each.strip()))
    messages, threads = options["messages"], options["threads"]
    if not topics:
        raise ToolUsageError(f"--topics={options['topics']} names no topic")
    if messages < threads:
        raise ToolUsageError(f"--messages={messages} is less than --threads={threads}")
    return Load(
        topics,
        messages // threads,
        options["message_size"],
        not options["vary_message_size"],
        options["initial_message_id"],
        options["message_send_gap_ms"] / 1000,
    )


def _sink(options: dict[str, Any]) -> Sink:
    properties: dict[str, object] = {
        "client.id": "producer-performance",
        "send.buffer.bytes": 64 * 1024,
        "retry.backoff.ms": options["producer_retry_backoff_ms"],
        "request.timeout.ms": options["request_timeout_ms"],
    }
    is_sync, codec = options["sync"], options["compression_codec"]
    acks, retries = options["request_num_acks"], options["producer_num_retries"]
    if options["new_producer"]:
        properties |= {
            "bootstrap.servers": options["broker_list"],
            "acks": acks,
            "retries": retries,
            "compression.type": _CODECS[codec],
            # 0.8.2 had none, and less than all acknowledgements do not allow it.
            "enable.idempotence": False,
        }
        return NewSink(properties, is_sync=is_sync)
    properties |= {
        "metadata.broker.list": options["broker_list"],
        "request.required.acks": acks,
        "message.send.max.retries": retries,
        "compression.codec": codec,
        "key.serializer.class": "kafka.serializer.NullEncoder",
        # A message is longer than its size where its id needs the place.
        "max.message.size": INT32_MAX,
    }
    if not is_sync:
        batch_size = options["batch_size"]
        properties |= {
            "producer.type": "async",
            "batch.num.messages": batch_size,
            "queue.buffering.max.messages": max(batch_size, _QUEUE_SIZE),
        }
    return OldSink(properties)
