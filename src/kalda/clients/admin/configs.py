"""Implements the admin client's operations on settings.

It holds the methods, the values that they take and return, and the requests and responses.
Names of values are those of Java's client.

Brokers before 2.3 know no incremental change. `AlterConfigs` reads all settings of a resource from them,
applies the change, and writes all back, as Kafka's own tools did; two such changes at once can lose one of
them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import AnyBroker, Broker
from kalda.clients.errors import ClientError, UnsupportedApiError
from kalda.common.api_keys import ApiKey
from kalda.common.config_def import ConfigType
from kalda.common.config_values import AlterConfigOpType as AlterConfigOpType
from kalda.common.config_values import ConfigResourceType as ConfigResourceType
from kalda.common.config_values import ConfigSource as ConfigSource
from kalda.common.config_values import ConfigSynonym as ConfigSynonym
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.protocol.messages import alter_configs, incremental_alter_configs
from kalda.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kalda.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kalda.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kalda.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

ConfigText: TypeAlias = str | int | float | bool
"""The value of a setting: its text in a properties file, or the Python value that stands for it."""


def config_text(value: ConfigText) -> str:
    """Write a value as a properties file has it: ``true`` for True, ``1000`` for 1000.

    >>> config_text(True), config_text(1000), config_text("compact,delete")
    ('true', '1000', 'compact,delete')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@public
@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """One thing that has settings, e.g. ``ConfigResource.topic("flights")``."""

    type: ConfigResourceType
    name: str
    """The topic, the broker's id as text, the group. The empty name of a broker stands for all brokers."""

    @classmethod
    def topic(cls, name: str) -> Self:
        """Return the resource of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> Self:
        """Return the resource of one broker; without an id, the default of all brokers (KIP-226)."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def broker_logger(cls, broker_id: int) -> Self:
        """Return the resource of one broker's log levels (KIP-412)."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Return the resource of a group (KIP-848)."""
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> Self:
        """Return the resource of a subscription to clients' metrics (KIP-714)."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)

    @property
    def broker_id(self) -> int | None:
        """The broker that alone can answer for the resource; None if any broker can."""
        is_of_broker = self.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        return int(self.name) if is_of_broker and self.name else None

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name}" if self.name else f"default {kind}"


@public
@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a resource."""

    name: str
    value: str | None
    """None where the setting is sensitive or not set."""
    source: ConfigSource
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    """What supplies the value, in order of precedence; empty unless asked for."""
    type: ConfigType | None = None
    """None from brokers before 2.6 (KIP-569)."""
    documentation: str | None = None
    """None unless asked for."""

    @property
    def is_default(self) -> bool:
        """Whether the value is the default, because no configuration sets it."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@public
@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """One change of one setting, e.g. ``AlterConfigOp.set("retention.ms", 1000)``."""

    name: str
    type: AlterConfigOpType
    value: str | None = None

    @classmethod
    def set(cls, name: str, value: ConfigText) -> Self:
        """Set a value."""
        return cls(name, AlterConfigOpType.SET, config_text(value))

    @classmethod
    def delete(cls, name: str) -> Self:
        """Return the setting to its default."""
        return cls(name, AlterConfigOpType.DELETE)

    @classmethod
    def append(cls, name: str, *values: str) -> Self:
        """Add values to a list, where they are not in it."""
        return cls(name, AlterConfigOpType.APPEND, ",".join(values))

    @classmethod
    def subtract(cls, name: str, *values: str) -> Self:
        """Take values out of a list."""
        return cls(name, AlterConfigOpType.SUBTRACT, ",".join(values))


ConfigChanges: TypeAlias = Iterable[AlterConfigOp]


class ConfigMethods(AdminMethods):
    """Lists resources; describes and changes settings of topics, brokers, groups and client metrics."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource] | Mapping[ConfigResource, Iterable[str] | None],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
        """Describe the settings of resources.

        Args:
            resources: The resources; a mapping also names the settings to describe of each, None for all.
            include_synonyms: Whether to return where a value could come from besides (KIP-226).
            include_documentation: Whether to return the texts of Kafka's documentation (brokers 2.6 and
                newer, KIP-569).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By resource, its settings by name in alphabetical order, or the error.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        names = resources if isinstance(resources, Mapping) else dict.fromkeys(resources)
        operation = DescribeConfigs(names, include_synonyms, include_documentation)
        return await self._run(operation, names, timeout_ms, outcomes=outcomes)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[ConfigResource, None]:
        """Change single settings and leave the others alone (KIP-339).

        A resource's changes are made together or not at all. Brokers before 2.3 can only replace all settings
        of a resource; the client then reads them, changes them and writes them back.

        Args:
            changes: By resource, what to set, delete, append or subtract.
            validate_only: Check only whether the changes are allowed.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By resource, None or the error: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION and
            others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = AlterConfigs(changes, validate_only)
        return await self._run(operation, operation.changes, timeout_ms, outcomes=outcomes)

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """List the resources that may have settings (brokers 4.1 and newer, KIP-1142).

        Args:
            types: Only resources of these types; all types that the broker supports unless given. Brokers
                from 3.7 on list those of the type CLIENT_METRICS.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: the broker lists no resources of these types, or did not answer in time.
        """
        return await self._run_one(ListConfigResources(types), timeout_ms)

    async def list_client_metrics_resources(self, *, timeout_ms: int | None = None) -> list[str]:
        """List the names of subscriptions to the metrics of clients (brokers 3.7 and newer, KIP-714).

        Args:
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: the broker has no subscriptions, or did not answer in time.
        """
        found = await self.list_config_resources([ConfigResourceType.CLIENT_METRICS], timeout_ms=timeout_ms)
        return [each.name for each in found]


_DOCUMENTATION_FROM: Final = 3
_RESOURCE_TYPES_FROM: Final = 1

_BROKER_OF_RESOURCE: Final[Broker[ConfigResource]] = Broker(lambda resource: resource.broker_id)


class DescribeConfigs(AdminOperation[ConfigResource, dict[str, ConfigEntry]]):
    """Describes the settings of resources."""

    title = "describe configs of"
    route = _BROKER_OF_RESOURCE

    def __init__(
        self,
        names: Mapping[ConfigResource, Iterable[str] | None],
        include_synonyms: bool,
        include_documentation: bool,
    ) -> None:
        self._names: Final = {
            resource: None if each is None else list(each) for resource, each in names.items()
        }
        self._include_synonyms: Final = include_synonyms
        self._include_documentation: Final = include_documentation

    def requests(
        self, keys: Sequence[ConfigResource], context: RequestContext
    ) -> Iterable[AdminRequest[ConfigResource, dict[str, ConfigEntry]]]:
        """Send all resources of one broker in one request."""
        version = context.versions.latest(ApiKey.DESCRIBE_CONFIGS)
        message = DescribeConfigsRequest(
            resources=[_resource_asked(key, self._names[key]) for key in keys],
            include_synonyms=self._include_synonyms,
            # Only a text for readers: older brokers have none.
            include_documentation=self._include_documentation and version >= _DOCUMENTATION_FROM,
        )
        yield AdminRequest.of(message, DescribeConfigsResponse, keys, self._read)

    @staticmethod
    def _read(
        response: DescribeConfigsResponse, answers: Answers[ConfigResource, dict[str, ConfigEntry]]
    ) -> None:
        for each in response.results:
            resource = _resource_of(each.resource_type, each.resource_name)
            if each.error_code:
                answers.fail(resource, each.error_code, each.error_message)
            else:
                answers.succeed(resource, _entries(each))


class AlterConfigs(AdminOperation[ConfigResource, None]):
    """Changes single settings of resources and leaves the others alone (KIP-339)."""

    title = "alter configs of"
    route = _BROKER_OF_RESOURCE

    def __init__(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfigOp]], validate_only: bool
    ) -> None:
        self.changes: Final = {resource: list(each) for resource, each in changes.items()}
        self._validate_only: Final = validate_only
        # What brokers before 2.3 answered about the settings as they are.
        self._entries: Final[dict[ConfigResource, dict[str, ConfigEntry]]] = {}

    def requests(
        self, keys: Sequence[ConfigResource], context: RequestContext
    ) -> Iterable[AdminRequest[ConfigResource, None]]:
        """Send the changes; to an old broker, ask for the settings first and then send all of them."""
        if context.versions.supports(ApiKey.INCREMENTAL_ALTER_CONFIGS):
            yield self._incremental(keys)
            return
        for key in keys:
            if key.type not in _DYNAMIC_SOURCES:
                raise UnsupportedApiError(
                    f"{self.what(key)}: brokers before 2.3 change settings of topics and brokers only"
                )
        unread = [key for key in keys if key not in self._entries]
        if unread:
            yield self._reading(unread)
        read = [key for key in keys if key in self._entries]
        if read:
            yield self._replacing(read)

    def _incremental(self, keys: Sequence[ConfigResource]) -> AdminRequest[ConfigResource, None]:
        resources = [
            incremental_alter_configs.AlterConfigsResource(
                resource_type=key.type,
                resource_name=key.name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=each.name, config_operation=each.type, value=each.value
                    )
                    for each in self.changes[key]
                ],
            )
            for key in keys
        ]
        message = IncrementalAlterConfigsRequest(resources=resources, validate_only=self._validate_only)
        return AdminRequest.of(message, IncrementalAlterConfigsResponse, keys, _read_altered)

    def _reading(self, keys: Sequence[ConfigResource]) -> AdminRequest[ConfigResource, None]:
        def read(response: DescribeConfigsResponse, answers: Answers[ConfigResource, None]) -> None:
            for each in response.results:
                resource = _resource_of(each.resource_type, each.resource_name)
                if each.error_code:
                    answers.fail(resource, each.error_code, each.error_message)
                    continue
                entries = self._entries[resource] = _entries(each)
                unreadable = self._unreadable(resource, entries)
                if unreadable is None:
                    answers.ask_again(resource)
                else:
                    answers.fail_with(resource, unreadable)

        message = DescribeConfigsRequest(resources=[_resource_asked(key, None) for key in keys])
        return AdminRequest.of(message, DescribeConfigsResponse, keys, read)

    def _unreadable(self, resource: ConfigResource, entries: Mapping[str, ConfigEntry]) -> ClientError | None:
        """Return the error of a resource with a secret that would be lost by writing all settings back."""
        changed = {each.name for each in self.changes[resource]}
        source = _DYNAMIC_SOURCES[resource.type][bool(resource.name)]
        for entry in entries.values():
            if entry.source is source and entry.is_sensitive and entry.name not in changed:
                return UnsupportedApiError(
                    f"{self.what(resource)}: the broker is older than 2.3, where each change writes all "
                    f"settings, and the value of `{entry.name}` cannot be read; set it in the same call"
                )
        return None

    def _replacing(self, keys: Sequence[ConfigResource]) -> AdminRequest[ConfigResource, None]:
        resources = [
            alter_configs.AlterConfigsResource(
                resource_type=key.type,
                resource_name=key.name,
                configs=[
                    alter_configs.AlterableConfig(name=name, value=value)
                    for name, value in self._changed(key).items()
                ],
            )
            for key in keys
        ]
        message = AlterConfigsRequest(resources=resources, validate_only=self._validate_only)
        return AdminRequest.of(message, AlterConfigsResponse, keys, _read_altered)

    def _changed(self, resource: ConfigResource) -> dict[str, str | None]:
        """Return all settings of a resource as they are to be."""
        entries = self._entries[resource]
        source = _DYNAMIC_SOURCES[resource.type][bool(resource.name)]
        values = {name: each.value for name, each in entries.items() if each.source is source}
        for change in self.changes[resource]:
            entry = entries.get(change.name)
            before = [] if entry is None or not entry.value else entry.value.split(",")
            named = (change.value or "").split(",")
            match change.type:
                case AlterConfigOpType.SET:
                    values[change.name] = change.value
                case AlterConfigOpType.DELETE:
                    values.pop(change.name, None)
                case AlterConfigOpType.APPEND:
                    values[change.name] = ",".join(dict.fromkeys((*before, *named)))
                case AlterConfigOpType.SUBTRACT:
                    values[change.name] = ",".join(each for each in before if each not in named)
        return values


class ListConfigResources(AdminOperation[None, list[ConfigResource]]):
    """Lists the resources that may have settings (KIP-1142). Its only key is None."""

    title = "list config resources"
    route = AnyBroker()

    def __init__(self, types: Iterable[ConfigResourceType]) -> None:
        self._types: Final = sorted(set(types))

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, list[ConfigResource]]]:
        """Ask any broker; brokers before 4.1 list only subscriptions to clients' metrics."""
        message = ListConfigResourcesRequest()
        if context.versions.latest(ApiKey.LIST_CONFIG_RESOURCES) >= _RESOURCE_TYPES_FROM:
            message.resource_types = [*self._types]
        elif self._types != [ConfigResourceType.CLIENT_METRICS]:
            raise UnsupportedApiError(
                f"{self.title}: brokers before 4.1 list resources of the type CLIENT_METRICS only"
            )
        yield AdminRequest.of(message, ListConfigResourcesResponse, keys, self._read)

    @staticmethod
    def _read(response: ListConfigResourcesResponse, answers: Answers[None, list[ConfigResource]]) -> None:
        if response.error_code:
            answers.fail(None, response.error_code)
            return
        found = [_resource_of(each.resource_type, each.resource_name) for each in response.config_resources]
        answers.succeed(None, sorted(found))

    @override
    def what(self, key: None) -> str:
        return self.title


_DYNAMIC_SOURCES: Final[Mapping[ConfigResourceType, tuple[ConfigSource, ConfigSource]]] = {
    ConfigResourceType.TOPIC: (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    ConfigResourceType.BROKER: (
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
    ),
}
"""The source of a resource's own values: without a name (the default of all brokers), and with one."""


def _read_altered(
    response: IncrementalAlterConfigsResponse | AlterConfigsResponse, answers: Answers[ConfigResource, None]
) -> None:
    for each in response.responses:
        resource = _resource_of(each.resource_type, each.resource_name)
        if each.error_code:
            answers.fail(resource, each.error_code, each.error_message)
        else:
            answers.succeed(resource, None)


def _resource_asked(resource: ConfigResource, names: list[str] | None) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=resource.type, resource_name=resource.name, configuration_keys=names
    )


def _resource_of(number: int, name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType(number), name)


def _entries(result: DescribeConfigsResult) -> dict[str, ConfigEntry]:
    return {each.name: _entry(each) for each in sorted(result.configs, key=lambda each: each.name)}


def _entry(setting: DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = tuple(
        ConfigSynonym(each.name, each.value, ConfigSource.of(each.source)) for each in setting.synonyms
    )
    return ConfigEntry(
        setting.name,
        setting.value,
        ConfigSource.of(setting.config_source),
        setting.is_sensitive,
        setting.read_only,
        synonyms,
        _config_type(setting.config_type),
        setting.documentation or None,
    )


def _config_type(number: int) -> ConfigType | None:
    try:
        return ConfigType(number)
    except ValueError:
        return None  # 0 is "unknown", which is what older brokers send
