"""Logs the brokers of `kalda start` in to their coordination server by SASL, for `zookeeper.set.acl`.

The broker of a single process needs no login, because its session is in-process; what it creates names the
same user. So the brokers of a later start with `--brokers N` may change it, and the other way round.
"""

import os
import secrets
from pathlib import Path
from typing import Final

from kalda.broker.process.errors import ProcessError
from kalda.security.tls.settings import TlsSettingsError
from kalda.security.zookeeper.client_security import read_client_security
from kalda.security.zookeeper.login_file import DIGEST_MODULE, LOGIN_FILE
from kalda.settings import BrokerConfig
from kalda.zookeeper.acl import ALL_BITS, READ_BIT, Acl
from kalda.zookeeper.znode_access import ZnodeAccess, access_of

USER: Final = "kalda"
"""The brokers' user, unless the operator's JAAS file names another; never changed: access lists name it."""

_FILE_NAME: Final = "login.conf"
_PASSWORD_BYTES: Final = 32


class OwnAcl:
    """The access lists of what a broker in the coordination server's process creates, for a user."""

    def __init__(self, user: str = USER) -> None:
        self.entry: Final = Acl(ALL_BITS, "sasl", user)
        """The entry with which the brokers may do everything."""
        self._readable: Final = (self.entry, Acl(READ_BIT, "world", "anyone"))

    def __call__(self, path: str) -> tuple[Acl, ...]:
        """Return the list of a path.

        Kafka leaves /consumers to the consumers of 0.8 and 0.9, each with an identity of its own. This server
        has no users besides the brokers, so there everybody could write as much as they like.
        """
        return (self.entry,) if access_of(path, is_secure=True) is ZnodeAccess.PRIVATE else self._readable


def login_user(config: BrokerConfig) -> str:
    """Return the name that the brokers of `kalda start --brokers N` log in with.

    Raises:
        ProcessError: the operator's own JAAS file cannot be used.
    """
    if config.java_security_auth_login_config is None:
        return USER
    try:
        login = read_client_security(config.value, restricts_access=True).login
    except TlsSettingsError as error:
        raise ProcessError(str(error)) from None
    return USER if login is None else login.user


def write_login(directory: Path) -> dict[str, str]:
    """Write a JAAS file with a new password, for server and brokers; return the setting that names it."""
    module = f"org.apache.zookeeper.server.auth.{DIGEST_MODULE} required"
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    text = (
        f'Server {{ {module} user_{USER}="{password}"; }};\n'
        f'Client {{ {module} username="{USER}" password="{password}"; }};\n'
    )
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _FILE_NAME
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return {LOGIN_FILE: str(path)}
