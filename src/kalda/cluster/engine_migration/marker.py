"""The marker of a migration in an engine: whether brokers may start there, and where the cluster is else.

Both engines have one, with the same id of the migration. The marker of the source decides which engine is
right: it becomes LEFT in one write, after the copy was verified.

==========  ===================  ==========================  ========
source      target               meaning                     right
==========  ===================  ==========================  ========
LEAVING     none, or ARRIVING    copying                     source
LEFT        ARRIVING             switched, not yet opened    target
LEFT        ARRIVED              done                        target
==========  ===================  ==========================  ========

While an engine is closed, its ``/cluster/id`` has another id than the cluster's. So brokers that know no
marker (Apache Kafka's, and earlier releases) refuse to start on it, too, if they have data of the cluster.
"""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kalda.cluster import paths
from kalda.common.received_json import loads_received
from kalda.zookeeper.port import ZooKeeperClient

MARKER: Final = f"{paths.CLUSTER}/kalda_migration"

CLOSED_ID: Final = "closed-by-kalda-coordination-migrate"
"""What ``/cluster/id`` of a closed engine says: Kafka's brokers print it when they refuse to start."""

_VERSION: Final = 1


class Phase(Enum):
    """The phase of a migration that an engine is in."""

    LEAVING = "leaving"
    """The source, closed; the target is incomplete."""
    LEFT = "left"
    """The source, closed for good."""
    ARRIVING = "arriving"
    """The target, closed."""
    ARRIVED = "arrived"
    """The target, open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """One engine's marker."""

    phase: Phase
    migration: str
    """The migration's id, the same in both engines."""
    cluster_id: str
    source: str
    """The source's address, as the command line had it."""
    target: str

    @property
    def is_closed(self) -> bool:
        """Whether no broker may start."""
        return self.phase is not Phase.ARRIVED


class EngineClosedError(Exception):
    """The engine is one that the cluster has left, or that has an incomplete copy."""


def encode_marker(marker: Marker) -> bytes:
    """Encode a marker as JSON."""
    return json.dumps(
        {
            "version": _VERSION,
            "phase": marker.phase.value,
            "migration": marker.migration,
            "cluster_id": marker.cluster_id,
            "source": marker.source,
            "target": marker.target,
        },
        separators=(",", ":"),
    ).encode()


def decode_marker(data: bytes) -> Marker:
    """Decode a marker.

    Raises:
        EngineClosedError: the data is no marker of this or an earlier release; the engine counts as closed.
    """
    try:
        value = loads_received(data)
        if value["version"] > _VERSION:
            raise ValueError(f"version {value['version']} is that of a later release")
        return Marker(
            phase=Phase(value["phase"]),
            migration=str(value["migration"]),
            cluster_id=str(value["cluster_id"]),
            source=str(value["source"]),
            target=str(value["target"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise EngineClosedError(f"{MARKER} cannot be read ({error}): {data[:200]!r}") from None


async def require_open(zookeeper: ZooKeeperClient) -> None:
    """Require that brokers may start on an engine.

    A broker checks before its first write and after each registration. A migration first closes the engine
    and then looks for registrations, so at least one of the two notices the other.

    Raises:
        EngineClosedError: they may not; the message says where the cluster is and what to do.
        ZooKeeperError: it could not be read.
    """
    (found,) = await zookeeper.get_many([MARKER])
    if found is None:
        return
    marker = decode_marker(found[0])
    if marker.is_closed:
        raise EngineClosedError(_reason(marker))


def _reason(marker: Marker) -> str:
    both = f"{marker.source} {marker.target}"
    if marker.phase is Phase.LEFT:
        return (
            f"cluster {marker.cluster_id} has moved from {marker.source} to {marker.target}: start its "
            f"brokers with the new address, or go back with `kalda coordination back {both}`"
        )
    what = (
        f"cluster {marker.cluster_id} is being moved from here to {marker.target}"
        if marker.phase is Phase.LEAVING
        else f"this is a copy of cluster {marker.cluster_id} of {marker.source}, not yet in use"
    )
    return (
        f"{what}: finish with `kalda coordination migrate {both}`, or go back with "
        f"`kalda coordination back {both}`"
    )
