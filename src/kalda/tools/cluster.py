"""`kalda cluster`: brokers, versions and health in one screen; id; served APIs; taking a broker out.

`kalda.inspection.cluster_health` judges what is read here; `kalda.tools.decommission` moves replicas;
`kalda.tools.cluster_history` has the verb `history`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.option_types import INT32_MAX, Integer
from kalda.command.output import Json, json_line
from kalda.command.results import raise_for
from kalda.command.tables import Table
from kalda.common.log_text import counted
from kalda.inspection.cluster_health import (
    RESPONSE_TIMEOUT_MS,
    PartitionHealth,
    is_full,
    partition_health,
    problems,
    spoken_release,
)
from kalda.tools.cluster_history import cluster

if TYPE_CHECKING:
    from kalda.clients.admin.clusters import BrokerApiVersions
    from kalda.clients.admin.log_dirs import LogDirDescription
    from kalda.common.types import BrokerEndpoint

_ALIASES = {"--command-config": ("--config",)}
"""The name in ``kafka-cluster`` before 4.2 (KIP-1147)."""

_BROKER_FIELDS = (
    "id",
    "host",
    "port",
    "rack",
    "is_controller",
    "protocol",
    "leaders",
    "replicas",
    "size",
    "usable_bytes",
    "offline_dirs",
)


@command("describe", cluster, aliases=_ALIASES)
async def describe(tool: Tool) -> None:
    """Show the whole cluster in one screen.

    PROTOCOL is the newest release of Apache Kafka whose requests a broker serves; brokers do not name their
    release. SIZE and USABLE-BYTES are those of its log directories.
    """
    async with tool.admin() as admin:
        described = await admin.describe_cluster()
        ids = [node.id for node in described.nodes]
        versions = await admin.describe_api_versions(ids, outcomes=True, timeout_ms=RESPONSE_TIMEOUT_MS)
        running = [each for each in ids if each in versions.results]
        dirs = await admin.describe_log_dirs(running, outcomes=True)
        topics = await admin.describe_topics(await admin.list_topics(include_internal=True), outcomes=True)
        reassigning = await admin.list_partition_reassignments()
        features = await admin.describe_features()
    health = partition_health(topics.results.values())
    controller = described.controller
    rows = [
        _broker_row(
            node,
            health,
            versions.results.get(node.id),
            dirs.results.get(node.id),
            is_controller=controller is not None and controller.id == node.id,
        )
        for node in described.nodes
    ]
    places = _places(dirs.results)
    faults = problems(
        health,
        ids,
        running,
        has_controller=controller is not None,
        offline_dirs=[place for place, each in places.items() if each.error is not None],
        full_dirs=[place for place, each in places.items() if is_full(each.usable_bytes, each.total_bytes)],
    )
    levels = {name: each.max_version_level for name, each in sorted(features.finalized_features.items())}
    summary: dict[str, str | int | None] = {
        "cluster_id": described.cluster_id,
        "controller": None if controller is None else controller.id,
        "brokers": len(ids),
        "topics": len(topics),
        "partitions": health.partitions,
        "offline": health.offline,
        "under_replicated": health.under_replicated,
        "not_preferred": health.not_preferred,
        "reassigning": len(reassigning),
    }
    document: dict[str, Json] = {
        **summary,
        "features": levels,
        "is_healthy": not faults,
        "problems": faults,
        "nodes": [dict(zip(_BROKER_FIELDS, row, strict=True)) for row in rows],
    }
    tool.output.result(
        document,
        Table(_headings(summary), [tuple(summary.values())]),
        "",
        Table(_headings(_BROKER_FIELDS), rows),
        "",
        *([f"Features: {', '.join(f'{name}={level}' for name, level in levels.items())}."] if levels else []),
        *(faults or ["The cluster is healthy."]),
    )
    # What another attempt would change is a broker that does not run, which is among the faults.
    refused = [error for error in versions.errors.values() if not error.is_retriable]
    raise_for(tool.output, [*refused, *dirs.errors.values(), *topics.errors.values()])


@command("id", cluster, aliases=_ALIASES)
async def cluster_id(tool: Tool) -> None:
    """Print the id of the cluster."""
    async with tool.admin() as admin:
        found = (await admin.describe_cluster()).cluster_id
    tool.output.result({"cluster_id": found}, found or "-")


@command("api-versions", cluster)
@click.option(
    "--broker", type=Integer(0, INT32_MAX), multiple=True, metavar="ID", help="Only this broker; repeatable."
)
async def api_versions(tool: Tool, broker: tuple[int, ...]) -> None:
    """List the APIs that brokers serve, as `kafka-broker-api-versions` does.

    USED is the version that Kalda's clients use: the highest one that both know; - if there is none.
    """
    from kalda.common.api_keys import ApiKey
    from kalda.net.client.api_versions import highest_shared_version
    from kalda.protocol.registry import declared_keys, spec

    async with tool.admin() as admin:
        described = await admin.describe_api_versions(broker or None, outcomes=True)
    rows = []
    named, declared = set(ApiKey), set(declared_keys())
    for broker_id, found in sorted(described.results.items()):
        for key, served in sorted(found.api_versions.items()):
            rows.append(
                (
                    broker_id,
                    key,
                    ApiKey(key).name if key in named else None,
                    served.lowest,
                    served.highest,
                    highest_shared_version(spec(key).versions, served) if key in declared else None,
                )
            )
    names = ("broker", "key", "api", "min", "max", "used")
    tool.output.result(
        {"apis": [dict(zip(names, row, strict=True)) for row in rows]}, Table(_headings(names), rows)
    )
    raise_for(tool.output, described.errors.values())


@command("decommission", cluster)
@click.argument("broker_id", metavar="ID", type=Integer(0, INT32_MAX))
@click.option(
    "--throttle", type=Integer(1), metavar="BYTES", help="At most this many bytes a second between brokers."
)
@click.option(
    "--dry-run", is_flag=True, help="Print the moves as a file for `kalda reassign execute`; move nothing."
)
async def decommission(tool: Tool, broker_id: int, throttle: int | None, dry_run: bool) -> None:
    """Move all replicas off a broker, so that it can be stopped for good.

    Nothing else moves. The command waits until the broker has no replica; interrupt it and the moves go on,
    repeat it and it waits for them. The broker may be down, if other replicas of its partitions are in sync.
    """
    from kalda.tools.decommission import carry_out, plan_drain
    from kalda.tools.reassignment_plan import reassignment_json

    async with tool.admin() as admin:
        plan = await plan_drain(admin, broker_id)
        plan.check_broker(broker_id)
        if dry_run:
            document = reassignment_json(plan.changed)
            tool.output.result(document, json_line(document).rstrip())
            return
        if plan.current:
            tool.output.note(
                "Save the current assignment to be able to go back: "
                + json_line(reassignment_json(plan.current)).rstrip()
            )
        moved = await carry_out(tool, admin, broker_id, plan, rate=throttle)
    tool.output.result(
        {"broker": broker_id, **reassignment_json(moved)},
        f"Moved {counted(len(moved), 'partition')}. Broker {broker_id} has no replicas: "
        "stop it, and delete its data.",
    )


def _headings(names: "Mapping[str, object] | tuple[str, ...]") -> tuple[str, ...]:
    return tuple(name.upper().replace("_", "-") for name in names)


def _broker_row(
    node: "BrokerEndpoint",
    health: PartitionHealth,
    versions: "BrokerApiVersions | None",
    dirs: "Mapping[str, LogDirDescription] | None",
    *,
    is_controller: bool,
) -> tuple[str | int | None, ...]:
    return (
        node.id,
        node.host,
        node.port,
        node.rack,
        is_controller,
        _release(versions),
        health.leaders.get(node.id, 0),
        health.replicas.get(node.id, 0),
        _size(dirs),
        _usable(dirs),
        sum(each.error is not None for each in (dirs or {}).values()),
    )


def _places(dirs: "Mapping[int, Mapping[str, LogDirDescription]]") -> "dict[str, LogDirDescription]":
    return {
        f"{path} of broker {broker_id}": each
        for broker_id, found in sorted(dirs.items())
        for path, each in found.items()
    }


def _release(versions: "BrokerApiVersions | None") -> str | None:
    if versions is None:
        return None
    return spoken_release({key: served.highest for key, served in versions.api_versions.items()})


def _size(found: "Mapping[str, LogDirDescription] | None") -> int | None:
    if found is None:
        return None
    return sum(info.size for each in found.values() for info in each.replica_infos.values())


def _usable(found: "Mapping[str, LogDirDescription] | None") -> int | None:
    known = [each.usable_bytes for each in (found or {}).values() if each.usable_bytes is not None]
    return min(known) if known else None
