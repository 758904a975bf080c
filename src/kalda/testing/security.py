"""Secures a test cluster: certificates, users, ACLs, and how the clients of several libraries connect.

Everything is made at the start of a cluster and valid for it alone: an authority, a certificate of the
brokers and one of each user, and random passwords where none are given.
"""

import re
import secrets
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias, overload

from kalda.broker.process.secure import (
    ADMINISTRATOR,
    AUTHORITY_FILE,
    AUTHORIZER,
    BROKER,
    KEY_STORE_FILE,
    SETTINGS_FILE,
    login,
    pem_stores,
    properties_text,
    write_private,
)
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.scram_users import set_scram_user
from kalda.common.public import public_in
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from kalda.security.tls.authority import CertificateAuthority
from kalda.zookeeper.port import ZooKeeperClient

PropertiesLibrary: TypeAlias = Literal["kalda", "java", "confluent-kafka"]
KeywordsLibrary: TypeAlias = Literal["kafka-python", "aiokafka"]

PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)

_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_VALID: Final = timedelta(days=30)
_PASSWORD_BYTES: Final = 18
_ITERATIONS: Final = 4096
_USER: Final = re.compile(r"[A-Za-z0-9._-]+")
"""What stands in a common name, in the name of an option of JAAS, and in a path alike."""


@public_in("kalda.testing")
@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How clients and brokers of a test cluster connect, and what clients may do.

    The user ``admin`` always exists and may do everything. With ``SSL`` users log in by a certificate, with
    the other protocols by a password; either way the principal of the user alice is ``User:alice``.

    Raises:
        ValueError: a value is not allowed; the message names it.
    """

    users: Collection[str] | Mapping[str, str] = ()
    """The names of further users, or their passwords by name. Passwords that are not given are random."""
    protocol: str = "SASL_SSL"
    """``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``, between brokers as well."""
    mechanism: str = SCRAM_SHA_512
    """``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``; ``SSL`` has none."""
    acls: bool = True
    """Whether users need ACLs for what they do; without, every user may do everything."""
    super_users: Collection[str] = field(default=())
    """Users that need no ACLs, beside ``admin``."""

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol={self.protocol!r}; it must be one of {', '.join(PROTOCOLS)}")
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"mechanism={self.mechanism!r}; it must be one of {', '.join(MECHANISMS)}")
        if isinstance(self.users, str) or isinstance(self.super_users, str):
            raise ValueError("users and super_users take several names, not one text")
        for user in self.users:
            if not _USER.fullmatch(user):
                raise ValueError(f"the user {user!r}; names have letters, digits, '.', '_' and '-'")
        unknown = sorted(set(self.super_users) - {*self.users, ADMINISTRATOR})
        if unknown:
            raise ValueError(f"super_users names {', '.join(unknown)}, which are not among the users")


class SecuredCluster:
    """The files, the users and the settings of one cluster."""

    def __init__(self, security: Security, directory: Path) -> None:
        """Make the certificates of `security` in `directory`, readable by the owner alone.

        Raises:
            OSError: a file cannot be written.
        """
        self.protocol: Final = security.protocol
        self._security: Final = security
        self._directory: Final = directory
        self.passwords: Final[dict[str, str]] = {
            user: secrets.token_urlsafe(_PASSWORD_BYTES) for user in (BROKER, ADMINISTRATOR, *security.users)
        }
        if isinstance(security.users, Mapping):
            self.passwords.update(security.users)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._has_tls:
            self._write_certificates()
        self.settings_file: Final = directory / SETTINGS_FILE
        """The settings of every broker as a ``server.properties``, so that no command line has a password."""
        write_private(self.settings_file, properties_text(self.settings()))

    async def add_users(self, zookeeper: ZooKeeperClient) -> None:
        """Write what SCRAM needs of the users to ZooKeeper, before the brokers start; closes the session.

        Raises:
            ZooKeeperError: it could not be written.
        """
        if self._has_sasl and self._security.mechanism != PLAIN:
            store = ClusterStore(zookeeper, SystemClock(), SYSTEM_RANDOM)
            await store.ensure_layout()
            for user, password in self.passwords.items():
                await set_scram_user(store, user, [self._security.mechanism], password, _ITERATIONS)
        await zookeeper.close()

    def settings(self) -> dict[str, str]:
        """Return the settings of every broker; they hold passwords."""
        security = self._security
        settings = {"security.inter.broker.protocol": security.protocol}
        if self._has_tls:
            settings |= pem_stores(self._directory / KEY_STORE_FILE, self._directory / AUTHORITY_FILE)
        if self._has_sasl:
            users = self.passwords if security.mechanism == PLAIN else {}
            listener = f"listener.name.{security.protocol.lower()}.{security.mechanism.lower()}"
            settings |= {
                "sasl.enabled.mechanisms": security.mechanism,
                "sasl.mechanism.inter.broker.protocol": security.mechanism,
                f"{listener}.sasl.jaas.config": self._login(BROKER, users),
            }
        else:
            settings |= {
                "ssl.client.auth": "required",
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            }
        if security.acls:
            super_users = dict.fromkeys((ADMINISTRATOR, BROKER, *security.super_users))
            settings |= {
                "authorizer.class.name": AUTHORIZER,
                "super.users": ";".join(f"User:{user}" for user in super_users),
            }
        return settings

    def properties(self, user: str, library: PropertiesLibrary) -> dict[str, str]:
        """Return the dotted settings with which a user connects, without the brokers' addresses.

        Raises:
            ValueError: there is no such user.
        """
        self._check(user)
        config = {"security.protocol": self.protocol}
        if library == "confluent-kafka":
            return config | self._librdkafka(user)
        if self._has_tls:
            config |= pem_stores(self._certificate(user), self._directory / AUTHORITY_FILE)
        if self._has_sasl:
            config |= {"sasl.mechanism": self._security.mechanism, "sasl.jaas.config": self._login(user, {})}
        return config

    def keywords(self, user: str) -> dict[str, object]:
        """Return the arguments with which a user connects in Python, without the brokers' addresses.

        Raises:
            ValueError: there is no such user.
        """
        self._check(user)
        config: dict[str, object] = {"security_protocol": self.protocol}
        if self._has_tls:
            context = ssl.create_default_context(cafile=self._directory / AUTHORITY_FILE)
            context.load_cert_chain(self._certificate(user))
            config |= {"ssl_context": context}
        if self._has_sasl:
            config |= {
                "sasl_mechanism": self._security.mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": self.passwords[user],
            }
        return config

    @property
    def _has_tls(self) -> bool:
        return self.protocol != "SASL_PLAINTEXT"

    @property
    def _has_sasl(self) -> bool:
        return self.protocol != "SSL"

    def _write_certificates(self) -> None:
        now = datetime.now(UTC)
        authority = CertificateAuthority.make("kalda.testing", now, _VALID)
        write_private(self._directory / AUTHORITY_FILE, authority.own.certificate.decode())
        for user in self.passwords:
            names = _NAMES if user == BROKER else ()
            path = self._directory / KEY_STORE_FILE if user == BROKER else self._certificate(user)
            write_private(path, authority.issue(user, now, _VALID, names).key_store.decode())

    def _certificate(self, user: str) -> Path:
        return self._directory / f"{user}.client.pem"

    def _login(self, user: str, users: Mapping[str, str]) -> str:
        module = "plain.Plain" if self._security.mechanism == PLAIN else "scram.Scram"
        return login(module, user, self.passwords[user], users)

    def _check(self, user: str) -> None:
        if user not in self.passwords:
            raise ValueError(f"there is no user {user!r}, only {', '.join(sorted(self.passwords))}")

    def _librdkafka(self, user: str) -> dict[str, str]:
        config: dict[str, str] = {}
        if self._has_tls:
            certificate = str(self._certificate(user))
            config |= {
                "ssl.ca.location": str(self._directory / AUTHORITY_FILE),
                "ssl.certificate.location": certificate,
                "ssl.key.location": certificate,
            }
        if self._has_sasl:
            config |= {
                "sasl.mechanism": self._security.mechanism,
                "sasl.username": user,
                "sasl.password": self.passwords[user],
            }
        return config


class ClientConfigs:
    """How clients connect to a cluster, secured or not; the base of the clusters."""

    def __init__(self) -> None:
        self.secured: SecuredCluster | None = None
        """The certificates and users of the cluster; None without security."""

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, those that are down included: ``host:port,host:port``."""
        raise NotImplementedError

    @overload
    def client_config(
        self, user: str = ADMINISTRATOR, library: PropertiesLibrary = "kalda"
    ) -> dict[str, str]: ...
    @overload
    def client_config(self, user: str = ADMINISTRATOR, *, library: KeywordsLibrary) -> dict[str, object]: ...
    @overload
    def client_config(self, user: str, library: KeywordsLibrary) -> dict[str, object]: ...
    def client_config(
        self, user: str = ADMINISTRATOR, library: PropertiesLibrary | KeywordsLibrary = "kalda"
    ) -> dict[str, str] | dict[str, object]:
        """Return how a user connects: the brokers' addresses and, with security, protocol and login.

        For ``kalda`` (``Producer.from_config``), ``java`` and ``confluent-kafka`` these are settings; for
        ``kafka-python`` and ``aiokafka`` they are the arguments of a client's class. Without security they
        are the addresses alone, for any user, so one test serves both.

        Raises:
            ValueError: there is no such user.
        """
        if library == "kafka-python" or library == "aiokafka":
            keywords = {} if self.secured is None else self.secured.keywords(user)
            return {"bootstrap_servers": self.bootstrap, **keywords}
        properties = {} if self.secured is None else self.secured.properties(user, library)
        return {"bootstrap.servers": self.bootstrap, **properties}
