"""`kalda configs`: describes and alters settings of topics, brokers and groups, as `kafka-configs` does.

`kalda.tools.config_entities` decides whose settings a command means. Credentials of users are those
of `kalda users`, and quotas those of `kalda quotas`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.output import Json
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import parse_settings, split_settings
from kalda.command.zookeeper_security import zookeeper_security_option
from kalda.tools.config_entities import Entities, EntityType, entity_json, entity_options, entity_text
from kalda.tools.stored_configs import alter_in_zookeeper, describe_in_zookeeper

if TYPE_CHECKING:
    from kalda.clients.admin.configs import AlterConfigOp, ConfigEntry, ConfigResource
    from kalda.clients.errors import ClientError

_zookeeper_option = click.option(
    "--zookeeper",
    metavar="HOST:PORT[,…]",
    help="Read and write ZooKeeper instead of asking a broker: settings of brokers that do not run, such as "
    "passwords before the first start. Passwords are encrypted with `password.encoder.secret` among "
    "--add-config, which is not stored.",
)

configs = noun("Describe and alter settings of topics, brokers, groups.")


@command("describe", configs)
@entity_options
@click.option("--all", "is_all", is_flag=True, help="Also settings that nobody changed, with their defaults.")
@click.option("--name", "names", multiple=True, metavar="KEY", help="Only this setting; repeatable.")
@_zookeeper_option
@zookeeper_security_option
async def describe(
    tool: Tool, /, is_all: bool, names: tuple[str, ...], zookeeper: str | None, **entities: object
) -> None:
    """Describe settings.

    By default, only the settings that were set for the entity itself are shown. Without a name, all entities
    of the type are shown: `kalda configs describe --entity-type topics`.
    """
    wanted = Entities.of_options(entities)
    if zookeeper is not None:
        if is_all:
            raise ToolUsageError("--all needs a broker to ask; leave --zookeeper out")
        _show_stored(tool, await describe_in_zookeeper(zookeeper, wanted), names)
        return
    async with tool.admin() as admin:
        resources = await wanted.resources(admin)
        described = await admin.describe_configs(
            dict.fromkeys(resources, names or None), include_synonyms=True, outcomes=True
        )
    rows = []
    document: list[Json] = []
    for resource, entries in described.results.items():
        shown = [entry for entry in entries.values() if is_all or names or _is_own(resource, entry)]
        document.append({**entity_json(resource), "configs": [_entry_json(entry) for entry in shown]})
        rows += [
            (*entity_text(resource), entry.name, entry.source.name, _flags(entry), entry.value)
            for entry in shown
        ]
    empty = None
    if described.results and not (is_all or names or described.errors):
        empty = "No setting is changed; --all shows all, with their values."
    tool.output.result(
        {"entities": document},
        Table(("TYPE", "ENTITY", "NAME", "SOURCE", "FLAGS", "VALUE"), rows, empty=empty),
    )
    raise_for(tool.output, described.errors.values())


@command("alter", configs)
@entity_options
@click.option(
    "--add-config",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Settings to set; a value with commas stands in square brackets; repeatable.",
)
@click.option(
    "--add-config-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A properties file with settings to set.",
)
@click.option(
    "--delete-config",
    multiple=True,
    metavar="KEY,...",
    help="Settings to return to their defaults; repeatable.",
)
@click.option("--append", multiple=True, metavar="KEY=VALUE", help="Add a value to a list; repeatable.")
@click.option(
    "--subtract", multiple=True, metavar="KEY=VALUE", help="Take a value out of a list; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Check only whether the changes are allowed.")
@_zookeeper_option
@zookeeper_security_option
async def alter(
    tool: Tool,
    /,
    add_config: tuple[str, ...],
    add_config_file: Path | None,
    delete_config: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
    dry_run: bool,
    zookeeper: str | None,
    **entities: object,
) -> None:
    """Alter settings.

    The settings of one entity change together or not at all; other settings stay.
    """
    from kalda.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigResourceType

    wanted = Entities.of_options(entities, is_name_needed=True)
    changes = [
        *(AlterConfigOp.set(name, value) for name, value in _added(add_config, add_config_file).items()),
        *(AlterConfigOp.delete(name) for name in _deleted(delete_config)),
        *(AlterConfigOp.append(name, value) for name, value in parse_settings("--append", append).items()),
        *(
            AlterConfigOp.subtract(name, value)
            for name, value in parse_settings("--subtract", subtract).items()
        ),
    ]
    _check_changes(changes)
    errors: Mapping[ConfigResource, ClientError] = {}
    if zookeeper is None:
        async with tool.admin() as admin:
            resources = await wanted.resources(admin)
            altered = await admin.incremental_alter_configs(
                dict.fromkeys(resources, changes), validate_only=dry_run, outcomes=True
            )
        errors = altered.errors
    else:
        names = await alter_in_zookeeper(zookeeper, wanted, changes, is_dry=dry_run)
        resources = [ConfigResource(ConfigResourceType.BROKER, name) for name in names]
    verb = "Would alter" if dry_run else "Altered"
    tool.output.result(
        {
            "entities": [
                {**entity_json(resource), "error": error_json(errors.get(resource))} for resource in resources
            ]
        },
        *(f"{verb} settings of {resource}." for resource in resources if resource not in errors),
    )
    raise_for(tool.output, errors.values())


def _show_stored(tool: Tool, stored: Mapping[str, Mapping[str, str | None]], names: tuple[str, ...]) -> None:
    """Show brokers' settings as they are stored; passwords have no value."""
    from kalda.clients.admin.configs import ConfigResource, ConfigResourceType

    rows = []
    document: list[Json] = []
    for broker, settings in stored.items():
        resource = ConfigResource(ConfigResourceType.BROKER, broker)
        shown = {name: settings[name] for name in sorted(settings) if not names or name in names}
        source = f"DYNAMIC_{'' if broker else 'DEFAULT_'}BROKER_CONFIG"
        entries: list[Json] = [
            {"name": name, "value": value, "source": source, "is_sensitive": value is None}
            for name, value in shown.items()
        ]
        document.append({**entity_json(resource), "configs": entries})
        rows += [
            (*entity_text(resource), name, source, ["sensitive"] if value is None else [], value)
            for name, value in shown.items()
        ]
    tool.output.result(
        {"entities": document}, Table(("TYPE", "ENTITY", "NAME", "SOURCE", "FLAGS", "VALUE"), rows)
    )


def _added(assignments: tuple[str, ...], file: Path | None) -> Mapping[str, str]:
    from kalda.common.properties import PropertiesError, read_properties

    settings: dict[str, str] = {}
    if file is not None:
        try:
            settings = read_properties(file)
        except OSError as error:
            raise ToolUsageError(f"--add-config-file={file}: {error.strerror}") from error
        except PropertiesError as error:
            raise ToolUsageError(f"--add-config-file={file}: {error}") from error
    for each in assignments:
        settings |= parse_settings("--add-config", split_settings(each))
    return settings


def _deleted(names: tuple[str, ...]) -> list[str]:
    return [name.strip() for each in names for name in each.split(",") if name.strip()]


def _check_changes(changes: "list[AlterConfigOp]") -> None:
    if not changes:
        raise ToolUsageError(
            "there is nothing to alter: use --add-config, --add-config-file, --delete-config, --append or "
            "--subtract"
        )
    names = [change.name for change in changes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ToolUsageError(f"{', '.join(twice)} would change twice; name each setting once")


def _is_own(resource: "ConfigResource", entry: "ConfigEntry") -> bool:
    """Return whether a setting was set for the entity itself, as Kafka's tool decides it."""
    from kalda.clients.admin.configs import ConfigSource

    kind = EntityType.of_resource(resource)
    if kind is EntityType.BROKERS:
        # The default of all brokers is not shown for one of them.
        own = (
            ConfigSource.DYNAMIC_BROKER_CONFIG
            if resource.name
            else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        )
        return entry.source is own
    return entry.source is kind.own_source


def _flags(entry: "ConfigEntry") -> list[str]:
    flags = {"sensitive": entry.is_sensitive, "read-only": entry.is_read_only}
    return [name for name, is_set in flags.items() if is_set]


def _entry_json(entry: "ConfigEntry") -> Json:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "is_sensitive": entry.is_sensitive,
        "is_read_only": entry.is_read_only,
        "type": entry.type.name if entry.type is not None else None,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": each.source.name} for each in entry.synonyms
        ],
    }
