"""`kalda acls`: lists, adds and removes ACLs, with the options of `kafka-acls`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.tables import Table

if TYPE_CHECKING:
    from kalda.clients.admin.acls import (
        AclBinding,
        AclFilter,
        AclOperation,
        PatternType,
        ResourcePattern,
        ResourceType,
    )

F = TypeVar("F", bound=Callable[..., Any])

acls = noun("List, add and remove ACLs.\n\nThey protect topics, groups, transactions and the cluster.")

_PATTERN_TYPES: Final = ("literal", "prefixed", "match", "any")


def _resource_options(function: F) -> F:
    options = [
        click.option("--topic", multiple=True, metavar="NAME", help="A topic; `*` is all. Repeatable."),
        click.option("--group", multiple=True, metavar="NAME", help="A group; `*` is all. Repeatable."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--transactional-id", multiple=True, metavar="ID", help="A transactional id; repeatable."
        ),
        click.option("--delegation-token", multiple=True, metavar="ID", help="A token; repeatable."),
        click.option("--user-principal", multiple=True, metavar="NAME", help="A user; repeatable."),
        click.option(
            "--resource-pattern-type",
            type=click.Choice(_PATTERN_TYPES, case_sensitive=False),
            default="literal",
            show_default=True,
            help="Whether the names are whole names or prefixes. To list and remove also: `match` finds what "
            "applies to a name, `any` what has that name.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _entry_options(function: F) -> F:
    options = [
        click.option(
            "--allow-principal",
            multiple=True,
            metavar="TYPE:NAME",
            help="A principal to allow, as User:alice.",
        ),
        click.option("--deny-principal", multiple=True, metavar="TYPE:NAME", help="A principal to deny."),
        click.option(
            "--allow-host",
            multiple=True,
            metavar="ADDRESS",
            help="From where, as 10.1.2.3 or 10.1.0.0/16; everywhere unless given.",
        ),
        click.option(
            "--deny-host",
            multiple=True,
            metavar="ADDRESS",
            help="From where not, as 10.1.2.3 or 10.1.0.0/16; nowhere unless given.",
        ),
        click.option(
            "--operation", multiple=True, metavar="NAME", help="Read, Write, All, …; All unless given."
        ),
        click.option(
            "--producer", is_flag=True, help="Write, Describe and Create on the topics, as producers need."
        ),
        click.option("--consumer", is_flag=True, help="Read and Describe on the topics, Read on the groups."),
        click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@command("list", acls)
@_resource_options
@click.option("--principal", multiple=True, metavar="TYPE:NAME", help="Only of this principal; repeatable.")
async def list_acls(tool: Tool, /, principal: tuple[str, ...], **resources: Any) -> None:
    """List ACLs: all, or those of resources and principals."""
    async with tool.admin() as admin:
        found = [binding for each in _filters(resources) for binding in await admin.describe_acls(each)]
    _show(tool, [each for each in found if not principal or each.entry.principal in principal])


@command("add", acls)
@_resource_options
@_entry_options
async def add(tool: Tool, /, **options: Any) -> None:
    """Add ACLs. Denials win over allowances."""
    bindings = _bindings(options)
    async with tool.admin() as admin:
        await admin.create_acls(bindings)
    _show(tool, bindings)


@command("remove", acls)
@_resource_options
@_entry_options
@click.option("--force", is_flag=True, help="Do not ask before removing.")
async def remove(tool: Tool, /, force: bool, **options: Any) -> None:
    """Remove ACLs: those that `add` with the same options would add, or all of the resources."""
    from kalda.clients.admin.acls import AclFilter

    if options["allow_principal"] or options["deny_principal"]:
        filters = [
            AclFilter(
                each.pattern.resource_type,
                each.pattern.name,
                each.pattern.pattern_type,
                each.entry.principal,
                each.entry.host,
                each.entry.operation,
                each.entry.permission,
            )
            for each in _bindings(options)
        ]
    else:
        filters = _filters(options)
        if any(each.name is None for each in filters):
            raise ToolUsageError("name a resource whose ACLs to remove, as by --topic or --group")
    if not force:
        click.confirm("Remove these ACLs?", abort=True, err=True)
    async with tool.admin() as admin:
        deleted = await admin.delete_acls(filters)
    _show(tool, [binding for found in deleted.values() for binding in found])


def _patterns(options: "dict[str, Any]") -> "list[tuple[ResourceType, str]]":
    from kalda.clients.admin.acls import ResourceType
    from kalda.security.acl.model import CLUSTER_NAME

    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional_id": ResourceType.TRANSACTIONAL_ID,
        "delegation_token": ResourceType.DELEGATION_TOKEN,
        "user_principal": ResourceType.USER,
    }
    found = [(kind, name) for option, kind in kinds.items() for name in options[option]]
    if options["cluster"]:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return found


def _pattern_type(options: "dict[str, Any]") -> "PatternType":
    from kalda.clients.admin.acls import PatternType

    return PatternType.of_title(options["resource_pattern_type"])


def _filters(options: "dict[str, Any]") -> "list[AclFilter]":
    from kalda.clients.admin.acls import AclFilter, PatternType

    found = _patterns(options)
    if not found:
        return [AclFilter(pattern_type=PatternType.ANY)]
    return [AclFilter(kind, name, _pattern_type(options)) for kind, name in found]


def _bindings(options: "dict[str, Any]") -> "list[AclBinding]":
    """Return the ACLs that the options of `add` stand for."""
    from kalda.clients.admin.acls import (
        AccessControlEntry,
        AclBinding,
        AclOperation,
        PatternType,
        PermissionType,
        ResourcePattern,
    )

    if not options["allow_principal"] and not options["deny_principal"]:
        raise ToolUsageError("name the principals of the ACLs by --allow-principal or --deny-principal")
    pattern_type = _pattern_type(options)
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ToolUsageError(
            f"--resource-pattern-type={pattern_type.name.lower()} cannot be added; it takes literal or "
            "prefixed"
        )
    try:
        operations = [AclOperation.of_title(each) for each in options["operation"]] or [AclOperation.ALL]
    except ValueError as error:
        raise ToolUsageError(f"--operation: {error}") from None
    wanted = _conveniences(options)
    if not wanted:
        wanted = [
            (ResourcePattern(kind, name, _type_of(kind, pattern_type)), operation)
            for kind, name in _patterns(options)
            for operation in operations
        ]
    if not wanted:
        raise ToolUsageError("name a resource, as by --topic, --group or --cluster")
    entries = []
    for permission, principals, hosts in (
        (PermissionType.ALLOW, options["allow_principal"], options["allow_host"]),
        (PermissionType.DENY, options["deny_principal"], options["deny_host"]),
    ):
        for principal in principals:
            if ":" not in principal:
                raise ToolUsageError(
                    f"{principal} is not a principal; write TYPE:NAME, such as User:{principal}"
                )
            entries += [(principal, host, permission) for host in hosts or ("*",)]
    return [
        AclBinding(pattern, AccessControlEntry(principal, host, operation, permission))
        for pattern, operation in wanted
        for principal, host, permission in entries
    ]


def _type_of(kind: "ResourceType", pattern_type: "PatternType") -> "PatternType":
    from kalda.clients.admin.acls import PatternType, ResourceType

    return PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern_type


def _conveniences(options: "dict[str, Any]") -> "list[tuple[ResourcePattern, AclOperation]]":
    """Return what --producer and --consumer stand for; nothing without them."""
    from kalda.clients.admin.acls import AclOperation, ResourcePattern, ResourceType
    from kalda.security.acl.model import CLUSTER_NAME

    pattern_type = _pattern_type(options)
    is_producer, is_consumer = options["producer"], options["consumer"]
    if options["idempotent"] and not is_producer:
        raise ToolUsageError("--idempotent goes with --producer")
    if not is_producer and not is_consumer:
        return []
    if options["operation"]:
        raise ToolUsageError("--operation does not go with --producer or --consumer")
    if not options["topic"] or (is_consumer and not options["group"]):
        raise ToolUsageError("--producer needs --topic, and --consumer needs --topic and --group")
    topics = [ResourcePattern(ResourceType.TOPIC, name, pattern_type) for name in options["topic"]]
    wanted: dict[tuple[ResourcePattern, AclOperation], None] = {}
    if is_producer:
        for pattern in topics:
            for operation in (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE):
                wanted[pattern, operation] = None
        for name in options["transactional_id"]:
            pattern = ResourcePattern(ResourceType.TRANSACTIONAL_ID, name, pattern_type)
            wanted[pattern, AclOperation.WRITE] = wanted[pattern, AclOperation.DESCRIBE] = None
        if options["idempotent"]:
            wanted[ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE] = None
    if is_consumer:
        for pattern in topics:
            wanted[pattern, AclOperation.READ] = wanted[pattern, AclOperation.DESCRIBE] = None
        for name in options["group"]:
            wanted[ResourcePattern(ResourceType.GROUP, name, pattern_type), AclOperation.READ] = None
    return list(wanted)


def _show(tool: Tool, bindings: "list[AclBinding]") -> None:
    ordered = sorted(
        bindings,
        key=lambda each: (
            each.pattern.resource_type,
            each.pattern.name,
            each.entry.principal,
            each.entry.operation,
        ),
    )
    names = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    rows = [
        (
            each.pattern.resource_type.title,
            each.pattern.name,
            each.pattern.pattern_type.title,
            each.entry.principal,
            each.entry.host,
            each.entry.operation.title,
            each.entry.permission.title,
        )
        for each in ordered
    ]
    tool.output.result(
        {"acls": [dict(zip(names, row, strict=True)) for row in rows]},
        Table(tuple(name.upper().replace("_", "-") for name in names), rows, empty="There are no such ACLs."),
    )
