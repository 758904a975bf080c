"""Changes settings while the cluster runs (AlterConfigs, IncrementalAlterConfigs).

Resources are topics, brokers, subscriptions to client metrics (KIP-714), and the levels of this broker's
loggers (KIP-412), which are not stored.

Validation is pure: it computes the new stored settings and rejects those that are not allowed. The settings
in ZooKeeper apply to all brokers; this broker applies them at once, so that a client reads its own change.

Two error codes are Kafka's although they look inconsistent: a bad value of a topic is INVALID_CONFIG, of a
broker INVALID_REQUEST. A value that requires a feature that Kalda lacks is INVALID_CONFIG for both.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Protocol, TypeAlias, TypeVar

from kalda.broker.config import ConfigStore
from kalda.broker.config.broker_loggers import check_level, set_level
from kalda.broker.config.client_metrics import ENTITY_TYPE as CLIENT_METRICS
from kalda.broker.config.client_metrics import ClientMetricsConfig
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.history.author import requester_details
from kalda.cluster.schema import SchemaError
from kalda.common.config_def import (
    ConfigDef,
    ConfigError,
    MissingFeatureError,
)
from kalda.common.config_values import AlterConfigOpType
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.sanitizer import desanitize, sanitize
from kalda.common.turns import between
from kalda.events.event import NO_EVENTS, EventKind, EventSink
from kalda.settings import BrokerConfig
from kalda.settings.change_rules import (
    ConfigChangeRequest,
    changed_settings,
    check_cleaner_threads,
    loggable,
    require_dynamic,
    require_values,
)
from kalda.settings.definitions import BROKER_CONFIG, GROUP_CONFIG, TOPIC_CONFIG

logger: Final = logging.getLogger(__name__)


GROUPS: Final = "groups"
"""The name of groups in paths: ``/config/groups/<group id>``."""

_NO_LISTS: Final = ConfigDef(())
"""As in Kafka, the lists of subscriptions are set as a whole."""

SettingsCheck: TypeAlias = Callable[[BrokerConfig], None]
"""Called with the settings that would be in force; raises ConfigError."""


class ResourceType(IntEnum):
    """The kind of a resource that has settings; the value is its number in the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


CHANGES_MAX: Final = 5_000
"""Changes of one resource's settings, which are checked in one piece. No resource has so many settings."""


class ConfigAdmin:
    """Performs the changes of settings that clients request from this broker."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        cluster: ClusterStore,
        metadata_cache: MetadataCache,
        config_store: ConfigStore,
    ) -> None:
        self._broker_id: Final = broker_id
        self._config: Final = config
        self._cluster: Final = cluster
        self._cache: Final = metadata_cache
        self._config_store: Final = config_store
        self._checks: Final[list[SettingsCheck]] = []
        # Held while stored settings are read, changed and written back.
        self._lock: Final = asyncio.Lock()

    events: EventSink = NO_EVENTS
    """Takes the changes; set by the broker."""

    def add_check(self, check: SettingsCheck) -> None:
        """Have `check` refuse settings of this broker that it cannot put in force, by raising ConfigError."""
        self._checks.append(check)

    async def alter(
        self,
        resource_type: int,
        name: str,
        changes: Sequence[ConfigChangeRequest],
        *,
        keeps_others: bool,
        validate_only: bool,
    ) -> None:
        """Change dynamic settings of a resource; without `keeps_others`, remove those that are not named.

        Raises:
            ApiError: a change is not allowed, or the resource does not exist.
            ZooKeeperError: the settings could not be read or written.
        """
        require_values(changes)
        if resource_type == ResourceType.BROKER_LOGGER and keeps_others:
            require_this_broker(name, self._broker_id)
            _change_loggers(changes, validate_only=validate_only)
            return
        if resource_type == ResourceType.TOPIC:
            entity_type, entity_name, definitions = "topics", self._topic(name), TOPIC_CONFIG
        elif resource_type == ResourceType.BROKER:
            entity_type, entity_name, definitions = "brokers", self._broker(name), BROKER_CONFIG
        elif resource_type == ResourceType.CLIENT_METRICS:
            entity_type, entity_name, definitions = CLIENT_METRICS, _subscription(name), _NO_LISTS
        elif resource_type == ResourceType.GROUP:
            entity_type, entity_name, definitions = GROUPS, _group(name), GROUP_CONFIG
        else:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Settings of resource type {resource_type} cannot change."
            )
        async with self._lock:
            stored = await self._stored(entity_type, entity_name) if keeps_others else {}
            passwords = self._config_store.passwords
            current = passwords.decoded(stored) if entity_type == "brokers" else stored
            changed = changed_settings(current, changes, definitions)
            self._validate(entity_type, entity_name, changed)
            if validate_only:
                return
            persistent: Mapping[str, str] = changed
            if entity_type == "brokers":
                persistent = passwords.encoded(changed, stored, {change.name for change in changes})
            await self._cluster.set_config(entity_type, entity_name, persistent)
        logger.info("%s/%s: %s", entity_type, entity_name, ", ".join(loggable(changes)))
        self._emit(entity_type, entity_name, ", ".join(loggable(changes)))
        self._put_in_force(entity_type, entity_name, changed)

    def _emit(self, entity_type: str, entity_name: str, changes: str) -> None:
        subject: dict[str, str | int] = {}
        if entity_type in ("topics", GROUPS):
            subject["topic" if entity_type == "topics" else "group"] = entity_name
        elif entity_type == "brokers" and entity_name.isdigit():
            subject["broker"] = int(entity_name)
        details = {"changes": changes, "entity": f"{entity_type}/{entity_name}", **requester_details()}
        self.events.emit(EventKind.CONFIG_CHANGED, subject, details)

    async def _stored(self, entity_type: str, entity_name: str) -> Mapping[str, str]:
        try:
            return await self._cluster.config(entity_type, entity_name)
        except SchemaError as error:
            # The znode was edited by hand. The change applies to the settings in force, which clients see.
            logger.error("a change of settings replaces a znode that cannot be read: %s", error)
            in_force = self._in_force(entity_type, entity_name)
            return (
                self._config_store.passwords.encoded(in_force, {}, ())
                if entity_type == "brokers"
                else in_force
            )

    def _in_force(self, entity_type: str, entity_name: str) -> Mapping[str, str]:
        if entity_type == "topics":
            return self._config_store.topic_overrides(entity_name)
        if entity_type != "brokers":
            return self._config_store.entity(entity_type, entity_name)
        is_default = entity_name == paths.DEFAULT_ENTITY
        return self._config.dynamic_default if is_default else self._config.dynamic_broker

    def _topic(self, name: str) -> str:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if name not in self._cache:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return name

    def _broker(self, name: str) -> str:
        if not name:
            return paths.DEFAULT_ENTITY
        require_this_broker(name, self._broker_id)
        return name

    def _validate(self, entity_type: str, entity_name: str, settings: Mapping[str, str]) -> None:
        if entity_type in {"topics", GROUPS}:
            configs = self._config.groups if entity_type == GROUPS else self._config.topics
            try:
                configs.validate(settings)
            except ConfigError as error:
                raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
            return
        if entity_type == CLIENT_METRICS:
            ClientMetricsConfig.parse(desanitize(entity_name), settings)
            return
        is_default = entity_name == paths.DEFAULT_ENTITY
        try:
            for setting in settings:
                require_dynamic(setting, is_default=is_default)
            self._config_store.passwords.require_secret(settings)
            if is_default:
                trial = self._config.with_dynamic(self._config.dynamic_broker, settings)
            else:
                trial = self._config.with_dynamic(settings, self._config.dynamic_default)
            check_cleaner_threads(self._config.log_cleaner_threads, trial.log_cleaner_threads)
            for check in self._checks:
                check(trial)
        except MissingFeatureError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def _put_in_force(self, entity_type: str, entity_name: str, settings: Mapping[str, str]) -> None:
        if entity_type == "topics":
            self._config_store.set_topic(entity_name, settings)
        elif entity_type != "brokers":
            self._config_store.set_entity(entity_type, entity_name, settings)
        elif entity_name == paths.DEFAULT_ENTITY:
            self._config_store.set_broker_default(settings)
        else:
            self._config_store.set_broker(settings)


class _Resource(Protocol):
    """A resource in a request of either API."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[object]:
        """The changes."""
        ...


Resource = TypeVar("Resource", bound=_Resource)
Response = TypeVar("Response")


async def alter_each(
    resources: Sequence[Resource],
    alter: Callable[[Resource], Awaitable[None]],
    response_class: Callable[..., Response],
) -> list[Response]:
    """Alter one resource after the other; return a response for each, whether `alter` raised or not."""
    counts: Counter[tuple[int, str]] = Counter()
    for index, each in enumerate(resources):
        await between(index)
        counts[each.resource_type, each.resource_name] += 1
    responses = []
    for index, resource in enumerate(resources):
        await between(index)
        error: ApiError | None = None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if len(resource.configs) > CHANGES_MAX:
                message = f"{len(resource.configs)} settings are changed; at most {CHANGES_MAX} may be."
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            await alter(resource)
        except ApiError as caught:
            error = caught
        responses.append(resource_response(response_class, resource, error))
    return responses


def resource_response(
    response_class: Callable[..., Response], resource: _Resource, error: ApiError | None
) -> Response:
    """Return the response for one resource; AlterConfigs and IncrementalAlterConfigs have the same fields."""
    return response_class(
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=error.message if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def require_this_broker(name: str, broker_id: int) -> None:
    """Raise an error if a broker resource is another broker, whose settings this one does not have.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if not (name.isascii() and name.removeprefix("-").isdigit() and len(name) <= 20):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"A broker's id must be an integer, but it is: {name:.100}")
    if int(name) != broker_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id: this is {broker_id}, but {name} was asked."
        )


def _subscription(name: str) -> str:
    """Return the name of a subscription in paths, where Kafka allows any name.

    Raises:
        ApiError: INVALID_REQUEST, it is empty.
    """
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    return sanitize(name)


def _group(group_id: str) -> str:
    """Return the name of a group in paths. The group need not exist, as in Kafka.

    Raises:
        ApiError: INVALID_REQUEST, it is empty.
    """
    if not group_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Group name can't be empty.")
    if group_id in {".", ".."}:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"A group named '{group_id}' cannot have settings.")
    return sanitize(group_id)


def _change_loggers(changes: Sequence[ConfigChangeRequest], *, validate_only: bool) -> None:
    levels: dict[str, str | None] = {}
    for change in changes:
        if change.operation not in (AlterConfigOpType.SET, AlterConfigOpType.DELETE):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{change.operation.name} is not possible for the loggers of a broker.",
            )
        levels[change.name] = change.value if change.operation is AlterConfigOpType.SET else None
        check_level(change.name, levels[change.name])
    if validate_only:
        return
    for name, level in levels.items():
        set_level(name, level)
