"""Three broker processes and a coordination server with encryption and logins between all of them.

Clients use the listener CLIENTS, brokers the listener BROKERS; both are SASL_SSL with SCRAM-SHA-512, and
BROKERS wants a certificate, too. The connections to ZooKeeper have TLS and SASL DIGEST-MD5. ACLs are on.
`tests.chaos.rotations` replaces all of it while the cluster runs.
"""

import asyncio
import secrets
import ssl
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kalda.broker.process.config import small_cluster_settings
from kalda.broker.process.secure import login, pem_stores, properties_text, write_private
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.scram_users import set_scram_user
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.sasl.mechanism import SCRAM_SHA_512
from kalda.security.tls.authority import Certificate, CertificateAuthority
from kalda.security.zookeeper.client_security import read_client_security
from kalda.testing import BrokerProcess, ZooKeeperProcess
from kalda.testing.ports import free_ports
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from tests.chaos.copier_clients import LIBRDKAFKA
from tests.integration.real_zookeeper import RealZooKeeper

BROKERS: Final = 3
LISTENERS: Final = ("clients", "brokers")
ADMINISTRATOR: Final = "operator"
BROKER_USERS: Final = ("broker-a", "broker-b")
"""Both are super users, so that brokers can change from one to the other."""
REAUTHENTICATE_MS: Final = 10_000

_VALID: Final = timedelta(days=30)
_ITERATIONS: Final = 4096
_NAMES: Final = ("localhost", "127.0.0.1")
_SESSION_TIMEOUT_MS: Final = 10_000
_START_SECONDS: Final = 90.0
_DIGEST: Final = "org.apache.zookeeper.server.auth.DigestLoginModule required"


class Coordinator:
    """The coordination server, ours or a real ZooKeeper, with a port for TLS and logins."""

    def __init__(self, directory: Path, store: Path, trust: Path, jaas: Path, *, is_real: bool) -> None:
        (port,) = free_ports(1)
        self.address: Final = f"localhost:{port}"
        settings = {
            "secureClientPort": str(port),
            "ssl.keyStore.location": str(store),
            "ssl.trustStore.location": str(trust),
            "sessionRequireClientSASLAuth": "true",
        }
        self._server: ZooKeeperProcess | RealZooKeeper
        if is_real:
            settings |= {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            }
            option = f"-Djava.security.auth.login.config={jaas}"
            self._server = RealZooKeeper(
                directory, settings=settings, java_options=[option, "-Dzookeeper.fips-mode=false"]
            )
        else:
            settings |= {"java.security.auth.login.config": str(jaas)}
            self._server = ZooKeeperProcess(
                directory, settings=settings, start_timeout_seconds=_START_SECONDS
            )

    def start(self) -> None:
        """Start it and return when it serves."""
        self._server.start()

    def kill(self) -> None:
        """End it at once."""
        self._server.kill()

    def pause(self) -> None:
        """Suspend it."""
        self._server.pause()

    def resume(self) -> None:
        """Resume it."""
        self._server.resume()


class Secrets:
    """The passwords in force, by user, and all that ever were, for the search in logs."""

    def __init__(self) -> None:
        self.of: Final[dict[str, str]] = {}
        self.ever: Final[set[str]] = set()

    def new(self, user: str) -> str:
        """Make a password for a user and remember it."""
        self.of[user] = self.added(secrets.token_urlsafe(18))
        return self.of[user]

    def added(self, secret: str) -> str:
        """Remember a secret that must not appear anywhere."""
        self.ever.add(secret)
        return secret


class SecuredBrokers:
    """The cluster, as long as the ``with`` block lasts; faults use it as they use `ProcessCluster`."""

    def __init__(self, directory: Path, settings: Mapping[str, str], *, is_zookeeper_real: bool) -> None:
        self.directory: Final = directory
        self.secrets: Final = Secrets()
        self.authority = new_authority("first")
        """The authority that signs certificates now."""
        self._files: Final = directory / "security"
        self._files.mkdir(parents=True, mode=0o700)
        self.trust_file: Final = self._files / "trust.pem"
        """What brokers and clients trust."""
        self.trust(self.authority)
        self.broker_user = BROKER_USERS[0]
        self.stores: Final = {
            (broker_id, listener): self._files / f"broker-{broker_id}-{listener}.pem"
            for broker_id in range(BROKERS)
            for listener in LISTENERS
        }
        """The file of each key store, by broker and listener; a dynamic setting may name another."""
        for path in self.stores.values():
            self.write_store(path)
        ports = free_ports(BROKERS * len(LISTENERS))
        self._ports: Final = dict(zip(self.stores, ports, strict=True))
        self.coordinator: Final = self._coordinator(is_real=is_zookeeper_real)
        self._settings: Final = {**small_cluster_settings(BROKERS), **settings}
        self._token_secret: Final = self.secrets.added(secrets.token_urlsafe(18))
        for user in (*BROKER_USERS, ADMINISTRATOR):
            self.secrets.new(user)
        self._brokers: Final = [self._broker(broker_id) for broker_id in range(BROKERS)]
        self._ends: Final = ExitStack()

    def __enter__(self) -> Self:
        self.coordinator.start()
        self._ends.callback(self.coordinator.kill)
        try:
            asyncio.run(self._add_first_users())
            for broker in self._brokers:
                self._ends.callback(_kill_if_running, broker)
                broker.start_nowait()
            for broker in self._brokers:
                broker.wait_ready()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()
        if error is None:
            for broker in self._brokers:
                broker.check_log()

    # How clients connect.

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(self.address(broker_id, "clients") for broker_id in range(BROKERS))

    def address(self, broker_id: int, listener: str) -> str:
        """Return where a listener of a broker is."""
        return f"127.0.0.1:{self._ports[broker_id, listener]}"

    def client_settings(self, library: str, user: str) -> dict[str, str]:
        """Return how a user connects, with the password that is in force now, in a library's dotted names."""
        password = self.secrets.of[user]
        common = {"bootstrap.servers": self.bootstrap, "security.protocol": "SASL_SSL"}
        if library == LIBRDKAFKA:
            return {
                **common,
                "ssl.ca.location": str(self.trust_file),
                "sasl.mechanism": SCRAM_SHA_512,
                "sasl.username": user,
                "sasl.password": password,
            }
        return {
            **common,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_file),
            "sasl.mechanism": SCRAM_SHA_512,
            "sasl.jaas.config": login("scram.Scram", user, password),
        }

    def tls(self) -> ssl.SSLContext:
        """Return a context that trusts what clients trust, for connections of the run itself."""
        return ssl.create_default_context(cafile=self.trust_file)

    # What a rotation changes.

    def trust(self, *authorities: CertificateAuthority) -> None:
        """Have brokers, soon, and new clients trust these authorities and no others."""
        text = "".join(each.own.certificate.decode() for each in authorities)
        write_private(self.trust_file, text)

    def issue(self) -> Certificate:
        """Return a new certificate of the brokers."""
        certificate = self.authority.issue("broker", datetime.now(UTC), _VALID, _NAMES)
        self.secrets.added(certificate.private_key.decode().splitlines()[1])
        return certificate

    def write_store(self, path: Path) -> None:
        """Write a new key and certificate of the present authority in one step."""
        write_private(path, self.issue().key_store.decode())

    def write_settings(self, broker_id: int) -> None:
        """Write the settings of a broker, with the user of the brokers, for its next start."""
        write_private(self._settings_file(broker_id), properties_text(self._settings_of(broker_id)))

    # Processes.

    @property
    def log_directories(self) -> list[Path]:
        """The log directory of each broker, by id."""
        return [broker.directory for broker in self._brokers]

    @property
    def broker_pids(self) -> list[int]:
        """The process ids of the brokers that run."""
        return [broker.pid for broker in self._brokers if broker.is_running]

    def broker(self, broker_id: int) -> BrokerProcess:
        """Return the process of a broker."""
        return self._brokers[broker_id]

    def start(self, broker_id: int) -> None:
        """Start a broker that is down and return when it serves."""
        self._brokers[broker_id].start()

    def stop(self, broker_id: int, timeout_seconds: float = 60.0) -> None:
        """Shut a broker down."""
        self._brokers[broker_id].stop(timeout_seconds)

    def logs(self) -> Iterable[Path]:
        """Return the files that processes of the cluster write their logs to."""
        return [*self.directory.glob("*.stderr"), *self.directory.glob("zookeeper/output")]

    def _broker(self, broker_id: int) -> BrokerProcess:
        self.write_settings(broker_id)
        return BrokerProcess(
            broker_id,
            self.directory / f"broker-{broker_id}",
            f"{self.coordinator.address}/chaos",
            settings={
                "listeners": ",".join(
                    f"{listener.upper()}://{self.address(broker_id, listener)}" for listener in LISTENERS
                )
            },
            config_file=self._settings_file(broker_id),
            start_timeout_seconds=_START_SECONDS,
        )

    def _settings_file(self, broker_id: int) -> Path:
        return self._files / f"broker-{broker_id}.properties"

    def _settings_of(self, broker_id: int) -> dict[str, str]:
        module = login("scram.Scram", self.broker_user, self.secrets.of[self.broker_user])
        settings = {
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SASL_SSL",
            "inter.broker.listener.name": "BROKERS",
            "sasl.enabled.mechanisms": SCRAM_SHA_512,
            "sasl.mechanism.inter.broker.protocol": SCRAM_SHA_512,
            "connections.max.reauth.ms": str(REAUTHENTICATE_MS),
            "listener.name.brokers.ssl.client.auth": "required",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": ";".join(f"User:{user}" for user in (*BROKER_USERS, ADMINISTRATOR)),
            "delegation.token.secret.key": self._token_secret,
            "zookeeper.set.acl": "true",
            **self._zookeeper_settings(),
            **self._settings,
        }
        for listener in LISTENERS:
            stores = pem_stores(self.stores[broker_id, listener], self.trust_file)
            settings |= {f"listener.name.{listener}.{name}": value for name, value in stores.items()}
        settings["listener.name.brokers.scram-sha-512.sasl.jaas.config"] = module
        return settings

    # ZooKeeper.

    def _coordinator(self, *, is_real: bool) -> Coordinator:
        """Make its certificates, of an authority of its own, and its users."""
        authority = new_authority("zookeeper")
        write_private(self._files / "zookeeper-trust.pem", authority.own.certificate.decode())
        for name in ("zookeeper", "zookeeper-client"):
            certificate = authority.issue(name, datetime.now(UTC), _VALID, _NAMES)
            write_private(self._files / f"{name}.pem", certificate.key_store.decode())
        password = self.secrets.new("zookeeper-client")
        write_private(
            self._files / "jaas.conf",
            f'Server {{ {_DIGEST} user_kafka="{password}"; }};\n'
            f'Client {{ {_DIGEST} username="kafka" password="{password}"; }};\n',
        )
        return Coordinator(
            self.directory / "zookeeper",
            self._files / "zookeeper.pem",
            self._files / "zookeeper-trust.pem",
            self._files / "jaas.conf",
            is_real=is_real,
        )

    def _zookeeper_settings(self) -> dict[str, str]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": str(self._files / "zookeeper-client.pem"),
            "zookeeper.ssl.truststore.location": str(self._files / "zookeeper-trust.pem"),
            "java.security.auth.login.config": str(self._files / "jaas.conf"),
        }

    async def _add_first_users(self) -> None:
        """Write the users without whom no broker could start."""
        values: dict[str, object] = {**self._zookeeper_settings(), "zookeeper.ssl.client.enable": True}
        zookeeper = await EnsembleClient.connect(
            f"{self.coordinator.address}/chaos",
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            connection_timeout_ms=_SESSION_TIMEOUT_MS,
            security=read_client_security(values.get, restricts_access=True),
        )
        store = ClusterStore(zookeeper, SystemClock(), SYSTEM_RANDOM)
        await store.ensure_layout()
        for user in (self.broker_user, ADMINISTRATOR):
            await set_scram_user(store, user, [SCRAM_SHA_512], self.secrets.of[user], _ITERATIONS)
        await zookeeper.close()


def new_authority(name: str) -> CertificateAuthority:
    """Make a certificate authority."""
    return CertificateAuthority.make(name, datetime.now(UTC), _VALID)


def _kill_if_running(broker: BrokerProcess) -> None:
    if broker.is_running:
        broker.kill()
