"""The clients that copiers run on, as commands: librdkafka and Kalda's in Python, Apache Kafka's in Java,
franz-go.

Java's needs Maven and a JDK, franz-go's needs Go; a run without them says what it skips.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.apache_kafka import CACHE_DIRECTORY, KAFKA_VERSION, NotAvailableError, maven_jars
from tests.compat.go_toolchain import go_programs

LIBRDKAFKA: Final = "librdkafka"
KALDA: Final = "kalda"
PEERS: Final = ("java", "franz-go")
"""Clients in other languages; one copier of each joins the group."""

_JAVA_SOURCE: Final = Path(__file__).parent / "java" / "Copier.java"
_JVM_OPTIONS: Final = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A small heap and a quick start: a copier is killed before it would be warm."""


def copier_command(client: str) -> list[str]:
    """Return the command of a copier on `client`; the flags of `tests.chaos.copier` follow it.

    Raises:
        NotAvailableError: its toolchain or its packages cannot be had.
        ValueError: there is no such client.
    """
    if client == LIBRDKAFKA:
        return [sys.executable, "-m", "tests.chaos.copier"]
    if client == KALDA:
        return [sys.executable, "-m", "tests.chaos.kalda_copier"]
    if client == "java":
        return _java()
    if client == "franz-go":
        return [str(go_programs() / "copier")]
    raise ValueError(f"copiers run on {LIBRDKAFKA}, {KALDA}, {', '.join(PEERS)}, not on {client!r}")


def _java() -> list[str]:
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise NotAvailableError(f"Java's copier needs a JDK and there is no '{tool}' on the PATH")
    jars = maven_jars(
        f"kafka-clients-{KAFKA_VERSION}",
        (f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}", "org.slf4j:slf4j-nop:1.7.36"),
    )
    classes = CACHE_DIRECTORY / "chaos-java"
    done = subprocess.run(
        ["javac", "-cp", f"{jars}/*", "-d", str(classes), str(_JAVA_SOURCE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return ["java", *_JVM_OPTIONS, "-cp", f"{classes}:{jars}/*", "Copier"]
