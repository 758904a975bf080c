"""Parses and checks the settings of one broker and provides them as typed attributes.

Dynamic settings (KIP-226) replace the values of a `BrokerConfig` in place, so its users read new values
without being notified. A setting without effect is accepted and listed, unless its value asks for a
protection that Kalda lacks (`ConfigKey.requires`): such a value is refused in files and in requests.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Final, Self

from kalda.common.config_def import (
    ConfigError,
    ConfigKey,
    ConfigValue,
    MissingFeatureError,
    refuse_missing_features,
)
from kalda.nats.subject_rules import SubjectRuleError, SubjectRules
from kalda.protocol.releases import find_release
from kalda.security.password_encoder import KEY_BITS
from kalda.security.sasl.jaas import JaasConfig, JaasError
from kalda.security.tls.settings import TlsSettings, TlsSettingsError
from kalda.settings.definitions import BROKER_CONFIG, OF_LISTENERS, BrokerSettings
from kalda.settings.definitions.without_effect import KRAFT
from kalda.settings.group_configs import GroupConfigs
from kalda.settings.listeners import (
    ListenerConfig,
    parse_listeners,
    parse_protocol_map,
    require_distinct_ports,
)
from kalda.settings.topic_config import TopicConfigs
from kalda.storage.log_config import LogConfig

LISTENER_PREFIX: Final = "listener.name."
_LISTENER_LIMITS: Final = ("max.connections", "max.connection.creation.rate")
AS_VERSION: Final = "kalda.as.version"
JAAS: Final = "sasl.jaas.config"
_PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.")
"""Settings under these prefixes belong to tiered storage's plug-ins; Kalda does not know their names."""


class BrokerConfig(BrokerSettings):
    """A broker's settings. An attribute has Kafka's name with underscores for the dots."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self.static: Final = dict(static)
        """The settings that the broker was started with, as they were written."""
        self.nats_listeners: tuple[ListenerConfig, ...] = ()
        """Those of `listeners` that speak NATS's protocol; the attribute `listeners` has the others."""
        self.dynamic_broker: Mapping[str, str] = {}
        """The dynamic settings of this broker alone (``/config/brokers/<id>``)."""
        self.dynamic_default: Mapping[str, str] = {}
        """The dynamic settings of all brokers (``/config/brokers/<default>``)."""
        self._static_values = _parse(self.static)
        self._values: dict[str, ConfigValue] = {}
        self.topics: Final = TopicConfigs(self.value)
        self.groups: Final = GroupConfigs(self.value)
        self._set_values(self._static_values, self._static_derived())

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read and check the settings of a broker.

        Raises:
            ConfigError: a setting is unknown or not allowed, alone or together with another.
        """
        refuse_kraft(properties)
        return cls(_with_id_synonyms(properties))

    def value(self, name: str) -> ConfigValue:
        """Return the value in force, dynamic changes included.

        Raises:
            ConfigError: there is no such setting.
        """
        if name in self._values:
            return self._values[name]
        return find_key(name).default

    @property
    def controller_eligible(self) -> bool | None:
        """The ``kalda.controller.eligible`` that was set; None where it is not."""
        name = "kalda.controller.eligible"
        return self.kalda_controller_eligible if name in self._values else None

    @property
    def metrics_address(self) -> str:
        """The host on which `metrics.port` listens."""
        return self.listeners[0].host if self.metrics_host is None else self.metrics_host

    def of_listener(self, listener: str, name: str) -> ConfigValue:
        """Return a listener's value in force: its own (``listener.name.<listener>.<name>``), or all's.

        Raises:
            ConfigError: there is no such setting.
        """
        return _of_listener(self._values, listener, name)

    def of_mechanism(self, listener: str, mechanism: str, name: str) -> ConfigValue:
        """Return the value in force for one mechanism of a listener, or else the listener's.

        Raises:
            ConfigError: there is no such setting.
        """
        own = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{name}"
        return self._values[own] if own in self._values else self.of_listener(listener, name)

    def login_setting(self, listener: str, mechanism: str, name: str) -> ConfigValue:
        """Return a setting of this broker's own login; None for one that only clients have."""
        return self.of_mechanism(listener, mechanism, name) if name in BROKER_CONFIG else None

    def jaas(self, listener: str, mechanism: str) -> JaasConfig | None:
        """Return the login module of one mechanism of a listener; None if it is not set."""
        text = self._values.get(_jaas_name(listener, mechanism))
        return None if text is None else JaasConfig.parse(str(text))

    def tls_settings(self, listener: str) -> TlsSettings:
        """Return how a listener uses TLS.

        Raises:
            ConfigError: its settings contradict each other.
        """
        return tls_settings(self._values, listener)

    def text(self, name: str) -> str | None:
        """Return the value in force as DescribeConfigs writes it."""
        return find_key(name).format(self.value(name))

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the settings of a topic's logs: its own, then the broker's.

        Raises:
            ConfigError: an override is unknown or not allowed.
        """
        return self.topics.log_config(overrides)

    def apply_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> frozenset[str]:
        """Lay dynamic settings over the static ones and return the names whose value changed.

        Raises:
            ConfigError: the outcome is not allowed; nothing changed then.
        """
        values = self._merged(broker, default)
        derived = self._derive(values)
        before = self._values
        self.dynamic_broker, self.dynamic_default = dict(broker), dict(default)
        self._set_values(values, derived)
        names = before.keys() | values.keys()
        return frozenset(name for name in names if before.get(name) != values.get(name))

    def validated(self, broker: Mapping[str, str], default: Mapping[str, str]) -> dict[str, ConfigValue]:
        """Return all values as they would be with these dynamic settings; change nothing.

        Raises:
            ConfigError: the outcome is not allowed.
        """
        values = self._merged(broker, default)
        self._derive(values)
        return values

    def with_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> "BrokerConfig":
        """Return a copy with these dynamic settings instead.

        Raises:
            ConfigError: the outcome is not allowed.
        """
        copy = BrokerConfig(self.static)
        copy.apply_dynamic(broker, default)
        return copy

    def check_alone(self, name: str, text: str) -> None:
        """Check a dynamic setting without regard to others.

        Raises:
            ConfigError: its value is never allowed, or there is no such setting.
        """
        _refuse_missing(_parse({name: text}))

    def _merged(self, broker: Mapping[str, str], default: Mapping[str, str]) -> dict[str, ConfigValue]:
        return {**self._static_values, **_parse(default), **_parse(broker)}

    def _static_derived(self) -> dict[str, object]:
        # With a secret, the passwords of stores may be among the dynamic settings, which are read later.
        has_stored_passwords = self._static_values.get("password.encoder.secret") is not None
        return self._derive(self._static_values, checks_tls=not has_stored_passwords)

    def _set_values(self, values: dict[str, ConfigValue], derived: dict[str, object]) -> None:
        self._values = values
        self.topics.refresh()
        vars(self).update(
            (attribute, values.get(key.name, key.default)) for attribute, key in _ATTRIBUTES.items()
        )
        vars(self).update(derived)

    def _derive(self, values: dict[str, ConfigValue], *, checks_tls: bool = True) -> dict[str, object]:
        """Check what single values cannot show and compute the attributes that are not plain values."""
        get = {**BROKER_CONFIG.defaults, **values}
        _refuse_missing(values)
        _check_together(get)
        _check_listener_limits(values)
        _check_jaas(values)
        protocols = parse_protocol_map(
            "listener.security.protocol.map", str(get["listener.security.protocol.map"])
        )
        every = parse_listeners("listeners", str(get["listeners"]), protocols)
        listeners = tuple(each for each in every if not each.speaks_nats)
        if not listeners:
            raise ConfigError(
                "listeners",
                f"`listeners` {'has no listener of Kafka' if every else 'is empty'}; a broker needs at least "
                "one, e.g. PLAINTEXT://:9092",
            )
        require_distinct_ports("listeners", every)
        for listener in every:
            if listener.uses_tls and checks_tls:
                tls_settings(values, listener.name)
        advertised = listeners
        if get["advertised.listeners"]:
            advertised = parse_listeners("advertised.listeners", str(get["advertised.listeners"]), protocols)
        _check_advertised(listeners, advertised)
        inter_broker = _inter_broker_listener(get, advertised)
        return {
            "cordoned_log_dirs": _cordoned_log_dirs(get),
            "control_plane_listener_name": _control_plane_listener(get, advertised, inter_broker),
            "inter_broker_listener_name": inter_broker,
            "kalda_as_version": _releases(values, listeners),
            "listeners": listeners,
            "nats_listeners": tuple(each for each in every if each.speaks_nats),
            "advertised_listeners": advertised,
            "log_dirs": _log_dirs(get),
            "max_connections_per_ip_overrides": _connection_overrides(
                str(get["max.connections.per.ip.overrides"])
            ),
        }


_ATTRIBUTES: Final = BrokerSettings.definitions()


def _jaas_name(listener: str, mechanism: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"


def _refuse_missing(values: Mapping[str, ConfigValue]) -> None:
    refuse_missing_features(
        (find_key(name), value)
        for name, value in values.items()
        if not has_effect(name) and not name.startswith(_PLUGIN_PREFIXES)
    )


def _check_jaas(values: Mapping[str, ConfigValue]) -> None:
    """Check the login modules, of which each belongs to a mechanism of a listener.

    Raises:
        ConfigError: one is malformed, or belongs to none.
    """
    for name, text in values.items():
        if base_name(name) != JAAS or text is None:
            continue
        if name == JAAS:
            raise ConfigError(
                name, f"`{name}` of a broker is written {LISTENER_PREFIX}<name>.<mechanism>.{JAAS}"
            )
        try:
            JaasConfig.parse(str(text))
        except JaasError as error:
            raise ConfigError(name, f"`{name}` is malformed: {error}") from None


def tls_settings(values: Mapping[str, ConfigValue], listener: str) -> TlsSettings:
    """Return how a listener uses TLS, given the values of all settings.

    Raises:
        ConfigError: its settings contradict each other.
    """
    try:
        return TlsSettings.read(lambda name: _of_listener(values, listener, name))
    except TlsSettingsError as error:
        raise ConfigError(error.setting, f"listener {listener}: {error}") from None


def _of_listener(values: Mapping[str, ConfigValue], listener: str, name: str) -> ConfigValue:
    own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
    if own in values:
        return values[own]
    return values[name] if name in values else find_key(name).default


def has_effect(name: str) -> bool:
    """Return whether code reads the setting; of a single listener's (``listener.name.…``), some are read."""
    key = BROKER_CONFIG.keys.get(name)
    if key is None and base_name(name) in OF_LISTENERS:
        return True
    return key is not None and key.without_effect is None


def base_name(name: str) -> str:
    """Return the setting that a listener's own one overrides, or the name itself.

    ``listener.name.inside.max.connections`` -> ``max.connections``
    """
    if name not in BROKER_CONFIG and name.startswith(LISTENER_PREFIX):
        base = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
        while base and base not in BROKER_CONFIG:
            # A SASL mechanism may stand between the listener and the setting.
            base = base.partition(".")[2]
        return base or name
    return name


def find_key(name: str) -> ConfigKey:
    """Find the declaration; a listener's own setting is declared as what it overrides is.

    Raises:
        ConfigError: there is none.
    """
    base = base_name(name)
    key = BROKER_CONFIG.key(base)
    return key if base == name else dataclasses.replace(key, name=name)


def _parse(properties: Mapping[str, str]) -> dict[str, ConfigValue]:
    for name in properties:
        if name.startswith(LISTENER_PREFIX) and base_name(name) in OF_LISTENERS - {AS_VERSION}:
            listener = name.removeprefix(LISTENER_PREFIX).partition(".")[0]
            if listener != listener.lower():
                raise ConfigError(name, f"`{name}`: write the listener in lower case: {listener.lower()}")
    return {
        name: text if name.startswith(_PLUGIN_PREFIXES) else find_key(name).parse(text)
        for name, text in properties.items()
    }


def refuse_kraft(properties: Mapping[str, str]) -> None:
    """Refuse a file that was written for KRaft, before its names that only Kafka 4 has are refused.

    Raises:
        MissingFeatureError: it names the settings of KRaft that are set.
    """
    found = {
        name: key
        for name in properties
        if (key := BROKER_CONFIG.keys.get(name)) is not None
        and (key.without_effect == KRAFT or name == "node.id")
    }
    asking = [
        name
        for name, key in found.items()
        if key.requires is not None and properties[name].strip().lower() not in ("", "false")
    ]
    if not asking:
        return
    raise MissingFeatureError(asking[0], f"{', '.join(f'`{name}`' for name in found)}: {_NO_KRAFT}")


_NO_KRAFT: Final = (
    "these settings are for KRaft. Kalda coordinates brokers through ZooKeeper's protocol: `kalda start` "
    "runs a coordination server of its own, `kalda broker` takes `zookeeper.connect`. Remove these settings "
    "and the controller's listener, and set `broker.id` instead of `node.id`; "
    'see "Coming from Kafka" (docs/how-to/coming-from-kafka.md)'
)


def _with_id_synonyms(properties: Mapping[str, str]) -> dict[str, str]:
    """Give ``broker.id`` and ``node.id`` the same value where only one is written."""
    filled = dict(properties)
    broker_id, node_id = filled.get("broker.id"), filled.get("node.id")
    if broker_id is not None and node_id is None:
        filled["node.id"] = broker_id
    elif node_id is not None and broker_id is None:
        filled["broker.id"] = node_id
    elif broker_id != node_id:
        raise ConfigError("node.id", f"`node.id`={node_id} and `broker.id`={broker_id} differ; set only one")
    return filled


def _check_together(get: Mapping[str, ConfigValue]) -> None:
    """Check rules that need more than one setting, or exceptions that a range cannot say."""

    def number(name: str) -> int:
        value = get[name]
        assert isinstance(value, int), f"{name} is {value!r}, not a number"
        return value

    def require(name: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise ConfigError(name, f"`{name}`={find_key(name).shown(get[name])} is not allowed: {allowed}")

    require("broker.id", number("broker.id") >= -1, "at least 0, or -1 to be given one")
    if get["broker.id.generation.enable"]:
        high = number("reserved.broker.max.id")
        require("broker.id", number("broker.id") <= high, f"at most `reserved.broker.max.id`={high}")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if get[name] is not None:
            require(name, number(name) == -1 or number(name) >= 1, "-1 (for ever) or at least 1")
    for name in ("log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"):
        if get[name] is not None:
            low = 1 if name == "log.roll.ms" else 0
            require(name, number(name) >= low, f"at least {low}")
    login = get["metrics.login"]
    require("metrics.login", login is None or str(login).find(":") > 0, "NAME:PASSWORD")
    queued, request = number("queued.max.request.bytes"), number("socket.request.max.bytes")
    require(
        "queued.max.request.bytes",
        queued <= 0 or queued >= request,
        f"-1, or at least `socket.request.max.bytes`={request}",
    )
    lag = number("replica.lag.time.max.ms")
    require(
        "replica.fetch.wait.max.ms",
        number("replica.fetch.wait.max.ms") <= lag,
        f"at most `replica.lag.time.max.ms`={lag}",
    )
    require(
        "max.connections.per.ip",
        number("max.connections.per.ip") > 0 or bool(get["max.connections.per.ip.overrides"]),
        "0 only together with `max.connections.per.ip.overrides`",
    )
    bits = KEY_BITS[str(get["password.encoder.cipher.algorithm"])]
    require(
        "password.encoder.key.length",
        number("password.encoder.key.length") in bits,
        f"{' or '.join(map(str, bits))} with `password.encoder.cipher.algorithm`="
        f"{get['password.encoder.cipher.algorithm']}",
    )
    for name in ("default.replication.factor", "connections.max.idle.ms"):
        require(name, number(name) >= -1, "at least -1")
    rules = get["kalda.nats.subjects"]
    assert isinstance(rules, tuple), "kalda.nats.subjects is a list"
    try:
        SubjectRules(rules)
    except SubjectRuleError as error:
        raise ConfigError("kalda.nats.subjects", f"`kalda.nats.subjects`: {error}") from None


def _check_listener_limits(values: Mapping[str, ConfigValue]) -> None:
    """Check the limits of single listeners, which may not be 0 as the broker's may: nobody could connect.

    Raises:
        ConfigError: one is.
    """
    for name, value in values.items():
        if name.startswith(LISTENER_PREFIX) and base_name(name) in _LISTENER_LIMITS and value == 0:
            raise ConfigError(name, f"`{name}`=0 is not allowed: at least 1")


def _releases(values: Mapping[str, ConfigValue], listeners: tuple[ListenerConfig, ...]) -> dict[str, str]:
    """Return the release as which each listener answers, by the listener's name; absent if as Kalda."""
    names = {listener.name for listener in listeners}
    releases: dict[str, str] = {}
    for name, value in values.items():
        release = find_release(str(value)) if base_name(name) == AS_VERSION and value is not None else None
        if release is None:
            continue
        if name == AS_VERSION:
            releases = dict.fromkeys(names, release) | releases
            continue
        listener = name.removeprefix(LISTENER_PREFIX).removesuffix(f".{AS_VERSION}").upper()
        if listener not in names:
            raise ConfigError(
                name,
                f"`{name}`: {listener} is not among `listeners`, which are {', '.join(sorted(names))}",
            )
        releases[listener] = release
    return releases


def _cordoned_log_dirs(get: Mapping[str, ConfigValue]) -> tuple[str, ...]:
    """Return the absolute paths of the directories that get no new logs (KIP-1066)."""
    name, directories = "cordoned.log.dirs", _log_dirs(get)
    cordoned = get[name]
    assert isinstance(cordoned, tuple), f"{name} is a list"
    if "*" in cordoned:
        cordoned = directories
    known = {os.path.abspath(each) for each in directories}
    unknown = [each for each in cordoned if os.path.abspath(each) not in known]
    if unknown:
        raise ConfigError(
            name,
            f"`{name}`: {', '.join(unknown)} is not among the log directories, which are "
            f"{', '.join(directories)}; * stands for all of them",
        )
    return tuple(os.path.abspath(each) for each in cordoned)


def _log_dirs(get: Mapping[str, ConfigValue]) -> tuple[str, ...]:
    name = "log.dirs" if get["log.dirs"] is not None else "log.dir"
    directories = tuple(part.strip() for part in str(get[name]).split(","))
    if not all(directories) or len(set(directories)) != len(directories):
        raise ConfigError(
            name, f"`{name}`={get[name]} is not allowed: it takes directories separated by commas, each once"
        )
    return directories


def _check_advertised(listeners: tuple[ListenerConfig, ...], advertised: tuple[ListenerConfig, ...]) -> None:
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            raise ConfigError(
                "advertised.listeners",
                f"`advertised.listeners`: {listener} is not among `listeners`, which are "
                f"{', '.join(sorted(names))}",
            )
        if listener.host == "0.0.0.0":
            raise ConfigError(
                "advertised.listeners",
                f"`advertised.listeners`: clients cannot connect to {listener}; name a host they can reach",
            )


def _inter_broker_listener(get: Mapping[str, ConfigValue], advertised: tuple[ListenerConfig, ...]) -> str:
    wanted = get["inter.broker.listener.name"]
    if wanted is not None:
        name = str(wanted).upper()
        setting = "inter.broker.listener.name"
        found = [listener.name for listener in advertised if listener.name == name]
    else:
        setting = "security.inter.broker.protocol"
        found = [listener.name for listener in advertised if listener.security_protocol == get[setting]]
        # Kafka knows only the listener with the protocol's name.
        found.sort(key=lambda name: name != get[setting])
    if not found:
        names = ", ".join(listener.name for listener in advertised)
        raise ConfigError(
            setting,
            f"`{setting}`={find_key(setting).shown(get[setting])} matches no advertised listener; "
            f"those are {names}",
        )
    return found[0]


def _control_plane_listener(
    get: Mapping[str, ConfigValue], advertised: tuple[ListenerConfig, ...], inter_broker: str
) -> str | None:
    setting = "control.plane.listener.name"
    if get[setting] is None:
        return None
    name = str(get[setting]).upper()
    names = [listener.name for listener in advertised]
    if name not in names:
        raise ConfigError(
            setting, f"`{setting}`={name} matches no advertised listener; those are {', '.join(names)}"
        )
    if name == inter_broker:
        raise ConfigError(
            setting,
            f"`{setting}`={name} is the inter-broker listener; name another advertised listener, or remove "
            "the setting",
        )
    return name


def _connection_overrides(text: str) -> dict[str, int]:
    setting = "max.connections.per.ip.overrides"
    overrides = {}
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        host, _, count = entry.rpartition(":")
        if not host or not count.isascii() or not count.isdigit():
            raise ConfigError(setting, f"`{setting}`: {entry} is not host:count")
        overrides[host] = int(count)
    return overrides
