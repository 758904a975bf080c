"""Reads the state of a cluster through the admin client."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.configs import ConfigEntry, ConfigResource, ConfigSource
from kalda.common.types import TopicPartition
from kalda.tools.state.documents import Environment
from kalda.tools.state.model import (
    CLUSTER_DEFAULT,
    ClusterState,
    Configs,
    Defaults,
    Parts,
    TopicState,
    is_internal_topic,
)

T = TypeVar("T")

_CHUNK: Final = 100
"""How many topics or groups one call is about: what a broker does within a request's time-out."""

_DYNAMIC_BROKER_SOURCES: Final = (
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
)


@dataclass(slots=True)
class Found:
    """What a cluster has."""

    state: ClusterState
    defaults: Defaults
    broker_ids: Sequence[int] | None = None
    """The brokers of the cluster; None where the settings of brokers were not asked for."""

    remarks: list[str] = field(default_factory=list)
    """What cannot be in the files, such as passwords."""


async def read_state(admin: AsyncAdmin, parts: Parts, environment: Environment) -> Found:
    """Read the parts of a cluster's state, without what the environment ignores.

    Raises:
        ClientError: the cluster cannot be reached, or something cannot be described.
    """
    remarks: list[str] = []
    defaults = Defaults({}, {})
    topics: dict[str, TopicState] | None = None
    groups: dict[str, dict[TopicPartition, int]] | None = None
    brokers: dict[int | None, Configs] | None = None
    broker_ids: list[int] | None = None
    if parts.brokers:
        broker_ids = [broker.id for broker in (await admin.describe_cluster()).nodes]
        brokers, broker_defaults = await _read_brokers(admin, broker_ids, remarks)
        defaults = Defaults({}, broker_defaults)
    if parts.topics:
        topics, topic_defaults = await _read_topics(admin, environment.ignored_topics)
        defaults = Defaults(topic_defaults, defaults.broker)
    if parts.groups:
        groups = await _read_groups(admin, environment)
    return Found(ClusterState(topics, groups, brokers), defaults, broker_ids, remarks)


async def _read_topics(
    admin: AsyncAdmin, ignored: re.Pattern[str] | None
) -> tuple[dict[str, TopicState], dict[str, str]]:
    names = [name for name in sorted(await admin.list_topics()) if not is_ignored(name, ignored)]
    topics: dict[str, TopicState] = {}
    defaults: dict[str, str] = {}
    for chunk in chunks(names):
        described = await admin.describe_topics(chunk)
        resources = [ConfigResource.topic(name) for name in chunk]
        settings = await admin.describe_configs(resources, include_synonyms=True)
        for name, resource in zip(chunk, resources, strict=True):
            entries = settings.results[resource].values()
            own = {
                each.name: each.value
                for each in entries
                if each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and each.value is not None
            }
            partitions = described.results[name].partitions
            topics[name] = TopicState(name, len(partitions), len(partitions[0].replicas), own)
            defaults |= _fallbacks(entries, (ConfigSource.DYNAMIC_TOPIC_CONFIG,))
    return topics, defaults


async def _read_brokers(
    admin: AsyncAdmin, broker_ids: Sequence[int], remarks: list[str]
) -> tuple[dict[int | None, Configs], dict[str, str]]:
    resources: dict[int | None, ConfigResource] = {CLUSTER_DEFAULT: ConfigResource.broker()}
    resources |= {broker: ConfigResource.broker(broker) for broker in broker_ids}
    settings = await admin.describe_configs(resources.values(), include_synonyms=True)
    found: dict[int | None, Configs] = {}
    defaults: dict[str, str] = {}
    for broker, resource in resources.items():
        source = (
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            if broker is CLUSTER_DEFAULT
            else ConfigSource.DYNAMIC_BROKER_CONFIG
        )
        entries = settings.results[resource].values()
        own: dict[str, str] = {}
        for each in entries:
            if each.source is not source:
                continue
            if each.value is None:
                remarks.append(f"{resource}: {each.name} is a secret and not part of the state")
            else:
                own[each.name] = each.value
        if own:
            found[broker] = own
        defaults |= _fallbacks(entries, _DYNAMIC_BROKER_SOURCES)
    return found, defaults


def _fallbacks(entries: Iterable[ConfigEntry], own: Sequence[ConfigSource]) -> Iterator[tuple[str, str]]:
    """Yield the values that settings have without those of the sources `own`."""
    for entry in entries:
        if entry.source not in own:
            value = entry.value
        else:
            others = (each.value for each in entry.synonyms if each.source not in own)
            value = next(others, None)
        if value is not None:
            yield entry.name, value


async def _read_groups(admin: AsyncAdmin, environment: Environment) -> dict[str, dict[TopicPartition, int]]:
    listed = (await admin.list_consumer_groups()).all()
    names = [each.group_id for each in listed if not is_ignored(each.group_id, environment.ignored_groups)]
    groups: dict[str, dict[TopicPartition, int]] = {}
    for chunk in chunks(names):
        fetched = await admin.list_consumer_group_offsets(chunk)
        for group, offsets in fetched.results.items():
            committed = {
                partition: each.offset
                for partition, each in offsets.items()
                if each is not None and not is_ignored(partition.topic, environment.ignored_topics)
            }
            if committed:
                groups[group] = committed
    return dict(sorted(groups.items()))


def is_ignored(name: str, ignored: re.Pattern[str] | None) -> bool:
    """Return whether a topic or group is no part of the state."""
    return is_internal_topic(name) or (ignored is not None and ignored.fullmatch(name) is not None)


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in parts that one call is about."""
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
