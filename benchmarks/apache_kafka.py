"""Apache Kafka from Maven's jars, as the other side of a comparison.

The jars are fetched once with `mvn` into `.cache/` and never committed; the broker is one KRaft process on
loopback over a temporary directory. `ApacheKafka` answers to the same names as
`kalda.testing.KaldaProcess` (`bootstrap`, `pid`, `start_seconds`), so that a benchmark can take either.
Where Maven, Java or the network is missing, `NotAvailableError` says in one line what is.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kalda.common.types import random_uuid, uuid_to_text
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.testing.ports import free_ports

KAFKA_VERSION: Final = "4.4.0"
CACHE_DIRECTORY: Final = Path(__file__).resolve().parent.parent / ".cache"

JVM_OPTIONS: Final = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""Those of Kafka's own start script."""
_MAVEN_TIMEOUT_SECONDS: Final = 600.0
_START_TIMEOUT_SECONDS: Final = 60.0
_STOP_TIMEOUT_SECONDS: Final = 30.0
_LOG_TAIL_BYTES: Final = 2_000
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kalda</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listeners={protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners={protocol}://127.0.0.1:{port}
security.inter.broker.protocol={protocol}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocol}:{protocol}
controller.listener.names=CONTROLLER
log.dirs={directory}/data
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
{settings}
"""


class NotAvailableError(Exception):
    """The other side of a comparison cannot be had on this machine; the message says what is missing."""


def maven_jars(name: str, coordinates: tuple[str, ...], *, transitive: bool = True) -> Path:
    """Return a directory that holds the jars of `coordinates` and all they need at run time.

    Example: ``maven_jars("kafka-4.4.0", ("org.apache.kafka:kafka_2.13:4.4.0",))``. A directory that was
    filled before is returned as it is. Without `transitive`, nothing but the coordinates is fetched.

    Raises:
        NotAvailableError: `mvn` is missing, or could not fetch a jar.
    """
    directory = CACHE_DIRECTORY / name
    jars = directory / "jars"
    if jars.is_dir():
        return jars
    mvn = shutil.which("mvn")
    if mvn is None:
        raise NotAvailableError(f"{name} comes from Maven and there is no 'mvn' on the PATH")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pom.xml").write_text(
        _POM.format(name=name, dependencies="\n".join(_dependency(each, transitive) for each in coordinates))
    )
    with tempfile.TemporaryDirectory(dir=directory) as partial:
        command = [mvn, "-q", "-B", "-f", str(directory / "pom.xml"), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={partial}/jars"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise NotAvailableError(f"Maven did not fetch {name} in {_MAVEN_TIMEOUT_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise NotAvailableError(f"Maven could not fetch {name}: {last_line(done.stdout + done.stderr)}")
        Path(partial, "jars").rename(jars)
    return jars


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Return a directory with the jars of a broker of a release, fetched if need be.

    Raises:
        NotAvailableError: they cannot be had.
    """
    # Releases before 4.0 log through log4j 1, whose successor reload4j Maven brings with the broker.
    logging = "org.slf4j:slf4j-reload4j:1.7.36"
    if int(version.partition(".")[0]) >= 4:
        logging = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"
    return maven_jars(f"kafka-{version}", (f"org.apache.kafka:kafka_2.13:{version}", logging))


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """End a JVM, by force if it takes too long; harmless when it has ended."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ApacheKafka:
    """One Apache Kafka broker; use it as a context manager.

    Example::

        with ApacheKafka() as kafka:
            producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap})
    """

    def __init__(
        self,
        *,
        version: str = KAFKA_VERSION,
        settings: dict[str, str] | None = None,
        heap: str = "1g",
        plugins: Path | None = None,
        protocol: str = "PLAINTEXT",
    ) -> None:
        self._protocol: Final = protocol
        """The security protocol of its listener."""
        self._plugins: Final = plugins
        """A directory with classes that settings name, for the class path."""
        self._version: Final = version
        self._settings: Final = dict(settings or {})
        self._heap: Final = heap
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._port = 0
        self.bootstrap = ""
        self.start_seconds = 0.0
        """From the start of the JVM until the listener accepts; formatting the directory is not in it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The JVM's process id; the broker must have been started."""
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self) -> None:
        """Fetch the jars if need be, format a directory, start the JVM, and return when it serves.

        Raises:
            NotAvailableError: Java, Maven or a jar is missing, or the broker does not come up.
        """
        assert self._process is None, "the broker is running already"
        java = shutil.which("java")
        if java is None:
            raise NotAvailableError("Apache Kafka needs Java 17 or newer and there is no 'java' on the PATH")
        jars = kafka_jars(self._version)
        self._directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        try:
            self._start(java, jars, self._directory)
        except BaseException:
            self.stop()
            raise

    def restart(self, meanwhile: Callable[[], None]) -> None:
        """Stop the broker in good order, call `meanwhile`, and start it again.

        Raises:
            NotAvailableError: the broker does not come up.
        """
        java = shutil.which("java")
        assert java is not None, "it was found at the start"
        assert self._process is not None, "the broker was not started"
        assert self._directory is not None, "a broker that runs has a directory"
        stop_process(self._process)
        meanwhile()
        self._launch(java, kafka_jars(self._version), self._directory)

    def kill(self) -> None:
        """End the JVM with SIGKILL; `start_again` brings the broker back with its data."""
        assert self._process is not None, "the broker was not started"
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stop the JVM without ending it (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused JVM go on."""
        os.kill(self.pid, signal.SIGCONT)

    def start_again(self) -> None:
        """Start a killed broker on its port and directory.

        Raises:
            NotAvailableError: the broker does not come up.
        """
        java = shutil.which("java")
        assert java is not None, "it was found at the start"
        assert self._directory is not None, "the broker was not started"
        self._launch(java, kafka_jars(self._version), self._directory)

    @property
    def data(self) -> Path:
        """The directory with its logs; the broker must have been started."""
        assert self._directory is not None, "the broker was not started"
        return self._directory / "data"

    def stop(self) -> None:
        """End the JVM and remove its directory; harmless when it is not running."""
        process, self._process = self._process, None
        if process is not None:
            stop_process(process)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _start(self, java: str, jars: Path, directory: Path) -> None:
        port, controller_port = free_ports(2)
        properties = directory / "server.properties"
        properties.write_text(
            _PROPERTIES.format(
                port=port,
                protocol=self._protocol,
                controller_port=controller_port,
                directory=directory,
                settings="\n".join(f"{name}={value}" for name, value in self._settings.items()),
            )
        )
        self._port = port
        classpath = ["-cp", f"{jars}/*"]
        format_arguments = [
            "format",
            "--standalone",
            "-t",
            uuid_to_text(random_uuid(SYSTEM_RANDOM)),
            "-c",
            str(properties),
        ]
        done = subprocess.run(
            [java, *classpath, "kafka.tools.StorageTool", *format_arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NotAvailableError(
                f"Apache Kafka could not format its directory: {last_line(done.stdout + done.stderr)}"
            )
        self._launch(java, jars, directory)

    def _launch(self, java: str, jars: Path, directory: Path) -> None:
        options = [f"-Xms{self._heap}", f"-Xmx{self._heap}", *JVM_OPTIONS]
        begin = time.monotonic()
        log_path = directory / "broker.log"
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    java,
                    *options,
                    "-cp",
                    f"{jars}/*" if self._plugins is None else f"{jars}/*:{self._plugins}",
                    "kafka.Kafka",
                    str(directory / "server.properties"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ.copy(),
            )
        wait_accepting(self._process, self._port, begin + _START_TIMEOUT_SECONDS, log_path)
        self.start_seconds = time.monotonic() - begin
        self.bootstrap = f"127.0.0.1:{self._port}"


def _dependency(coordinate: str, transitive: bool) -> str:
    group, artifact, version = coordinate.split(":")
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    return (
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>"
        f"{'' if transitive else f'<exclusions>{everything}</exclusions>'}</dependency>"
    )


def last_line(text: str) -> str:
    """Return what a program's output says went wrong, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "Exception" in line]
    return (errors or lines or ["it said nothing"])[0][:300]


def wait_accepting(process: subprocess.Popen[bytes], port: int, deadline: float, log_path: Path) -> None:
    """KRaft brokers open their client listener last, so that a connection means "serves"."""
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
            raise NotAvailableError(f"Apache Kafka did not come up: {tail or 'it logged nothing'}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
