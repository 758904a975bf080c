"""`kalda delegation-tokens`: secrets for a limited time, as `kafka-delegation-tokens` (KIP-48)."""

import base64
import binascii
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.option_types import Integer
from kalda.command.output import Json
from kalda.command.tables import Table

if TYPE_CHECKING:
    from kalda.clients.admin.delegation_tokens import DelegationToken
    from kalda.security.principal import KafkaPrincipal

delegation_tokens = noun("Create, list, renew and end delegation tokens.")

_hmac_option = click.option(
    "--hmac", required=True, metavar="BASE64", help="The token's HMAC, as `create` wrote it."
)


@command("create", delegation_tokens)
@click.option(
    "--max-life-time-period",
    type=Integer(-1),
    default=-1,
    show_default=True,
    metavar="MS",
    help="How long the token can live with renewals; -1 for the broker's limit.",
)
@click.option(
    "--renewer-principal", multiple=True, metavar="User:NAME", help="Who may renew the token; repeatable."
)
@click.option("--owner-principal", metavar="User:NAME", help="Who logs in by the token; you unless given.")
async def create(
    tool: Tool, max_life_time_period: int, renewer_principal: tuple[str, ...], owner_principal: str | None
) -> None:
    """Create a token, and write its id and HMAC: the name and the password for a login by SCRAM."""
    owner = None if owner_principal is None else _principal(owner_principal)
    renewers = [_principal(text) for text in renewer_principal]
    async with tool.admin() as admin:
        token = await admin.create_delegation_token(
            renewers, owner=owner, max_lifetime_ms=max_life_time_period
        )
    _show(tool, [token])


@command("describe", delegation_tokens)
@click.option(
    "--owner-principal", multiple=True, metavar="User:NAME", help="Only tokens of this owner; repeatable."
)
async def describe(tool: Tool, owner_principal: tuple[str, ...]) -> None:
    """List the tokens that you may see, with their HMACs."""
    owners = [_principal(text) for text in owner_principal] or None
    async with tool.admin() as admin:
        found = await admin.describe_delegation_tokens(owners)
    _show(tool, sorted(found, key=lambda token: token.issued_at_ms))


@command("renew", delegation_tokens)
@_hmac_option
@click.option(
    "--renew-time-period",
    type=Integer(-1),
    default=-1,
    show_default=True,
    metavar="MS",
    help="When the token is to end, from now; -1 for the broker's default.",
)
async def renew(tool: Tool, hmac: str, renew_time_period: int) -> None:
    """Let a token end later."""
    secret = _secret(hmac)
    async with tool.admin() as admin:
        end_ms = await admin.renew_delegation_token(secret, renew_period_ms=renew_time_period)
    _show_end(tool, end_ms)


@command("expire", delegation_tokens)
@_hmac_option
@click.option(
    "--expiry-time-period",
    type=Integer(-1),
    default=-1,
    show_default=True,
    metavar="MS",
    help="When the token is to end, from now; -1 deletes it.",
)
async def expire(tool: Tool, hmac: str, expiry_time_period: int) -> None:
    """Let a token end sooner, or delete it."""
    secret = _secret(hmac)
    async with tool.admin() as admin:
        end_ms = await admin.expire_delegation_token(secret, expiry_period_ms=expiry_time_period)
    _show_end(tool, end_ms)


def _principal(text: str) -> "KafkaPrincipal":
    from kalda.security.principal import KafkaPrincipal

    kind, separator, name = text.partition(":")
    if not separator or not kind or not name:
        raise ToolUsageError(f"{text} is no principal; write type:name, e.g. User:alice")
    return KafkaPrincipal(kind, name)


def _secret(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ToolUsageError("--hmac takes the base64 text that `create` wrote") from None


def _show(tool: Tool, tokens: "list[DelegationToken]") -> None:
    document: list[Json] = []
    rows = []
    for token in tokens:
        hmac = base64.b64encode(token.hmac).decode()
        renewers = [str(each) for each in token.renewers]
        document.append(
            {
                "token_id": token.token_id,
                "hmac": hmac,
                "owner": str(token.owner),
                "requester": str(token.requester),
                "renewers": list(renewers),
                "issued_at_ms": token.issued_at_ms,
                "expires_at_ms": token.expires_at_ms,
                "max_at_ms": token.max_at_ms,
            }
        )
        rows.append(
            (
                token.token_id,
                hmac,
                str(token.owner),
                str(token.requester),
                ", ".join(renewers),
                _time(token.issued_at_ms),
                _time(token.expires_at_ms),
                _time(token.max_at_ms),
            )
        )
    header = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
    tool.output.result(
        {"tokens": document}, Table(header, rows, empty="There are no tokens that you may see.")
    )


def _show_end(tool: Tool, end_ms: int) -> None:
    tool.output.result({"expires_at_ms": end_ms}, f"The token ends at {_time(end_ms)}.")


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
