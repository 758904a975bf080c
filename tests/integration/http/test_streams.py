"""Streams and writes over HTTP, with a real server and a real cluster."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kalda import Admin, NewPartitions, NewTopic, Producer, TopicPartition
from tests.http_server import HttpCluster


class Events:
    """The events of a stream, read as they are asked for."""

    def __init__(self, address: str, path: str, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self._connection.request("GET", path, headers=headers)
        self._response = self._connection.getresponse()

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def next(self) -> dict[str, str]:
        event = self.next_or_none()
        assert event is not None, "the stream has ended"
        return event

    def next_or_none(self) -> dict[str, str] | None:
        """Return the next event; None if the stream has ended."""
        event: dict[str, str] = {}
        while line := self._response.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if line != "\n":
                event[name] = value
            elif event:
                return event
        return None

    def record(self) -> dict[str, Any]:
        """Return the next record."""
        while True:
            event = self.next()
            if "data" in event and "event" not in event:
                return {**json.loads(event["data"]), "id": event["id"]}

    def values(self, count: int) -> list[Any]:
        return [self.record()["value"] for _ in range(count)]

    def named(self) -> tuple[str, dict[str, Any]]:
        """Return the next event that has a name."""
        while True:
            event = self.next()
            if "event" in event:
                return event["event"], json.loads(event["data"])


Opened = Callable[..., Events]


@pytest.fixture
def topic(http_cluster: HttpCluster) -> Iterator[str]:
    name = f"stream-{uuid4().hex[:8]}"
    with Admin(bootstrap_servers=http_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=2, replication_factor=1)])
        yield name


@pytest.fixture
def opened(http_cluster: HttpCluster) -> Iterator[Opened]:
    """Open streams; they end with the test."""
    made: list[Events] = []

    def open_stream(path: str, headers: dict[str, str] | None = None) -> Events:
        made.append(Events(http_cluster.address, path, headers or {}))
        return made[-1]

    yield open_stream
    for each in made:
        each.close()


@contextmanager
def socket(client: httpx.Client, path: str) -> Iterator[ClientConnection]:
    with connect(f"ws://{client.base_url.netloc.decode()}{path}") as made:
        yield made


def post(client: httpx.Client, topic: str, *values: object, partition: int = 0) -> list[dict[str, int]]:
    records = [{"value": value, "partition": partition} for value in values]
    response = client.post(
        f"/v1/topics/{topic}",
        content=json.dumps({"records": records}),
        headers={"content-type": "application/vnd.kalda.records+json"},
    )
    assert 200 == response.status_code, response.text
    found: list[dict[str, int]] = response.json()["records"]
    return found


def test_a_written_record_comes_as_an_event(client: httpx.Client, topic: str, opened: Opened) -> None:
    written = client.post(
        f"/v1/topics/{topic}?key=k&header=h:x&partition=1&timestamp=5", json={"a": 1}
    ).json()

    record = opened(f"/v1/topics/{topic}/stream?from=beginning").record()

    assert {"records": [{"partition": 1, "offset": 0, "timestamp": 5}]} == written
    assert {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value": {"a": 1},
        "value_type": "json",
        "headers": [["h", "x"]],
        "id": "0:0,1:1",
    } == record


def test_a_stream_goes_on_from_the_last_id(client: httpx.Client, topic: str, opened: Opened) -> None:
    post(client, topic, *range(5))
    post(client, topic, *range(5, 10), partition=1)
    first = opened(f"/v1/topics/{topic}/stream?from=beginning")
    seen = [first.record() for _ in range(6)]

    rest = opened(f"/v1/topics/{topic}/stream", {"Last-Event-ID": seen[-1]["id"]}).values(4)

    assert list(range(10)) == sorted([each["value"] for each in seen] + rest)


def test_a_stream_from_the_end_has_only_what_comes(client: httpx.Client, topic: str, opened: Opened) -> None:
    post(client, topic, "before")
    stream = opened(f"/v1/topics/{topic}/stream")
    assert "0:1,1:0" == stream.next()["id"]

    post(client, topic, "after")

    assert "after" == stream.record()["value"]


def test_a_stream_begins_at_a_time_or_at_offsets(client: httpx.Client, topic: str, opened: Opened) -> None:
    for value in range(4):
        client.post(f"/v1/topics/{topic}?partition=0&timestamp={1000 + value}", json=value)

    assert [2, 3] == opened(f"/v1/topics/{topic}/stream?from=1002").values(2)
    assert [1, 2] == opened(f"/v1/topics/{topic}/stream?from=0:1").values(2)


def test_cloud_events_go_in_and_out(client: httpx.Client, topic: str, opened: Opened) -> None:
    """In binary mode, in structured mode, and of a record that is no event."""
    binary = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    structured = {"specversion": "1.0", "id": "2", "source": "/s", "type": "t", "data": {"b": 2}}
    path = f"/v1/topics/{topic}?partition=0"
    client.post(path, json={"a": 1}, headers=binary)
    client.post(
        path,
        content=json.dumps(structured),
        headers={"content-type": "application/cloudevents+json"},
    )
    client.post(path, json={"c": 3})

    stream = opened(f"/v1/topics/{topic}/stream?from=beginning&value_format=cloudevents")
    events: list[dict[str, Any]] = []
    while len(events) < 3:
        event = stream.next()
        if "data" in event:
            events.append(json.loads(event["data"]))

    assert [("1", "t", {"a": 1}), ("2", "t", {"b": 2}), ("0:2", "kalda.record", {"c": 3})] == [
        (each["id"], each["type"], each["data"]) for each in events
    ]


def test_values_are_decoded_by_the_registry(client: httpx.Client, topic: str, opened: Opened) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
    registered = client.post(f"/subjects/{topic}-value/versions", json={"schema": schema})
    assert 200 == registered.status_code, registered.text
    framed = b"\x00" + registered.json()["id"].to_bytes(4, "big") + b"\x0e"
    client.post(f"/v1/topics/{topic}?partition=0", content=framed)
    client.post(f"/v1/topics/{topic}?partition=0", content=b"plain")

    stream = opened(f"/v1/topics/{topic}/stream?from=beginning&value_format=schema")

    assert [{"n": 7}, "plain"] == stream.values(2)


def test_filters_and_partitions(client: httpx.Client, topic: str, opened: Opened) -> None:
    post(client, topic, {"n": 1}, {"n": 2}, {"n": 3})
    post(client, topic, {"n": 9}, partition=1)

    stream = opened(f"/v1/topics/{topic}/stream?from=beginning&where=$.n>1&partitions=0")
    assert [{"n": 2}, {"n": 3}] == stream.values(2)
    post(client, topic, {"n": 0}, {"n": 8})
    assert {"n": 8} == stream.record()["value"]


def test_far_readers_fetch_by_themselves_and_then_join(
    client: httpx.Client, http_cluster: HttpCluster, topic: str, opened: Opened
) -> None:
    """More records than a feed keeps: the reader begins alone, and passes to the feed without a gap."""
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        for number in range(12_000):
            producer.send(topic, str(number).encode(), partition=number % 2)
    stream = opened(f"/v1/topics/{topic}/stream?from=beginning")
    seen = stream.values(12_000)
    post(client, topic, 12_000)
    seen += stream.values(1)

    assert list(range(0, 12_001, 2)) == [each for each in seen if each % 2 == 0]
    assert list(range(1, 12_000, 2)) == [each for each in seen if each % 2]


def test_an_aborted_transaction_is_seen_only_uncommitted(
    client: httpx.Client, http_cluster: HttpCluster, topic: str, opened: Opened
) -> None:
    with Producer(bootstrap_servers=http_cluster.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b'"aborted"', partition=0)
        producer.flush()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b'"committed"', partition=0)
    committed = opened(f"/v1/topics/{topic}/stream?from=beginning")
    every = opened(f"/v1/topics/{topic}/stream?from=beginning&isolation=read_uncommitted")

    assert ["committed"] == committed.values(1)
    assert ["aborted", "committed"] == every.values(2)
    # A position in front of the marker joins a feed that is behind it.
    post(client, topic, "later")
    assert ["later"] == opened(f"/v1/topics/{topic}/stream", {"Last-Event-ID": "0:3,1:0"}).values(1)


def test_added_partitions_are_read(
    client: httpx.Client, http_cluster: HttpCluster, topic: str, opened: Opened
) -> None:
    stream = opened(f"/v1/topics/{topic}/stream")
    stream.next()
    with Admin(bootstrap_servers=http_cluster.bootstrap) as admin:
        admin.create_partitions({topic: NewPartitions(3)})
    with Producer(bootstrap_servers=http_cluster.bootstrap) as producer:
        producer.send(topic, b"1", partition=2).result(30)

    record = stream.record()

    assert (2, "0:0,1:0,2:1") == (record["partition"], record["id"])


def test_a_deleted_topic_ends_the_stream(
    client: httpx.Client, http_cluster: HttpCluster, topic: str, opened: Opened
) -> None:
    stream = opened(f"/v1/topics/{topic}/stream")
    stream.next()
    with Admin(bootstrap_servers=http_cluster.bootstrap) as admin:
        admin.delete_topics([topic])

    name, data = stream.named()

    assert ("end", "topic_deleted") == (name, data["reason"])
    assert stream.next_or_none() is None
    assert 404 == client.get(f"/v1/topics/{topic}/stream").status_code


def test_deleted_records_are_a_gap(
    client: httpx.Client, http_cluster: HttpCluster, topic: str, opened: Opened
) -> None:
    post(client, topic, *range(5))
    with Admin(bootstrap_servers=http_cluster.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 3})

    stream = opened(f"/v1/topics/{topic}/stream", {"Last-Event-ID": "0:1,1:0"})

    assert ("gap", {"partition": 0, "from": 1, "to": 3}) == stream.named()
    assert [3, 4] == stream.values(2)


def test_a_position_that_does_not_exist_is_a_gap(client: httpx.Client, topic: str, opened: Opened) -> None:
    """As after an unclean election, or in another topic of the same name."""
    post(client, topic, 1, 2)

    stream = opened(f"/v1/topics/{topic}/stream", {"Last-Event-ID": "0:1000,1:0"})

    assert ("gap", {"partition": 0, "from": 1000, "to": 2}) == stream.named()
    post(client, topic, 3)
    assert [3] == stream.values(1)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("no-such-topic/stream", 404, "does not exist"),
        ("..%2F..%2Fetc/stream", 404, ""),
        ("a%20b/stream", 422, "not the name of a topic"),
        ("%00/stream", 422, ""),
        ("{topic}/stream?from=yesterday", 400, "from="),
        ("{topic}/stream?partitions=7", 400, "no partition 7"),
        ("{topic}/stream?last_event_id=9:1", 400, "no partition 9"),
        ("{topic}/stream?last_event_id=x", 400, "Last-Event-ID"),
        ("{topic}/stream?where=$.a%3D%3D1e999", 400, "where="),
    ],
)
def test_wrong_requests_get_a_status_before_the_stream(
    client: httpx.Client, topic: str, path: str, status: int, message: str
) -> None:
    response = client.get(f"/v1/topics/{path.format(topic=topic)}")

    assert status == response.status_code, response.text
    assert message in response.text


def test_a_websocket_has_the_same_events(client: httpx.Client, topic: str) -> None:
    post(client, topic, "a", "b")
    with socket(client, f"/v1/topics/{topic}/stream?from=beginning") as opened_socket:
        events: list[dict[str, Any]] = []
        while len([each for each in events if "record" in each]) < 2:
            events += json.loads(opened_socket.recv(timeout=60))
    last = events[-1]["id"]
    post(client, topic, "c")
    with socket(client, f"/v1/topics/{topic}/stream?last_event_id={last}") as opened_socket:
        while "record" not in events[-1] or events[-1]["record"]["value"] != "c":
            events += json.loads(opened_socket.recv(timeout=60))

    assert ["a", "b", "c"] == [each["record"]["value"] for each in events if "record" in each]


def test_a_refused_websocket_has_a_status(client: httpx.Client) -> None:
    with pytest.raises(InvalidStatus) as raised, socket(client, "/v1/topics/none/stream"):
        pass

    assert 404 == raised.value.response.status_code


def test_a_repeated_key_writes_once(client: httpx.Client, topic: str, opened: Opened) -> None:
    headers = {"Idempotency-Key": uuid4().hex}
    answers = {client.post(f"/v1/topics/{topic}", json="once", headers=headers).text for _ in range(50)}
    other = client.post(f"/v1/topics/{topic}", json="other", headers=headers)

    post(client, topic, "end", partition=0)
    post(client, topic, "end", partition=1)
    values = opened(f"/v1/topics/{topic}/stream?from=beginning").values(3)

    assert 1 == len(answers)
    assert 422 == other.status_code
    assert ["end", "end", "once"] == sorted(values)


def test_a_request_with_a_key_is_written_whole_or_not_at_all(
    client: httpx.Client, topic: str, opened: Opened
) -> None:
    key = {"Idempotency-Key": uuid4().hex, "content-type": "application/vnd.kalda.records+json"}
    body = json.dumps({"records": [{"text": "small", "partition": 0}, {"text": "x" * 1_500_000}]})

    refused = client.post(f"/v1/topics/{topic}", content=body, headers=key)
    accepted = client.post(f"/v1/topics/{topic}", json="later", headers={"Idempotency-Key": uuid4().hex})

    assert 413 == refused.status_code, refused.text
    assert 200 == accepted.status_code
    assert ["later"] == opened(f"/v1/topics/{topic}/stream?from=beginning").values(1)


def test_each_record_has_its_own_result(client: httpx.Client, topic: str) -> None:
    body = json.dumps({"records": [{"text": "small"}, {"text": "x" * 1_500_000}]})

    response = client.post(
        f"/v1/topics/{topic}", content=body, headers={"content-type": "application/vnd.kalda.records+json"}
    )

    first, second = response.json()["records"]
    assert 207 == response.status_code
    assert "offset" in first
    assert 413 == second["error"]["status"]


@pytest.mark.parametrize("key", ["", "x" * 256, "ü"])
def test_a_key_that_is_not_allowed_is_refused(client: httpx.Client, topic: str, key: str) -> None:
    response = client.post(
        f"/v1/topics/{topic}", json=1, headers=[(b"Idempotency-Key", key.encode("latin-1"))]
    )

    assert 400 == response.status_code
    assert "Idempotency-Key" in response.text


def test_a_partition_that_is_missing_is_refused_at_once(client: httpx.Client, topic: str) -> None:
    began = time.monotonic()
    response = client.post(f"/v1/topics/{topic}?partition=5", json=1)

    assert 422 == response.status_code
    assert time.monotonic() - began < 25
