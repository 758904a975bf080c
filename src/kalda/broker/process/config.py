"""Makes the settings of a command: its options are defaults for the settings that the user gives by name.

An option and a setting with the same meaning must agree; otherwise the command fails.
"""

import dataclasses
import re
import socket
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from kalda.common.config_def import ConfigError
from kalda.etcd.address import ETCD, parse_etcd_address, split_scheme
from kalda.settings import BrokerConfig
from kalda.settings.broker_config import refuse_kraft
from kalda.settings.summary import settings_without_effect
from kalda.zookeeper.errors import BadArgumentsError
from kalda.zookeeper.server.config import ZooKeeperConfig

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092

_LISTENERS: Final = ("listeners", "advertised.listeners")
_ONE_BROKER_ONLY: Final = ("broker.id", "node.id", "log.dirs", "log.dir")
"""Settings that cannot be given for several brokers at once."""

PER_BROKER: Final = (*_LISTENERS, *_ONE_BROKER_ONLY)
"""Settings that differ between the brokers of a cluster."""

_PORT: Final = re.compile(r":(\d+)\s*(?=,|$)")
"""The port of one entry of `listeners`."""


def small_cluster_settings(brokers: int) -> dict[str, str]:
    """Return the settings of a cluster on one machine that differ from Kafka's defaults.

    Kafka's default of 3 replicas needs three brokers. The first rebalance of a group does not wait for more
    members, as in the server.properties that Kafka ships, and later members of a consumer group get
    partitions at once.
    """
    return {
        "group.consumer.assignment.interval.ms": "0",
        "group.initial.rebalance.delay.ms": "0",
        "group.share.assignment.interval.ms": "0",
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
        "share.coordinator.state.topic.replication.factor": str(min(3, brokers)),
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "transaction.state.log.min.isr": str(min(2, brokers)),
    }


def started_config(
    directory: Path,
    port: int | None,
    properties: Mapping[str, str],
    *,
    broker_id: int = 0,
    brokers: int = 1,
    is_secure: bool = False,
) -> BrokerConfig:
    """Return the parsed settings of one broker of `kalda start`; broker n listens on ``port + n``.

    Raises:
        ConfigError: a setting is unknown or not allowed, or `port` and a setting disagree.
    """
    config = BrokerConfig.from_properties(
        started_properties(
            directory, port, properties, broker_id=broker_id, brokers=brokers, is_secure=is_secure
        )
    )
    _require_port(port, properties)
    return config


def started_properties(
    directory: Path,
    port: int | None,
    properties: Mapping[str, str],
    *,
    broker_id: int = 0,
    brokers: int = 1,
    is_secure: bool = False,
) -> dict[str, str]:
    """Return the settings of one broker of `kalda start` as text.

    Broker n listens on the ports of ``listeners`` plus n.

    Raises:
        ConfigError: `properties` sets for several brokers what only one can have.
    """
    first = DEFAULT_PORT if port is None else port
    protocol = "SASL_SSL" if is_secure else "PLAINTEXT"
    settings = {
        "broker.id": str(broker_id),
        "listeners": f"{protocol}://{DEFAULT_HOST}:{first + broker_id if first else 0}",
        "log.dirs": str(directory / f"broker-{broker_id}"),
        **small_cluster_settings(brokers),
        **properties,
    }
    if brokers > 1:
        refuse_kraft(properties)
        _require_shared(properties, brokers)
        for name in _LISTENERS:
            if name in properties:
                settings[name] = _shifted(name, properties[name], broker_id, brokers)
        # One rack per machine: a cluster over several machines spreads replicas over the machines.
        settings.setdefault("broker.rack", socket.gethostname())
        metrics_port = properties.get("metrics.port", "")
        if metrics_port.isascii() and metrics_port.isdigit() and int(metrics_port):
            settings["metrics.port"] = str(int(metrics_port) + broker_id)
    # A synonym that the user sets overrides the default for its canonical name.
    if "node.id" in properties and "broker.id" not in properties:
        del settings["broker.id"]
    if "log.dir" in properties and "log.dirs" not in properties:
        del settings["log.dirs"]
    return settings


def without_effect_in_start(config: BrokerConfig) -> list[str]:
    """Return the given settings that have no effect in `kalda start`."""
    names = settings_without_effect(config)
    if "zookeeper.connect" in config.static:
        names.append(
            "zookeeper.connect (`kalda start` runs its own coordination server; `kalda broker` takes one)"
        )
    return names


def broker_config(
    directory: Path,
    properties: Mapping[str, str],
    *,
    broker_id: int | None,
    port: int | None,
    zookeeper: str | None,
    coordination: str | None = None,
) -> BrokerConfig:
    """Return the settings of `kalda broker`; None stands for an option that was not given.

    `coordination`, and `coordination.connect`, name the engine; ``zookeeper://`` of it becomes
    `zookeeper.connect`.

    Raises:
        ConfigError: a setting is unknown or not allowed, or an option and a setting disagree.
    """
    settings = {
        "listeners": f"PLAINTEXT://{DEFAULT_HOST}:{DEFAULT_PORT if port is None else port}",
        "log.dirs": str(directory),
        "zookeeper.connect": f"{DEFAULT_HOST}:2181" if zookeeper is None else zookeeper,
        **properties,
    }
    if broker_id is not None and "broker.id" not in properties and "node.id" not in properties:
        settings["broker.id"] = str(broker_id)
    if "log.dir" in properties and "log.dirs" not in properties:
        del settings["log.dirs"]
    _require_agreement("--coordination", coordination, "coordination.connect", properties)
    _choose_engine(settings, properties, zookeeper, coordination)
    config = BrokerConfig.from_properties(settings)
    _require_port(port, properties)
    for name in ("broker.id", "node.id"):
        _require_agreement("--id", broker_id, name, properties)
    _require_agreement("--zookeeper", zookeeper, "zookeeper.connect", properties)
    return config


def _choose_engine(
    settings: dict[str, str], properties: Mapping[str, str], zookeeper: str | None, coordination: str | None
) -> None:
    """Leave in `settings` the address of one engine."""
    given = coordination or properties.get("coordination.connect", "").strip()
    if not given:
        return
    try:
        scheme, rest = split_scheme(given)
        if scheme == ETCD:
            parse_etcd_address(rest)
    except BadArgumentsError as error:
        raise ConfigError("coordination.connect", str(error)) from None
    if zookeeper is not None or "zookeeper.connect" in properties:
        raise ConfigError(
            "coordination.connect",
            f"`coordination.connect`={given} and `zookeeper.connect`="
            f"{properties.get('zookeeper.connect', zookeeper)} name two engines; give only one of them",
        )
    del settings["zookeeper.connect"]
    settings.pop("coordination.connect", None)
    settings["coordination.connect" if scheme == ETCD else "zookeeper.connect"] = (
        given if scheme == ETCD else rest
    )


def zookeeper_config(
    properties: Mapping[str, str], *, directory: Path | None, host: str | None, port: int | None
) -> ZooKeeperConfig:
    """Return the settings of `kalda zookeeper`; None stands for an option that was not given.

    Raises:
        ConfigError: a setting is unknown or not allowed, or an option and a setting disagree.
    """
    config = ZooKeeperConfig.from_properties(properties)
    _require_agreement("--dir", directory, "dataDir", properties)
    _require_agreement("--host", host, "clientPortAddress", properties)
    _require_agreement("--port", port, "clientPort", properties)
    return dataclasses.replace(
        config,
        data_dir=config.data_dir if directory is None else str(directory),
        client_port_address=config.client_port_address if host is None else host,
        client_port=config.client_port if port is None else port,
    )


def _require_port(port: int | None, properties: Mapping[str, str]) -> None:
    """Raise ConfigError if `--port` is given and `listeners` is not one listener on this port."""
    listeners = [each for each in properties.get("listeners", "").split(",") if each.strip()]
    if port is None or "listeners" not in properties:
        return
    if len(listeners) == 1 and listeners[0].rpartition(":")[2].strip() == str(port):
        return
    raise _disagreement("--port", port, "listeners", properties)


def _require_agreement(option: str, value: object | None, name: str, properties: Mapping[str, str]) -> None:
    if value is not None and name in properties and properties[name].strip() != str(value):
        raise _disagreement(option, value, name, properties)


def _disagreement(option: str, value: object, name: str, properties: Mapping[str, str]) -> ConfigError:
    return ConfigError(
        name,
        f"{option}={value} and `{name}`={properties[name]} contradict each other; give only one of them "
        f"(`--set {name}=...` overrides a file)",
    )


def _require_shared(properties: Mapping[str, str], brokers: int) -> None:
    for name in _ONE_BROKER_ONLY:
        if name in properties:
            raise ConfigError(
                name,
                f"`{name}` cannot be the same for {brokers} brokers; leave it out, or run each broker with "
                "`kalda broker`",
            )


def _shifted(name: str, listeners: str, broker_id: int, brokers: int) -> str:
    """Return the listeners of one of several brokers; 0 stays, since the system chooses the port.

    ``A://h:9092,B://h:9192`` of broker 1 -> ``A://h:9093,B://h:9193``
    """
    ports = sorted(int(match[1]) for match in _PORT.finditer(listeners) if int(match[1]))
    for low, high in pairwise(ports):
        if high - low < brokers:
            raise ConfigError(
                name,
                f"`{name}`: ports {low} and {high} are too close for {brokers} brokers, which use the ports "
                f"from each on; leave at least {brokers} between them",
            )
    return _PORT.sub(lambda match: f":{int(match[1]) + broker_id if int(match[1]) else 0}", listeners)
