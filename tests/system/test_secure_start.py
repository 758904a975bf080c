"""`kalda start --secure`: what the first start makes, what later ones keep, and whom it lets in."""

import contextlib
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.errors import ClientError
from kalda.common.properties import parse_properties
from kalda.testing import KaldaProcess


def secure(directory: Path, brokers: int = 1) -> KaldaProcess:
    return KaldaProcess(directory, brokers=brokers, options=["--secure"])


def client(kalda: KaldaProcess) -> dict[str, str]:
    found = parse_properties((kalda.directory / "client.properties").read_text())
    assert kalda.bootstrap == found["bootstrap.servers"]
    return found


def modes(directory: Path) -> dict[Path, int]:
    """Return the modes of a directory and all that is in it; brokers replace files meanwhile."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.stat().st_mode
    return found


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_secure_cluster_serves_its_administrator_and_nobody_else(tmp_path: Path, brokers: int) -> None:
    with secure(tmp_path / "data", brokers) as kalda:
        first = client(kalda)
        with Admin.from_config(first) as admin:
            admin.create_topics([NewTopic("t", 2, brokers)])
        with Producer.from_config({**first, "acks": "all"}) as producer:
            producer.send("t", value=b"x", partition=0).result(60)
        strangers: list[dict[str, str]] = [
            {"bootstrap.servers": kalda.bootstrap},
            {**first, "sasl.jaas.config": first["sasl.jaas.config"].replace('password="', 'password="x')},
            {**first, "ssl.truststore.location": "/etc/ssl/certs/ca-certificates.crt"},
        ]
        for stranger in strangers:
            admin = Admin.from_config({**stranger, "default.api.timeout.ms": "2000"})
            with admin, pytest.raises(ClientError):
                admin.list_topics()
        znodes = subprocess.run(
            [
                sys.executable,
                "-m",
                "kalda",
                "zk",
                "get",
                "/config/users/admin",
                "--zookeeper",
                kalda.zookeeper,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert "access list" in znodes.stderr
        kalda.kill()
        kalda.start()
        assert first == {**client(kalda), "bootstrap.servers": first["bootstrap.servers"]}
        # The lines that docs/how-to/secure-a-cluster.md shows.
        with Producer.from_config(str(kalda.directory / "client.properties"), acks="all") as producer:
            producer.send("t", value=b"y", partition=1).result(60)
        first = client(kalda)
        with Consumer.from_config({**first, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["t"])
            found: list[object] = []
            while len(found) < 2:
                found += [record.value for record in consumer.poll(timeout_s=20)]
            assert {b"x", b"y"} == set(found)
    log = kalda.log()
    assert 1 == log.count("client.properties")
    for secret in (
        first["sasl.jaas.config"].split('"')[3],
        (tmp_path / "data/security/users.json").read_text(),
    ):
        assert secret not in log


@pytest.mark.parametrize("brokers", [1, 2])
def test_everything_in_the_directory_is_for_its_owner_alone(tmp_path: Path, brokers: int) -> None:
    """Records, too; and what an earlier release left open is closed at the next start."""
    for directory in (tmp_path / "data", tmp_path / "data" / "broker-0"):
        directory.mkdir(mode=0o755)
    with secure(tmp_path / "data", brokers) as kalda:
        with Admin.from_config(client(kalda)) as admin:
            admin.create_topics([NewTopic("t", brokers, 1)])
        found = modes(kalda.directory)
        assert {True} < {stat.S_ISDIR(mode) for mode in found.values()}
        assert [] == [path for path, mode in found.items() if mode & 0o077]
        assert 1 == kalda.log().count(
            f"without a login can be used: the coordination server at {kalda.zookeeper}"
        )


def test_listeners_are_not_set_beside_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kalda", "start", "--secure", "--dir", str(tmp_path / "data")),
            *("--set", "listeners=PLAINTEXT://127.0.0.1:0"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 2 == done.returncode
    assert "--secure makes the listeners itself, so `listeners` cannot be set" in done.stderr
    assert not (tmp_path / "data").exists()
