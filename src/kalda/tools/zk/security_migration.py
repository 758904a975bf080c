"""`kalda zk security-migration`: access lists for what is in ZooKeeper, as Kafka's ZkSecurityMigrator.

Brokers with `zookeeper.set.acl`=true give lists to what they create. This gives them to what is there, or
opens everything again. It can be repeated: every znode gets the list that the brokers would create it with.
"""

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError
from kalda.command.option_types import Integer
from kalda.command.zookeeper_security import security_of_options, zookeeper_security_option
from kalda.command.zookeeper_session import open_zookeeper
from kalda.tools.zk.group import zk

if TYPE_CHECKING:
    from kalda.zookeeper.client.ensemble_client import EnsembleClient

_TIMEOUT_OPTION: Final = "--zookeeper.connection.timeout"
_TIMEOUT_MS: Final = 30_000


@command("security-migration", zk, connects=False)
@click.option(
    "--zookeeper.acl",
    "acl",
    type=click.Choice(["secure", "unsecure"]),
    required=True,
    help="secure: only the user of this command, and so the brokers, may change what brokers keep in "
    "ZooKeeper. unsecure: everybody may.",
)
@click.option(
    "--zookeeper.connect",
    "--zookeeper",
    "zookeeper",
    metavar="HOST:PORT,...[/CHROOT]",
    default="localhost:2181",
    show_default=True,
    help="The servers, and the chroot if there is one.",
)
@click.option(
    _TIMEOUT_OPTION,
    "timeout_ms",
    type=Integer(1),
    default=_TIMEOUT_MS,
    show_default=True,
    metavar="MS",
    help="How long to try to connect.",
)
@click.option("--enable.path.check", "checks_paths", is_flag=True, help="Stop if a root is missing.")
@zookeeper_security_option
async def migrate(tool: Tool, acl: str, zookeeper: str, timeout_ms: int, checks_paths: bool) -> None:
    """Protect, or open, what brokers keep in ZooKeeper.

    The command must have the brokers' own identity, a certificate or a SASL login; --zk-tls-config-file names
    it. First restart the brokers with the identity, then with zookeeper.set.acl=true, then run this.
    """
    if not security_of_options().has_identity:
        raise ToolError(
            "access lists need an identity: give --zk-tls-config-file with a key store "
            "(zookeeper.ssl.client.enable, zookeeper.ssl.keystore.location) or a JAAS file "
            "(java.security.auth.login.config)"
        )
    async with open_zookeeper(
        "--zookeeper.connect", zookeeper, timeout_ms, _TIMEOUT_OPTION, restricts_access=acl == "secure"
    ) as client:
        changed = await _migrate(tool, client, checks_paths=checks_paths)
    tool.output.note(f"{changed} znodes have new access lists")


async def _migrate(tool: Tool, client: "EnsembleClient", *, checks_paths: bool) -> int:
    from kalda.zookeeper.errors import NodeExistsError
    from kalda.zookeeper.znode_access import CONTROLLER, ROOT, SECURE_ROOTS, SYSTEM_ROOTS

    missing = [path for path in SECURE_ROOTS if await client.exists(path) is None]
    if missing:
        text = f"these do not exist: {', '.join(missing)}; is the chroot right?"
        if checks_paths:
            raise ToolError(text)
        tool.output.note(text)
    changed = await _set_each(client, (ROOT, *SYSTEM_ROOTS))
    for path in SECURE_ROOTS:
        if path in missing:
            if path == CONTROLLER:
                continue
            try:
                await client.create(path)
            except NodeExistsError:
                tool.output.note(f"{path} was created meanwhile")
        changed += await _set_below(client, path)
    return changed


async def _set_each(client: "EnsembleClient", paths: Iterable[str]) -> int:
    """Change some znodes alone; return the number of those that exist: a chroot has no system znodes."""
    from kalda.zookeeper.errors import NoNodeError

    changed = 0
    for path in paths:
        with contextlib.suppress(NoNodeError):
            await client.set_access(path)
            changed += 1
    return changed


async def _set_below(client: "EnsembleClient", root: str) -> int:
    """Change a subtree; return the number of znodes. Those deleted meanwhile are left out."""
    from kalda.zookeeper.errors import NoNodeError

    waiting = [root]
    changed = 0
    while waiting:
        path = waiting.pop()
        try:
            await client.set_access(path)
            waiting.extend(f"{path}/{name}" for name in await client.children(path))
        except NoNodeError:
            continue
        changed += 1
    return changed
