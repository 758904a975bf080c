"""`kalda legacy MirrorMaker`: kafka.tools.MirrorMaker, from any number of clusters to one.

The options are those of 0.7 and 0.8, and of 0.9 those that keep messages: `--offset.commit.interval.ms` and
`--abort.on.send.failure`. The clients are old ones, or new ones where a file has `bootstrap.servers`.
"""

import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.option_types import INT32_MAX, Integer
from kalda.tools.legacy.group import legacy

if TYPE_CHECKING:
    from kalda.tools.legacy.mirror_maker_run import Source, Target

_NEW_CLIENT: Final = "bootstrap.servers"
"""The setting that only new clients have."""


@command("MirrorMaker", legacy, connects=False)
@click.option(
    "--consumer.config",
    "consumer_configs",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="FILE",
    help="Consumer properties of a source cluster; repeatable.",
)
@click.option(
    "--producer.config",
    "producer_config",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Producer properties of the target cluster.",
)
@click.option(
    "--num.streams",
    "streams",
    type=Integer(1, INT32_MAX),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="The streams from each source.",
)
@click.option(
    "--num.producers",
    "producers",
    type=Integer(1, INT32_MAX),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="The producers; one of them gets all messages of a key.",
)
@click.option(
    "--queue.size",
    "queue_size",
    type=Integer(1, INT32_MAX),
    default=10_000,
    show_default=True,
    metavar="COUNT",
    help="The messages that may wait for each producer.",
)
@click.option("--whitelist", metavar="REGEX", help="The topics to mirror.")
@click.option("--blacklist", metavar="REGEX", help="The topics not to mirror; old consumers only.")
@click.option("--new.producer", "new_producer", is_flag=True, help="The producer's file is for the new one.")
@click.option("--new.consumer", "new_consumer", is_flag=True, help="Consumers' files are for the new one.")
@click.option(
    "--offset.commit.interval.ms",
    "commit_interval_ms",
    type=Integer(1, INT32_MAX),
    default=60_000,
    show_default=True,
    metavar="MS",
    help="Between two commits of offsets.",
)
@click.option(
    "--abort.on.send.failure",
    "aborts",
    type=click.BOOL,
    default=True,
    show_default=True,
    help="Whether to end when a message cannot be sent; else it is dropped.",
)
def mirror_maker(
    tool: Tool,
    consumer_configs: tuple[Path, ...],
    producer_config: Path,
    streams: int,
    producers: int,
    queue_size: int,
    whitelist: str | None,
    blacklist: str | None,
    new_producer: bool,
    new_consumer: bool,
    commit_interval_ms: int,
    aborts: bool,
) -> None:
    """Continuously copy messages between clusters, until SIGTERM or Ctrl-C.

    Offsets are committed when the target has acknowledged what was read, so that a crash or a restart loses
    nothing; messages after the last commit are copied twice. Keys, values and timestamps are copied, and
    headers where the producer is a new one.
    """
    if (whitelist is None) == (blacklist is None):
        raise ToolUsageError("exactly one of --whitelist and --blacklist is required")
    from kalda.clients.config.properties_source import properties_of
    from kalda.clients.legacy.producer.partitioner import java_hash
    from kalda.tools.legacy.mirror_maker_run import MirrorMaker

    target_properties = properties_of(producer_config)
    _check_kind("--new.producer", new_producer, target_properties, producer_config)
    files = [(path, properties_of(path)) for path in consumer_configs]
    for path, properties in files:
        _check_kind("--new.consumer", new_consumer, properties, path)
    targets: list[Target] = []
    sources: list[Source] = []
    try:
        targets.extend(_target(target_properties, number) for number in range(producers))
        sources.extend(
            _source(properties, whitelist, blacklist, number)
            for _, properties in files
            for number in range(streams)
        )
    except BaseException:
        for source in sources:
            source.shutdown()
        for target in targets:
            target.close()
        raise
    copy = MirrorMaker(
        sources,
        targets,
        queue_size=queue_size,
        commit_interval_s=commit_interval_ms / 1000,
        aborts_on_send_failure=aborts,
        hash_key=java_hash,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: copy.stop())
    copy.run()
    counts = {"copied": copy.copied_count, "dropped": copy.dropped_count}
    tool.output.result(
        counts, f"{copy.copied_count} messages were copied, {copy.dropped_count} were dropped."
    )
    if copy.failure is not None:
        raise ToolError(f"the copy ended: {copy.failure}")


def _check_kind(option: str, is_new: bool, properties: Mapping[str, object], path: Path) -> None:
    if is_new and _NEW_CLIENT not in properties:
        raise ToolUsageError(f"{option}: {path} has no `{_NEW_CLIENT}`")


def _target(properties: Mapping[str, object], number: int) -> "Target":
    from kalda.tools.legacy.mirror_maker_ends import NewTarget, OldTarget

    named = {**properties, "client.id": f"{properties.get('client.id', '')}-{number}"}
    return NewTarget(named) if _NEW_CLIENT in properties else OldTarget(named)


def _source(
    properties: Mapping[str, object], whitelist: str | None, blacklist: str | None, number: int
) -> "Source":
    from kalda.clients.legacy import Blacklist, Whitelist
    from kalda.tools.legacy.mirror_maker_ends import NewConsumerSource, OldConsumerSource

    kind, regex = (Blacklist, blacklist) if whitelist is None else (Whitelist, whitelist)
    try:
        topics = kind(regex or "")
        pattern = re.compile(topics.regex)
    except (ValueError, re.error) as error:
        raise ToolUsageError(f"--{kind.__name__.lower()}={regex}: {error}") from error
    if _NEW_CLIENT not in properties:
        return OldConsumerSource(properties, topics, number)
    if whitelist is None:
        raise ToolUsageError("--blacklist works with old consumers only; use --whitelist")
    return NewConsumerSource(properties, pattern)
