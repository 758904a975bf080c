"""All znodes of a cluster at rest, in a form in which two clusters with the same history are equal.

Left out or replaced is what is random (ids, salts, keys, ports, times), what counts events (epochs, sequence
numbers, blocks of producer ids) and notifications, which each broker removes when it likes. Kalda's brokers
also make the parents of two kinds of settings that Apache Kafka has since it left ZooKeeper.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from kalda.cluster import paths
from tests.compat.mixed_cluster import CONTROLLER_ID, MixedCluster

_LEFT_OUT: Final = (
    "/zookeeper",
    paths.CONFIG_CHANGES,
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
    "/delegation_token/token_changes",
    paths.BROKER_SEQUENCE_ID,
)
_RANDOM: Final = {
    "topic_id",
    "timestamp",
    "leader_epoch",
    "controller_epoch",
    "port",
    "endpoints",
    "block_start",
    "block_end",
    "broker",
    "id",
    "hmac",
    "tokenId",
    "issueTimestamp",
    "maxTimestamp",
    "expiryTimestamp",
}
_OURS: Final = ("/config/client-metrics", "/config/groups")
_COUNTERS: Final = (paths.CONTROLLER_EPOCH,)
_SECRET: Final = "SCRAM-"


def znode_snapshot(cluster: MixedCluster) -> dict[str, Any]:
    """Return by path what each znode holds."""
    found: dict[str, Any] = {}
    tokens = 0
    for path in _paths(cluster, ""):
        data = cluster.read(path)
        if path.startswith("/delegation_token/tokens/"):
            tokens += 1
            path = f"/delegation_token/tokens/{tokens}"
        found[path] = "a counter" if path in _COUNTERS else _decoded(path, data)
    return found


def log_directories(cluster: MixedCluster) -> dict[str, list[str]]:
    """Return by broker the names of its logs, except of topics whose replicas the controller chose."""
    return {
        str(broker_id): sorted(
            each.name
            for directory in cluster.log_dirs(broker_id)
            for each in directory.iterdir()
            if each.is_dir() and not each.name.startswith(("placed", "__")) and "-delete" not in each.name
        )
        for broker_id in cluster.brokers
    }


def differences(ours: Sequence[Any], theirs: Sequence[Any]) -> list[str]:
    """Return how the rounds of two runs differ, in words."""
    found = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        for mine, its in zip(one["outcomes"], other["outcomes"], strict=True):
            if mine != its:
                found.append(f"round {number}: kalda: {mine}; kafka: {its}")
        for kind in ("znodes", "logs"):
            for path in sorted(one[kind].keys() | other[kind].keys()):
                mine, its = one[kind].get(path, "absent"), other[kind].get(path, "absent")
                if mine != its:
                    found.append(f"round {number}: {path}: kalda: {mine}; kafka: {its}")
    return found


def _paths(cluster: MixedCluster, parent: str) -> list[str]:
    found = []
    for child in cluster.children(parent or "/"):
        path = f"{parent}/{child}"
        if path in _LEFT_OUT or (path in _OURS and not cluster.children(path)):
            continue
        found += [path, *_paths(cluster, path)]
    return found


def _decoded(path: str, data: bytes | None) -> Any:
    if not data:
        return None
    try:
        value = json.loads(data)
    except ValueError:
        return repr(data)
    name = path.removeprefix(f"{paths.TOPICS}/").partition("/")[0]
    is_placed = path.startswith(paths.TOPICS) and name.startswith(("placed", "__"))
    if path == paths.broker(CONTROLLER_ID):
        return "a registration"
    if path.endswith("/state"):
        value["isr"].sort()
    return _normal(value, is_placed=is_placed)


def _normal(value: Any, *, is_placed: bool) -> Any:
    if isinstance(value, dict):
        made: dict[str, Any] = {}
        for key, each in sorted(value.items()):
            if key in _RANDOM:
                made[key] = "random"
            elif key.startswith(_SECRET):
                made[key] = each[each.index("iterations") :] if isinstance(each, str) else each
            elif is_placed and key == "leader":
                made[key] = "placed"
            else:
                made[key] = _normal(each, is_placed=is_placed)
        if "acls" in made:
            made["acls"] = sorted(made["acls"], key=str)
        return made
    if isinstance(value, list):
        if is_placed:
            return len(value)
        return [_normal(each, is_placed=False) for each in value]
    return value
