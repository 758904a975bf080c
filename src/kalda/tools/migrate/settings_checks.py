"""Judges a broker's settings, those of a ``server.properties`` or of DescribeConfigs, for a change to Kalda.

Kalda refuses names that it does not know and settings that require a protection that it lacks, so these stop
the migration; Kafka ignores unknown names. Pure functions.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kalda.common.config_def import ConfigError
from kalda.common.nearest import did_you_mean
from kalda.security.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from kalda.settings import BrokerConfig, ListenerConfig
from kalda.settings.broker_config import JAAS, LISTENER_PREFIX, base_name, find_key, has_effect
from kalda.settings.definitions import BROKER_CONFIG
from kalda.settings.definitions.access import ACL_AUTHORIZERS
from kalda.settings.definitions.without_effect import KRAFT
from kalda.tools.migrate.verdicts import Level, Verdict

_MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)
_PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.")
_TIERED: Final = "remote.log.storage.system.enable"
_MIGRATES_TO_KRAFT: Final = "zookeeper.metadata.migration.enable"
_PROTOCOL_VERSION: Final = "inter.broker.protocol.version"
_TOPIC_IDS_FROM: Final = (2, 8)
_NEWEST_PROTOCOL: Final = (3, 9)

_REPORTERS: Final = ("metric.reporters", "kafka.metrics.reporters")
_AUTHORIZER: Final = "authorizer.class.name"

_REMOVED: Final = {
    "host.name": "Kafka 3.0 removed it: write the address into `listeners`",
    "port": "Kafka 3.0 removed it: write the port into `listeners`",
    "advertised.host.name": "Kafka 3.0 removed it: write the address into `advertised.listeners`",
    "advertised.port": "Kafka 3.0 removed it: write the port into `advertised.listeners`",
    "zookeeper.sync.time.ms": "Kafka 3.0 removed it, and no release since 0.9 reads it: remove it",
    "quota.producer.default": "Kafka 3.0 removed it: set `producer_byte_rate` of the default client "
    "(`kalda quotas`), then remove it",
    "quota.consumer.default": "Kafka 3.0 removed it: set `consumer_byte_rate` of the default client "
    "(`kalda quotas`), then remove it",
}
"""Settings of Kafka before 3.0, with what stands for them."""

_REPLACED: Final = {
    "create.topic.policy.class.name": "limit who may create topics with ACLs",
    "alter.config.policy.class.name": "limit who may alter settings with ACLs",
    "principal.builder.class": "`ssl.principal.mapping.rules` and `sasl.kerberos.principal.to.local.rules` "
    "change names",
    "client.quota.callback.class": "set quotas for users, client ids and addresses (`kalda quotas`)",
}
"""Plug-ins, with what an operator of Kalda has instead."""


def check_settings(where: str, properties: Mapping[str, str], *, has_kerberos: bool) -> list[Verdict]:
    """Judge the settings of one broker.

    Args:
        where: the file or the broker, for the verdicts.
        properties: the settings as text, those that the operator set.
        has_kerberos: whether the library of GSSAPI is installed with Kalda.
    """
    kraft = sorted(name for name in properties if _is_kraft(name))
    if is_kraft_file(properties):
        return [Verdict(Level.STOPS, "process.roles", where, _kraft_text(kraft))]
    found: list[Verdict] = []
    accepted = dict(properties)
    if _is_true(properties.get(_MIGRATES_TO_KRAFT)):
        text = (
            f"`{_MIGRATES_TO_KRAFT}`=true: the cluster is on its way to KRaft, whose controllers would own "
            "the metadata. End this migration first, in the way back that Kafka documents"
        )
        found.append(Verdict(Level.STOPS, _MIGRATES_TO_KRAFT, where, text))
        for name in (*kraft, _MIGRATES_TO_KRAFT):
            accepted.pop(name, None)
    quiet: list[str] = []
    for name in sorted(accepted):
        verdict = _check_one(where, name, accepted[name], quiet)
        if verdict is not None:
            found.append(verdict)
            if verdict.level is Level.STOPS:
                accepted.pop(name)
    found += _check_absent(where, properties)
    config, refused = _parse(where, accepted)
    found += refused
    if config is not None:
        found += _check_zookeeper_identity(where, config)
        for listener in config.listeners:
            found += _check_listener(where, config, listener, has_kerberos=has_kerberos)
    if quiet:
        text = f"accepted without effect: {', '.join(quiet)}"
        found.append(Verdict(Level.FITS, "settings without effect", where, text))
    count = len(properties) - len({each.subject for each in found if each.subject in properties}) - len(quiet)
    if count > 0:
        found.append(Verdict(Level.FITS, "settings", where, f"{count} other settings mean the same in Kalda"))
    return found


def is_kraft_file(properties: Mapping[str, str]) -> bool:
    """Return whether the settings are those of a KRaft node; not of a broker on its way there."""
    roles = properties.get("process.roles", "").strip()
    return bool(roles) or (
        "zookeeper.connect" not in properties and any(_is_kraft(name) for name in properties)
    )


def protocol_version(text: str) -> tuple[int, int] | None:
    """Return the release of an inter-broker protocol, e.g. (2, 8) for ``2.8-IV1``; None for no version."""
    match = re.match(r"(\d+)\.(\d+)", text.strip())
    return None if match is None else (int(match[1]), int(match[2]))


def protocol_verdict(where: str, text: str) -> Verdict:
    """Judge an inter-broker protocol, which decides what the controller sends to the brokers."""
    version = protocol_version(text)
    if version is None:
        return Verdict(
            Level.STOPS, _PROTOCOL_VERSION, where, f"`{_PROTOCOL_VERSION}`={text} is no version of Kafka"
        )
    if version > _NEWEST_PROTOCOL:
        return Verdict(
            Level.STOPS,
            _PROTOCOL_VERSION,
            where,
            f"`{_PROTOCOL_VERSION}`={text} is newer than 3.9, the last release with ZooKeeper",
        )
    if version < _TOPIC_IDS_FROM:
        return Verdict(
            Level.LOOK,
            _PROTOCOL_VERSION,
            where,
            f"`{_PROTOCOL_VERSION}`={text}: controllers give topics no ids before 2.8. Raise it to the "
            "release of the brokers first, by a rolling restart as Kafka documents; Kalda follows by name "
            "until then",
        )
    return Verdict(Level.FITS, _PROTOCOL_VERSION, where, f"inter-broker protocol {text}, with topic ids")


def _check_one(where: str, name: str, text: str, quiet: list[str]) -> Verdict | None:
    """Judge one setting by itself; None if it means the same in Kalda. Adds to `quiet` what has no effect."""

    def verdict(level: Level, words: str) -> Verdict:
        return Verdict(level, name, where, words)

    if name.startswith(_PLUGIN_PREFIXES):
        quiet.append(name)
        return None
    if name == _PROTOCOL_VERSION:
        return protocol_verdict(where, text)
    if name == _TIERED and _is_true(text):
        return verdict(
            Level.STOPS,
            f"`{name}`=true: Kalda has no tiered storage, so segments that are only there could not be read. "
            "Set `remote.storage.enable`=false and wait until topics are local again, or leave them behind",
        )
    if name == _AUTHORIZER and text.strip() and text.strip() not in ACL_AUTHORIZERS:
        return verdict(
            Level.STOPS,
            f"`{name}`={text}: Kalda does not load classes of the JVM; its ACLs are those of "
            f"{ACL_AUTHORIZERS[0]}, in ZooKeeper. Write the rules as ACLs first",
        )
    if name in _REPORTERS and text.strip():
        quiet_text = "Kalda does not load reporters; `metrics.port` serves metrics for Prometheus"
        return verdict(Level.LOOK, f"`{name}`={text}: {quiet_text}")
    try:
        key = find_key(name)
    except ConfigError:
        return verdict(Level.STOPS, _unknown_text(name))
    try:
        value = key.parse(text)
    except ConfigError as error:
        return verdict(Level.STOPS, str(error))
    if has_effect(name):
        return None
    missing = key.asks_for(value)
    if missing is not None:
        hint = _REPLACED.get(base_name(name))
        return verdict(
            Level.STOPS,
            f"`{name}`={key.shown(value)} needs {missing.name}, which Kalda does not have: "
            f"{missing.consequence}{f'; {hint}' if hint else ''}. Remove it",
        )
    quiet.append(name)
    return None


def _check_absent(where: str, properties: Mapping[str, str]) -> Iterator[Verdict]:
    """Judge what the file leaves to defaults that differ."""
    if "zookeeper.connect" not in properties:
        text = "the file names no ZooKeeper; Kalda's brokers find the cluster at `zookeeper.connect`"
        yield Verdict(Level.STOPS, "zookeeper.connect", where, text)
    if "listeners" not in properties and "port" not in properties and "host.name" not in properties:
        text = (
            "not set: Kafka listens on every interface, `kalda broker` on 127.0.0.1. Write what Kafka does, "
            "`listeners=PLAINTEXT://:9092`"
        )
        yield Verdict(Level.STOPS, "listeners", where, text)
    if "log.dirs" not in properties and "log.dir" not in properties:
        text = (
            "not set: Kafka uses /tmp/kafka-logs, `kalda broker` its --dir. Write `log.dirs=/tmp/kafka-logs`"
        )
        yield Verdict(Level.STOPS, "log.dirs", where, text)


def _parse(where: str, properties: Mapping[str, str]) -> tuple[BrokerConfig | None, list[Verdict]]:
    """Read the settings together as Kalda does; what it refuses is left out and the rest is read again."""
    left = dict(properties)
    found: list[Verdict] = []
    for _ in range(len(left) + 1):  # each round leaves out one
        try:
            return BrokerConfig.from_properties(left), found
        except ConfigError as error:
            found.append(Verdict(Level.STOPS, error.name, where, str(error)))
            if left.pop(error.name, None) is None:
                break
    return None, found


def _check_zookeeper_identity(where: str, config: BrokerConfig) -> Iterator[Verdict]:
    """Judge whether Kalda has the identity at ZooKeeper that access lists name."""
    identities = ("zookeeper.ssl.keystore.location", "java.security.auth.login.config")
    if config.zookeeper_set_acl and not any(config.value(name) for name in identities):
        yield Verdict(
            Level.STOPS,
            "zookeeper.set.acl",
            where,
            "`zookeeper.set.acl`=true and no key store: the login at ZooKeeper is in a JAAS file of the JVM. "
            "Name this file in `java.security.auth.login.config`, which Kafka ignores in this file",
        )


def _check_listener(
    where: str, config: BrokerConfig, listener: ListenerConfig, *, has_kerberos: bool
) -> Iterator[Verdict]:
    """Judge one listener: its protocol, and the mechanisms of its logins."""
    subject = f"listener {listener.name}"
    if not listener.uses_sasl:
        yield Verdict(Level.FITS, subject, where, f"{listener} over {listener.security_protocol}")
        return
    enabled = config.of_listener(listener.name, "sasl.enabled.mechanisms")
    mechanisms = enabled if isinstance(enabled, tuple) else ()
    unknown = [each for each in mechanisms if each not in _MECHANISMS]
    if unknown:
        yield Verdict(
            Level.STOPS,
            "sasl.enabled.mechanisms",
            where,
            f"{listener}: {', '.join(unknown)} is not among the mechanisms of Kalda, which are "
            f"{', '.join(_MECHANISMS)}",
        )
    if GSSAPI in mechanisms and not has_kerberos:
        yield Verdict(
            Level.LOOK,
            "kerberos",
            where,
            f"{listener}: GSSAPI needs the package gssapi beside Kalda (`pip install kalda[kerberos]`); key "
            "tab and principal stay those of the login module",
        )
    needing = [each for each in mechanisms if each in (PLAIN, GSSAPI)]
    if config.inter_broker_listener_name == listener.name:
        own = config.of_listener(listener.name, "sasl.mechanism.inter.broker.protocol")
        needing += [str(own)] if str(own) not in needing else []
    missing = [each for each in needing if each in _MECHANISMS and config.jaas(listener.name, each) is None]
    for each in missing:
        setting = f"{LISTENER_PREFIX}{listener.name.lower()}.{each.lower()}.{JAAS}"
        yield Verdict(
            Level.STOPS,
            setting,
            where,
            f"{listener}: the login module of {each} is not in the settings, so it is in a JAAS file of the "
            f"JVM, which Kalda does not read for listeners. Write its section into `{setting}`; Kafka takes "
            "it too",
        )
    if not unknown and not missing:
        names = ", ".join(mechanisms)
        yield Verdict(
            Level.FITS, subject, where, f"{listener} over {listener.security_protocol} with {names}"
        )


def _unknown_text(name: str) -> str:
    if name in _REMOVED:
        return f"`{name}`: {_REMOVED[name]}"
    kind = "an interceptor or another plug-in" if "interceptor" in name else "a plug-in or a typing error"
    return (
        f"`{name}` is not a setting of Kafka 3.9: {kind}{did_you_mean(name, BROKER_CONFIG.keys, 0.85)}. "
        "Kafka ignores it unless a plug-in reads it; Kalda refuses it. Remove it from the file that Kalda "
        "gets"
    )


def _is_kraft(name: str) -> bool:
    key = BROKER_CONFIG.keys.get(name)
    return key is not None and key.without_effect == KRAFT and key.requires is not None


def _kraft_text(names: list[str]) -> str:
    return (
        f"{', '.join(f'`{name}`' for name in names)}: the file is for KRaft. Brokers of a KRaft cluster "
        "cannot be replaced one by one; copy the cluster with `kalda mirror cutover`"
    )


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"
