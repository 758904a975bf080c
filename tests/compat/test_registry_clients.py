"""Clients of schema registries in Node and Go against `kalda http`, and values of Kalda's serializers."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.serializers import AvroDeserializer, AvroSerializer, JsonSchemaDeserializer, JsonSchemaSerializer
from kalda.testing import ProcessCluster
from tests.compat.conftest import installed_node_packages
from tests.http_server import http_process

ORDER = (
    '{"type":"record","name":"Order","namespace":"shop",'
    '"fields":[{"name":"id","type":"long"},{"name":"item","type":"string"}]}'
)
ORDER_JSON = '{"title":"Order","type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'
VALUE = {"id": 7, "item": "tea"}
PROGRAM_SECONDS = 100
NODE = Path(__file__).parent / "node_registry"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a registry beside one broker."""
    directory = tmp_path_factory.mktemp("registry")
    with ProcessCluster(directory, brokers=1) as cluster, http_process(cluster, directory / "http") as http:
        yield http.url


def output_of(*command: str, path: Path | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, cwd=path, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.mark.timeout(400)
def test_clients_in_node_write_and_read_what_kalda_does(url: str) -> None:
    """@kafkajs/confluent-schema-registry and @confluentinc/schemaregistry."""
    modules = installed_node_packages(NODE, "compat-node-registry")
    config = {"schema.registry.url": url}
    avro = AvroSerializer(config, ORDER).serialize("k-avro", (), VALUE)
    text = JsonSchemaSerializer(config, ORDER_JSON).serialize("k-json", (), VALUE)
    assert avro is not None
    assert text is not None
    program = modules.parent / "registry.js"
    program.write_text((NODE / "registry.js").read_text())

    found = json.loads(output_of("node", str(program), url, avro.hex(), text.hex()))

    for client in ("kafkajs", "confluent"):
        written = found[client]
        assert [VALUE, VALUE] == written["read"], client
        assert VALUE == AvroDeserializer(config).deserialize("t", bytes.fromhex(written["avro"]), ()), client
        assert VALUE == JsonSchemaDeserializer(config).deserialize("t", bytes.fromhex(written["json"]), ()), (
            client
        )
        assert avro == bytes.fromhex(written["avro"]), client


@pytest.mark.timeout(900)
def test_franz_gos_client_registers_and_is_refused(url: str, go_programs: Path) -> None:
    """franz-go's pkg/sr."""
    found = json.loads(output_of(str(go_programs / "registry"), url))

    assert '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}' == found["schema"]
    assert (1, True, False) == (found["version"], found["refused"], found["compatible"])
    assert {"go-avro-value", "go-json-value"} <= set(found["subjects"])
