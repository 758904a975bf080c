"""Opens an engine by its address, for a tool.

==============================================  =======================================================
address                                         engine
==============================================  =======================================================
``zookeeper://host:port[,host:port…][/chroot]``  a ZooKeeper ensemble, or `kalda zookeeper`
``etcd://host:port[,host:port…][/prefix]``       etcd
``embedded:DIR``                                 the stopped coordination server of `kalda start --dir DIR`
==============================================  =======================================================
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kalda.command.errors import ToolError, ToolUsageError

if TYPE_CHECKING:
    from kalda.common.config_def import ConfigValue
    from kalda.zookeeper.port import ZooKeeperClient

EMBEDDED: Final = "embedded"
_VERSION_DIRECTORY: Final = "version-2"
_SESSION_TIMEOUT_MS: Final = 30_000
_CONNECTION_TIMEOUT_MS: Final = 15_000


def is_embedded(address: str) -> bool:
    """Return whether an address names a directory."""
    return address.startswith(f"{EMBEDDED}:")


def normalized(address: str) -> str:
    """Return an address as markers keep it: a directory by its whole path.

    Raises:
        ToolUsageError: it names no engine.
    """
    from kalda.etcd.address import ETCD, parse_etcd_address, split_scheme
    from kalda.zookeeper.errors import BadArgumentsError

    if is_embedded(address):
        return f"{EMBEDDED}:{_directory(address).resolve()}"
    try:
        scheme, rest = split_scheme(address)
        if scheme == ETCD:
            parse_etcd_address(rest)
    except BadArgumentsError:
        raise ToolUsageError(
            f"{address} names no engine: use zookeeper://host:port[,host:port…][/chroot], "
            "etcd://host:port[,host:port…][/prefix], or embedded:DIR, where DIR is that of `kalda start`"
        ) from None
    return address.rstrip("/")


def is_same_engine(first: str, second: str) -> bool:
    """Return whether two normalized addresses name one engine: one server, and one prefix or chroot.

    Two names of one server are not noticed; a migration then finds that its target has a cluster already.

    >>> is_same_engine("etcd://a:2379,b:2379/kalda", "etcd://b")
    True
    """
    from kalda.etcd.address import ETCD, parse_etcd_address, split_scheme

    if first == second or is_embedded(first) or is_embedded(second):
        return first == second
    (scheme, one), (other_scheme, two) = split_scheme(first), split_scheme(second)
    if scheme != other_scheme:
        return False
    if scheme == ETCD:
        left, right = parse_etcd_address(one), parse_etcd_address(two)
        return left.prefix == right.prefix and bool(set(left.endpoints) & set(right.endpoints))
    servers, _, chroot = one.partition("/")
    other_servers, _, other_chroot = two.partition("/")
    return chroot == other_chroot and bool(set(servers.split(",")) & set(other_servers.split(",")))


def settings_of(path: Path | None) -> "dict[str, ConfigValue]":
    """Read the settings of connections from a broker's file.

    Raises:
        ToolError: the file cannot be used.
    """
    from kalda.common.config_def import ConfigDef, ConfigError
    from kalda.common.properties import PropertiesError, read_properties
    from kalda.settings.definitions.etcd import CoordinationConfig
    from kalda.settings.definitions.zookeeper import ZooKeeperSecurityConfig

    known = ConfigDef(
        [*CoordinationConfig.definitions().values(), *ZooKeeperSecurityConfig.definitions().values()]
    )
    if path is None:
        return dict(known.defaults)
    try:
        # Other properties are a broker's.
        given = {name: value for name, value in read_properties(path).items() if name in known.defaults}
        return {**known.defaults, **known.parse(given)}
    except OSError as error:
        raise ToolError(f"--config={path}: {error.strerror}") from error
    except (PropertiesError, ConfigError) as error:
        raise ToolError(f"--config={path}: {error}") from error


@asynccontextmanager
async def open_engine(
    address: str, settings: "Mapping[str, ConfigValue]", *, creates: bool
) -> AsyncIterator["ZooKeeperClient"]:
    """Open a session with an engine and end it behind the block.

    With `creates`, a missing chroot or directory is made.

    Raises:
        ToolError: the engine does not answer or is in use, or a setting is not valid.
    """
    from kalda.etcd.address import ETCD, split_scheme

    if is_embedded(address):
        async with _embedded(_directory(address), creates=creates) as client:
            yield client
        return
    scheme, rest = split_scheme(address)
    client = await (_etcd(rest, settings) if scheme == ETCD else _zookeeper(rest, settings, creates=creates))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def _embedded(directory: Path, *, creates: bool) -> AsyncIterator["ZooKeeperClient"]:
    from kalda.runtime.system.background import EventLoopExecutor
    from kalda.runtime.system.clock import SystemClock
    from kalda.runtime.system.filesystem import OsFileSystem
    from kalda.zookeeper.server.data_directory_errors import CorruptionError, DirectoryInUseError
    from kalda.zookeeper.server.embedded import EmbeddedServer

    data = directory if (directory / _VERSION_DIRECTORY).is_dir() else directory / "zookeeper"
    if not creates and not (data / _VERSION_DIRECTORY).is_dir():
        raise ToolError(f"embedded:{directory} has no data of a coordination server (no {data}/version-2)")
    async with EventLoopExecutor(asyncio.get_running_loop()) as executor:
        server = EmbeddedServer(
            str(data), filesystem=OsFileSystem(is_private=True), executor=executor, clock=SystemClock()
        )
        try:
            data.mkdir(parents=True, exist_ok=True)
            server.start()
        except DirectoryInUseError as error:
            raise ToolError(f"{error} (embedded:{directory} is for a stopped cluster)") from None
        except (CorruptionError, OSError) as error:
            raise ToolError(f"embedded:{directory}: {error}") from None
        try:
            yield await server.connect()
        finally:
            await server.close()


async def _etcd(address: str, settings: "Mapping[str, ConfigValue]") -> "ZooKeeperClient":
    from kalda.etcd.security import EtcdSettingsError, read_etcd_security
    from kalda.zookeeper.errors import ZooKeeperError

    try:
        from kalda.etcd.client import EtcdClient
        from kalda.etcd.connection import grpc_links
    except ImportError:
        raise ToolError(
            "etcd needs the library grpcio, which is not installed: run pip install 'kalda[etcd]'"
        ) from None
    try:
        return await EtcdClient.connect(
            address,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            connection_timeout_ms=_CONNECTION_TIMEOUT_MS,
            open_link=grpc_links(read_etcd_security(settings.get)),
        )
    except EtcdSettingsError as error:
        raise ToolError(str(error)) from None
    except ZooKeeperError as error:
        raise ToolError(_without_setting(error)) from None


async def _zookeeper(
    address: str, settings: "Mapping[str, ConfigValue]", *, creates: bool
) -> "ZooKeeperClient":
    from kalda.security.tls.settings import TlsSettingsError
    from kalda.security.zookeeper.client_security import read_client_security
    from kalda.zookeeper.client.ensemble_client import EnsembleClient
    from kalda.zookeeper.errors import ZooKeeperError

    try:
        security = read_client_security(
            settings.get, restricts_access=settings.get("zookeeper.set.acl") is True
        )
        client = await EnsembleClient.connect(
            address,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            connection_timeout_ms=_CONNECTION_TIMEOUT_MS,
            security=security,
            creates_chroot=creates,
        )
    except TlsSettingsError as error:
        raise ToolError(f"--config: {error}") from None
    except ZooKeeperError as error:
        raise ToolError(_without_setting(error)) from None
    if await client.exists("/") is None:
        await client.close()
        raise ToolError(f"zookeeper://{address}: the chroot does not exist on these servers")
    return client


def _directory(address: str) -> Path:
    # ``embedded://DIR`` looks like the other two.
    return Path(address.removeprefix(f"{EMBEDDED}:").removeprefix("//"))


def _without_setting(error: Exception) -> str:
    """Return a client's message without the broker's setting, which a tool does not have."""
    return (
        str(error)
        .replace(" (`zookeeper.connection.timeout.ms`)", "")
        .replace("`zookeeper.connect`=", "zookeeper://")
    )
