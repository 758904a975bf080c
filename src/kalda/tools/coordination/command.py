"""The commands of `kalda coordination`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError

if TYPE_CHECKING:
    from kalda.cluster.engine_migration.migration import Copied, Migration

coordination = noun("Move a cluster between ZooKeeper, etcd and `kalda start`.")

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])

_ZOOKEEPER: Final = "zookeeper://"


def _engines(function: _Decorated) -> _Decorated:
    config = click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="A broker's settings: how to connect (zookeeper.ssl…, java.security.auth.login.config, etcd.…).",
    )
    target = click.argument("target", metavar="TARGET")
    source = click.argument("source", metavar="SOURCE")
    return source(target(config(function)))


@command("migrate", coordination, connects=False)
@_engines
async def migrate(tool: Tool, source: str, target: str, config: Path | None) -> None:
    """Move a stopped cluster to another engine.

    SOURCE and TARGET are zookeeper://host:port,…[/chroot], etcd://host:port,…[/prefix], or embedded:DIR with
    the directory of `kalda start`. All brokers must be stopped. The command closes both engines for brokers,
    copies, reads both again to verify, switches, and opens the target. It may be repeated after it was
    interrupted; until the switch, `kalda coordination back` opens the source again.
    """
    async with _migration(tool, source, target, config) as migration:
        copied = await _done(migration.migrate())
    _report(tool, copied, f"the cluster is at {target}: start its brokers there")


@command("copy", coordination, connects=False)
@_engines
async def copy(tool: Tool, source: str, target: str, config: Path | None) -> None:
    """Copy ahead while the cluster runs.

    It may be repeated. `kalda coordination migrate` then has to write only what has changed since, so that
    the cluster is stopped for a short time.
    """
    async with _migration(tool, source, target, config) as migration:
        copied = await _done(migration.copy())
    _report(tool, copied, f"{target} has a copy, and is closed for brokers until the migration")


@command("back", coordination, connects=False)
@_engines
async def back(tool: Tool, source: str, target: str, config: Path | None) -> None:
    """Undo a migration, with the same arguments.

    Before the switch, it opens the source and deletes the copy. After it, the brokers must be stopped, and
    what the cluster has changed since is moved back.
    """
    async with _migration(tool, source, target, config) as migration:
        copied = await _done(migration.back())
    _report(tool, copied, f"the cluster is at {source}: start its brokers there")


@command("status", coordination, connects=False)
@_engines
async def status(tool: Tool, source: str, target: str, config: Path | None) -> None:
    """Say which engine is the right one; change nothing."""
    async with _migration(tool, source, target, config, creates=False) as migration:
        right = await _done(migration.status())
    tool.output.result(
        {"right": right.address, "state": right.state, "next": right.next or None},
        f"right: {right.address or 'neither'}",
        f"state: {right.state}",
        f"next:  {right.next or 'nothing'}",
    )


@asynccontextmanager
async def _migration(
    tool: Tool, source: str, target: str, config: Path | None, *, creates: bool = True
) -> AsyncIterator["Migration"]:
    from kalda.cluster.engine_migration.migration import Engine, Migration
    from kalda.runtime.system.random import SYSTEM_RANDOM
    from kalda.tools.coordination.engines import is_same_engine, normalized, open_engine, settings_of

    first, second = normalized(source), normalized(target)
    if is_same_engine(first, second):
        raise ToolUsageError(f"SOURCE and TARGET are the same: {first}")
    settings = settings_of(config)
    async with (
        open_engine(first, settings, creates=False) as one,
        open_engine(second, settings, creates=creates) as other,
    ):
        yield Migration(
            Engine(first, one),
            Engine(second, other),
            SYSTEM_RANDOM,
            on_step=lambda step: tool.output.note(step.value),
            copies_access=first.startswith(_ZOOKEEPER) and second.startswith(_ZOOKEEPER),
        )


_Result = TypeVar("_Result")


async def _done(work: Awaitable[_Result]) -> _Result:
    from kalda.cluster.engine_migration.decision import MigrationError
    from kalda.cluster.engine_migration.marker import EngineClosedError
    from kalda.zookeeper.errors import ZooKeeperError

    try:
        return await work
    except (MigrationError, EngineClosedError, ZooKeeperError) as error:
        raise ToolError(str(error)) from error


def _report(tool: Tool, copied: "Copied", text: str) -> None:
    counts = f"{copied.znodes} znodes, {copied.written} written"
    digest = f", SHA-256 {copied.digest}" if copied.digest else ""
    tool.output.result(
        {"znodes": copied.znodes, "written": copied.written, "sha256": copied.digest or None, "state": text},
        f"{counts}{digest}",
        text,
    )
