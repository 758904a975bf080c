"""`kalda users`: the users that log in by SCRAM, as `kafka-configs --entity-type users` manages them.

With `--zookeeper` the verb `set` writes to ZooKeeper itself, so that the users of brokers exist before the
first broker starts.
"""

import sys
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolUsageError
from kalda.command.option_types import Integer
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.zookeeper_security import zookeeper_security_option

if TYPE_CHECKING:
    from kalda.clients.admin.outcomes import Outcomes
    from kalda.clients.admin.users import ScramCredentialInfo, ScramMechanism

users = noun("List, set and delete the users that log in by SCRAM.")

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_ZOOKEEPER_TIMEOUT_MS = 10_000
_ITERATIONS = (4096, 16384)
"""The bounds of brokers."""

_mechanism_option = click.option(
    "--mechanism",
    multiple=True,
    type=click.Choice(_MECHANISMS, case_sensitive=False),
    help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable. Both unless given.",
)


@command("list", users)
async def list_users(tool: Tool) -> None:
    """List the users that have a credential, with their mechanisms."""
    async with tool.admin() as admin:
        found = await admin.describe_user_scram_credentials()
    _show(tool, found)


@command("describe", users)
@click.argument("user", nargs=-1, required=True)
async def describe(tool: Tool, user: tuple[str, ...]) -> None:
    """Describe users: the mechanisms by which they can log in."""
    async with tool.admin() as admin:
        found = await admin.describe_user_scram_credentials(user, outcomes=True)
    _show(tool, found)
    raise_for(tool.output, found.errors.values())


@command("set", users)
@click.argument("user")
@_mechanism_option
@click.option(
    "--iterations",
    type=Integer(*_ITERATIONS),
    default=_ITERATIONS[0],
    show_default=True,
    help="How often the password is hashed, which makes guessing slow.",
)
@click.option(
    "--password",
    metavar="TEXT",
    help="The password; other users of this machine may see it among the processes. Without the option it is "
    "asked for, or read from the first line of stdin.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[,…]",
    help="Write to ZooKeeper instead of asking a broker, as before the first broker starts.",
)
@zookeeper_security_option
async def set_user(
    tool: Tool,
    user: str,
    mechanism: tuple[str, ...],
    iterations: int,
    password: str | None,
    zookeeper: str | None,
) -> None:
    """Add a user, or replace the credentials of one. Brokers get a salted hash, never the password."""
    if not user:
        raise ToolUsageError("the user's name is empty")
    secret = _read_password(user) if password is None else password
    if not secret:
        raise ToolUsageError("the password is empty")
    names = mechanism or _MECHANISMS
    if zookeeper is None:
        await _set_by_broker(tool, user, names, iterations, secret)
    else:
        await _set_in_zookeeper(zookeeper, user, names, iterations, secret)
    tool.output.result(
        {"user": user, "mechanisms": list(names), "iterations": iterations},
        f"User {user} can log in by {' and '.join(names)}.",
    )


@command("delete", users)
@click.argument("user")
@_mechanism_option
async def delete(tool: Tool, user: str, mechanism: tuple[str, ...]) -> None:
    """Delete credentials of a user: those of the named mechanisms, or all."""
    from kalda.clients.admin.users import ScramCredentialDeletion

    async with tool.admin() as admin:
        kinds = [_kind(name) for name in mechanism]
        if not kinds:
            found = await admin.describe_user_scram_credentials([user])
            kinds = [info.mechanism for info in found[user]]
        await admin.alter_user_scram_credentials([ScramCredentialDeletion(user, kind) for kind in kinds])
    names = [kind.value for kind in kinds]
    tool.output.result(
        {"user": user, "deleted": names}, f"User {user} can no longer log in by {' and '.join(names)}."
    )


def _kind(name: str) -> "ScramMechanism":
    from kalda.clients.admin.users import ScramMechanism

    return ScramMechanism(name.upper())


def _show(tool: Tool, found: "Outcomes[str, list[ScramCredentialInfo]]") -> None:
    rows = [
        (user, info.mechanism.value, info.iterations)
        for user, infos in sorted(found.results.items())
        for info in infos
    ]
    document = [
        {
            "user": user,
            "credentials": [
                {"mechanism": info.mechanism.value, "iterations": info.iterations}
                for info in found.results.get(user, [])
            ],
            "error": error_json(found.errors.get(user)),
        }
        for user in sorted(found)
    ]
    tool.output.result(
        {"users": document},
        Table(
            ("USER", "MECHANISM", "ITERATIONS"),
            rows,
            empty=None if found.errors else "No user can log in by SCRAM.",
        ),
    )


def _read_password(user: str) -> str:
    if sys.stdin.isatty():
        text: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        return text
    return sys.stdin.readline().rstrip("\r\n")


async def _set_by_broker(
    tool: Tool, user: str, mechanisms: tuple[str, ...], iterations: int, password: str
) -> None:
    from kalda.clients.admin.users import ScramCredentialUpsertion

    async with tool.admin() as admin:
        await admin.alter_user_scram_credentials(
            [ScramCredentialUpsertion(user, _kind(name), password, iterations) for name in mechanisms]
        )


async def _set_in_zookeeper(
    zookeeper: str, user: str, mechanisms: tuple[str, ...], iterations: int, password: str
) -> None:
    from kalda.cluster.cluster_store import ClusterStore
    from kalda.cluster.scram_users import set_scram_user
    from kalda.command.zookeeper_session import open_zookeeper
    from kalda.runtime.system.clock import SystemClock
    from kalda.runtime.system.random import SYSTEM_RANDOM

    async with open_zookeeper(
        "--zookeeper", zookeeper, _ZOOKEEPER_TIMEOUT_MS, restricts_access=True
    ) as client:
        store = ClusterStore(client, SystemClock(), SYSTEM_RANDOM)
        await store.ensure_layout()
        await set_scram_user(store, user, [name.upper() for name in mechanisms], password, iterations)
