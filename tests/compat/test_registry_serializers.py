"""Clients of Confluent's registry, as their users install them, against ours."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.testing import ProcessCluster
from tests.compat.go_toolchain import confluent_program
from tests.http_server import http_process

PROGRAM = Path(__file__).with_name("frameworks") / "confluent_serializers_program.py"
PACKAGES = ("confluent-kafka[schemaregistry,avro,json,protobuf]==2.16.1",)
VALUE = {"id": 7, "city": "Bílina"}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a venv with the serializers."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *PACKAGES],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"{PACKAGES} cannot be installed: {done.stderr[-300:]}")
    return python


def test_the_serializers_of_confluent_kafka_work_unchanged(python: Path, tmp_path: Path) -> None:
    with (
        ProcessCluster(tmp_path / "cluster", brokers=1) as cluster,
        http_process(cluster, tmp_path / "http") as http,
    ):
        done = subprocess.run(
            [str(python), str(PROGRAM), cluster.bootstrap, http.url], capture_output=True, text=True
        )
    assert 0 == done.returncode, done.stderr
    seen = json.loads(done.stdout)
    assert VALUE == seen["avro"] == seen["json"] == seen["protobuf"]
    assert ["avro-value", "json-value", "protobuf-value"] == seen["subjects"]
    assert [1, 1] == seen["latest"]
    assert 1 == seen["lookup"]
    assert seen["compatible"] is False
    assert ("BACKWARD", "NONE") == (seen["level"], seen["own level"])
    assert 4 == seen["second"]
    assert [1, 2] == seen["versions"]
    assert '["null","Base"]' == seen["with a reference"]
    assert 2 == seen["deleted"]
    assert [404, 40402] == seen["error"]


def test_the_serializers_of_confluent_kafka_go_work_unchanged(tmp_path: Path) -> None:
    try:
        program = confluent_program()
    except NotAvailableError as error:
        pytest.skip(str(error))
    with (
        ProcessCluster(tmp_path / "cluster", brokers=1) as cluster,
        http_process(cluster, tmp_path / "http") as http,
    ):
        done = subprocess.run([program, cluster.bootstrap, http.url], capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    seen = json.loads(done.stdout)
    assert VALUE == seen["avro"] == seen["json"]
    assert VALUE["city"] == seen["protobuf"]
    assert ["go-avro-value", "go-json-value", "go-protobuf-value", "go-rules-value"] == seen["subjects"]
    assert seen["compatible"] is False
    assert ("BACKWARD", 40901) == (seen["level"], seen["refused"])
    assert (1, [1], 40401) == (seen["latest"], seen["deleted"], seen["missing"])
