"""Makes what `kalda start --secure` needs, at the first start: authority, certificates, users, settings.

Layout of the directory, beside what every start has::

    client.properties     how to connect as the administrator; for the tools of Kalda and of Kafka
    ca.pem                the authority that clients trust
    security/             the authority's key, the brokers' certificate, users, settings: only for brokers

Later starts keep all of it; only the brokers' certificate is made again when it expires soon or lacks a name
of this machine, and `client.properties` gets the addresses of the brokers that run. Every file can be read by
its owner alone. `security` appears in one step, so a start that was killed leaves all of it or nothing.
"""

import json
import logging
import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kalda.broker.process.config import DEFAULT_HOST
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.scram_users import USERS, set_scram_user
from kalda.common.sanitizer import sanitize
from kalda.runtime.system.named_file import read_named_file
from kalda.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from kalda.security.tls.authority import Certificate, CertificateAuthority
from kalda.security.tls.certificate_identity import identity_of
from kalda.settings import BrokerConfig

logger: Final = logging.getLogger(__name__)

PROTOCOL: Final = "SASL_SSL"
MECHANISM: Final = SCRAM_SHA_512
ADMINISTRATOR: Final = "admin"
BROKER: Final = "kalda-broker"

CLIENT_FILE: Final = "client.properties"
AUTHORITY_FILE: Final = "ca.pem"
KEY_STORE_FILE: Final = "broker.pem"
SETTINGS_FILE: Final = "server.properties"
AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"

_BOOTSTRAP: Final = "bootstrap.servers"
_AUTHORITY_VALID: Final = timedelta(days=3650)
_CERTIFICATE_VALID: Final = timedelta(days=825)
"""The longest that some platforms accept."""
_RENEWED_BEFORE: Final = timedelta(days=30)
_PASSWORD_BYTES: Final = 24
_OTHERS: Final = 0o077
_OWNER_ALONE: Final = 0o700
_ITERATIONS: Final = 8192


@dataclass(frozen=True, slots=True)
class SecureCluster:
    """The results of a secure start's preparation."""

    settings: dict[str, str]
    """Of every broker; they hold the brokers' password."""
    settings_file: Path
    """A file with them, so that passwords need not stand on command lines."""
    users: Mapping[str, str]
    """Passwords by user, as they were first set."""
    client_file: Path
    authority_file: Path
    is_new: bool
    """Whether this start made them."""


def prepare(directory: Path, properties: Mapping[str, str]) -> SecureCluster:
    """Create missing files and settings; `properties` of a file override the settings made here.

    Raises:
        OSError: a file cannot be written or read.
        ValueError: a file was changed so that it cannot be read.
    """
    directory.mkdir(parents=True, exist_ok=True)
    home = directory.resolve() / "security"
    is_new = not home.exists()
    if is_new:
        _make_home(home)
    authority = CertificateAuthority(Certificate(_read(home / "ca-key.pem"), _read(home / AUTHORITY_FILE)))
    _renew(home, authority)
    users: dict[str, str] = json.loads(_read(home / "users.json"))
    settings = {**_settings(home, users[BROKER]), **properties}
    write_private(home / SETTINGS_FILE, properties_text(settings))
    authority_file, client_file = home.parent / AUTHORITY_FILE, home.parent / CLIENT_FILE
    if not authority_file.exists():
        write_private(authority_file, authority.own.certificate.decode())
    if not client_file.exists():
        write_private(client_file, _client_properties(authority_file, users[ADMINISTRATOR]))
    return SecureCluster(settings, home / SETTINGS_FILE, users, client_file, authority_file, is_new)


def write_bootstrap(client_file: Path, bootstrap: str) -> None:
    """Write the addresses of the brokers into `client.properties`; the ports may differ from those before."""
    line = f"{_BOOTSTRAP}={bootstrap}"
    try:
        lines = _read(client_file).decode().splitlines()
        others = [each for each in lines if each.partition("=")[0].strip() != _BOOTSTRAP]
        if line not in lines:
            write_private(client_file, "\n".join([*others, line, ""]))
    except (OSError, ValueError) as error:
        logger.warning("`%s` was not written into %s: %s", _BOOTSTRAP, client_file, error)


async def ensure_users(store: ClusterStore, users: Mapping[str, str]) -> None:
    """Set the credentials of users that have none, before the first broker starts.

    Raises:
        ZooKeeperError: they cannot be read or written.
    """
    await store.ensure_layout()
    for user, password in users.items():
        if not (await store.config(USERS, sanitize(user))).keys() & {SCRAM_SHA_256, SCRAM_SHA_512}:
            await set_scram_user(store, user, [SCRAM_SHA_256, SCRAM_SHA_512], password, _ITERATIONS)


def close_to_others(directories: Iterable[Path]) -> None:
    """Keep other users of the machine out of these directories, and of all that this process will create.

    Raises:
        OSError: the mode of a directory cannot be changed.
    """
    os.umask(_OTHERS)
    for directory in directories:
        if directory.is_dir() and directory.stat().st_mode & _OTHERS:
            directory.chmod(_OWNER_ALONE)


def open_doors(zookeeper: str, configs: Iterable[BrokerConfig]) -> str:
    """Return which ports of a secured cluster can be used without a login, and for what."""
    doors = [
        f"the coordination server at {zookeeper} (read topics, their settings and ACLs; change nothing)",
        *(
            f"metrics at {config.metrics_address or '0.0.0.0'}:{config.metrics_port} (read names of topics, "
            "groups and clients, unless `metrics.login` is set)"
            for config in configs
            if config.metrics_port is not None and config.metrics_login is None
        ),
    ]
    return f"without a login can be used: {'; '.join(doors)}"


def _read(path: Path) -> bytes:
    return read_named_file(str(path), wait_seconds=0)


def _make_home(home: Path) -> None:
    new = home.with_name("security.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    authority = CertificateAuthority.make("Kalda", datetime.now(UTC), _AUTHORITY_VALID)
    write_private(new / "ca-key.pem", authority.own.private_key.decode())
    write_private(new / AUTHORITY_FILE, authority.own.certificate.decode())
    users = {user: secrets.token_urlsafe(_PASSWORD_BYTES) for user in (ADMINISTRATOR, BROKER)}
    write_private(new / "users.json", json.dumps(users, indent=2) + "\n")
    new.rename(home)


def _renew(home: Path, authority: CertificateAuthority) -> None:
    """Make the brokers' certificate if there is none, or it expires soon or lacks a name."""
    path, now, names = home / KEY_STORE_FILE, datetime.now(UTC), _names()
    if path.exists():
        identity = identity_of(_read(path))
        has_names = {_alternative(name) for name in names} <= identity.alternative_names
        if has_names and datetime.fromisoformat(identity.expires) - now > _RENEWED_BEFORE:
            return
    write_private(path, authority.issue(BROKER, now, _CERTIFICATE_VALID, names).key_store.decode())


def _names() -> list[str]:
    """Return the names and addresses of this machine."""
    names = {"localhost": None, DEFAULT_HOST: None, "::1": None, socket.gethostname(): None}
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        # The name of this machine has no address; clients elsewhere cannot use it either.
        found = []
    names |= {str(address[0]).partition("%")[0]: None for *_, address in found}
    return list(names)


def _alternative(name: str) -> str:
    is_address = ":" in name or name.replace(".", "").isdigit()
    return f"IP:{name}" if is_address else f"DNS:{name}"


def _settings(home: Path, password: str) -> dict[str, str]:
    listener = f"listener.name.{PROTOCOL.lower()}"
    return {
        "security.inter.broker.protocol": PROTOCOL,
        "sasl.enabled.mechanisms": f"{SCRAM_SHA_512},{SCRAM_SHA_256}",
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"{listener}.{MECHANISM.lower()}.sasl.jaas.config": login("scram.Scram", BROKER, password),
        **pem_stores(home / KEY_STORE_FILE, home / AUTHORITY_FILE),
        # The names of a machine change; its certificate follows.
        "ssl.allow.san.changes": "true",
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMINISTRATOR};User:{BROKER}",
        "zookeeper.set.acl": "true",
    }


def _client_properties(authority_file: Path, password: str) -> str:
    scram_login = login("scram.Scram", ADMINISTRATOR, password)
    return (
        "# How to connect as the administrator; for --command-config of Kalda's and Kafka's tools.\n"
        f"# Each start writes {_BOOTSTRAP}.\n"
        f"security.protocol={PROTOCOL}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={_escaped(str(authority_file))}\n"
        f"sasl.mechanism={MECHANISM}\n"
        f"sasl.jaas.config={_escaped(scram_login)}\n"
    )


def pem_stores(key_store: Path, authority: Path) -> dict[str, str]:
    """Return the settings of both stores in PEM, for brokers and for clients."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }


def login(module: str, user: str, password: str, users: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a ``sasl.jaas.config``; `users` are passwords by user that a broker accepts with PLAIN."""
    options = {
        "username": user,
        "password": password,
        **{f"user_{name}": each for name, each in users.items()},
    }
    quoted = [f'{name}="{_quoted(value)}"' for name, value in options.items()]
    return f"org.apache.kafka.common.security.{module}LoginModule required {' '.join(quoted)};"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings as a ``server.properties``."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    """Write a value as a line of a properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def write_private(path: Path, text: str) -> None:
    """Write a file in one step, for its owner alone."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
