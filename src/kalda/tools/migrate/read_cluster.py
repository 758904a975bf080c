"""Reads a cluster through its brokers and through ZooKeeper, for `cluster_checks`; changes nothing."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore
from kalda.common.api_keys import ApiKey
from kalda.common.config_def import ConfigError
from kalda.common.types import ZERO_UUID
from kalda.inspection.cluster_health import RESPONSE_TIMEOUT_MS, spoken_release
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.settings.broker_config import find_key
from kalda.tools.migrate.cluster_checks import BrokerFacts, ClusterFacts, TopicFacts, ZooKeeperFacts

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.clusters import BrokerApiVersions
    from kalda.clients.admin.configs import ConfigEntry
    from kalda.zookeeper.port import ZooKeeperClient

OWN_PREFIX: Final = "kalda."
"""The names of settings that only Kalda has begin so: a broker that describes one is Kalda's."""

_MIGRATION: Final = "/migration"
_SERVER_SECONDS: Final = 3.0
_ANSWER_BYTES_MAX: Final = 65_536


class ReadCluster:
    """What was read of a cluster: the facts, and the settings of each broker that an operator set."""

    def __init__(self, facts: ClusterFacts, settings: Mapping[int, Mapping[str, str]]) -> None:
        self.facts: Final = facts
        self.settings: Final = settings


async def read_cluster(admin: "AsyncAdmin") -> ReadCluster:
    """Read a cluster.

    Raises:
        ClientError: no broker answers.
    """
    from kalda.clients.admin.configs import ConfigResource
    from kalda.clients.admin.groups import GroupType

    described = await admin.describe_cluster()
    ids = [node.id for node in described.nodes]
    versions = await admin.describe_api_versions(ids, outcomes=True, timeout_ms=RESPONSE_TIMEOUT_MS)
    running = [each for each in ids if each in versions.results]
    unread: list[str] = []
    names = await admin.list_topics(include_internal=True)
    topics = await admin.describe_topics(names, outcomes=True)
    unread += [f"topic {name}: {error}" for name, error in topics.errors.items()]
    by_name = {each.name: each for each in topics.results.values()}
    configs = await admin.describe_configs(
        [*map(ConfigResource.broker, running), *map(ConfigResource.topic, by_name)], outcomes=True
    )
    unread += [f"settings of {resource}: {error}" for resource, error in configs.errors.items()]
    entries = configs.results
    brokers = {each: entries.get(ConfigResource.broker(each), {}) for each in running}
    dirs = await admin.describe_log_dirs(running, outcomes=True)
    unread += [f"log directories of broker {broker}: {error}" for broker, error in dirs.errors.items()]
    groups = await admin.list_groups()
    facts = ClusterFacts(
        cluster_id=described.cluster_id,
        controller_id=None if described.controller is None else described.controller.id,
        brokers={
            each: _broker(versions.results[each], brokers[each])
            if each in versions.results
            else BrokerFacts(is_answering=False)
            for each in ids
        },
        topics={
            name: TopicFacts(
                has_id=each.topic_id is not None,
                replicas={info.partition: info.replicas for info in each.partitions},
                isr={info.partition: info.isr for info in each.partitions},
                leaderless=[info.partition for info in each.partitions if not info.has_leader],
                settings=_set_by_operator(entries.get(ConfigResource.topic(name), {})),
                min_in_sync=_min_in_sync(entries.get(ConfigResource.topic(name), {})),
            )
            for name, each in by_name.items()
        },
        features=_finalized(versions.results.values()),
        reassigning=len(await admin.list_partition_reassignments()),
        offline_dirs=[
            f"{path} of broker {broker}"
            for broker, found in sorted(dirs.results.items())
            for path, each in found.items()
            if each.error is not None
        ],
        consumer_groups=[each.group_id for each in groups.results if each.type is GroupType.CONSUMER],
        other_groups=[
            each.group_id for each in groups.results if each.type in (GroupType.SHARE, GroupType.STREAMS)
        ],
        unread=unread,
    )
    return ReadCluster(facts, {each: _set_by_operator(found) for each, found in brokers.items()})


async def read_zookeeper(client: "ZooKeeperClient", servers: str) -> ZooKeeperFacts:
    """Read what ZooKeeper holds of a cluster.

    Raises:
        ZooKeeperError: it cannot be read.
    """
    cluster = ClusterStore(client, SystemClock(), SYSTEM_RANDOM)
    names = await cluster.topics()
    assignments = await cluster.topic_assignments(names)
    return ZooKeeperFacts(
        version=await _server_version(servers),
        is_migrating=await client.exists(_MIGRATION) is not None,
        deleting=await cluster.topics_to_delete(),
        has_reassignment=await client.exists(paths.REASSIGN_PARTITIONS) is not None,
        topics_without_id=[name for name, each in assignments.items() if each.topic_id == ZERO_UUID],
        features=await _read_features(client),
    )


async def is_kalda(admin: "AsyncAdmin", broker_id: int) -> bool:
    """Return whether a broker is Kalda's, by the settings that it describes.

    Raises:
        ClientError: it does not answer.
    """
    from kalda.clients.admin.configs import ConfigResource

    resource = ConfigResource.broker(broker_id)
    return _is_kalda((await admin.describe_configs([resource]))[resource])


def _broker(versions: "BrokerApiVersions", entries: "Mapping[str, ConfigEntry]") -> BrokerFacts:
    highest = {key: served.highest for key, served in versions.api_versions.items()}
    return BrokerFacts(
        is_answering=True,
        is_kraft=ApiKey.LEADER_AND_ISR not in highest,
        is_kalda=_is_kalda(entries),
        release=spoken_release(highest),
    )


def _is_kalda(entries: "Mapping[str, ConfigEntry]") -> bool:
    return any(name.startswith(OWN_PREFIX) for name in entries)


def _set_by_operator(entries: "Mapping[str, ConfigEntry]") -> dict[str, str]:
    """Return the settings that are not defaults; without passwords, which a broker hides.

    It hides the value of a name that it does not know, too: such a name is returned without its value.
    """
    found = {}
    for name, each in entries.items():
        if each.is_default:
            continue
        if each.value is not None and not each.is_sensitive:
            found[name] = each.value
        elif each.is_sensitive and not _is_known(name):
            found[name] = ""
    return found


def _is_known(name: str) -> bool:
    try:
        find_key(name)
    except ConfigError:
        return False
    return True


def _min_in_sync(entries: "Mapping[str, ConfigEntry]") -> int:
    entry = entries.get("min.insync.replicas")
    return int(entry.value) if entry is not None and entry.value else 1


def _finalized(versions: "Iterable[BrokerApiVersions]") -> dict[str, int]:
    return {
        name: each.max_version_level
        for found in versions
        for name, each in found.features.finalized_features.items()
    }


async def _read_features(client: "ZooKeeperClient") -> dict[str, int]:
    """Return the finalized features in both forms: a level for each, as Kalda wrote once, or an object."""
    if await client.exists(paths.FEATURE) is None:
        return {}
    data, _ = await client.get(paths.FEATURE)
    try:
        features = json.loads(data)["features"]
        levels = {
            str(name): each.get("max_version_level", 0) if isinstance(each, dict) else each
            for name, each in features.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: level for name, level in levels.items() if isinstance(level, int)}


async def _server_version(servers: str) -> str | None:
    """Return the version that one of the servers says, as in ``3.8.4``; None if none does."""
    for address in servers.partition("/")[0].split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            async with asyncio.timeout(_SERVER_SECONDS):
                reader, writer = await asyncio.open_connection(host.strip("[]") or address, int(port))
                try:
                    writer.write(b"srvr")
                    answer = (await reader.read(_ANSWER_BYTES_MAX)).decode(errors="replace")
                finally:
                    writer.close()
        except (OSError, ValueError, TimeoutError):
            continue
        label, _, rest = answer.partition(":")
        if label.strip() == "Zookeeper version":
            return rest.strip().partition("-")[0].partition(",")[0]
    return None
