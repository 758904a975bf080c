"""`kalda quotas`: quotas of users, client ids and addresses, as `kafka-configs` manages them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.output import Json
from kalda.command.tables import Table

if TYPE_CHECKING:
    from kalda.clients.admin.quotas import QuotaEntity

quotas = noun("List, set and remove quotas of users and clients.\n\nAddresses may have quotas too.")

_TYPES: Final = ("user", "client-id", "ip")

_VALUES: Final = {
    "producer_byte_rate": ("--producer-byte-rate", "Bytes a second that may be written to one broker."),
    "consumer_byte_rate": ("--consumer-byte-rate", "Bytes a second that may be read from one broker."),
    "request_percentage": ("--request-percentage", "Percent of one broker's time for requests."),
    "controller_mutation_rate": (
        "--controller-mutation-rate",
        "Partitions a second that may be created and deleted.",
    ),
    "connection_creation_rate": (
        "--connection-creation-rate",
        "Connections a second that one broker takes from an address.",
    ),
}


def _entity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for kind in reversed(_TYPES):
        what = {"user": "users", "client-id": "client ids", "ip": "addresses"}[kind]
        function = click.option(
            f"--default-{kind}", is_flag=True, help=f"The default of {what} that have no quota of their own."
        )(function)
        function = click.option(f"--{kind}", metavar="NAME", help=f"Only this {kind}.")(function)
    return function


def _value_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, (option, text) in reversed(_VALUES.items()):
        function = click.option(option, name, type=float, metavar="NUMBER", help=text)(function)
    return function


@command("list", quotas)
@_entity_options
async def list_quotas(tool: Tool, **options: Any) -> None:
    """List quotas. With a user and a client id, those of the two together; without options, all."""
    from kalda.clients.admin.quotas import QuotaFilter

    filters = [QuotaFilter(kind, name) for kind, name in _names(options).items()]
    async with tool.admin() as admin:
        found = await admin.describe_client_quotas(filters)
    rows = [
        (
            *(_text(dict(entity), kind) for kind in _TYPES),
            name,
            f"{value:.15g}",
        )
        for entity, values in sorted(found.items(), key=lambda item: str(item[0]))
        for name, value in sorted(values.items())
    ]
    document: list[Json] = [
        {"entity": dict(entity), "quotas": dict(values)}
        for entity, values in sorted(found.items(), key=lambda item: str(item[0]))
    ]
    tool.output.result(
        {"quotas": document},
        Table(("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"), rows, empty="No quota is set."),
    )


@command("set", quotas)
@_entity_options
@_value_options
async def set_quotas(tool: Tool, **options: Any) -> None:
    """Set quotas of a user, a client id, both together, or an address; other quotas stay."""
    values = {name: options[name] for name in _VALUES if options[name] is not None}
    if not values:
        raise ToolUsageError(f"nothing to set: give {', '.join(option for option, _ in _VALUES.values())}")
    await _alter(tool, _entity(options), values)


@command("remove", quotas)
@_entity_options
@click.argument("quota", nargs=-1, type=click.Choice(list(_VALUES)))
async def remove(tool: Tool, quota: tuple[str, ...], **options: Any) -> None:
    """Remove quotas by name, e.g. producer_byte_rate; all of the entity without a name."""
    entity = _entity(options)
    names = list(quota)
    if not names:
        from kalda.clients.admin.quotas import QuotaFilter

        async with tool.admin() as admin:
            found = await admin.describe_client_quotas(
                [QuotaFilter(kind, name) for kind, name in entity], strict=True
            )
        names = sorted(found.get(entity, ()))
        if not names:
            raise ToolUsageError(f"{_title(entity)} has no quota")
    await _alter(tool, entity, dict.fromkeys(names))


async def _alter(tool: Tool, entity: "QuotaEntity", values: dict[str, float | None]) -> None:
    from kalda.clients.admin.quotas import QuotaAlteration

    async with tool.admin() as admin:
        await admin.alter_client_quotas([QuotaAlteration(entity, values)])
    changes = (
        f"{name} is {'removed' if value is None else f'{value:.15g}'}" for name, value in values.items()
    )
    tool.output.result(
        {"entity": dict(entity), "quotas": dict(values)}, f"{_title(entity)}: {', '.join(changes)}."
    )


def _names(options: dict[str, Any]) -> dict[str, str | None]:
    """Return the names that options give by type; None is the default.

    Raises:
        ToolUsageError: a name is given beside the default of its type.
    """
    names: dict[str, str | None] = {}
    for kind in _TYPES:
        name, is_default = options[kind.replace("-", "_")], options[f"default_{kind.replace('-', '_')}"]
        if name is not None and is_default:
            raise ToolUsageError(f"--{kind} and --default-{kind} exclude each other")
        if name == "":
            raise ToolUsageError(f"--{kind} is empty; the default is --default-{kind}")
        if name is not None or is_default:
            names[kind] = name
    if "ip" in names and len(names) > 1:
        raise ToolUsageError("--ip stands alone: connections are counted before their user is known")
    return names


def _entity(options: dict[str, Any]) -> "QuotaEntity":
    from kalda.clients.admin.quotas import quota_entity

    names = _names(options)
    if not names:
        choices = ", ".join(f"--{kind}, --default-{kind}" for kind in _TYPES)
        raise ToolUsageError(f"whose quota? Give one of {choices}; a user and a client id go together")
    return quota_entity(names)


def _text(names: dict[str, str | None], kind: str) -> str | None:
    if kind not in names:
        return None
    name = names[kind]
    return "<default>" if name is None else name


def _title(entity: "QuotaEntity") -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity)
