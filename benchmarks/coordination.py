"""Coordination operations per second with kazoo as the client, and with ZooKeeper as the other side.

The other side needs Java and the jars in PySpark's wheel.
ZooKeeper is started with the JVM's own defaults and syncs its log, as ours does. Client and server share the
machine, so a one-by-one figure is a round trip of kazoo's threads, the server and, for writes, the disk.
"""

import importlib.util
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from benchmarks.apache_kafka import NotAvailableError
from benchmarks.end_to_end import Figure
from benchmarks.footprint import memory_mb
from kalda.testing.ports import free_ports
from kalda.testing.process_cluster import ZooKeeperProcess

OPERATIONS: Final = 2_000
_RUNS: Final = 3
"""Counted runs, after one that is not."""

_START_SECONDS: Final = 60.0
_JARS: Final = (
    "zookeeper-3*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "netty-*",
    "metrics-core-*",
    "snappy-java-*",
    "commons-*",
)
_DATA: Final = b"x" * 100


def run() -> list[Figure]:
    """Measure `kalda zookeeper`."""
    with (
        tempfile.TemporaryDirectory(prefix="kalda-coordination-") as directory,
        ZooKeeperProcess(Path(directory) / "data") as server,
    ):
        figures = measure(server.zookeeper)
        return [*figures, ("coordination: memory", memory_mb(server.pid), "MB")]


def run_zookeeper() -> list[Figure]:
    """Measure a real ZooKeeper under the same labels.

    Raises:
        NotAvailableError: there is no Java, or no jars.
    """
    with zookeeper() as (hosts, pid):
        return [*measure(hosts), ("coordination: memory", memory_mb(pid), "MB")]


def measure(hosts: str) -> list[Figure]:
    """Measure the server at `hosts`: each operation one by one, then many at once."""
    client = KazooClient(hosts)
    client.start(timeout=_START_SECONDS)
    try:
        runs = [_one_run(client, number) for number in range(_RUNS + 1)][1:]
    finally:
        client.stop()
        client.close()
    return [
        (f"coordination: {name}", statistics.median(single[name] for single in runs), "k op/s")
        for name in runs[0]
    ]


def _one_run(client: KazooClient, number: int) -> dict[str, float]:
    top = f"/bench{number}"
    client.create(top)
    one_by_one: dict[str, Callable[[str], object]] = {
        "create": lambda path: client.create(path, _DATA),
        "get": client.get,
        "set": lambda path: client.set(path, _DATA),
    }
    pipelined = {
        "create": lambda path: client.create_async(path, _DATA),
        "get": client.get_async,
        "delete": client.delete_async,
    }
    paths = [f"{top}/n{index}" for index in range(OPERATIONS)]
    rates: dict[str, float] = {}
    for name, operation in one_by_one.items():
        begin = time.perf_counter()
        for path in paths:
            operation(path)
        rates[f"{name}, one by one"] = OPERATIONS / (time.perf_counter() - begin) / 1e3
    for handle in [client.delete_async(path) for path in paths]:
        handle.get()
    for name, start in pipelined.items():
        begin = time.perf_counter()
        for handle in [start(path) for path in paths]:
            handle.get()
        rates[f"{name}, pipelined"] = OPERATIONS / (time.perf_counter() - begin) / 1e3
    return rates


@contextmanager
def zookeeper(servers: int = 1) -> Iterator[tuple[str, int]]:
    """Start ZooKeeper from the jars in PySpark's wheel; yield its addresses and the first server's process.

    Raises:
        NotAvailableError: there is no Java.
    """
    if shutil.which("java") is None:
        raise NotAvailableError("ZooKeeper needs Java and there is no 'java' on the PATH")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "PySpark is installed"
    assert spec.origin is not None, "PySpark is a package"
    jars = Path(spec.origin).parent / "jars"
    class_path = ":".join(str(path) for pattern in _JARS for path in sorted(jars.glob(pattern)))
    ports = free_ports(3 * servers)
    members = "".join(
        f"server.{number}=127.0.0.1:{ports[servers + number]}:{ports[2 * servers + number]}\n"
        for number in range(servers)
        if servers > 1
    )
    with tempfile.TemporaryDirectory(prefix="zookeeper-bench-") as directory, ExitStack() as processes:
        pids = []
        for number in range(servers):
            data = Path(directory) / str(number)
            data.mkdir()
            (data / "myid").write_text(str(number))
            config = data / "zoo.cfg"
            config.write_text(
                f"tickTime=2000\ndataDir={data}\nclientPort={ports[number]}\nadmin.enableServer=false\n"
                f"initLimit=10\nsyncLimit=5\n{members}"
            )
            process = subprocess.Popen(
                ["java", "-cp", class_path, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            processes.callback(process.wait)
            processes.callback(process.kill)
            pids.append(process.pid)
        yield ",".join(f"127.0.0.1:{port}" for port in ports[:servers]), pids[0]
