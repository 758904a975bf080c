"""Declares the settings of ``kalda http``, and separates them from those of its client.

One properties file may hold three kinds of names: the settings here, Confluent's names where Confluent's
registry has the setting; the settings of the client that connects to the cluster under ``kafkastore.``, as in
a ``schema-registry.properties``; and settings of Confluent's registry that concern its own way of working,
which are read over with a warning.
"""

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.shared_properties import settings_for
from kalda.common.config_def import ConfigDef, ConfigError, at_least, between, matches, one_of
from kalda.common.settings import (
    HIGH,
    INT_MAX,
    LOW,
    Settings,
    boolean,
    integer,
    long,
    password,
    string,
    string_list,
)
from kalda.http.gateway_settings import GatewaySettings
from kalda.security.tls.contexts import client_context, server_context
from kalda.security.tls.settings import TlsSettings, TlsSettingsError

logger: Final = logging.getLogger(__name__)

PORT_DEFAULT: Final = 8080

CLIENT_PREFIX: Final = "kafkastore."
"""Before a setting of the client in a file of Confluent's registry."""

_WITHOUT_EFFECT: Final = (
    "debug",
    "metric.",
    "metrics.",
    "schema.cache.",
    "resource.",
    "schema.registry.resource.extension.class",
    "init.resource.extension.class",
    "kafkastore.group.id",
    "kafkastore.connection.url",
    "kafkastore.checkpoint.",
    "kafkastore.write.max.retries",
    "kafkastore.init.wait.for.reader",
    "inter.instance.",
    "schema.registry.inter.instance.protocol",
    "leader.election.",
    "leader.connect.",
    "shutdown.graceful.ms",
    "thread.pool.",
    "request.queue.capacity",
    "response.mediatype.",
)
"""Names, or their beginnings, of settings that Confluent's registry has and that nothing here reads."""

_WILDCARD_HOSTS: Final = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the server listens."""

    host: str
    port: int
    is_tls: bool

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return "https" if self.is_tls else "http"


class ListenerSettings(Settings):
    """The settings of the HTTP listener."""

    listeners = string_list(
        (f"http://127.0.0.1:{PORT_DEFAULT}",),
        "Where to listen, one of http://HOST:PORT and https://HOST:PORT; port 0 is any free one. The options "
        "--host and --port win over it.",
        importance=HIGH,
    )
    host_name = string(
        None,
        "The name under which other processes of `kalda http` reach this one. Without it, the host of the "
        "listener, or the name of the machine if that is a wildcard.",
    )
    ssl_keystore_type = string("PEM", "The format of the listener's key store: PEM, JKS or PKCS12.")
    ssl_keystore_location = string(None, "The file of the listener's key and certificates, for https.")
    ssl_keystore_password = password(None, "The password of the key store.")
    ssl_keystore_key = password(None, "The listener's private key as PEM, in place of a file.")
    ssl_keystore_certificate_chain = string(
        None, "The listener's certificates as PEM, in place of a file.", importance=LOW
    )
    ssl_key_password = password(None, "The password of the private key.")
    ssl_truststore_type = string("PEM", "The format of the trust store: PEM, JKS or PKCS12.")
    ssl_truststore_location = string(
        None, "The authorities whose certificates the listener, and requests to other processes, trust."
    )
    ssl_truststore_password = password(None, "The password of the trust store.")
    ssl_truststore_certificates = string(None, "The trusted certificates as PEM, in place of a file.")
    ssl_client_auth = string(
        "none",
        "Whether a client of the listener needs a certificate of a trusted authority.",
        one_of("none", "requested", "required"),
    )
    ssl_enabled_protocols = string_list(("TLSv1.2", "TLSv1.3"), "The versions of TLS that are served.")
    ssl_cipher_suites = string_list((), "The cipher suites of TLS 1.2 that are served; empty for all.")
    http_connections_max = integer(
        10_000, "Connections at once; one more gets the status 503.", at_least(1), importance=LOW
    )
    http_request_bytes_max = integer(
        8 * 1024 * 1024, "The largest body of a request; a larger one gets the status 413.", at_least(1024)
    )
    http_keep_alive_ms = long(
        75_000, "How long a connection without a request stays open.", at_least(1), importance=LOW
    )
    http_drain_ms = long(
        10_000,
        "How long a shutdown waits for the responses under way, a second of it for computations; then "
        "their connections are closed.",
        at_least(0),
    )
    http_threads = integer(
        2,
        "Threads for what takes long, such as compatibility checks and decoding of large batches.",
        between(1, 64),
        importance=LOW,
    )
    http_parts = string_list(
        ("registry", "gateway", "console"),
        "What is served: registry, gateway and console, or some of them.",
        matches("registry|gateway|console", "a list of registry, gateway, console"),
    )


class CallerSettings(Settings):
    """The settings of callers: how they log in, and their limits."""

    http_anonymous = boolean(
        False,
        "Whether requests without credentials are served on a cluster with logins. They may then read what "
        "the process's own user may read, and change nothing.",
        importance=HIGH,
    )
    http_caller_sasl_mechanism = string(
        None,
        "The mechanism by which a caller's user and password are checked by the brokers; without it, the "
        "mechanism of the process's own login.",
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    )
    http_caller_security_protocol = string(
        None,
        "The protocol of the connections that are opened for a caller; without it, that of the process.",
        one_of("SASL_PLAINTEXT", "SASL_SSL"),
    )
    http_caller_bootstrap_servers = string_list(
        (), "The brokers that callers' connections go to first; without it, those of the process."
    )
    http_callers_max = integer(
        256, "How many callers keep connections to the cluster at once.", at_least(1), importance=LOW
    )
    http_caller_idle_ms = long(
        300_000, "After how long without a request a caller's connections are closed.", at_least(1_000)
    )
    http_caller_login_ms = long(
        60_000,
        "How long a login that the brokers accepted is taken as valid without asking them again.",
        at_least(0),
    )


class RegistrySettings(Settings):
    """The settings of the schema registry; the names are Confluent's."""

    kafkastore_topic = string("_schemas", "The compacted topic, of one partition, that holds the schemas.")
    kafkastore_topic_replication_factor = integer(
        3, "The replicas of the topic when it is created; no more than there are brokers.", at_least(1)
    )
    kafkastore_timeout_ms = integer(
        10_000, "How long a change waits until it is written and read back.", at_least(1)
    )
    kafkastore_init_timeout_ms = integer(
        60_000, "How long the start waits until the topic exists and is read.", at_least(1)
    )
    schema_registry_group_id = string(
        "schema-registry", "The group in which the processes elect the one that writes."
    )
    kafkagroup_session_timeout_ms = integer(
        10_000, "How long the writer may be silent before another one is elected.", at_least(1)
    )
    kafkagroup_heartbeat_interval_ms = integer(
        3_000, "The time between two signs of life to the group's coordinator.", at_least(1)
    )
    kafkagroup_rebalance_timeout_ms = integer(
        300_000, "How long an election waits for the members of the group.", at_least(1), importance=LOW
    )
    leader_eligibility = boolean(True, "Whether this process may be elected as the one that writes.")
    leader_read_timeout_ms = integer(
        60_000, "How long a request that is forwarded to the writer may take.", at_least(1), importance=LOW
    )
    mode_mutability = boolean(True, "Whether the mode of the registry and of its subjects can be changed.")
    schema_compatibility_level = string(
        "backward",
        "The compatibility level where none is configured: none, backward, forward, full, or one of them "
        "with _transitive.",
        matches(
            "(?i)none|(backward|forward|full)(_transitive)?",
            "none, backward, forward, full, backward_transitive, forward_transitive or full_transitive",
        ),
    )
    schema_search_default_limit = integer(
        1000, "How many schemas a list has, where the request names no limit.", between(1, INT_MAX)
    )
    schema_search_max_limit = integer(1000, "How many schemas a list has at most.", between(1, INT_MAX))
    subject_search_default_limit = integer(
        20_000, "How many subjects a list has, where the request names no limit.", between(1, INT_MAX)
    )
    subject_search_max_limit = integer(20_000, "How many subjects a list has at most.", between(1, INT_MAX))


class ConsoleSettings(Settings):
    """The settings of the console."""

    http_console_writable = boolean(
        False,
        "Whether the console changes things on a cluster without logins, where everyone who reaches it may. "
        "On a cluster with logins, a visitor who logged in changes what the ACLs allow.",
        importance=HIGH,
    )
    http_console_key = password(
        None,
        "The key of the console's cookies, at least 16 characters, the same for all processes behind one "
        "name. Without it, each process has a random one, and its logins end with it.",
    )
    http_console_session_ms = long(
        43_200_000, "How long a login in the console lasts.", between(60_000, 2_592_000_000)
    )


class HttpSettings(ListenerSettings, CallerSettings, RegistrySettings, ConsoleSettings, GatewaySettings):
    """The settings of one process of ``kalda http``.

    `client` has the settings of its connections to the cluster, by Kafka's dotted names.
    """

    client: Mapping[str, str]

    @classmethod
    def read(
        cls,
        properties: Mapping[str, str],
        client: Mapping[str, str],
        *,
        host: str | None = None,
        port: int | None = None,
    ) -> Self:
        """Read settings of the server and of its client.

        Settings of the client that `properties` has under ``kafkastore.`` yield to those of `client`.

        Raises:
            ConfigError: a name is unknown (the message offers the nearest one), or a value is not allowed.
            ClientConfigError: the same of a setting of the client.
        """
        definitions = cls.definitions()
        config = ConfigDef(definitions.values())
        attributes = {key.name: attribute for attribute, key in definitions.items()}
        values: dict[str, object] = {}
        of_client: dict[str, str] = {}
        ignored: list[str] = []
        for given, text in properties.items():
            name = _ALIASES.get(given, given)
            if name in config:
                values[attributes[name]] = config.key(name).parse(text)
            elif name.startswith(_WITHOUT_EFFECT):
                ignored.append(name)
            elif name.startswith(CLIENT_PREFIX):
                of_client[name.removeprefix(CLIENT_PREFIX)] = text
            else:
                config.key(name)
        if ignored:
            logger.warning("settings without effect here: %s", ", ".join(sorted(ignored)))
        settings = cls(**values)
        of_client["bootstrap.servers"] = _without_protocols(of_client.get("bootstrap.servers", ""))
        settings.client = {name: text for name, text in {**of_client, **client}.items() if text}
        AdminConfig.from_properties(settings_for(AdminConfig, settings.client))
        listener = settings.listener
        if host is not None or port is not None:
            chosen = listener.host if host is None else host
            bracketed = f"[{chosen}]" if ":" in chosen else chosen
            number = listener.port if port is None else port
            vars(settings)["listeners"] = (f"{listener.scheme}://{bracketed}:{number}",)
        return settings

    @property
    def listener(self) -> Listener:
        """Where to listen.

        Raises:
            ConfigError: `listeners` has several values, or one that is no address.
        """
        shown = ",".join(self.listeners)
        if len(self.listeners) == 1:
            parts = urlsplit(self.listeners[0])
            try:
                port = parts.port
            except ValueError:
                port = None
            if parts.scheme in ("http", "https") and port is not None and parts.path in ("", "/"):
                return Listener(parts.hostname or "", port, parts.scheme == "https")
        raise ConfigError(
            "listeners",
            f"`listeners`={shown} is not allowed: it takes one address such as http://127.0.0.1:8080 or "
            "https://0.0.0.0:8443",
        )

    @property
    def advertised_host(self) -> str:
        """The name under which other processes reach this one."""
        if self.host_name is not None:
            return self.host_name
        host = self.listener.host
        return socket.getfqdn() if host in _WILDCARD_HOSTS else host

    def listener_tls(self) -> ssl.SSLContext | None:
        """Return the TLS of the listener; None for http.

        Raises:
            ConfigError: a store cannot be read.
        """
        return _context(self, server_context) if self.listener.is_tls else None

    def forwarding_tls(self) -> ssl.SSLContext | None:
        """Return the TLS of requests to other processes; None where they listen without.

        Raises:
            ConfigError: a store cannot be read.
        """
        return _context(self, client_context) if self.listener.is_tls else None

    @property
    def needs_login(self) -> bool:
        """Whether the process has an identity at the brokers that an anonymous caller must not use."""
        protocol = self.client.get("security.protocol", "PLAINTEXT").strip().upper()
        has_certificate = any(name.startswith("ssl.keystore.") for name in self.client)
        return protocol.startswith("SASL_") or (protocol == "SSL" and has_certificate)


_ALIASES: Final[Mapping[str, str]] = {
    "avro.compatibility.level": "schema.compatibility.level",
    "master.eligibility": "leader.eligibility",
    "size.limit.filter.max.request.body.size": "http.request.bytes.max",
}
"""Other names that Confluent's registry takes."""


def _context(settings: HttpSettings, make: Callable[[TlsSettings], ssl.SSLContext]) -> ssl.SSLContext:
    values = {key.name: getattr(settings, attribute) for attribute, key in settings.definitions().items()}
    values["ssl.endpoint.identification.algorithm"] = "https"
    try:
        return make(TlsSettings.read(values.get))
    except TlsSettingsError as error:
        raise ConfigError(error.setting, str(error)) from None


def _without_protocols(servers: str) -> str:
    """Return ``host:port,…`` of Confluent's ``PLAINTEXT://host:port,…``."""
    return ",".join(each.strip().rpartition("://")[2] for each in servers.split(",") if each.strip())
