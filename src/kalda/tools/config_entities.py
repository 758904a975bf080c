"""Reads the options of `kalda configs` that name topics, brokers and other entities with settings.

Kafka's tool has two forms: `--entity-type topics --entity-name flights`, and the short `--topic flights`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

import click

from kalda.command.errors import ToolUsageError
from kalda.command.names import GroupName, TopicName
from kalda.command.option_types import EnumType
from kalda.command.output import Json

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.configs import ConfigResource, ConfigResourceType, ConfigSource

_Function = TypeVar("_Function", bound=Callable[..., object])


class EntityType(StrEnum):
    """The kinds of entities, by Kafka's words for `--entity-type`."""

    TOPICS = "topics"
    BROKERS = "brokers"
    BROKER_LOGGERS = "broker-loggers"
    CLIENT_METRICS = "client-metrics"
    GROUPS = "groups"

    @classmethod
    def of_resource(cls, resource: "ConfigResource") -> "EntityType":
        """Return the kind of a resource."""
        return next(each for each in cls if each.resource_type is resource.type)

    @property
    def resource_type(self) -> "ConfigResourceType":
        """The admin client's name for the kind."""
        from kalda.clients.admin.configs import ConfigResourceType

        return {
            EntityType.TOPICS: ConfigResourceType.TOPIC,
            EntityType.BROKERS: ConfigResourceType.BROKER,
            EntityType.BROKER_LOGGERS: ConfigResourceType.BROKER_LOGGER,
            EntityType.CLIENT_METRICS: ConfigResourceType.CLIENT_METRICS,
            EntityType.GROUPS: ConfigResourceType.GROUP,
        }[self]

    @property
    def own_source(self) -> "ConfigSource":
        """The source of settings that were set for an entity of this kind."""
        from kalda.clients.admin.configs import ConfigSource

        return {
            EntityType.TOPICS: ConfigSource.DYNAMIC_TOPIC_CONFIG,
            EntityType.BROKERS: ConfigSource.DYNAMIC_BROKER_CONFIG,
            EntityType.BROKER_LOGGERS: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            EntityType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
            EntityType.GROUPS: ConfigSource.DYNAMIC_GROUP_CONFIG,
        }[self]


_SHORT = {
    "topic": EntityType.TOPICS,
    "broker": EntityType.BROKERS,
    "broker_logger": EntityType.BROKER_LOGGERS,
    "client_metrics": EntityType.CLIENT_METRICS,
    "group": EntityType.GROUPS,
}
_TYPES = {"topic": TopicName(), "group": GroupName()}
_WHAT = {
    "topic": "The settings of a topic.",
    "broker": "The settings of a broker, by id.",
    "broker_logger": "The log levels of a broker, by id.",
    "client_metrics": "A subscription to clients' metrics.",
    "group": "The settings of a group.",
}


def entity_options(function: _Function) -> _Function:
    """Add the options that name entities; `Entities.of_options` reads their values."""
    decorators = [
        *(
            click.option(
                f"--{name.replace('_', '-')}",
                name,
                multiple=True,
                type=_TYPES.get(name),
                metavar=name.split("_")[-1].upper(),
                help=_WHAT[name].replace(".", "; repeatable."),
            )
            for name in _SHORT
        ),
        click.option("--broker-defaults", is_flag=True, help="The default settings of all brokers."),
        click.option("--entity-type", type=EnumType(EntityType), help="The kind of the entities."),
        click.option(
            "--entity-name", multiple=True, metavar="NAME", help="An entity of the kind; repeatable."
        ),
        click.option("--entity-default", is_flag=True, help="The default of the kind; for brokers only."),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


@dataclass(frozen=True, slots=True)
class Entities:
    """The entities that a command line names."""

    kind: EntityType
    names: tuple[str, ...]
    """Empty where the default of brokers, or all entities of the kind, are meant."""
    is_default: bool

    @classmethod
    def of_options(cls, options: Mapping[str, object], *, is_name_needed: bool = False) -> "Entities":
        """Read the values of the options of `entity_options`.

        Raises:
            ToolUsageError: they name no kind or several, or no entity where one is needed.
        """
        given = {kind: names for name, kind in _SHORT.items() if (names := _names(options[name]))}
        if options["broker_defaults"]:
            given[EntityType.BROKERS] = given.get(EntityType.BROKERS, ())
        kind = options["entity_type"]
        if isinstance(kind, EntityType):
            given[kind] = (*given.get(kind, ()), *_names(options["entity_name"]))
        elif options["entity_name"] or options["entity_default"]:
            raise ToolUsageError("--entity-name and --entity-default need --entity-type")
        if len(given) != 1:
            fault = "no entity is named" if not given else f"{' and '.join(given)} are named at once"
            raise ToolUsageError(f"{fault}; use one of --topic, --broker, --group, ... or --entity-type")
        ((found, names),) = given.items()
        entities = cls(found, names, bool(options["broker_defaults"] or options["entity_default"]))
        entities._check(is_name_needed)
        return entities

    def _check(self, is_name_needed: bool) -> None:
        if self.is_default and (self.kind is not EntityType.BROKERS or self.names):
            raise ToolUsageError("only brokers have default settings: use --broker-defaults alone")
        if is_name_needed and not self.names and not self.is_default:
            raise ToolUsageError(f"none of the {self.kind} is named; use --entity-name, or --broker-defaults")
        if self.kind in (EntityType.BROKERS, EntityType.BROKER_LOGGERS):
            for name in self.names:
                if not name.isascii() or not name.isdigit():
                    raise ToolUsageError(f"broker {name!r} is not allowed: it takes a broker's id, a number")

    async def resources(self, admin: "AsyncAdmin") -> "list[ConfigResource]":
        """Return the resources, asking the cluster for those of the kind where none is named."""
        from kalda.clients.admin.configs import ConfigResource

        kind = self.kind.resource_type
        if self.is_default:
            return [ConfigResource(kind, "")]
        if self.names:
            return [ConfigResource(kind, name) for name in dict.fromkeys(self.names)]
        return [ConfigResource(kind, name) for name in await self._all(admin)]

    async def _all(self, admin: "AsyncAdmin") -> list[str]:
        from kalda.net.client.client_errors import UnsupportedApiError

        kind = self.kind.resource_type
        match self.kind:
            case EntityType.TOPICS:
                return sorted(await admin.list_topics(include_internal=True))
            case EntityType.BROKERS:
                return [*await _broker_names(admin), ""]  # the empty name is the default of all brokers
            case EntityType.BROKER_LOGGERS:
                return await _broker_names(admin)
            case EntityType.GROUPS:
                # A group may have settings before it has members.
                groups = {each.group_id for each in (await admin.list_groups()).all()}
                with suppress(UnsupportedApiError):  # of brokers before 4.1, where no group has any
                    groups |= {each.name for each in await admin.list_config_resources([kind])}
                return sorted(groups)
            case EntityType.CLIENT_METRICS:
                return [each.name for each in await admin.list_config_resources([kind])]


async def _broker_names(admin: "AsyncAdmin") -> list[str]:
    return [str(node.id) for node in (await admin.describe_cluster()).nodes]


def entity_text(resource: "ConfigResource") -> tuple[str, str]:
    """Return the kind and the name of an entity for a table."""
    return EntityType.of_resource(resource).value, resource.name or "<default>"


def entity_json(resource: "ConfigResource") -> dict[str, Json]:
    """Return the kind and the name of an entity; the name of brokers' default is null."""
    return {"type": EntityType.of_resource(resource).value, "name": resource.name or None}


def _names(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple), value
    return value
