"""Apicurio's registry, whose server Maven serves: a second opinion on compatibility in Confluent's API."""

import http.client
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.apache_kafka import CACHE_DIRECTORY, NotAvailableError, last_line, stop_process
from kalda.testing.ports import free_ports

VERSION: Final = "3.3.3"
_ARTIFACT: Final = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_JAVA_MIN: Final = 21
_FETCH_SECONDS: Final = 600
_START_SECONDS: Final = 120
_HEADERS: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def apicurio_directory() -> Path:
    """Return where the server is, fetched if need be.

    Raises:
        NotAvailableError: Maven is missing or cannot fetch it.
    """
    directory = CACHE_DIRECTORY / f"apicurio-{VERSION}"
    if (directory / "quarkus-run.jar").exists():
        return directory
    mvn = shutil.which("mvn")
    if mvn is None:
        raise NotAvailableError("Apicurio's registry comes from Maven and there is no 'mvn' on the PATH")
    CACHE_DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE_DIRECTORY) as partial:
        plugin = "org.apache.maven.plugins:maven-dependency-plugin"
        command = [mvn, "-q", "-B", f"{plugin}:copy", f"-Dartifact={_ARTIFACT}"]
        command.append(f"-DoutputDirectory={partial}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
        archives = list(Path(partial).glob("*.tar.gz"))
        if done.returncode or not archives:
            raise NotAvailableError(
                f"Maven could not fetch {_ARTIFACT}: {last_line(done.stdout + done.stderr)}"
            )
        unpacked = Path(partial, "unpacked")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(unpacked, filter="data")
        unpacked.rename(directory)
    return directory


def newest_java() -> str:
    """Return a Java of at least 21: the one on the PATH, or one that Debian's folder has.

    Raises:
        NotAvailableError: There is none.
    """
    found = [str(each) for each in Path("/usr/lib/jvm").glob("*/bin/java")]
    for java in ("java", *found):
        if shutil.which(java) is None:
            continue
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
        version = re.search(r'version "(\d+)', done.stderr)
        if version and int(version[1]) >= _JAVA_MIN:
            return java
    raise NotAvailableError(f"Apicurio's registry {VERSION} needs Java {_JAVA_MIN} or newer")


class ApicurioRegistry:
    """Requests to the part of the server that speaks Confluent's API."""

    def __init__(self, port: int) -> None:
        self._connection: Final = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the JSON of a response."""
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, f"/apis/ccompat/v7{path}", data, _HEADERS)
        response = self._connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def apicurio_registry(directory: Path) -> Iterator[ApicurioRegistry]:
    """Run a server whose state is in memory.

    Raises:
        NotAvailableError: It cannot be had, or does not start.
    """
    home = apicurio_directory()
    (port,) = free_ports(1)
    with (directory / "apicurio.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(newest_java(), "-Xmx512m", "-XX:TieredStopAtLevel=1"),
                *(f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"),
                *("-jar", str(home / "quarkus-run.jar")),
            ],
            cwd=directory,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        registry = _wait_for_start(process, port, directory / "apicurio.log")
        yield registry
        registry.close()
    finally:
        stop_process(process)


def _wait_for_start(process: "subprocess.Popen[bytes]", port: int, log: Path) -> ApicurioRegistry:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        registry = ApicurioRegistry(port)
        with suppress(OSError, http.client.HTTPException, ValueError):
            if registry.call("GET", "/subjects")[0] == 200:
                return registry
        registry.close()
        time.sleep(0.5)
    raise NotAvailableError(
        f"Apicurio's registry did not start: {last_line(log.read_text(errors='replace'))}"
    )
