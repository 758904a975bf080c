"""Peers that need Maven, Go or Node; behind `make compat`, never in the gate."""

import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import CACHE_DIRECTORY, KAFKA_VERSION, NotAvailableError, maven_jars
from kalda.testing import KaldaProcess
from tests.compat.go_toolchain import go_programs
from tests.compat.programs import NODE
from tests.identity_provider import identity_provider
from tests.secured_broker import SecuredBroker, secured_broker
from tests.shared_broker import shared_broker

JavaTool = Callable[..., str]

MOVED_TOOLS = {
    f"{package}.{name}": f"org.apache.kafka.tools.{name}"
    for package, name in (("kafka.admin", "ConfigCommand"), ("kafka.tools", "DumpLogSegments"))
}
"""Main classes that have another package since Kafka 4.2 or later."""


@pytest.fixture(scope="session", params=("4.1.0", KAFKA_VERSION))
def java_tool(request: pytest.FixtureRequest) -> JavaTool:
    """Runs a main class of Apache Kafka's tools and returns what it printed; fails on a non-zero exit."""
    version = request.param
    try:
        jars = maven_jars(
            f"kafka-tools-{version}",
            (
                f"org.apache.kafka:kafka_2.13:{version}",
                f"org.apache.kafka:kafka-tools:{version}",
                "org.slf4j:slf4j-nop:1.7.36",
            ),
        )
    except NotAvailableError as error:
        pytest.skip(str(error))
    moved = MOVED_TOOLS if version == KAFKA_VERSION else {}

    def run(main_class: str, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            ["java", "-cp", f"{jars}/*", moved.get(main_class, main_class), *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session", name="go_programs")
def built_go_programs() -> Path:
    """Directory of the built programs."""
    try:
        return go_programs()
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The pinned packages of the clients of brokers."""
    return installed_node_packages(NODE, "compat-node")


def installed_node_packages(source: Path, name: str) -> Path:
    """Return the pinned packages of a folder, below `.cache/`; fetched again when its lock file changes."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"the Node clients need '{program}' (Node 20 or newer) and there is none on the PATH")
    directory = CACHE_DIRECTORY / name
    installed = directory / "node_modules"
    lock = (source / "package-lock.json").read_text()
    stamp = directory / "installed-lock.json"
    if stamp.is_file() and stamp.read_text() == lock:
        return installed
    directory.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(source / file, directory / file)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"the Node packages could not be fetched: {done.stderr.strip()[-300:]}")
    stamp.write_text(lock)
    return installed


@pytest.fixture
def kalda(tmp_path: Path) -> Iterator[KaldaProcess]:
    """A broker of the test's own, with small segments."""
    with KaldaProcess(tmp_path / "data", settings={"log.segment.bytes": "1048576"}) as process:
        yield process


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of one broker that all clients share, each test with topics of its own."""
    with shared_broker(tmp_path_factory.mktemp("shared")) as address:
        yield address


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Makes topic names that no other test and no other run uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with a listener for each security protocol, and every mechanism but GSSAPI."""
    with (
        identity_provider() as provider,
        secured_broker(tmp_path_factory.mktemp("secured"), provider) as made,
    ):
        yield made
