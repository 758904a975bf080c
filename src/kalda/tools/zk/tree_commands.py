"""The commands of the shell as values, and their execution on a `ZooKeeperClient`.

The command line and the interactive shell build the same values, so both do and print the same.

What must not break: a command that deletes more than one znode needs ``recursive``, and none deletes the
root.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias, assert_never

from kalda.tools.bytes_text import JsonValue, json_field, readable
from kalda.zookeeper.errors import BadArgumentsError, BadVersionError, NoNodeError
from kalda.zookeeper.port import ANY_VERSION, Stat, ZooKeeperClient

_PROTECTED: Final = ("/", "/zookeeper")
"""ZooKeeper itself refuses to delete these; `rm -r` would delete what is below them first."""


@dataclass(frozen=True, slots=True)
class Ls:
    """List the children of a znode; `recursive` lists every znode below it by its whole path."""

    path: str
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class Get:
    """Show a znode's data; with `show_stat` its metadata too."""

    path: str
    show_stat: bool = False


@dataclass(frozen=True, slots=True)
class StatOf:
    """Show a znode's metadata."""

    path: str


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a znode's data, if its version is `version`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Create a znode; `parents` creates missing parents with no data."""

    path: str
    data: bytes = b""
    sequential: bool = False
    parents: bool = False


@dataclass(frozen=True, slots=True)
class Rm:
    """Delete a znode, if its version is `version`; `recursive` deletes what is below it first."""

    path: str
    recursive: bool = False
    version: int = ANY_VERSION


TreeCommand: TypeAlias = Ls | Get | StatOf | Set | CreateNode | Rm


@dataclass(frozen=True, slots=True)
class Shown:
    """What a command found: the JSON document and the lines of text."""

    document: JsonValue
    lines: tuple[str, ...]


async def run(client: ZooKeeperClient, command: TreeCommand) -> Shown:
    """Execute a command.

    Raises:
        ZooKeeperError: the server refused it; for `Rm` some znodes may be deleted already.
    """
    match command:
        case Ls():
            return await _ls(client, command)
        case Get():
            data, stat = await client.get(command.path)
            lines = (readable(data), *(stat_lines(stat) if command.show_stat else ()))
            shown = {"path": command.path, **json_field("data", data), "stat": stat_fields(stat)}
            return Shown(shown, lines)
        case StatOf():
            found = await client.exists(command.path)
            if found is None:
                raise NoNodeError(f"{command.path} does not exist", command.path)
            return Shown({"path": command.path, "stat": stat_fields(found)}, stat_lines(found))
        case Set():
            stat = await client.set(command.path, command.data, command.version)
            return Shown(
                {"path": command.path, "stat": stat_fields(stat)}, (f"version {stat.version} written",)
            )
        case CreateNode():
            return await _create(client, command)
        case Rm():
            return await _rm(client, command)
    assert_never(command)


def stat_fields(stat: Stat) -> dict[str, JsonValue]:
    """Return a znode's metadata as ZooKeeper's ``Stat`` names its fields."""
    return {
        "czxid": stat.czxid,
        "ctime": stat.ctime,
        "mzxid": stat.mzxid,
        "mtime": stat.mtime,
        "pzxid": stat.pzxid,
        "cversion": stat.cversion,
        "version": stat.version,
        "aversion": stat.aversion,
        "ephemeralOwner": stat.ephemeral_owner,
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    }


def stat_lines(stat: Stat) -> tuple[str, ...]:
    """Return a znode's metadata as ``zkCli.sh stat`` prints it, with times in ISO 8601."""
    shown: Mapping[str, object] = {
        "cZxid": hex(stat.czxid),
        "ctime": _time(stat.ctime),
        "mZxid": hex(stat.mzxid),
        "mtime": _time(stat.mtime),
        "pZxid": hex(stat.pzxid),
        "cversion": stat.cversion,
        "dataVersion": stat.version,
        "aclVersion": stat.aversion,
        "ephemeralOwner": hex(stat.ephemeral_owner),
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    }
    return tuple(f"{name} = {value}" for name, value in shown.items())


def child_path(parent: str, name: str) -> str:
    """Return the path of a child."""
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


async def _ls(client: ZooKeeperClient, command: Ls) -> Shown:
    if not command.recursive:
        names = await client.children(command.path)
        return Shown({"path": command.path, "children": [*names]}, tuple(names))
    paths = [command.path, *await _below(client, command.path)]
    return Shown({"path": command.path, "paths": [*paths]}, tuple(paths))


async def _below(client: ZooKeeperClient, path: str) -> list[str]:
    """Return the paths below a znode, parents first; those that vanish meanwhile are left out."""
    found: list[str] = []
    names = await client.children(path)
    waiting = [child_path(path, name) for name in reversed(names)]
    while waiting:
        current = waiting.pop()
        try:
            names = await client.children(current)
        except NoNodeError:
            continue
        found.append(current)
        waiting += [child_path(current, name) for name in reversed(names)]
    return found


async def _create(client: ZooKeeperClient, command: CreateNode) -> Shown:
    if command.parents:
        names = command.path.split("/")
        for end in range(2, len(names)):
            parent = "/".join(names[:end])
            if await client.exists(parent) is None:
                await client.create(parent)
    path = await client.create(command.path, command.data, sequential=command.sequential)
    return Shown({"path": path}, (f"{path} created",))


async def _rm(client: ZooKeeperClient, command: Rm) -> Shown:
    if command.path in _PROTECTED:
        raise BadArgumentsError(f"{command.path} cannot be deleted; name a znode below it", command.path)
    deleted: list[str] = []
    if command.recursive:
        stat = await client.exists(command.path)
        if stat is not None and command.version not in (ANY_VERSION, stat.version):
            # Checked before anything below it is deleted; the deletion itself checks it again.
            text = f"{command.path} has version {stat.version}, not {command.version}; nothing is deleted"
            raise BadVersionError(text, command.path)
        for path in reversed(await _below(client, command.path)):
            try:
                await client.delete(path)
            except NoNodeError:
                continue  # another client deleted it
            deleted.append(path)
    await client.delete(command.path, command.version)
    deleted.append(command.path)
    count = "" if len(deleted) == 1 else f" and {len(deleted) - 1} below it"
    return Shown({"path": command.path, "deleted": [*deleted]}, (f"{command.path}{count} deleted",))


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
