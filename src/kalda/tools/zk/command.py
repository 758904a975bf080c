"""The commands `kalda zk ls|get|set|create|rm|stat|shell`; without a verb the shell opens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kalda.tools.framework.command import Tool, command, noun
from kalda.tools.framework.errors import ToolError
from kalda.tools.zk import tree_commands

if TYPE_CHECKING:
    from kalda.zk.client.kazoo.ensemble_client import EnsembleClient

ADDRESS_DEFAULT: Final = "127.0.0.1:2181"

_SESSION_TIMEOUT_MS: Final = 30_000
_CONNECTION_TIMEOUT_MS: Final = 10_000

app = noun("Look at and change the tree of the coordination server or of a ZooKeeper ensemble.")

_ZooKeeper = Annotated[
    str,
    typer.Option(
        "--zookeeper", metavar="HOST:PORT,...", help="The servers, with /CHROOT behind them if any."
    ),
]
_Path = Annotated[str, typer.Argument(metavar="PATH", help="The absolute path of a znode.")]
_Version = Annotated[
    int,
    typer.Option(
        "--version", "-v", metavar="VERSION", help="Fail unless the znode has this version.", min=-1
    ),
]


@command(app, "ls", connects=False)
async def ls(
    tool: Tool,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The absolute path of a znode.")] = "/",
    recursive: Annotated[
        bool, typer.Option("--recursive", "-R", help="List the paths of all znodes below it.")
    ] = False,
    zookeeper: _ZooKeeper = ADDRESS_DEFAULT,
) -> None:
    """List the children of a znode."""
    await _run(tool, zookeeper, tree_commands.Ls(path, recursive))


@command(app, "get", connects=False)
async def get(
    tool: Tool,
    path: _Path,
    show_stat: Annotated[bool, typer.Option("--stat", "-s", help="Print the metadata too.")] = False,
    zookeeper: _ZooKeeper = ADDRESS_DEFAULT,
) -> None:
    """Print a znode's data."""
    await _run(tool, zookeeper, tree_commands.Get(path, show_stat))


@command(app, "stat", connects=False)
async def stat(tool: Tool, path: _Path, zookeeper: _ZooKeeper = ADDRESS_DEFAULT) -> None:
    """Print a znode's metadata."""
    await _run(tool, zookeeper, tree_commands.StatOf(path))


@command(app, "set", connects=False)
async def set_data(
    tool: Tool,
    path: _Path,
    data: Annotated[str, typer.Argument(metavar="DATA", help="The new data, as UTF-8 text.")],
    version: _Version = -1,
    zookeeper: _ZooKeeper = ADDRESS_DEFAULT,
) -> None:
    """Replace a znode's data."""
    await _run(tool, zookeeper, tree_commands.Set(path, data.encode(), version))


@command(app, "create", connects=False)
async def create(
    tool: Tool,
    path: _Path,
    data: Annotated[str, typer.Argument(metavar="[DATA]", help="Its data, as UTF-8 text.")] = "",
    sequential: Annotated[
        bool, typer.Option("--sequential", "-s", help="Append the parent's counter to the name.")
    ] = False,
    parents: Annotated[bool, typer.Option("--parents", "-p", help="Create missing parents too.")] = False,
    zookeeper: _ZooKeeper = ADDRESS_DEFAULT,
) -> None:
    """Create a znode."""
    await _run(tool, zookeeper, tree_commands.CreateNode(path, data.encode(), sequential, parents))


@command(app, "rm", connects=False)
async def rm(
    tool: Tool,
    path: _Path,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Delete everything below it first.")
    ] = False,
    version: _Version = -1,
    zookeeper: _ZooKeeper = ADDRESS_DEFAULT,
) -> None:
    """Delete a znode."""
    await _run(tool, zookeeper, tree_commands.Rm(path, recursive, version))


@command(app, "shell", connects=False)
def shell(tool: Tool, zookeeper: _ZooKeeper = ADDRESS_DEFAULT) -> None:
    """Open a shell over the tree: `ls`, `get`, `set`, `create`, `rm`, `stat`, `cd`; tab completes."""
    from kalda.tools.zk.shell import Shell

    async def close(client: "EnsembleClient") -> None:
        await client.close()

    with asyncio.Runner() as runner:
        client = runner.run(_connect(zookeeper))
        try:
            opened = Shell(runner, client, zookeeper, tool.output)
            opened.read_lines()
        finally:
            runner.run(close(client))
    if opened.failures:
        raise ToolError(f"{opened.failures} of the commands failed")


async def _run(tool: Tool, zookeeper: str, given: tree_commands.TreeCommand) -> None:
    from kalda.zk.client.path_validation import check_path
    from kalda.zk.client.zookeeper_errors import ZooKeeperError

    try:
        check_path(given.path if not isinstance(given, tree_commands.CreateNode) else f"{given.path}0")
        async with _client(zookeeper) as client:
            shown = await tree_commands.run(client, given)
    except ZooKeeperError as error:
        raise ToolError(str(error)) from error
    tool.output.item(shown.document, "\n".join(shown.lines))


@asynccontextmanager
async def _client(zookeeper: str) -> AsyncIterator["EnsembleClient"]:
    client = await _connect(zookeeper)
    try:
        yield client
    finally:
        await client.close()


async def _connect(zookeeper: str) -> "EnsembleClient":
    """Open a session; raises `ToolError` if no server takes it, or the chroot does not exist."""
    from kalda.zk.client.kazoo.ensemble_client import EnsembleClient
    from kalda.zk.client.zookeeper_errors import ZooKeeperError

    try:
        client = await EnsembleClient.connect(
            zookeeper,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            connection_timeout_ms=_CONNECTION_TIMEOUT_MS,
            creates_chroot=False,  # a typing error in an address must not leave znodes behind
        )
    except ZooKeeperError as error:
        raise ToolError(str(error)) from error
    try:
        if await client.exists("/") is None:
            raise ToolError(f"--zookeeper={zookeeper}: the chroot does not exist on these servers")
    except BaseException:
        await client.close()
        raise
    return client
