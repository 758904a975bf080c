"""Declares the settings that all clients share, and reads them from Python's or Kafka's names.

The names, defaults and meanings are those of Apache Kafka's clients 4.x. A class for each client inherits
from `CommonClientConfig` and adds its own. `from_options` reads keyword arguments (``linger_ms=5``), and
`from_properties` reads a mapping with Kafka's dotted names (``{"linger.ms": "5"}``).
"""

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from numbers import Real
from typing import Final, Self

from kalda.clients.config.security_config import SecurityConfig
from kalda.common.config_def import (
    HIDDEN,
    ConfigError,
    ConfigKey,
    ConfigType,
    at_least,
    one_of,
    refuse_missing_features,
)
from kalda.common.nearest import did_you_mean
from kalda.common.settings import HIGH, LOW, boolean, integer, long, string, string_list
from kalda.net.client.bootstrap_servers import parse_bootstrap_servers
from kalda.net.client.client_errors import ClientConfigError

_JAVA_ONLY: Final[Mapping[str, frozenset[str]]] = {
    "metric.reporters": frozenset({"", "org.apache.kafka.common.metrics.JmxReporter"}),
    "auto.include.jmx.reporter": frozenset({"true", "false"}),
}
"""Settings of Java's clients that concern the virtual machine, with the values that a file may hold."""

Option = object
"""The value of a keyword argument: what the setting's type is in Python, or its text in a properties file."""


class CommonClientConfig(SecurityConfig):
    """The settings of each client."""

    bootstrap_servers = string_list(
        (),
        "Brokers as host:port, that the client asks for the other brokers of the cluster. One that "
        "answers is enough.",
        importance=HIGH,
    )
    bootstrap_wait_ms = long(
        -1,
        "How long a new client waits for the first answer of a broker while every bootstrap server fails; "
        "its calls fail afterwards. 0 fails at the first failure of all, -1 waits as long as each call. A "
        "client that a broker has answered is not concerned. Kalda's own; its command-line tools set 0.",
        at_least(-1),
        importance=LOW,
    )
    client_id = string("", "The name of this client in the broker's logs, metrics and quotas.")
    client_dns_lookup = string(
        "use_all_dns_ips",
        "Whether to try all addresses of a name in turn, or to expand a bootstrap name to its canonical "
        "names.",
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    )
    metadata_max_age_ms = long(
        300_000,
        "After how many milliseconds the client asks for metadata again although no error made it necessary.",
        at_least(0),
        importance=LOW,
    )
    metadata_recovery_strategy = string(
        "rebootstrap",
        "What to do when none of the known brokers can be reached: ask the bootstrap servers again, or "
        "not (KIP-899).",
        one_of("rebootstrap", "none"),
        importance=LOW,
    )
    metadata_recovery_rebootstrap_trigger_ms = long(
        300_000,
        "After how many milliseconds without metadata from a known broker the client asks the bootstrap "
        "servers.",
        at_least(0),
        importance=LOW,
    )
    send_buffer_bytes = integer(
        131_072, "The size of the socket's send buffer; -1 leaves it to the operating system.", at_least(-1)
    )
    # Kafka's default is 65536. A fixed size takes the kernel's adaptation to the connection away, which more
    # than doubled the CPU time of receiving a fetch of 4 MB; librdkafka leaves it to the kernel too.
    receive_buffer_bytes = integer(
        -1,
        "The size of the socket's receive buffer; -1 leaves it to the operating system, which adapts it to "
        "the connection.",
        at_least(-1),
    )
    reconnect_backoff_ms = long(
        50, "How long to wait before the second attempt to connect to a broker.", at_least(0), importance=LOW
    )
    reconnect_backoff_max_ms = long(
        1_000,
        "The longest wait between two attempts to connect; the wait doubles from `reconnect.backoff.ms` "
        "to this.",
        at_least(0),
        importance=LOW,
    )
    retry_backoff_ms = long(
        100, "How long to wait before the first retry of a request that failed.", at_least(0), importance=LOW
    )
    retry_backoff_max_ms = long(
        1_000,
        "The longest wait between two retries; the wait doubles from `retry.backoff.ms` to this (KIP-580).",
        at_least(0),
        importance=LOW,
    )
    request_timeout_ms = integer(
        30_000, "How long to wait for the response to a request before its connection is closed.", at_least(0)
    )
    connections_max_idle_ms = long(
        540_000, "Close a connection that was not used for this long; -1 never.", at_least(-1)
    )
    socket_connection_setup_timeout_ms = long(
        10_000, "How long the first attempt to connect to a broker may take.", at_least(1)
    )
    socket_connection_setup_timeout_max_ms = long(
        30_000,
        "How long an attempt to connect may take at most; the time doubles with each failure up to this.",
        at_least(1),
    )
    enable_metrics_push = boolean(
        True, "Whether to send metrics to the cluster when it subscribes to them (KIP-714).", importance=LOW
    )
    metrics_sample_window_ms = long(
        30_000, "The length of one sample of a metric.", at_least(0), importance=LOW
    )
    metrics_num_samples = integer(
        2, "How many samples a metric is computed from.", at_least(1), importance=LOW
    )
    metrics_recording_level = string(
        "INFO",
        "The highest level of detail that is recorded. All metrics of this client are of level INFO, so "
        "DEBUG and TRACE add none.",
        one_of("INFO", "DEBUG", "TRACE"),
        importance=LOW,
    )

    @classmethod
    def from_options(cls, options: Mapping[str, Option]) -> Self:
        """Read keyword arguments; None stands for the default.

        Raises:
            ClientConfigError: a name is unknown (the message offers the nearest one), a value is not allowed,
                or `bootstrap_servers` is missing.
        """
        definitions = cls.definitions()
        for name in options:
            if name not in definitions:
                raise ClientConfigError(_unknown(name, definitions))
        try:
            values = {
                name: definitions[name].parse(_text(definitions[name], value))
                for name, value in options.items()
                if value is not None
            }
            refuse_missing_features((definitions[name], value) for name, value in values.items())
        except ConfigError as error:
            raise ClientConfigError(str(error)) from None
        config = cls(**values)
        config.check_rules()
        return config

    @classmethod
    def from_properties(cls, properties: Mapping[str, Option]) -> Self:
        """Read settings by Kafka's dotted names; values are texts as in a file, or Python values.

        Raises:
            ClientConfigError: as `from_options`.
        """
        return cls.from_options(cls.options_of(properties))

    @classmethod
    def options_of(cls, properties: Mapping[str, Option]) -> dict[str, Option]:
        """Return the keyword arguments that a mapping with Kafka's dotted names stands for.

        Raises:
            ClientConfigError: a name is unknown; the message offers the nearest one.
        """
        attributes = {key.name: attribute for attribute, key in cls.definitions().items()}
        options: dict[str, Option] = {}
        for name, value in properties.items():
            if name in attributes:
                options[attributes[name]] = value
            elif name not in _JAVA_ONLY:
                raise ClientConfigError(_unknown(name, attributes))
            elif str(value).strip().lower() not in {each.lower() for each in _JAVA_ONLY[name]}:
                raise ClientConfigError(f"`{name}`={value} needs a Java virtual machine; leave it out")
        return options

    def check_rules(self) -> None:
        """Check the rules between settings; a class that adds rules extends this method.

        Raises:
            ClientConfigError: the first rule that is broken, with the names and values.
        """
        if not self.bootstrap_servers:
            raise ClientConfigError("`bootstrap.servers` is missing; set it to host:port[,host:port…]")
        parse_bootstrap_servers(",".join(self.bootstrap_servers))
        # A store that cannot be read is an error of the call that makes the client, not of its first request.
        _ = self.tls, self.login

    @property
    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """The bootstrap servers as (host, port)."""
        return parse_bootstrap_servers(",".join(self.bootstrap_servers))


def _unknown(name: str, known: Iterable[str]) -> str:
    """Return the error message for an unknown name, keyword or dotted, with the setting meant."""
    # Imported here: only a mistake needs it, and start-up time counts.
    from kalda.clients.config.foreign_names import REMARKS, SETTINGS

    keyword = name.replace(".", "_")
    if keyword in REMARKS:
        return f"`{name}` is not a setting of this client: {REMARKS[keyword]}"
    counterpart = SETTINGS.get(keyword)
    meant = next((each for each in known if each.replace(".", "_") == counterpart), None)
    hint = did_you_mean(name, known) if meant is None else f"; here it is `{meant}`"
    return f"`{name}` is not a setting of this client{hint}"


def _text(key: ConfigKey, value: Option) -> str:
    """Write a Python value as it stands in a properties file.

    Raises:
        ClientConfigError: a properties file cannot hold such a value.
    """
    if isinstance(value, Enum):
        # The number of an IntEnum is the wire's; a setting has its name.
        is_number = isinstance(value, IntEnum) and key.type is ConfigType.STRING
        value = value.name.lower() if is_number else value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Real):
        return str(value)
    is_opaque = isinstance(value, bytes | bytearray | memoryview | Mapping)
    if key.type is ConfigType.LIST and isinstance(value, Iterable) and not is_opaque:
        return ",".join(_text(key, each) for each in value)
    shown = HIDDEN if key.type.is_sensitive else repr(value)
    raise ClientConfigError(
        f"`{key.name}`={shown} is not allowed: it takes {key.allowed}, not {type(value).__name__}"
    )
