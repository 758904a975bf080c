"""What stands in the schema topic, and what others write to it."""

import json
from pathlib import Path

import httpx
import pytest

from kalda import Consumer, Producer, TopicPartition
from tests.http_server import HttpCluster, http_process

TOPIC = "_schemas_of_others"
SETTINGS = {"kafkastore.topic": TOPIC, "schema.registry.group.id": "of-others"}


def records(bootstrap: str) -> list[tuple[bytes, bytes | None]]:
    """All records of the topic, in order."""
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[tuple[bytes, bytes | None]] = []
        while consumer.position(partition) < end:
            found += [(each.key or b"", each.value) for each in consumer.poll(timeout_s=1)]
        return found


def schema_record(subject: str, schema_id: int, text: str) -> tuple[bytes, bytes]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
    value = {"subject": subject, "version": 1, "id": schema_id, "schema": text, "deleted": False}
    return (json.dumps(key, separators=(",", ":")).encode(), json.dumps(value).encode())


@pytest.fixture
def subject_text() -> str:
    return '{"type":"record","name":"R","fields":[]}'


def test_records_are_confluents_and_others_may_write_too(
    http_cluster: HttpCluster, tmp_path: Path, subject_text: str
) -> None:
    """A second writer for a moment: its ids are not given again, and what conflicts is taken out."""
    bootstrap = http_cluster.bootstrap
    with (
        http_process(http_cluster.cluster, tmp_path, SETTINGS) as http,
        httpx.Client(base_url=http.url, timeout=60) as client,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        body = {"schema": subject_text}
        assert 1 == client.post("/subjects/a/versions", json=body).json()["id"]
        client.put("/config", json={"compatibility": "NONE"})

        # Another writer takes id 2, and then an id that has another schema already.
        key, value = schema_record("b", 2, '"int"')
        producer.send(TOPIC, value, key, partition=0).result(30)
        key, value = schema_record("c", 1, '"string"')
        producer.send(TOPIC, value, key, partition=0).result(30)

        assert 3 == client.post("/subjects/d/versions", json={"schema": '"bytes"'}).json()["id"]
        assert ["a", "b", "d"] == client.get("/subjects").json()
        assert 4 == client.post("/subjects/e/versions", json={"schema": '"long"'}).json()["id"]
        client.delete("/subjects/b")
        client.delete("/subjects/b?permanent=true")

        found = records(bootstrap)

    keys = [key.decode() for key, _ in found]
    assert '{"keytype":"NOOP","magic":0}' == keys[0]
    assert '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}' == keys[1]
    assert (
        '{"subject":"a","version":1,"id":1,"schemaType":"AVRO",'
        '"schema":"{\\"type\\":\\"record\\",\\"name\\":\\"R\\",\\"fields\\":[]}","deleted":false}'
    ) == (found[1][1] or b"").decode()
    assert (
        '{"keytype":"CONFIG","magic":0}',
        '{"compatibilityLevel":"NONE"}',
    ) == (keys[2], (found[2][1] or b"").decode())
    conflicting = b'{"keytype":"SCHEMA","subject":"c","version":1,"magic":1}'
    assert [None] == [value for key, value in found if key == conflicting][1:]
    assert (
        '{"keytype":"DELETE_SUBJECT","subject":"b","magic":0}',
        '{"subject":"b","version":1}',
    ) in [(key.decode(), (value or b"").decode()) for key, value in found]
    assert None is [value for key, value in found if key == schema_record("b", 2, "")[0]][-1]


def test_the_keys_of_other_registries_are_removed_with_their_schemas(
    http_cluster: HttpCluster, tmp_path: Path
) -> None:
    """Their form differs by spaces and order, and a tombstone for another form would remove nothing."""
    bootstrap = http_cluster.bootstrap
    form = b'{"subject": "karapace", "version": 1, "magic": 1, "keytype": "SCHEMA"}'
    value = {"subject": "karapace", "version": 1, "id": 90, "schema": '"float"', "deleted": False}
    with (
        http_process(http_cluster.cluster, tmp_path, SETTINGS) as http,
        httpx.Client(base_url=http.url, timeout=60) as client,
    ):
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send(TOPIC, json.dumps(value).encode(), form, partition=0).result(30)
        assert 91 <= client.post("/subjects/after/versions", json={"schema": '"double"'}).json()["id"]
        assert 90 == client.get("/subjects/karapace/versions/1").json()["id"]

        client.delete("/subjects/karapace")
        client.delete("/subjects/karapace?permanent=true")

        assert None is [value for key, value in records(bootstrap) if key == form][-1]
