"""A real ZooKeeper 3.9 for tests, started from the jars in PySpark's wheel.

Starting takes a second or two of JVM, so it is shared by all tests of a worker; each test keeps below a
chroot of its own. Where Java or PySpark is missing the tests are skipped, and the reason says so.
"""

import importlib.util
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pytest

from kalda.testing.ports import free_ports

START_SECONDS = 60.0
"""A JVM starts slowly where all cores are busy with other tests."""

STOP_SECONDS = 20.0

_PORT_ATTEMPTS = 5
"""Somebody else may take the free port that was found before ZooKeeper binds it."""

_JARS = (
    "zookeeper-3*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "netty-*",
    "metrics-core-*",
    "snappy-java-*",
    "commons-io-*",
    "commons-cli-*",
    "jline-*",
)
"""Without a logging backend: slf4j then says so once and nothing more."""


def missing() -> str | None:
    """Say what a real ZooKeeper cannot be started for, or None."""
    if shutil.which("java") is None:
        return "no java on PATH: nothing was tested against a real ZooKeeper"
    if not _jar_paths():
        return "no ZooKeeper jars (pip install pyspark): nothing was tested against a real ZooKeeper"
    return None


def _jar_paths() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    jars = Path(spec.origin).parent / "jars"
    if not any(jars.glob(_JARS[0])):
        return []
    return [path for pattern in _JARS for path in sorted(jars.glob(pattern))]


class RealZooKeeper:
    """One standalone server as a child process; a context manager.

    >>> with RealZooKeeper(tmp_path) as zookeeper:
    ...     coordination = await EnsembleClient.connect(zookeeper.hosts, ...)
    """

    def __init__(
        self,
        directory: Path,
        *,
        tick_ms: int = 200,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        jars: Sequence[Path] | None = None,
    ) -> None:
        """`jars` are those of another release than PySpark's."""
        self._directory = directory
        self._settings = dict(settings or {})
        self._java_options = java_options
        self._jars = jars
        self._tick_ms = tick_ms
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def hosts(self) -> str:
        """What `zookeeper.connect` takes."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, on the port of the last time if there was one, and return when it serves."""
        for _ in range(_PORT_ATTEMPTS):
            port = self.port or free_ports(1)[0]
            self._spawn(port)
            if self._wait_serving(port):
                self.port = port
                return
        raise RuntimeError(f"ZooKeeper does not start; it says: {self._output()}")

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it from running until `resume`; its connections stay open and are not answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def __enter__(self) -> "RealZooKeeper":
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def _spawn(self, port: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "zoo.cfg"
        config.write_text(
            f"tickTime={self._tick_ms}\n"
            f"dataDir={self._directory / 'data'}\n"
            f"clientPort={port}\n"
            "clientPortAddress=127.0.0.1\n"
            "minSessionTimeout=400\n"
            "maxSessionTimeout=60000\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=*\n"
            + "".join(f"{name}={value}\n" for name, value in self._settings.items())
        )
        with (self._directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    "java",
                    "-Xms32m",
                    "-Xmx192m",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    # What is on the disk of a test need not outlive the machine.
                    "-Dzookeeper.forceSync=no",
                    "-Dzookeeper.extendedTypesEnabled=true",
                    *self._java_options,
                    "-cp",
                    ":".join(map(str, self._jars or _jar_paths())),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(config),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _wait_serving(self, port: int) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            if self._is_at(port):
                return True
            time.sleep(0.05)
        self.kill()
        return False

    def _is_at(self, port: int) -> bool:
        """Whether this server answers at the port, and not another test's that took the port first."""
        return f"dataDir={self._directory / 'data'}/" in _four_letter_word(port, b"conf").decode()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        if number is signal.SIGTERM:
            # One that is paused would not hear of its end.
            process.send_signal(signal.SIGCONT)
        process.wait(STOP_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "ZooKeeper is not running"
        self._process.send_signal(number)

    def _output(self) -> str:
        return (self._directory / "output").read_text(errors="replace")[-2000:]


def _four_letter_word(port: int, word: bytes) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.sendall(word)
            return b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return b""


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealZooKeeper]:
    """A real ZooKeeper that the tests of a worker share."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with RealZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
