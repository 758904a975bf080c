"""ZooKeeper's own Java client (its command line, from the jars in PySpark's wheel) against our server."""

import contextlib
import importlib.util
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kalda.testing.ports import free_ports
from tests.integration.real_zookeeper import missing
from tests.integration.zookeeper.coordination_server import running_server
from tests.integration.zookeeper.test_kazoo_faults import client_of
from tests.integration.zookeeper.tls_files import TlsFiles

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

JARS = ("zookeeper-*", "slf4j-api-*", "netty-*", "metrics-core-*", "commons-cli-*", "commons-io-*", "jline-*")
WAIT_SECONDS_MAX = 60.0


class CommandLine:
    """`zkCli.sh` as a child: lines in, lines out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.seen: list[str] = []

    def read_all(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def run(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def wait_for(self, text: str) -> None:
        """Return when a line has the text; lines are looked at once."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {text!r} came after {self.seen[-30:]}") from None
            self.seen.append(line)
            if text in line:
                return


@contextlib.contextmanager
def command_line(address: str, options: Sequence[str] = ()) -> Iterator[CommandLine]:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    class_path = ":".join(str(path) for pattern in JARS for path in sorted(jars.glob(pattern)))
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    command += [*options, "org.apache.zookeeper.ZooKeeperMain", "-server", address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        line = CommandLine(process)
        reader = threading.Thread(target=line.read_all, name="command-line")
        reader.start()
        try:
            yield line
        finally:
            process.kill()
            reader.join()


def test_java_client_is_served_and_sets_its_watches_again(tmp_path: Path) -> None:
    """It sends setWatches2 and checks what kazoo ignores: the zxid of events, the order of answers."""
    with (
        running_server(tmp_path / "data") as server,
        command_line(server.address) as java,
        client_of(server) as kazoo,
    ):
        java.run("create /a hello")
        java.wait_for("Created /a")
        java.run("create -c /container")
        java.wait_for("Created /container")
        java.run("create -t 60000 /ttl")
        java.wait_for("Created /ttl")
        java.run("create -e -s /a/e- x")
        java.wait_for("Created /a/e-0000000000")
        java.run("getEphemerals")
        java.wait_for("[/a/e-0000000000]")
        java.run("getAllChildrenNumber /")
        java.wait_for("] 7")
        java.run("whoami")
        java.wait_for("ip: 127.0.0.1")
        java.run("reconfig -remove 3")
        java.wait_for("Reconfig is disabled")
        java.run("addWatch -m PERSISTENT_RECURSIVE /a")
        java.run("stat -w /container")
        java.wait_for("numChildren")
        kazoo.create("/a/seen")
        java.wait_for("type:NodeCreated path:/a/seen")
        server.kill()
        server.start()
        # What a persistent watch would have seen meanwhile is lost, with ZooKeeper too.
        java.wait_for("state:SyncConnected type:None")
        # It says so before the server has its watches; what it is asked now stands behind them.
        java.run("ls /a")
        java.wait_for("[e-0000000000, seen]")
        kazoo.retry(kazoo.create, "/a/after")
        java.wait_for("type:NodeCreated path:/a/after")
        kazoo.retry(kazoo.set, "/container", b"")
        java.wait_for("type:NodeDataChanged path:/container")
        java.run("ls /a")
        java.wait_for("[after, e-0000000000, seen]")


def test_java_client_logs_in_over_tls(tmp_path: Path) -> None:
    """Its TLS and its DIGEST-MD5 are the JVM's own, and it names an authorization identity besides."""
    files = TlsFiles(tmp_path)
    (port,) = free_ports(1)
    settings = {
        "secureClientPort": str(port),
        "clientPort": "0",
        "ssl.keyStore.location": files.key("server"),
        "ssl.trustStore.location": files.trust,
        "java.security.auth.login.config": files.login_file("bob"),
        "sessionRequireClientSASLAuth": "true",
    }
    options = {
        "zookeeper.client.secure": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keyStore.location": files.key("alice"),
        "zookeeper.ssl.trustStore.location": files.trust,
        "java.security.auth.login.config": files.login_file("bob"),
        # MD5 is no algorithm of FIPS, which ZooKeeper 3.9 keeps to by default.
        "zookeeper.fips-mode": "false",
    }
    with (
        running_server(tmp_path / "data", settings),
        command_line(f"localhost:{port}", [f"-D{name}={value}" for name, value in options.items()]) as java,
    ):
        java.run("whoami")
        java.wait_for("sasl: bob")
        assert any("x509: CN=alice" in line for line in java.seen)
        java.run("create /mine hello auth::cdrwa")
        java.wait_for("Created /mine")
        java.run("getAcl /mine")
        java.wait_for("'sasl,'bob")
        java.run("setAcl /mine x509:CN=alice:cdrwa,sasl:eve:r")
        java.run("get /mine")
        java.wait_for("hello")
