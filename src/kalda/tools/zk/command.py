"""The commands `kalda zk ls|get|set|create|rm|stat|shell`."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError
from kalda.command.option_types import Integer
from kalda.command.zookeeper_security import zookeeper_security_option
from kalda.command.zookeeper_session import connect_zookeeper, open_zookeeper
from kalda.tools.zk import security_migration, tree_commands
from kalda.tools.zk.group import zk

Decorated = TypeVar("Decorated", bound=Callable[..., object])

if TYPE_CHECKING:
    pass

ADDRESS_DEFAULT: Final = "127.0.0.1:2181"

__all__ = ["security_migration", "zk"]

_TIMEOUT_OPTION: Final = "--connection-timeout-ms"
_CONNECTION_TIMEOUT_MS: Final = 10_000


def _servers(function: Decorated) -> Decorated:
    """Add the options that say where the servers are."""
    function = zookeeper_security_option(function)
    function = click.option(
        _TIMEOUT_OPTION,
        type=Integer(1),
        default=_CONNECTION_TIMEOUT_MS,
        show_default=True,
        metavar="MS",
        help="How long to try to connect.",
    )(function)
    return click.option(
        "--zookeeper",
        metavar="HOST:PORT,...[/CHROOT]",
        default=ADDRESS_DEFAULT,
        show_default=True,
        help="The servers, and the chroot if there is one.",
    )(function)


_path = click.argument("path", metavar="PATH")
_version = click.option(
    "--version",
    "-v",
    type=Integer(-1),
    default=-1,
    metavar="VERSION",
    help="Fail unless this is the version.",
)


@command("ls", zk, connects=False)
@click.argument("path", metavar="[PATH]", default="/")
@click.option("--recursive", "-R", is_flag=True, help="List the paths of all znodes below it.")
@_servers
async def ls(tool: Tool, path: str, recursive: bool, zookeeper: str, connection_timeout_ms: int) -> None:
    """List the children of a znode."""
    await _run(tool, zookeeper, connection_timeout_ms, tree_commands.Ls(path, recursive))


@command("get", zk, connects=False)
@_path
@click.option("--stat", "-s", "show_stat", is_flag=True, help="Print the metadata too.")
@_servers
async def get(tool: Tool, path: str, show_stat: bool, zookeeper: str, connection_timeout_ms: int) -> None:
    """Print a znode's data."""
    await _run(tool, zookeeper, connection_timeout_ms, tree_commands.Get(path, show_stat))


@command("stat", zk, connects=False)
@_path
@_servers
async def stat(tool: Tool, path: str, zookeeper: str, connection_timeout_ms: int) -> None:
    """Print a znode's metadata."""
    await _run(tool, zookeeper, connection_timeout_ms, tree_commands.StatOf(path))


@command("set", zk, connects=False)
@_path
@click.argument("data", metavar="DATA")
@_version
@_servers
async def set_data(
    tool: Tool, path: str, data: str, version: int, zookeeper: str, connection_timeout_ms: int
) -> None:
    """Replace a znode's data with a text."""
    await _run(tool, zookeeper, connection_timeout_ms, tree_commands.Set(path, data.encode(), version))


@command("create", zk, connects=False)
@_path
@click.argument("data", metavar="[DATA]", default="")
@click.option("--sequential", "-s", is_flag=True, help="Append the parent's counter to the name.")
@click.option("--parents", "-p", is_flag=True, help="Create missing parents too.")
@_servers
async def create(
    tool: Tool,
    path: str,
    data: str,
    sequential: bool,
    parents: bool,
    zookeeper: str,
    connection_timeout_ms: int,
) -> None:
    """Create a znode."""
    await _run(
        tool,
        zookeeper,
        connection_timeout_ms,
        tree_commands.CreateNode(path, data.encode(), sequential, parents),
    )


@command("rm", zk, connects=False)
@_path
@click.option("--recursive", "-r", is_flag=True, help="Delete everything below it first.")
@_version
@_servers
async def rm(
    tool: Tool, path: str, recursive: bool, version: int, zookeeper: str, connection_timeout_ms: int
) -> None:
    """Delete a znode."""
    await _run(tool, zookeeper, connection_timeout_ms, tree_commands.Rm(path, recursive, version))


@command("shell", zk, connects=False)
@_servers
def shell(tool: Tool, zookeeper: str, connection_timeout_ms: int) -> None:
    """Open a shell over the tree, with `ls`, `get`, `set`, `create`, `rm`, `stat` and `cd`; tab completes.

    Commands can come from a pipe too; the exit code is then 1 if one of them failed.
    """
    from kalda.clients.loop_thread import LoopThread
    from kalda.tools.zk.shell import Shell

    with contextlib.closing(LoopThread("the shell")) as loop:
        client = loop.call(
            connect_zookeeper("--zookeeper", zookeeper, connection_timeout_ms, _TIMEOUT_OPTION)
        )
        opened = Shell(loop, client, zookeeper, tool.output)
        try:
            opened.read_lines()
        finally:
            loop.call(client.close())
    if opened.failures and not opened.is_interactive:
        raise ToolError(f"{opened.failures} of the commands failed")


async def _run(
    tool: Tool, zookeeper: str, connection_timeout_ms: int, given: tree_commands.TreeCommand
) -> None:
    from kalda.zookeeper.errors import ZooKeeperError
    from kalda.zookeeper.path_validation import check_path

    try:
        check_path(given.path if not isinstance(given, tree_commands.CreateNode) else f"{given.path}0")
        async with open_zookeeper("--zookeeper", zookeeper, connection_timeout_ms, _TIMEOUT_OPTION) as client:
            shown = await tree_commands.run(client, given)
    except ZooKeeperError as error:
        raise ToolError(str(error)) from error
    tool.output.item(shown.document, "\n".join(shown.lines))
