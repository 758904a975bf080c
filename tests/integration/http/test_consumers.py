"""Consumers of groups over HTTP, with a real server and a real cluster."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from kalda import Admin, NewTopic, Producer, TopicPartition
from tests.http_server import HttpCluster


@pytest.fixture
def topic(http_cluster: HttpCluster) -> Iterator[str]:
    name = f"group-{uuid4().hex[:8]}"
    with (
        Admin(bootstrap_servers=http_cluster.bootstrap) as admin,
        Producer(bootstrap_servers=http_cluster.bootstrap) as producer,
    ):
        admin.create_topics([NewTopic(name, partitions=1, replication_factor=1)])
        for number in range(5):
            producer.send(name, str(number).encode())
        producer.flush()
        yield name


def create(client: httpx.Client, topic: str, group: str, **fields: object) -> str:
    response = client.post(f"/v1/groups/{group}/consumers", json={"topics": [topic], **fields})
    assert 201 == response.status_code, response.text
    return f"/v1/groups/{group}/consumers/{response.json()['id']}"


def poll(client: httpx.Client, path: str, count: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while len(records) < count and time.monotonic() < deadline:
        response = client.get(f"{path}/records?timeout_ms=1000")
        assert 200 == response.status_code, response.text
        records += response.json()["records"]
    return records


def committed(http: HttpCluster, group: str, topic: str) -> int | None:
    with Admin(bootstrap_servers=http.bootstrap) as admin:
        offset = admin.list_consumer_group_offsets([group])[group].get(TopicPartition(topic, 0))
    return None if offset is None else offset.offset


def test_only_what_is_acknowledged_is_committed(
    client: httpx.Client, http_cluster: HttpCluster, topic: str
) -> None:
    first = create(client, topic, topic)
    records = poll(client, first, 5)
    acks = [each["ack"] for each in records]

    out_of_order = client.post(f"{first}/acks", json={"acks": acks[3:4]}).json()
    in_order = client.post(f"{first}/acks", json={"acks": [*acks[:2], acks[3]]}).json()
    assert 204 == client.delete(first).status_code
    again = poll(client, create(client, topic, topic), 3)

    assert [0, 1, 2, 3, 4] == [each["value"] for each in records]
    assert {"committed": {}, "lost": []} == out_of_order
    assert {"committed": {f"{topic}/0": 2}, "lost": [acks[3]]} == in_order
    assert 2 == committed(http_cluster, topic, topic)
    assert [2, 3, 4] == [each["value"] for each in again]


def test_a_consumer_that_waits_for_too_many_acknowledgements_gets_no_more(
    client: httpx.Client, topic: str
) -> None:
    path = create(client, topic, topic, unacked_max=2)
    records = poll(client, path, 2)

    assert 429 == client.get(f"{path}/records").status_code
    client.post(f"{path}/acks", json={"acks": [each["ack"] for each in records]})
    assert [2, 3] == [each["value"] for each in poll(client, path, 2)]


def test_an_idle_consumer_leaves(client: httpx.Client, topic: str) -> None:
    path = create(client, topic, topic, idle_timeout_ms=1000)
    deadline = time.monotonic() + 60
    while client.get("/metrics").text.count("kalda_http_consumers 0") == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
        if httpx.codes.NOT_FOUND == client.post(f"{path}/acks", json={"acks": []}).status_code:
            break
        time.sleep(2.5)

    assert 404 == client.post(f"{path}/renew").status_code


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "topics"),
        ({"topics": []}, 400, "topics"),
        ({"topics": [1]}, 400, "topics"),
        ({"topics": ["no-such-topic"]}, 404, "does not exist"),
        ({"topics": ["x"], "idle": 1}, 400, "'idle' is no field"),
        ({"topics": ["x"], "idle_timeout_ms": 1}, 400, "idle_timeout_ms=1"),
        ({"topics": ["x"], "unacked_max": True}, 400, "unacked_max=True"),
        ([], 400, "not a JSON object"),
    ],
)
def test_wrong_consumers_are_refused(client: httpx.Client, body: object, status: int, message: str) -> None:
    response = client.post("/v1/groups/g/consumers", json=body)

    assert status == response.status_code
    assert message in response.text


def test_a_wrong_reset_is_refused(client: httpx.Client, topic: str) -> None:
    response = client.post(
        f"/v1/groups/{topic}/consumers", json={"topics": [topic], "auto_offset_reset": "sometimes"}
    )

    assert 400 == response.status_code
    assert "auto.offset.reset" in response.text


def test_a_consumer_of_another_process_is_not_served(client: httpx.Client) -> None:
    response = client.get("/v1/groups/g/consumers/00000000-1234/records")

    assert 421 == response.status_code
    assert "location" in response.text


@pytest.mark.parametrize("ack", ["", "t/0", "t/x/1", "t/0/-1", "t/0/99999999999999999999", 5, None])
def test_what_is_no_acknowledgement_is_refused(client: httpx.Client, topic: str, ack: object) -> None:
    path = create(client, topic, topic)

    response = client.post(f"{path}/acks", json={"acks": [ack]})

    assert 400 == response.status_code
    assert 204 == client.delete(path).status_code
