"""The SASL login of the brokers of `kalda start` at their own coordination server, for `zookeeper.set.acl`.

The broker of a single process needs no login, because its session is in-process; what it creates names the
same user. So the brokers of a later start with `--brokers N` may change it, and the other way round.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kalda.security.zookeeper.login_file import DIGEST_MODULE, LOGIN_FILE
from kalda.zk.client.znode_access import ZnodeAccess, access_of
from kalda.zk.server.txns import OPEN_ACL, Acl

USER: Final = "kalda"
"""The brokers' user; access lists name it, so it never changes."""

_FILE_NAME: Final = "login.conf"
_PASSWORD_BYTES: Final = 32

_ALL: Final = Acl(31, "sasl", USER)
_ACLS: Final[Mapping[ZnodeAccess, tuple[Acl, ...]]] = {
    ZnodeAccess.OPEN: OPEN_ACL,
    ZnodeAccess.READABLE: (_ALL, Acl(1, "world", "anyone")),
    ZnodeAccess.PRIVATE: (_ALL,),
}


def own_acl(path: str) -> tuple[Acl, ...]:
    """Return the access list of what a broker in the coordination server's process creates."""
    return _ACLS[access_of(path, is_secure=True)]


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
