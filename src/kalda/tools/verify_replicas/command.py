"""The command `kalda verify-replicas`; its options are those of ``kafka-replica-verification``."""

import re
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import INT32_MAX, Integer
from kalda.common.log_text import counted

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.topics import TopicDescription
    from kalda.common.types import TopicPartition
    from kalda.tools.verify_replicas.verification import Verification


@command("verify-replicas", aliases={"--bootstrap-server": ("--broker-list",)})
@click.argument("topics", metavar="[TOPIC]...", type=TopicName(), nargs=-1)
@click.option("--topics-include", metavar="REGEX", help="Verify the topics whose whole name matches.")
@click.option("--include-compacted", is_flag=True, help="Verify compacted topics too.")
@click.option("--time", "start", type=Integer(-2), metavar="MS", help="Where to start; -1: at the end.")
@click.option(
    "--fetch-size", type=Integer(1, INT32_MAX), default=1_048_576, metavar="BYTES", help="Of one partition."
)
@click.option(
    "--max-wait-ms", type=Integer(0, INT32_MAX), default=1000, metavar="MS", help="Of a fetch, with --follow."
)
@click.option("--follow", is_flag=True, help="Do not end; report every --report-interval-ms.")
@click.option("--report-interval-ms", type=Integer(1), default=30_000, metavar="MS", help="With --follow.")
async def verify_replicas(
    tool: Tool,
    topics: tuple[str, ...],
    topics_include: str | None,
    include_compacted: bool,
    start: int | None,
    fetch_size: int,
    max_wait_ms: int,
    follow: bool,
    report_interval_ms: int,
) -> None:
    """Compare the records of all replicas of each partition.

    It fetches from every replica and compares offsets and checksums of batches, up to the high watermark. It
    ends where the partitions ended when it started; the exit code is 1 if replicas differ or cannot be read.
    Brokers compact their copies independently, so compacted topics differ without a fault and are left out.
    """
    from kalda.clients.admin.admin_config import AdminConfig
    from kalda.clients.metadata import Metadata
    from kalda.clients.network_client import NetworkClient
    from kalda.tools.verify_replicas.run import VerificationRun
    from kalda.tools.verify_replicas.verification import Verification

    async with tool.admin() as admin:
        described = await _topics(tool, admin, topics, _pattern(topics_include), include_compacted)
        verification = Verification()
        start = -1 if start is None and follow else start
        await _add_partitions(admin, described, verification, start, follow)
    ids = {name: each.topic_id for name, each in described.items() if each.topic_id is not None}
    client = NetworkClient(
        AdminConfig.from_properties({"client.id": "kalda", **tool.settings_for(AdminConfig)}), Metadata()
    )
    client.start()
    try:
        await client.refresh_metadata(timeout_ms=15_000)
        run = VerificationRun(tool, client, verification, ids, fetch_size, max_wait_ms if follow else 0)
        await run.verify(report_interval_ms / 1000 if follow else None)
    finally:
        await client.close()
    _show(tool, verification, described)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise ToolUsageError(f"--topics-include={text} is no regular expression: {error}") from error


async def _topics(
    tool: Tool,
    admin: "AsyncAdmin",
    names: tuple[str, ...],
    pattern: re.Pattern[str] | None,
    include_compacted: bool,
) -> "dict[str, TopicDescription]":
    """Return the topics to verify."""
    from kalda.clients.admin.configs import ConfigResource

    if names and pattern is None:
        chosen = list(dict.fromkeys(names))
    else:
        listed = await admin.list_topics(include_internal=True)
        matching = (each for each in sorted(listed) if pattern is None or pattern.fullmatch(each))
        chosen = list(dict.fromkeys([*names, *matching]))
    if not include_compacted:
        resources = [ConfigResource.topic(name) for name in chosen]
        configs = await admin.describe_configs(dict.fromkeys(resources, ("cleanup.policy",)))
        policies = {each.name: configs[each]["cleanup.policy"].value or "" for each in resources}
        compacted = [name for name, policy in policies.items() if "compact" in policy]
        if compacted:
            tool.output.note(f"{len(compacted)} compacted topics are left out: {', '.join(compacted[:5])}")
        chosen = [each for each in chosen if each not in compacted]
    if not chosen:
        raise ToolUsageError("there is no topic to verify")
    described = await admin.describe_topics(chosen)
    return {str(name): each for name, each in described.results.items()}


async def _add_partitions(
    admin: "AsyncAdmin",
    topics: "dict[str, TopicDescription]",
    verification: "Verification",
    start: int | None,
    follow: bool,
) -> None:
    """Look up where each partition starts and ends, and add it."""
    from kalda.clients.admin.partitions import OffsetSpec
    from kalda.common.types import TopicPartition

    replicas = {
        TopicPartition(name, each.partition): each.replicas
        for name, topic in topics.items()
        for each in topic.partitions
    }

    async def offsets(spec: OffsetSpec) -> "dict[TopicPartition, int]":
        found = await admin.list_offsets(dict.fromkeys(replicas, spec))
        return {each: info.offset for each, info in found.results.items()}

    ends = await offsets(OffsetSpec.latest())
    if start == -1:
        starts = ends
    elif start is None or start == -2:
        starts = await offsets(OffsetSpec.earliest())
    else:
        starts = await offsets(OffsetSpec.for_timestamp(start))
    for each, brokers in replicas.items():
        first = starts[each] if starts[each] >= 0 else ends[each]
        verification.add(each, brokers, first, None if follow else ends[each])


def _show(tool: Tool, verification: "Verification", topics: "dict[str, TopicDescription]") -> None:
    partitions = sum(len(each.partitions) for each in topics.values())
    tool.output.item(
        {
            "kind": "summary",
            "topics": len(topics),
            "partitions": partitions,
            "batches": verification.compared,
            "mismatches": verification.mismatches,
            "unverified": verification.given_up,
        },
        f"{counted(verification.compared, 'batch', 'batches')} of {counted(partitions, 'partition')} "
        f"compared: {verification.mismatches} differ, "
        f"{counted(verification.given_up, 'partition')} not verified",
    )
    if verification.mismatches or verification.given_up:
        raise ToolError("replicas differ, or could not be read: see the lines above")
