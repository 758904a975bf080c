"""Answers ZooKeeper's four-letter commands with status texts.

The texts match ZooKeeper's line by line, because monitoring tools parse them. ``ruok``, ``stat``, ``mntr``,
``srvr`` and ``isro`` are enabled by default (ZooKeeper enables only ``srvr``): they change nothing, cost
little and reveal little. Other commands must be named in ``4lw.commands.whitelist``.
"""

import os
import platform
import resource
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from kalda import __version__
from kalda.runtime.network import address_text
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.runtime.system.proc import open_descriptor_count
from kalda.zookeeper.server.config import FOUR_LETTER_WORDS
from kalda.zookeeper.server.connection_registry import ConnectionRegistry, RegisteredConnection

PROTOCOL_VERSION: Final = "3.9.4"
"""The version of ZooKeeper whose protocol is served; tools and clients compare it."""

_WORDS: Final = frozenset(word.encode() for word in FOUR_LETTER_WORDS)

_READ_INTEREST: Final = 1
"""What ZooKeeper prints for a connection that it reads from: Java's selector bit."""


def is_four_letter_word(word: bytes) -> bool:
    """Return whether a connection's first four bytes are a command instead of a frame's length."""
    return word in _WORDS


def answer(word: str, registry: ConnectionRegistry) -> bytes:
    """Return the text of a command; a command outside the whitelist gets an error line."""
    if word not in registry.config.four_letter_words:
        return f"{word} is not executed because it is not in the whitelist.\n".encode()
    return _ANSWERS[word](registry).encode()


def full_version() -> str:
    """Return the version as ZooKeeper prints it: number, revision, time of build."""
    return f"{PROTOCOL_VERSION}-kalda-{__version__}, built on 2025-01-01 00:00 UTC"


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _ruok(registry: ConnectionRegistry) -> str:
    return "imok"


def _isro(registry: ConnectionRegistry) -> str:
    return "rw"


def _srvr(registry: ConnectionRegistry) -> str:
    traffic = registry.traffic
    return _lines(
        f"Zookeeper version: {full_version()}",
        f"Latency min/avg/max: {round(traffic.latency_ms_min)}/{traffic.latency_ms_mean:.4f}"
        f"/{round(traffic.latency_ms_max)}",
        f"Received: {traffic.received}",
        f"Sent: {traffic.answered}",
        f"Connections: {len(registry.connections)}",
        f"Outstanding: {registry.outstanding}",
        f"Zxid: {registry.server.tree.last_zxid:#x}",
        "Mode: standalone",
        f"Node count: {len(registry.server.tree.nodes)}",
    )


def _stat(registry: ConnectionRegistry) -> str:
    version, _, rest = _srvr(registry).partition("\n")
    clients = [_connection_line(connection, brief=True) for connection in registry.connections]
    return _lines(version, "Clients:", *clients, "") + rest


def _cons(registry: ConnectionRegistry) -> str:
    return _lines(*(_connection_line(connection, brief=False) for connection in registry.connections), "")


def _connection_line(connection: RegisteredConnection, *, brief: bool) -> str:
    traffic = connection.traffic
    fields = [
        f"queued={connection.outstanding}",
        f"recved={traffic.received}",
        f"sent={traffic.answered}",
    ]
    if not brief and connection.session_id:
        fields += [
            f"sid={_hex(connection.session_id)}",
            f"lop={traffic.last_operation}",
            f"est={connection.established_ms}",
            f"to={connection.timeout_ms}",
        ]
        if traffic.last_xid >= 0:
            fields.append(f"lcxid={traffic.last_xid:#x}")
        fields += [
            f"lzxid={_hex(traffic.last_zxid)}",
            f"lresp={round(traffic.last_received_at * 1000)}",
            f"llat={round(traffic.last_latency_ms)}",
            f"minlat={round(traffic.latency_ms_min)}",
            f"avglat={round(traffic.latency_ms_mean)}",
            f"maxlat={round(traffic.latency_ms_max)}",
        ]
    interest = 0 if connection.link.is_held_back else _READ_INTEREST
    return f" /{_address(connection)}[{interest}]({','.join(fields)})"


def _address(connection: RegisteredConnection) -> str:
    return address_text(connection.link.peer_address, connection.link.peer_port)


def _hex(number: int) -> str:
    """Write a long as Java does: two's complement."""
    return f"{number & (1 << 64) - 1:#x}"


def _mntr(registry: ConnectionRegistry) -> str:
    server, traffic = registry.server, registry.traffic
    tree = server.tree
    values: dict[str, object] = {
        "version": full_version(),
        "server_state": "standalone",
        "avg_latency": f"{traffic.latency_ms_mean:.4f}",
        "max_latency": round(traffic.latency_ms_max),
        "min_latency": round(traffic.latency_ms_min),
        "packets_received": traffic.received,
        "packets_sent": traffic.answered,
        "num_alive_connections": len(registry.connections),
        "outstanding_requests": registry.outstanding,
        "znode_count": len(tree.nodes),
        "watch_count": len(server.watches),
        "ephemerals_count": sum(map(len, tree.ephemeral_owners().values())),
        "approximate_data_size": tree.data_bytes(),
        "global_sessions": len(tree.sessions),
        "local_sessions": 0,
        "connection_rejected": registry.rejected,
        "uptime": registry.clock.time_ms() - registry.started_ms,
        "open_file_descriptor_count": -1 if (count := open_descriptor_count()) is None else count,
        "max_file_descriptor_count": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in values.items())


def _conf(registry: ConnectionRegistry) -> str:
    config, directory = registry.config, registry.server.directory
    log_bytes, snapshot_bytes = _directory_bytes(directory)
    return _lines(
        f"clientPort={registry.port or -1}",
        f"secureClientPort={registry.secure_port or -1}",
        f"dataDir={directory}",
        f"dataDirSize={snapshot_bytes}",
        f"dataLogDir={directory}",
        f"dataLogSize={log_bytes}",
        f"tickTime={config.tick_ms}",
        f"maxClientCnxns={config.connections_per_host_max}",
        f"minSessionTimeout={config.session_timeout_ms_min}",
        f"maxSessionTimeout={config.session_timeout_ms_max}",
        f"clientPortListenBacklog={config.listen_backlog}",
        "serverId=0",
    )


def _dirs(registry: ConnectionRegistry) -> str:
    log_bytes, snapshot_bytes = _directory_bytes(registry.server.directory)
    return _lines(f"datadir_size: {snapshot_bytes}", f"logdir_size: {log_bytes}")


def _directory_bytes(directory: str) -> tuple[int, int]:
    """Return the bytes of the logs and of the snapshots; files deleted meanwhile do not count."""
    sizes = {"log": 0, "snapshot": 0}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                kind = entry.name.partition(".")[0]
                if kind in sizes:
                    sizes[kind] += entry.stat().st_size
    except OSError:
        pass
    return sizes["log"], sizes["snapshot"]


def _envi(registry: ConnectionRegistry) -> str:
    values = {
        "zookeeper.version": full_version(),
        "host.name": SYSTEM_NETWORK.host_name(),
        # Tools look for Java's names; the values describe the Python interpreter.
        "java.version": platform.python_version(),
        "java.vendor": platform.python_implementation(),
        "java.home": sys.prefix,
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.name": os.environ.get("USER", str(os.getuid())),
        "user.home": os.path.expanduser("~"),
        "user.dir": os.getcwd(),
    }
    return _lines("Environment:", *(f"{name}={value}" for name, value in values.items()))


def _dump(registry: ConnectionRegistry) -> str:
    tree, tracker = registry.server.tree, registry.server.sessions
    lines = ["SessionTracker dump:"]
    buckets = tracker.deadlines()
    lines.append(f"Session Sets ({len(buckets)})/({len(tracker)}):")
    now = registry.clock.time_ms() / 1000
    for due_ms, session_ids in buckets:
        due = datetime.fromtimestamp(now + due_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
        lines.append(f"{len(session_ids)} expire at {due}:")
        lines += [f"\t{_hex(session_id)}" for session_id in session_ids]
    owners = tree.ephemeral_owners()
    lines.append("ephemeral nodes dump:")
    lines.append(f"Sessions with Ephemerals ({len(owners)}):")
    for session_id, paths in owners.items():
        lines.append(f"{_hex(session_id)}:")
        lines += [f"\t{path}" for path in sorted(paths)]
    lines.append("Connections dump:")
    lines.append(f"Connections Sets (1)/({len(registry.connections)}):")
    lines += [
        f"\tip: /{_address(connection)} sessionId: {_hex(connection.session_id)}"
        for connection in registry.connections
    ]
    return _lines(*lines)


def _wchs(registry: ConnectionRegistry) -> str:
    by_session = registry.server.watches.paths_by_session()
    paths = set().union(*by_session.values())
    total = sum(map(len, by_session.values()))
    return _lines(f"{len(by_session)} connections watching {len(paths)} paths", f"Total watches:{total}")


def _wchp(registry: ConnectionRegistry) -> str:
    by_path: dict[str, list[int]] = defaultdict(list)
    for session_id, paths in registry.server.watches.paths_by_session().items():
        for path in paths:
            by_path[path].append(session_id)
    lines: list[str] = []
    for path, session_ids in by_path.items():
        lines.append(path)
        lines += [f"\t{_hex(session_id)}" for session_id in session_ids]
    return _lines(*lines, "")


def _wchc(registry: ConnectionRegistry) -> str:
    lines: list[str] = []
    for session_id, paths in registry.server.watches.paths_by_session().items():
        lines.append(_hex(session_id))
        lines += [f"\t{path}" for path in paths]
    return _lines(*lines, "")


def _srst(registry: ConnectionRegistry) -> str:
    registry.traffic.reset()
    return "Server stats reset.\n"


def _crst(registry: ConnectionRegistry) -> str:
    for connection in registry.connections:
        connection.traffic.reset()
    return "Connection stats reset.\n"


_ANSWERS: Final[dict[str, Callable[[ConnectionRegistry], str]]] = {
    "conf": _conf,
    "cons": _cons,
    "crst": _crst,
    "dirs": _dirs,
    "dump": _dump,
    "envi": _envi,
    "isro": _isro,
    "mntr": _mntr,
    "ruok": _ruok,
    "srst": _srst,
    "srvr": _srvr,
    "stat": _stat,
    "wchc": _wchc,
    "wchp": _wchp,
    "wchs": _wchs,
}
assert _ANSWERS.keys() == set(FOUR_LETTER_WORDS), "every command has an answer"
