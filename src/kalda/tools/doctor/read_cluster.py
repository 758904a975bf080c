"""Gathers what the checks of a cluster look at, through its brokers, in bounded time; changes nothing."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kalda.common.types import TopicPartition
from kalda.inspection.cluster_health import RESPONSE_TIMEOUT_MS
from kalda.inspection.doctor.snapshot import ClusterSnapshot
from kalda.tools.doctor.questions import PART_TIMEOUT_MS, Questions
from kalda.tools.doctor.read_certificates import read_certificates
from kalda.tools.doctor.read_clients import read_groups, read_transactions
from kalda.tools.doctor.read_processes import read_processes

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.log_dirs import LogDirDescription

_MOVES_WATCHED_SECONDS: Final = 2.0
"""For how long new replicas are watched: one that is copied at any useful rate grows in it."""


async def read_cluster(admin: "AsyncAdmin") -> ClusterSnapshot:
    """Read a cluster; what a broker refuses or does not answer in time is named in `unread`.

    Raises:
        ClientError: no broker answers.
    """
    questions = Questions()
    cluster = await _read_brokers_and_topics(admin, questions)
    # By itself: what else is under way would be taken for distance between clocks.
    processes = await read_processes(admin, questions, cluster)
    (groups, ends), (transactions, hanging), certificates, stalled = await asyncio.gather(
        read_groups(admin, questions, cluster.partitions),
        read_transactions(admin, questions, cluster.partitions),
        read_certificates(cluster, questions),
        _stalled_moves(admin, questions, cluster),
    )
    return replace(
        cluster,
        groups=groups,
        ends=ends,
        transactions=transactions,
        hanging=hanging,
        certificates=certificates,
        processes=processes,
        stalled_moves=stalled,
        now_s=time.time(),
        unread=questions.unread,
    )


async def _read_brokers_and_topics(admin: "AsyncAdmin", questions: Questions) -> ClusterSnapshot:
    from kalda.clients.admin.configs import ConfigResource

    described = await admin.describe_cluster(timeout_ms=PART_TIMEOUT_MS)
    ids = [node.id for node in described.nodes]
    versions = await admin.describe_api_versions(ids, outcomes=True, timeout_ms=RESPONSE_TIMEOUT_MS)
    running = frozenset(versions.results)
    names = await questions.ask(
        "the list of topics", admin.list_topics(include_internal=True, timeout_ms=PART_TIMEOUT_MS), []
    )
    ask, timeout_ms = questions.ask_of_each, PART_TIMEOUT_MS
    brokers = list(map(ConfigResource.broker, sorted(running)))
    topics, broker_settings, topic_settings, log_dirs, reassignments = await asyncio.gather(
        ask("topic", admin.describe_topics(names, outcomes=True, timeout_ms=timeout_ms)),
        ask("settings of", admin.describe_configs(brokers, outcomes=True, timeout_ms=timeout_ms)),
        ask(
            "settings of",
            admin.describe_configs(
                [ConfigResource.topic(each) for each in names], outcomes=True, timeout_ms=timeout_ms
            ),
        ),
        ask(
            "log directories of broker",
            admin.describe_log_dirs(running, outcomes=True, timeout_ms=timeout_ms),
        ),
        questions.ask("reassignments", admin.list_partition_reassignments(timeout_ms=timeout_ms), {}),
    )
    return ClusterSnapshot(
        brokers=described.nodes,
        running=running,
        controller_id=None if described.controller is None else described.controller.id,
        topics={each.name: each for each in topics.values()},
        versions=versions.results,
        broker_settings={int(resource.name): found for resource, found in broker_settings.items()},
        topic_settings={resource.name: found for resource, found in topic_settings.items()},
        log_dirs=log_dirs,
        reassignments=reassignments,
    )


async def _stalled_moves(
    admin: "AsyncAdmin", questions: Questions, cluster: ClusterSnapshot
) -> frozenset[TopicPartition]:
    """Return the partitions whose new replicas, not in sync yet, did not grow while they were watched."""
    adding = {
        (partition, broker_id)
        for partition, move in cluster.reassignments.items()
        for broker_id in move.adding_replicas
        if broker_id in cluster.running and broker_id not in cluster.partitions[partition].isr
    }
    if not adding:
        return frozenset()
    before = _sizes(cluster.log_dirs)
    await asyncio.sleep(_MOVES_WATCHED_SECONDS)
    brokers = {broker_id for _, broker_id in adding}
    dirs = await questions.ask_of_each(
        "log directories of broker",
        admin.describe_log_dirs(brokers, outcomes=True, timeout_ms=PART_TIMEOUT_MS),
    )
    after = _sizes(dirs)
    moving = await questions.ask(
        "reassignments", admin.list_partition_reassignments(timeout_ms=PART_TIMEOUT_MS), {}
    )
    return frozenset(
        partition
        for partition, broker_id in adding
        if partition in moving and before.get((partition, broker_id)) == after.get((partition, broker_id))
    )


def _sizes(
    log_dirs: "Mapping[int, Mapping[str, LogDirDescription]]",
) -> dict[tuple[TopicPartition, int], int]:
    return {
        (partition, broker_id): info.size
        for broker_id, dirs in log_dirs.items()
        for each in dirs.values()
        for partition, info in each.replica_infos.items()
    }
