"""The option `--zk-tls-config-file` of the tools that talk to ZooKeeper, and what its file says.

The file is Kafka's: properties such as ``zookeeper.ssl.client.enable``. Here it may also name the JAAS file
of a SASL login, for which Kafka's scripts take a system property of the JVM.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kalda.command.errors import ToolError

if TYPE_CHECKING:
    from kalda.security.zookeeper.client_security import ClientSecurity

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_OPTION: Final = "--zk-tls-config-file"
_KEPT_AS: Final = "kalda.zk_tls_config_file"


def zookeeper_security_option(function: Decorated) -> Decorated:
    """Add the option. Its value is kept in click's context, so no command passes it on."""
    return click.option(
        _OPTION,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        expose_value=False,
        callback=_keep,
        help="A file of properties for TLS to ZooKeeper (zookeeper.ssl.…) and a SASL login there "
        "(java.security.auth.login.config).",
    )(function)


def security_of_options(*, restricts_access: bool = False) -> "ClientSecurity":
    """Return how the running command connects to ZooKeeper: plaintext without the option.

    With `restricts_access`, what it creates gets access lists if the file gives it an identity.

    Raises:
        ToolError: the file, or one that it names, cannot be used.
    """
    from kalda.common.config_def import ConfigDef, ConfigError
    from kalda.common.properties import PropertiesError, read_properties
    from kalda.security.tls.settings import TlsSettingsError
    from kalda.security.zookeeper.client_security import PLAINTEXT, SETTINGS, read_client_security
    from kalda.settings.definitions.zookeeper import ZooKeeperSecurityConfig

    context = click.get_current_context(silent=True)
    path = None if context is None else context.meta.get(_KEPT_AS)
    if path is None:
        return PLAINTEXT
    definitions = ConfigDef(ZooKeeperSecurityConfig.definitions().values())
    try:
        # Other properties are ignored, as in Kafka: the file may be a broker's.
        given = {name: value for name, value in read_properties(path).items() if name in SETTINGS}
        values = {**definitions.defaults, **definitions.parse(given)}
        security = read_client_security(values.get)
        if restricts_access and security.has_identity:
            security = read_client_security(values.get, restricts_access=True)
    except OSError as error:
        raise ToolError(f"{_OPTION}={path}: {error.strerror}") from error
    except (PropertiesError, ConfigError, TlsSettingsError) as error:
        raise ToolError(f"{_OPTION}={path}: {error}") from error
    return security


def _keep(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.meta[_KEPT_AS] = value
