"""Serves the pages of ACLs, users and quotas."""

from typing import Final

from starlette.responses import Response

from kalda.clients.admin.quotas import QuotaAlteration, quota_entity
from kalda.clients.admin.users import ScramCredentialDeletion, ScramCredentialUpsertion, ScramMechanism
from kalda.clients.errors import BrokerResponseError
from kalda.common.errors import ErrorCode
from kalda.http.console import command_lines
from kalda.http.console.changes import Change, ChangeForm, Field, Fields, Form, FormError
from kalda.http.console.listing_pages import Part, listing_page
from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.reading import Reading
from kalda.http.console.texts import count_text
from kalda.http.console.visits import Visit
from kalda.http.errors import HttpError
from kalda.security.acl.model import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

_ACL_COLUMNS: Final = (
    Column("principal", "Principal"),
    Column("permission", "Permission"),
    Column("operation", "Operation"),
    Column("resource", "Resource"),
    Column("host", "Host", is_secondary=True),
)
_TYPES: Final = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_OPTIONS: Final = {
    "TOPIC": "topic",
    "GROUP": "group",
    "TRANSACTIONAL_ID": "transactional-id",
    "DELEGATION_TOKEN": "delegation-token",
    "USER": "user-principal",
}
_OPERATIONS: Final = tuple(each.name for each in AclOperation if each > AclOperation.ANY)
_CLUSTER_NAME: Final = "kafka-cluster"
_QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


async def acls(visit: Visit, reading: Reading) -> Response:
    """List the ACLs."""
    empty = ("No ACLs", "What a principal may do is decided by the brokers' settings alone.")
    found: list[AclBinding] = []
    try:
        found = await (await visit.admin()).describe_acls()
    except BrokerResponseError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        empty = ("The brokers have no ACLs", "They run without an authorizer: everyone may do everything.")
    rows = []
    for each in sorted(found, key=str):
        entry, pattern = each.entry, each.pattern
        query = command_lines_query(each)
        rows.append(
            Row(
                [
                    Cell(entry.principal),
                    Cell(
                        entry.permission.title,
                        badge="bad" if entry.permission is PermissionType.DENY else "good",
                    ),
                    Cell(entry.operation.title),
                    Cell(
                        f"{pattern.resource_type.title} {pattern.name}",
                        note="prefix" if pattern.pattern_type is PatternType.PREFIXED else "",
                    ),
                    Cell(entry.host),
                ],
                [("Remove", f"/acls/remove?{query}")] if visit.may_change else [],
            )
        )
    table = listing(
        "/acls",
        visit.parameters,
        _ACL_COLUMNS,
        rows,
        one="ACL",
        many="ACLs",
        empty=empty,
    )
    return listing_page(
        visit,
        [Part(table)],
        title="ACLs",
        section="ACLs",
        command=command_lines.line("acls", "list"),
        actions=[("Add ACL", "/acls/add")],
    )


def command_lines_query(binding: AclBinding) -> str:
    """Return the fields of an ACL as the parameters of an address."""
    from urllib.parse import urlencode

    entry, pattern = binding.entry, binding.pattern
    return urlencode(
        {
            "principal": entry.principal,
            "permission": entry.permission.name,
            "operation": entry.operation.name,
            "type": pattern.resource_type.name,
            "name": pattern.name,
            "pattern": pattern.pattern_type.name,
            "host": entry.host,
        }
    )


async def users(visit: Visit, reading: Reading) -> Response:
    """List the users with SCRAM credentials."""
    found = await (await visit.admin()).describe_user_scram_credentials()
    rows = [
        Row(
            [
                Cell(user),
                Cell(", ".join(each.mechanism.value for each in credentials)),
                Cell(", ".join(str(each.iterations) for each in credentials)),
            ],
            [
                ("Set password", f"/users/set?{_query(user=user)}"),
                ("Delete", f"/users/delete?{_query(user=user)}"),
            ]
            if visit.may_change
            else [],
        )
        for user, credentials in sorted(found.results.items())
    ]
    columns = (
        Column("user", "User"),
        Column("mechanisms", "Mechanisms"),
        Column("iterations", "Iterations", is_secondary=True),
    )
    table = listing(
        "/users",
        visit.parameters,
        columns,
        rows,
        one="user",
        many="users",
        empty=("No users", "No user has a SCRAM credential. Users of other mechanisms do not show here."),
    )
    return listing_page(
        visit,
        [Part(table)],
        title="Users",
        section="Users",
        command=command_lines.line("users", "list"),
        actions=[("Add user", "/users/set")],
    )


async def quotas(visit: Visit, reading: Reading) -> Response:
    """List the quotas."""
    found = await (await visit.admin()).describe_client_quotas()
    rows = []
    for entity, values in sorted(found.items(), key=str):
        names = dict(entity)
        text = ", ".join(f"{kind} {'default' if name is None else name}" for kind, name in entity)
        parameters = {kind.replace("-", "_"): name or "" for kind, name in names.items()}
        for quota, value in sorted(values.items()):
            address = f"/quotas/set?{_query(**parameters, quota=quota, value=f'{value:g}')}"
            rows.append(
                Row(
                    [Cell(text), Cell(quota, is_code=True), Cell(count_text(value), value=value)],
                    [("Change", address)] if visit.may_change and None not in names.values() else [],
                )
            )
    columns = (
        Column("entity", "Whose"),
        Column("quota", "Quota"),
        Column("value", "Value", is_number=True),
    )
    table = listing(
        "/quotas",
        visit.parameters,
        columns,
        rows,
        one="quota",
        many="quotas",
        empty=("No quotas", "Nobody is slowed down."),
    )
    return listing_page(
        visit,
        [Part(table)],
        title="Quotas",
        section="Quotas",
        command=command_lines.line("quotas", "list"),
        actions=[("Set quota", "/quotas/set")],
    )


def security_forms() -> dict[str, ChangeForm]:
    """Return the forms by their paths."""
    return {
        "/acls/add": ChangeForm(_show_acl_add, _plan_acl_add),
        "/acls/remove": ChangeForm(_show_acl_remove, _plan_acl_remove),
        "/users/set": ChangeForm(_show_user_set, _plan_user_set, secret="password"),
        "/users/delete": ChangeForm(_show_user_delete, _plan_user_delete),
        "/quotas/set": ChangeForm(_show_quota, _plan_quota),
    }


# ACLs.


def _acl_fields(values: Fields) -> list[Field]:
    def choice(names: tuple[str, ...]) -> list[tuple[str, str]]:
        return [(name, name.replace("_", " ").lower()) for name in names]

    return [
        Field("principal", "Principal", value=values.get("principal", "User:"), placeholder="User:alice"),
        Field(
            "permission",
            "Permission",
            "select",
            values.get("permission", "ALLOW"),
            options=choice(("ALLOW", "DENY")),
        ),
        Field("type", "Resource", "select", values.get("type", "TOPIC"), options=choice(_TYPES)),
        Field("name", "Name", value=values.get("name", ""), hint="* is all; of the cluster, nothing."),
        Field(
            "pattern",
            "The name is",
            "select",
            values.get("pattern", "LITERAL"),
            options=[("LITERAL", "a whole name"), ("PREFIXED", "a prefix")],
        ),
        Field(
            "operation", "Operation", "select", values.get("operation", "READ"), options=choice(_OPERATIONS)
        ),
        Field("host", "From host", value=values.get("host", "*"), hint="* is everywhere."),
    ]


def _binding(values: Fields) -> AclBinding:
    try:
        kind = ResourceType[values.get("type", "")]
        pattern = PatternType[values.get("pattern", "LITERAL")]
        operation = AclOperation[values.get("operation", "")]
        permission = PermissionType[values.get("permission", "")]
    except KeyError as error:
        raise FormError(f"{error} is not one of the choices") from None
    name = values.get("name", "").strip()
    if kind is ResourceType.CLUSTER:
        name = _CLUSTER_NAME
    principal = values.get("principal", "").strip()
    if not name:
        raise FormError("Name: say of which resource, or * for all", "name")
    if ":" not in principal or principal.endswith(":"):
        raise FormError(f"Principal: {principal[:80]!r} is not TYPE:NAME, as User:alice is", "principal")
    host = values.get("host", "").strip() or "*"
    return AclBinding(
        ResourcePattern(kind, name, pattern), AccessControlEntry(principal, host, operation, permission)
    )


def _acl_command(verb: str, binding: AclBinding) -> str:
    entry, pattern = binding.entry, binding.pattern
    is_allowed = entry.permission is PermissionType.ALLOW
    options: list[tuple[str, str | int | bool | None]] = [
        ("allow-principal" if is_allowed else "deny-principal", entry.principal),
        ("operation", entry.operation.title),
    ]
    option = _OPTIONS.get(pattern.resource_type.name)
    options.append(("cluster", True) if option is None else (option, pattern.name))
    if pattern.pattern_type is PatternType.PREFIXED:
        options.append(("resource-pattern-type", "prefixed"))
    if entry.host != "*":
        options.append(("allow-host" if is_allowed else "deny-host", entry.host))
    if verb == "remove":
        options.append(("force", True))
    return command_lines.line("acls", verb, options=options)


async def _show_acl_add(visit: Visit, values: Fields) -> Form:
    return Form(
        title="Add an ACL",
        path="/acls/add",
        back="/acls",
        section="ACLs",
        trail=(("ACLs", "/acls"),),
        fields=_acl_fields(values),
    )


async def _plan_acl_add(visit: Visit, values: Fields) -> Change:
    binding = _binding(values)
    admin = await visit.admin()

    async def perform() -> str:
        await admin.create_acls([binding])
        return f"The ACL of {binding.entry.principal} was added."

    return Change(
        question=f"Add this ACL for {binding.entry.principal}?",
        button="Add ACL",
        command=_acl_command("add", binding),
        perform=perform,
        done="/acls",
        back="/acls",
        operation="CreateAcls",
        resource=_resource(binding),
        facts=_acl_facts(binding),
        warning="A denial wins over all allowances."
        if binding.entry.permission is PermissionType.DENY
        else "",
    )


async def _show_acl_remove(visit: Visit, values: Fields) -> Form:
    return Form(
        title="Remove an ACL",
        path="/acls/remove",
        back="/acls",
        section="ACLs",
        trail=(("ACLs", "/acls"),),
        fields=_acl_fields(values),
    )


async def _plan_acl_remove(visit: Visit, values: Fields) -> Change:
    binding = _binding(values)
    admin = await visit.admin()
    entry, pattern = binding.entry, binding.pattern
    wanted = AclFilter(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )
    if not await admin.describe_acls(wanted):
        raise FormError("There is no such ACL.")

    async def perform() -> str:
        await admin.delete_acls([wanted])
        return f"The ACL of {entry.principal} was removed."

    return Change(
        question=f"Remove this ACL of {entry.principal}?",
        button="Remove ACL",
        command=_acl_command("remove", binding),
        perform=perform,
        done="/acls",
        back="/acls",
        operation="DeleteAcls",
        resource=_resource(binding),
        facts=_acl_facts(binding),
        is_dangerous=True,
    )


def _acl_facts(binding: AclBinding) -> list[tuple[str, str]]:
    entry, pattern = binding.entry, binding.pattern
    is_prefix = pattern.pattern_type is PatternType.PREFIXED
    return [
        ("Principal", entry.principal),
        ("Permission", entry.permission.title),
        ("Operation", entry.operation.title),
        (
            "Resource",
            f"{pattern.resource_type.title} {pattern.name}{' and what begins so' if is_prefix else ''}",
        ),
        ("From host", entry.host),
    ]


def _resource(binding: AclBinding) -> str:
    return f"{binding.pattern.resource_type.title}:{binding.pattern.name}"


# Users.


async def _show_user_set(visit: Visit, values: Fields) -> Form:
    return Form(
        title="Set a user's password",
        path="/users/set",
        back="/users",
        section="Users",
        trail=(("Users", "/users"),),
        intro="The next page asks for the password, and hashes it here: the brokers never get it.",
        fields=[
            Field("user", "User", value=values.get("user", ""), is_required=True),
            Field(
                "mechanism",
                "Mechanism",
                "select",
                values.get("mechanism", "SCRAM-SHA-512"),
                options=[(each.value, each.value) for each in reversed(ScramMechanism)],
            ),
        ],
    )


async def _plan_user_set(visit: Visit, values: Fields) -> Change:
    user = values.get("user", "").strip()
    mechanism = _mechanism(values)
    password = values.get("password", "")
    if not user:
        raise FormError("User: a name is needed", "user")
    admin = await visit.admin()
    known = (await admin.describe_user_scram_credentials()).results

    async def perform() -> str:
        if not password:
            raise HttpError(422, "a password is needed")
        await admin.alter_user_scram_credentials([ScramCredentialUpsertion(user, mechanism, password)])
        return f"The password of {user} was set."

    return Change(
        question=f"{'Replace the password of' if user in known else 'Add the user'} {user}?",
        button="Set password",
        command=command_lines.line("users", "set", user, options={"mechanism": mechanism.value.lower()}),
        perform=perform,
        done="/users",
        back="/users",
        operation="AlterUserScramCredentials",
        resource=f"User:{user}",
        facts=[("User", user), ("Mechanism", mechanism.value)],
    )


async def _show_user_delete(visit: Visit, values: Fields) -> Form:
    return Form(
        title="Delete a user",
        path="/users/delete",
        back="/users",
        section="Users",
        trail=(("Users", "/users"),),
        fields=[Field("user", "User", value=values.get("user", ""), is_required=True)],
    )


async def _plan_user_delete(visit: Visit, values: Fields) -> Change:
    user = values.get("user", "").strip()
    admin = await visit.admin()
    credentials = (await admin.describe_user_scram_credentials()).results.get(user)
    if not credentials:
        raise FormError(f"User: there is no user {user[:100]!r} with a SCRAM credential", "user")
    deletions = [ScramCredentialDeletion(user, each.mechanism) for each in credentials]

    async def perform() -> str:
        await admin.alter_user_scram_credentials(deletions)
        return f"The user {user} was deleted."

    return Change(
        question=f"Delete the user {user}?",
        button="Delete user",
        command=command_lines.line("users", "delete", user),
        perform=perform,
        done="/users",
        back="/users",
        operation="AlterUserScramCredentials",
        resource=f"User:{user}",
        facts=[("Credentials", ", ".join(each.mechanism.value for each in credentials))],
        warning="Connections that are logged in stay; new logins fail. ACLs of the user stay.",
        is_dangerous=True,
        word=user,
    )


def _mechanism(values: Fields) -> ScramMechanism:
    try:
        return ScramMechanism(values.get("mechanism", ""))
    except ValueError:
        raise FormError("Mechanism: choose one", "mechanism") from None


# Quotas.


async def _show_quota(visit: Visit, values: Fields) -> Form:
    return Form(
        title="Set a quota",
        path="/quotas/set",
        back="/quotas",
        section="Quotas",
        trail=(("Quotas", "/quotas"),),
        intro="Of a user, of a client id, of the two together, or of an address.",
        fields=[
            Field("user", "User", value=values.get("user", "")),
            Field("client_id", "Client id", value=values.get("client_id", "")),
            Field("ip", "Address", value=values.get("ip", ""), hint="Has connection_creation_rate only."),
            Field(
                "quota",
                "Quota",
                "select",
                values.get("quota", _QUOTAS[0]),
                options=[(each, each) for each in _QUOTAS],
            ),
            Field(
                "value", "Value", value=values.get("value", ""), hint="Empty removes the quota.", is_wide=True
            ),
        ],
    )


async def _plan_quota(visit: Visit, values: Fields) -> Change:
    names: dict[str, str | None] = {
        kind: values[field].strip()
        for kind, field in (("user", "user"), ("client-id", "client_id"), ("ip", "ip"))
        if values.get(field, "").strip()
    }
    if not names or ("ip" in names and len(names) > 1):
        raise FormError("Say whose quota it is: a user, a client id, both, or an address alone.", "user")
    quota = values.get("quota", "")
    if quota not in _QUOTAS:
        raise FormError("Quota: choose one", "quota")
    text = values.get("value", "").strip()
    try:
        value = float(text) if text else None
    except ValueError:
        raise FormError(f"Value: {text[:40]!r} is no number", "value") from None
    alteration = QuotaAlteration(quota_entity(names), {quota: value})
    admin = await visit.admin()
    await admin.alter_client_quotas([alteration], validate_only=True)
    whose = ", ".join(f"{kind} {name}" for kind, name in sorted(names.items()))

    async def perform() -> str:
        await admin.alter_client_quotas([alteration])
        return f"{quota} of {whose} was {'removed' if value is None else 'set'}."

    options: list[tuple[str, str | int | bool | None]] = [
        (kind, name) for kind, name in sorted(names.items())
    ]
    words = ("quotas", "remove", quota) if value is None else ("quotas", "set")
    if value is not None:
        options.append((quota.replace("_", "-"), f"{value:g}"))
    return Change(
        question=f"{'Remove' if value is None else 'Set'} {quota} of {whose}?",
        button="Remove quota" if value is None else "Set quota",
        command=command_lines.line(*words, options=options),
        perform=perform,
        done="/quotas",
        back="/quotas",
        operation="AlterClientQuotas",
        resource=f"Quota:{whose}",
        facts=[("Whose", whose), ("Quota", quota), ("Value", "none" if value is None else f"{value:g}")],
    )


def _query(**parameters: str) -> str:
    from urllib.parse import urlencode

    return urlencode(parameters)
