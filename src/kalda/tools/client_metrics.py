"""`kalda client-metrics`: subscriptions to clients' metrics, with the options of `kafka-client-metrics`."""

from typing import TYPE_CHECKING, Any

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolUsageError
from kalda.command.option_types import Integer
from kalda.command.output import Json
from kalda.runtime.system.random import SYSTEM_RANDOM

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

_ACTIONS = ("alter", "delete", "describe", "list")
_ALTERING = ("generate_name", "interval", "match", "metrics")
_SELECTORS = (
    "client_id, client_instance_id, client_software_name, client_software_version, client_source_address and "
    "client_source_port"
)
_INT32_MAX = 2**31 - 1


@command("client-metrics")
@click.option("--alter", is_flag=True, help="Make or change a subscription.")
@click.option("--delete", is_flag=True, help="Delete a subscription.")
@click.option("--describe", is_flag=True, help="Show the settings of a subscription, or of all.")
@click.option("--list", "list", is_flag=True, help="List the names of subscriptions.")
@click.option("--name", metavar="NAME", help="The name of a subscription.")
@click.option("--generate-name", is_flag=True, help="With --alter: make up a name, a UUID.")
@click.option(
    "--interval",
    type=Integer(0, _INT32_MAX),
    metavar="MS",
    help="Milliseconds between two pushes of a client, 100 to 3600000.",
)
@click.option(
    "--metrics",
    metavar="PREFIX[,…]",
    help="Prefixes of names of metrics; `*` for all; empty to remove the setting.",
)
@click.option(
    "--match",
    metavar="SELECTOR=REGEX[,…]",
    help=f"Which clients push; all unless given. Selectors are {_SELECTORS}.",
)
async def client_metrics(tool: Tool, /, **options: Any) -> None:
    """List, set and delete subscriptions to metrics of clients.

    A subscription names the metrics that clients push (KIP-714).
    """
    _check(options)
    name: str | None = options["name"]
    async with tool.admin() as admin:
        if options["alter"]:
            await _alter(tool, admin, name, options)
        elif options["delete"]:
            assert name is not None, "--delete was checked"
            await _delete(tool, admin, name)
        elif options["describe"]:
            names = [name] if name is not None else await admin.list_client_metrics_resources()
            await _describe(tool, admin, names)
        else:
            found = await admin.list_client_metrics_resources()
            tool.output.result({"client_metrics": [*found]}, *found)


def _check(options: dict[str, Any]) -> None:
    """Check the options as Kafka's tool does.

    Raises:
        ToolUsageError: they do not go together.
    """
    actions = [each for each in _ACTIONS if options[each]]
    if len(actions) != 1:
        raise ToolUsageError(
            "Command must include exactly one action: --alter, --delete, --describe or --list."
        )
    (action,) = actions
    useless = [each for each in _ALTERING if options[each] not in (None, False)] if action != "alter" else []
    if action == "list" and options["name"] is not None:
        useless.append("name")
    if useless:
        raise ToolUsageError(f'Option "{action}" can\'t be used with option "{useless[0].replace("_", "-")}"')
    if action == "alter" and (options["name"] is not None) == options["generate_name"]:
        raise ToolUsageError("One of --name or --generate-name must be specified with --alter.")
    if action == "delete" and options["name"] is None:
        raise ToolUsageError("A client metrics resource name must be specified with --delete.")


async def _alter(tool: Tool, admin: "AsyncAdmin", name: str | None, options: dict[str, Any]) -> None:
    from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
    from kalda.common.types import random_uuid, uuid_to_text

    if name is None:
        name = uuid_to_text(random_uuid(SYSTEM_RANDOM))
    given = {"interval.ms": options["interval"], "metrics": options["metrics"], "match": options["match"]}
    changes = [
        AlterConfigOp.delete(setting) if value == "" else AlterConfigOp.set(setting, value)
        for setting, value in given.items()
        if value is not None
    ]
    if not changes:
        raise ToolUsageError("nothing to alter: give --interval, --metrics or --match")
    await admin.incremental_alter_configs({ConfigResource.client_metrics(name): changes})
    tool.output.result({"name": name}, f"Altered client metrics config for {name}.")


async def _delete(tool: Tool, admin: "AsyncAdmin", name: str) -> None:
    from kalda.clients.admin.configs import AlterConfigOp, ConfigResource

    resource = ConfigResource.client_metrics(name)
    settings = (await admin.describe_configs([resource]))[resource]
    if settings:
        await admin.incremental_alter_configs(
            {resource: [AlterConfigOp.delete(setting) for setting in settings]}
        )
    tool.output.result({"name": name}, f"Deleted client metrics config for {name}.")


async def _describe(tool: Tool, admin: "AsyncAdmin", names: list[str]) -> None:
    from kalda.clients.admin.configs import ConfigResource

    resources = [ConfigResource.client_metrics(name) for name in names]
    found = await admin.describe_configs(resources, outcomes=True) if resources else {}
    lines = []
    for resource in resources:
        lines.append(f"Client metrics configs for {resource.name} are:")
        lines += [f"  {entry.name}={entry.value}" for entry in found[resource].values()]
    document: list[Json] = [
        {
            "name": resource.name,
            "settings": {entry.name: entry.value for entry in found[resource].values()},
        }
        for resource in resources
    ]
    tool.output.result({"client_metrics": document}, *lines)
