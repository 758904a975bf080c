"""The commands `kalda perf produce|consume|end-to-end`; the runs are in modules of their own."""

from pathlib import Path

import click

from kalda.command.command import (
    CONSUMER_ALIASES,
    PRODUCER_ALIASES,
    SettingOption,
    Tool,
    command,
    noun,
)
from kalda.command.errors import ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import INT32_MAX, Integer

perf = noun("Measure a cluster, with the columns of Kafka's tools.")

_topic = click.option("--topic", type=TopicName(), metavar="TOPIC", required=True, help="The topic.")
_reporting_interval = click.option(
    "--reporting-interval",
    type=Integer(1),
    default=5000,
    show_default=True,
    metavar="MS",
    help="Between lines.",
)

_print_metrics = click.option(
    "--print-metrics", is_flag=True, help="Print the client's metrics at the end, to stdout."
)


@command("produce", perf, aliases=PRODUCER_ALIASES, takes_properties=True)
@_topic
@click.option("--num-records", type=Integer(1), required=True, metavar="COUNT", help="How many records.")
@click.option(
    "--record-size", type=Integer(1, INT32_MAX), metavar="BYTES", help="The size of values of random letters."
)
@click.option(
    "--payload-file", type=click.Path(path_type=Path), help="Values are lines of a file, by chance."
)
@click.option("--payload-delimiter", default="\\n", show_default=True, help="Between the values in the file.")
@click.option("--payload-monotonic", is_flag=True, help="Values are 0, 1, 2, ... as text.")
@click.option(
    "--throughput",
    type=float,
    default=-1.0,
    show_default=True,
    help="Records a second; -1: no limit.",
)
@click.option("--transactional-id", metavar="ID", help="Send in transactions, as this id.")
@click.option(
    "--transaction-duration-ms",
    type=Integer(1),
    metavar="MS",
    help="Send in transactions, and commit each after so long; with an id alone, after 3000 ms.",
)
@_print_metrics
@_reporting_interval
def perf_produce(
    tool: Tool,
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: Path | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    throughput: float,
    transactional_id: str | None,
    transaction_duration_ms: int | None,
    print_metrics: bool,
    reporting_interval: int,
) -> None:
    """Send records and print rates and latencies, as `kafka-producer-perf-test` does.

    A record's latency is the time from `send` until its acknowledgement. Settings of the producer may follow
    --command-property, as in --command-property linger.ms=0 acks=1.
    """
    import random

    from kalda.tools.perf import payloads
    from kalda.tools.perf.produce_run import ProduceRun, run_produce

    if (record_size is not None) + (payload_file is not None) + payload_monotonic != 1:
        raise ToolUsageError("give exactly one of --record-size, --payload-file and --payload-monotonic")
    source = random.Random(0)  # equal runs send equal values
    if record_size is not None:
        payload = payloads.random_payload(record_size, source)
    elif payload_file is not None:
        payload = payloads.chosen_payload(payloads.read_payloads(payload_file, payload_delimiter), source)
    else:
        payload = payloads.monotonic_payload
    settings = {} if transactional_id is None else {"transactional.id": transactional_id}
    if transaction_duration_ms is not None:
        settings = {"transactional.id": f"performance-producer-{random.randrange(2**32):08x}", **settings}
    run_produce(
        tool,
        ProduceRun(topic, num_records, payload, throughput, reporting_interval / 1000, print_metrics),
        settings,
        transaction_s=(transaction_duration_ms or 3000) / 1000,
    )


@command(
    "consume",
    perf,
    aliases=CONSUMER_ALIASES,
    settings=(
        SettingOption("--socket-buffer-size", "receive.buffer.bytes", "BYTES", "The socket's buffer."),
    ),
)
@_topic
@click.option(
    "--num-records",
    "--messages",
    "messages",
    type=Integer(1),
    required=True,
    metavar="COUNT",
    help="How many.",
)
@click.option("--group", metavar="GROUP", help="The group; by default a new one.")
@click.option(
    "--fetch-size", type=Integer(1, INT32_MAX), default=1_048_576, metavar="BYTES", help="Of one partition."
)
@click.option("--from-latest", is_flag=True, help="Without an offset of the group, start at the end.")
@click.option(
    "--timeout", type=Integer(1, INT32_MAX), default=10_000, metavar="MS", help="Between two records at most."
)
@_print_metrics
@_reporting_interval
@click.option("--show-detailed-stats", is_flag=True, help="Print a line for each interval, not for the run.")
@click.option("--hide-header", is_flag=True, help="Do not print the names of the columns.")
def perf_consume(
    tool: Tool,
    topic: str,
    messages: int,
    group: str | None,
    fetch_size: int,
    from_latest: bool,
    timeout: int,
    print_metrics: bool,
    reporting_interval: int,
    show_detailed_stats: bool,
    hide_header: bool,
) -> None:
    """Read records and print rates, as `kafka-consumer-perf-test` does.

    The columns that begin with fetch. leave out the time of rebalances.
    """
    import random

    from kalda.tools.perf.consume_run import ConsumeRun

    settings = {
        "group.id": group or f"perf-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": "latest" if from_latest else "earliest",
        "max.partition.fetch.bytes": str(fetch_size),
        "check.crcs": "false",
    }
    run = ConsumeRun(tool, messages, timeout, reporting_interval, shows_intervals=show_detailed_stats)
    run.consume(topic, settings, shows_header=not hide_header, shows_metrics=print_metrics)


@command("end-to-end", perf)
@_topic
@click.option("--num-records", type=Integer(1), default=1000, show_default=True, help="How many records.")
@click.option(
    "--acks",
    "--producer-acks",
    "acks",
    type=click.Choice(["1", "all"]),
    default="all",
    show_default=True,
    help="To wait for.",
)
@click.option(
    "--record-size", type=Integer(1, INT32_MAX), default=100, show_default=True, help="Bytes of a value."
)
def perf_end_to_end(tool: Tool, topic: str, num_records: int, acks: str, record_size: int) -> None:
    """Measure the time from `send` until the record is consumed, one record at a time.

    The topic is created with one partition if it does not exist.
    """
    from kalda.tools.perf.latency_run import run_end_to_end

    run_end_to_end(tool, topic, num_records, acks, record_size)
