"""`kalda.as.version` beside franz-go's table of what each release of Apache Kafka served."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.broker.requests.handlers import HANDLERS
from kalda.protocol.releases import is_at_least, release_names, versions_of
from tests.compat.go_toolchain import go_programs

ASKED = [release for release in release_names() if is_at_least(release, "0.10.0")]
"""The releases that answer ApiVersions."""


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return go_programs() / "kversion"
    except NotAvailableError as error:
        pytest.skip(str(error))


def run(program: Path, *arguments: str) -> dict[str, dict[str, object]]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


def test_the_table_is_franz_gos(program: Path) -> None:
    table = run(program, "table")

    for release in release_names():
        assert {str(int(key)): version for key, version in versions_of(release).items()} == table[release], (
            release
        )


@pytest.mark.timeout(240)
def test_each_release_is_answered_as_franz_go_knows_it(program: Path, tmp_path: Path) -> None:
    """One broker with a listener for each release; APIs that Kalda has not yet are absent."""
    ports = free_ports(len(ASKED) + 1)
    names = ["MAIN", *(f"R{release.replace('.', '')}" for release in ASKED)]
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        "inter.broker.listener.name": "MAIN",
        **{
            f"listener.name.{name.lower()}.kalda.as.version": release
            for name, release in zip(names[1:], ASKED, strict=True)
        },
    }
    addresses = {release: f"127.0.0.1:{port}" for release, port in zip(ASKED, ports[1:], strict=True)}
    with started(tmp_path / "data", settings):
        answers = run(program, "ask", *addresses.values())
    served = {int(handler.key): handler.versions_advertised[1] for handler in HANDLERS}
    lower = {}
    for release, address in addresses.items():
        wanted = {int(key): version for key, version in versions_of(release).items()}
        lower[release] = {key: served[key] for key in wanted if served.get(key, 1 << 15) < wanted[key]}
        expected = {key: min(version, served[key]) for key, version in wanted.items() if key in served}
        assert {str(key): version for key, version in expected.items()} == answers[address]["versions"], (
            release
        )
    assert {release: {} for release in ASKED} == lower


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def started(directory: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Run a broker with the listeners of its settings; `KaldaProcess` chooses the port itself."""
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "kalda", "start", "--dir", str(directory), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"kalda ready")
        try:
            yield
        finally:
            process.terminate()
