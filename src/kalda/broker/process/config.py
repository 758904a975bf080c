"""A broker's settings as a command makes them: what the command line says lies under what was set by name."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kalda.broker.config import BrokerConfig
from kalda.common.config_def import ConfigError

DEFAULT_HOST: Final = "127.0.0.1"

PER_BROKER: Final = ("broker.id", "node.id", "listeners", "advertised.listeners", "log.dirs", "log.dir")
"""What no two brokers can share, so that it cannot be set for several at once."""


def started_config(
    directory: Path, port: int, properties: Mapping[str, str], *, broker_id: int = 0, brokers: int = 1
) -> BrokerConfig:
    """Return the settings of one of the brokers of `kalda start`; broker n listens at the n-th port on.

    Raises:
        ConfigError: a setting is unknown or not allowed.
    """
    return BrokerConfig.from_properties(
        started_properties(directory, port, properties, broker_id=broker_id, brokers=brokers)
    )


def started_properties(
    directory: Path, port: int, properties: Mapping[str, str], *, broker_id: int = 0, brokers: int = 1
) -> dict[str, str]:
    """Return the settings of one of the brokers of `kalda start` as they are written.

    Raises:
        ConfigError: one is set for all that only one broker can have.
    """
    settings = {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://{DEFAULT_HOST}:{port + broker_id if port else 0}",
        "log.dirs": str(directory / f"broker-{broker_id}"),
        # Kafka's own default of 3 needs three brokers.
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "transaction.state.log.replication.factor": str(min(3, brokers)),
        "transaction.state.log.min.isr": str(min(2, brokers)),
        **properties,
    }
    if brokers > 1:
        _require_shared(properties, brokers)
        # One machine is one rack: replicas that are spread by rack end up on several machines.
        settings.setdefault("broker.rack", socket.gethostname())
        metrics_port = properties.get("metrics.port", "")
        if metrics_port.isascii() and metrics_port.isdigit() and int(metrics_port):
            settings["metrics.port"] = str(int(metrics_port) + broker_id)
    # A synonym that was set by name wins over the default of the name that it stands for.
    if "node.id" in properties and "broker.id" not in properties:
        del settings["broker.id"]
    if "log.dir" in properties and "log.dirs" not in properties:
        del settings["log.dirs"]
    return settings


def broker_config(
    directory: Path,
    properties: Mapping[str, str],
    *,
    broker_id: int | None,
    port: int | None,
    zookeeper: str | None,
) -> BrokerConfig:
    """Return the settings of `kalda broker`; what is None was not said on the command line.

    Raises:
        ConfigError: a setting is unknown or not allowed.
    """
    settings = {
        "listeners": f"PLAINTEXT://{DEFAULT_HOST}:{9092 if port is None else port}",
        "log.dirs": str(directory),
        "zookeeper.connect": f"{DEFAULT_HOST}:2181",
        **properties,
    }
    if broker_id is not None:
        settings["broker.id"] = settings["node.id"] = str(broker_id)
    if zookeeper is not None:
        settings["zookeeper.connect"] = zookeeper
    if "log.dir" in properties and "log.dirs" not in properties:
        del settings["log.dirs"]
    return BrokerConfig.from_properties(settings)


def _require_shared(properties: Mapping[str, str], brokers: int) -> None:
    for name in PER_BROKER:
        if name in properties:
            raise ConfigError(
                name,
                f"`{name}` cannot be the same for {brokers} brokers; leave it out, or run each broker with "
                "`kalda broker`",
            )
