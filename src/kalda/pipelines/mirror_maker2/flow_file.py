"""Reads ``connect-mirror-maker.properties``, the file of MirrorMaker 2, as replication flows.

A setting stands alone for all flows, behind ``A->B.`` for one flow and behind ``A.`` for the clients of a
cluster. A name that nothing reads is an error or is named in a note; a mistyped filter would otherwise copy
all topics.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kalda.clients.admin.acls import AclOperation
from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.errors import ClientConfigError
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.config_def import ConfigError
from kalda.common.properties import PropertiesError, read_properties
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.delivery import DeliveryMode
from kalda.pipelines.mirror.mirror import CheckpointOptions, MirrorOptions
from kalda.pipelines.mirror.policy import MirrorNames, NameFilter, RenameRule
from kalda.pipelines.mirror_maker2.flow_config import (
    RENAMED,
    REPLACEABLE_CLASSES,
    WITHOUT_EFFECT,
    WITHOUT_EFFECT_PREFIXES,
    FlowConfig,
)
from kalda.spark.source.java_regex import UnsupportedPatternError, translate_java_regex

_CLUSTERS: Final = "clusters"
_ALIAS: Final = re.compile(r"[A-Za-z0-9._-]+")
_CLIENT_PREFIX: Final = re.compile(
    r"(?:(?P<side>source|target)\.)?(?P<kind>admin|consumer|producer)\.(?:override\.)?"
)
_DELIVERIES: Final = {
    None: DeliveryMode.EXACTLY_ONCE_IF_POSSIBLE,
    "enabled": DeliveryMode.EXACTLY_ONCE,
    "preparing": DeliveryMode.EXACTLY_ONCE_IF_POSSIBLE,
    "disabled": DeliveryMode.AT_LEAST_ONCE,
}
_KINDS: Final[Mapping[str, type[CommonClientConfig]]] = {
    "admin": AdminConfig,
    "consumer": ConsumerConfig,
    "producer": ProducerConfig,
}
_EXACTLY_ONCE: Final = "exactly.once.source.support"
_START: Final = "consumer.auto.offset.reset"


class FlowFileError(ValueError):
    """A file of flows is wrong; the message names the setting, the value and what is allowed."""


@dataclass(frozen=True, slots=True)
class HeartbeatOptions:
    """The heartbeats of one flow."""

    interval_s: float
    replication_factor: int | None


@dataclass(frozen=True, slots=True)
class Flow:
    """One replication flow."""

    source: str
    target: str
    target_settings: ClusterSettings
    mirror: MirrorOptions | None
    """None where the flow only writes heartbeats."""
    heartbeats: HeartbeatOptions | None
    topics_interval_s: float | None
    """Between two looks for topics; None looks once."""
    groups_interval_s: float

    @property
    def name(self) -> str:
        """The flow as the file writes it."""
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class FlowFile:
    """What a file says."""

    flows: Sequence[Flow]
    without_effect: Sequence[str]
    """Settings that MirrorMaker reads and that change nothing here, as they stand in the file."""


def read_flow_file(path: Path) -> FlowFile:
    """Read a file.

    Raises:
        OSError: it cannot be read.
        FlowFileError: it is wrong.
    """
    try:
        properties = read_properties(path)
    except PropertiesError as error:
        raise FlowFileError(str(error)) from error
    return parse_flows(properties)


def parse_flows(properties: Mapping[str, str]) -> FlowFile:
    """Read the properties of a file.

    Raises:
        FlowFileError: a setting is unknown, missing or not allowed.
    """
    try:
        return _Parser(properties).parse()
    except ClientConfigError as error:
        raise FlowFileError(str(error)) from error


@dataclass(slots=True)
class _ClientSettings:
    """Settings of clients as they are collected, by kind; that of all kinds is empty."""

    by_kind: dict[str, dict[str, str]]

    @classmethod
    def none(cls) -> "_ClientSettings":
        return cls({kind: {} for kind in ("", *_KINDS)})

    def over(self, other: "_ClientSettings") -> "_ClientSettings":
        """Return these, which win, and those of another."""
        return _ClientSettings({kind: {**other.by_kind[kind], **own} for kind, own in self.by_kind.items()})


class _Given(NamedTuple):
    """A setting of flows as it stands in the file."""

    name: str
    value: str


class _Parser:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties: Final = {name: value.strip() for name, value in properties.items()}
        self._aliases: Final = self._read_aliases()
        self._known: Final = {key.name for key in FlowConfig.definitions().values()}
        self._shared: Final[dict[str, _Given]] = {}
        """Settings of all flows."""
        self._flows: Final[dict[tuple[str, str], dict[str, _Given]]] = {}
        self._shared_clients: Final = _ClientSettings.none()
        self._clusters: Final = {alias: _ClientSettings.none() for alias in self._aliases}
        self._by_target: Final[dict[str, dict[str, _Given]]] = {each: {} for each in self._aliases}
        """Settings of flows that stand behind the name of their target."""
        self._by_source: Final[dict[str, dict[str, _Given]]] = {each: {} for each in self._aliases}
        self._flow_clients: Final[dict[tuple[str, str, str], _ClientSettings]] = {}
        """By flow and side."""
        self._without_effect: Final[list[str]] = []

    def parse(self) -> FlowFile:
        for name, value in self._properties.items():
            if name != _CLUSTERS:
                self._read(name, value)
        configs = {
            (source, target): self._config(source, target)
            for source in self._aliases
            for target in self._aliases
            if source != target
        }
        flows = [
            self._flow(source, target, config, self._circles(source, target, configs))
            for (source, target), config in configs.items()
            if config.enabled or config.emit_heartbeats_enabled
        ]
        if not any(each.mirror for each in flows):
            first, second = self._aliases[:2]
            raise FlowFileError(f"no flow is enabled; set for example `{first}->{second}.enabled`=true")
        return FlowFile(flows, self._without_effect)

    def _read_aliases(self) -> list[str]:
        aliases = [each.strip() for each in self._properties.get(_CLUSTERS, "").split(",") if each.strip()]
        if len(set(aliases)) < 2 or len(set(aliases)) < len(aliases):
            raise FlowFileError(
                f"`{_CLUSTERS}`={self._properties.get(_CLUSTERS, '')} is not allowed: it takes the names of "
                "two clusters or more, such as A, B"
            )
        for each in aliases:
            if not _ALIAS.fullmatch(each):
                raise FlowFileError(
                    f"`{_CLUSTERS}` has {each!r}; a name has letters, digits, dots, dashes and underscores, "
                    "because it is part of the names of topics"
                )
        return aliases

    def _read(self, name: str, value: str) -> None:
        """Sort one setting into where it belongs."""
        flow, _, setting = name.partition("->")
        if setting:
            target = self._alias_of(setting)
            if flow not in self._aliases or target is None or flow == target:
                raise FlowFileError(
                    f"`{name}` does not begin with two of the clusters {', '.join(self._aliases)}"
                )
            self._read_of_flow(name, (flow, target), setting.removeprefix(f"{target}."), value)
            return
        alias = self._alias_of(name)
        if alias is not None:
            self._read_of_cluster(name, alias, name.removeprefix(f"{alias}."), value)
        elif not self._read_common(name, name, value, self._shared):
            self._read_of_clients(name, name, value, lambda _: [self._shared_clients])

    def _read_of_flow(self, name: str, flow: tuple[str, str], setting: str, value: str) -> None:
        if self._read_common(name, setting, value, self._flows.setdefault(flow, {})):
            return

        def owners(side: str | None) -> Iterator[_ClientSettings]:
            for each in (side,) if side else ("source", "target"):
                yield self._flow_clients.setdefault((*flow, each), _ClientSettings.none())

        self._read_of_clients(name, setting, value, owners)

    def _read_of_cluster(self, name: str, alias: str, setting: str, value: str) -> None:
        if setting == _EXACTLY_ONCE:
            self._by_target[alias][setting] = _Given(name, value)
        elif setting == _START:
            self._by_source[alias][setting] = _Given(name, value)
        elif not self._is_without_effect(name, setting):
            self._read_of_clients(name, setting, value, lambda _: [self._clusters[alias]])

    def _read_common(self, name: str, setting: str, value: str, found: dict[str, _Given]) -> bool:
        """Take a setting of flows; return False if it may be one of clients."""
        setting = RENAMED.get(setting, setting)
        if setting in REPLACEABLE_CLASSES:
            own = REPLACEABLE_CLASSES[setting]
            if value.rpartition(".")[2] != own:
                raise FlowFileError(
                    f"`{name}`={value} is not allowed: a mirror has the behaviour of {own} only"
                )
            return True
        if setting in self._known:
            found[setting] = _Given(name, value)
            return True
        return self._is_without_effect(name, setting)

    def _is_without_effect(self, name: str, setting: str) -> bool:
        has_none = setting in WITHOUT_EFFECT or setting.startswith(WITHOUT_EFFECT_PREFIXES)
        if has_none:
            self._without_effect.append(name)
        return has_none

    def _read_of_clients(
        self,
        name: str,
        setting: str,
        value: str,
        owners: Callable[[str | None], "Iterator[_ClientSettings] | list[_ClientSettings]"],
    ) -> None:
        prefix = _CLIENT_PREFIX.match(setting)
        kind = prefix["kind"] if prefix else ""
        bare = setting[prefix.end() :] if prefix else setting
        known = {
            key.name
            for config in ([_KINDS[kind]] if kind else _KINDS.values())
            for key in config.definitions().values()
        }
        if bare not in known:
            near = difflib.get_close_matches(bare, [*known, *self._known], n=1, cutoff=0.6)
            hint = f"; did you mean `{name.removesuffix(bare)}{near[0]}`?" if near else ""
            raise FlowFileError(f"`{name}` is not a setting of flows or clients{hint}")
        for owner in owners(prefix["side"] if prefix else None):
            owner.by_kind[kind][bare] = value

    def _alias_of(self, name: str) -> str | None:
        """Return the cluster that a name begins with; of two, the longer one."""
        found = [each for each in self._aliases if name.startswith(f"{each}.")]
        return max(found, key=len, default=None)

    def _config(self, source: str, target: str) -> FlowConfig:
        own = self._flows.get((source, target), {})
        given = {**self._shared, **self._by_source[source], **self._by_target[target], **own}
        if "enabled" not in own:
            # Alone, it would make flows of clusters that have nothing to do with each other.
            given.pop("enabled", None)
        values = {}
        for attribute, key in FlowConfig.definitions().items():
            if key.name not in given:
                continue
            name, value = given[key.name]
            try:
                values[attribute] = key.parse(value)
            except ConfigError as error:
                raise FlowFileError(str(error).replace(f"`{key.name}`", f"`{name}`", 1)) from error
        return FlowConfig(**values)

    def _circles(
        self, source: str, target: str, configs: Mapping[tuple[str, str], FlowConfig]
    ) -> list[list[NameFilter]]:
        """Return the ways back from the target to the source, over flows that keep names."""
        filters = {
            flow: _topics(config) for flow, config in configs.items() if config.enabled and config.is_identity
        }

        def ways(here: str, passed: tuple[str, ...]) -> Iterator[list[NameFilter]]:
            for (start, end), names in filters.items():
                if start != here:
                    continue
                if end == source:
                    yield [names]
                elif end not in passed:
                    yield from ([names, *rest] for rest in ways(end, (*passed, end)))

        return list(ways(target, (source, target)))

    def _flow(self, source: str, target: str, config: FlowConfig, circles: list[list[NameFilter]]) -> Flow:
        target_settings = self._settings(source, target, "target")
        looks = [config.refresh_topics_interval_seconds] if config.refresh_topics_enabled else []
        looks += [config.sync_topic_configs_interval_seconds] if config.sync_topic_configs_enabled else []
        looks += [config.sync_topic_acls_interval_seconds] if config.sync_topic_acls_enabled else []
        rounds = [config.emit_checkpoints_interval_seconds] if config.emit_checkpoints_enabled else []
        rounds += [config.sync_group_offsets_interval_seconds] if config.sync_group_offsets_enabled else []
        mirror = None
        if config.enabled:
            mirror = _mirror_options(
                source, target, config, circles, self._settings(source, target, "source"), target_settings
            )
        return Flow(
            source,
            target,
            target_settings,
            mirror,
            HeartbeatOptions(
                config.emit_heartbeats_interval_seconds, config.heartbeats_topic_replication_factor
            )
            if config.emit_heartbeats_enabled
            else None,
            min(looks, default=None),
            min(rounds, default=60),
        )

    def _settings(self, source: str, target: str, side: str) -> ClusterSettings:
        """Return the settings of the clients of one side of a flow, checked.

        Raises:
            ClientConfigError: a value is not allowed.
            FlowFileError: the cluster has no address.
        """
        alias = source if side == "source" else target
        of_flow = self._flow_clients.get((source, target, side), _ClientSettings.none())
        found = of_flow.over(self._clusters[alias]).over(self._shared_clients).by_kind
        if not found[""].get("bootstrap.servers"):
            raise FlowFileError(f"`{alias}.bootstrap.servers` is missing")
        settings = ClusterSettings(found[""], *(found[kind] for kind in ("admin", "consumer", "producer")))
        for kind, of_kind in (
            (AdminConfig, settings.for_admin()),
            (LogReaderConfig, settings.for_reader()),
            (ProducerConfig, settings.for_producer()),
        ):
            try:
                kind.from_properties(of_kind)
            except ClientConfigError as error:
                raise FlowFileError(f"cluster {alias}: {error}") from error
        return settings


def _mirror_options(
    source: str,
    target: str,
    config: FlowConfig,
    circles: list[list[NameFilter]],
    source_settings: ClusterSettings,
    target_settings: ClusterSettings,
) -> MirrorOptions:
    separator = config.replication_policy_separator
    internal = separator if config.replication_policy_internal_topic_separator_enabled else "."
    checkpoints = CheckpointOptions(
        f"{source}{internal}checkpoints{internal}internal", config.checkpoints_topic_replication_factor
    )
    return MirrorOptions(
        name=f"{source}->{target}",
        source=source_settings,
        target=target_settings,
        names=MirrorNames(
            source,
            target,
            _topics(config),
            RenameRule.IDENTITY if config.is_identity else RenameRule.PREFIX,
            separator,
            config.heartbeats_replication_enabled,
            circles,
        ),
        sync_configs=config.sync_topic_configs_enabled,
        sync_acls=config.sync_topic_acls_enabled,
        acl_operations=[AclOperation.of_title(each) for each in config.sync_topic_acls_operations],
        configs_excluded=_pattern("config.properties.exclude", config.config_properties_exclude),
        sync_groups=config.sync_group_offsets_enabled,
        groups=NameFilter(
            _pattern("groups", config.groups), _pattern("groups.exclude", config.groups_exclude)
        ),
        checkpoints=checkpoints if config.emit_checkpoints_enabled else None,
        start=config.consumer_auto_offset_reset,
        delivery=_DELIVERIES[config.exactly_once_source_support],
        replication_factor=config.replication_factor,
        syncs_replication_factor=config.offset__syncs_topic_replication_factor,
    )


def _topics(config: FlowConfig) -> NameFilter:
    return NameFilter(_pattern("topics", config.topics), _pattern("topics.exclude", config.topics_exclude))


def _pattern(name: str, expressions: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches what one of the Java expressions matches; of none, it matches nothing."""
    try:
        for each in expressions:
            translate_java_regex(each)
        return translate_java_regex("|".join(f"(?:{each})" for each in expressions) or "(?!)")
    except UnsupportedPatternError as error:
        raise FlowFileError(f"`{name}`={','.join(expressions)} is not allowed: {error}") from error
