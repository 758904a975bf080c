"""Webhooks with a real receiver, a real server and a real cluster."""

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from kalda import Admin, Consumer, NewTopic
from tests.http_server import HttpCluster, HttpProcess, http_process


class Receiver(ThreadingHTTPServer):
    """Answers with the next of some statuses, and keeps what came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.default = 200
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.came = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def wait(self, count: int) -> list[tuple[dict[str, str], bytes]]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.got) >= count, 60), f"{len(self.got)} of {count} came"
        return self.got


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        with self.server.came:
            status = self.server.statuses.pop(0) if self.server.statuses else self.server.default
            self.server.got.append(({name.lower(): text for name, text in self.headers.items()}, body))
            self.server.came.notify_all()
        self.send_response(status)
        if status == 302:
            self.send_header("location", self.server.url + "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def gateway(http_cluster: HttpCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    """A server that may send to this machine."""
    directory = tmp_path_factory.mktemp("webhooks")
    # A topic of its own, or the process without this setting would share the work.
    settings = {"http.webhooks.allow": "127.0.0.0/8", "http.webhooks.topic": "webhooks-allowed"}
    with http_process(http_cluster.cluster, Path(directory), settings) as process:
        yield process


@pytest.fixture
def client(gateway: HttpProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=60) as made:
        yield made


@pytest.fixture
def topic(http_cluster: HttpCluster) -> Iterator[str]:
    name = f"hook-{uuid4().hex[:8]}"
    with Admin(bootstrap_servers=http_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1, replication_factor=1)])
        yield name


def test_records_are_sent_signed_and_retried(client: httpx.Client, receiver: Receiver, topic: str) -> None:
    receiver.statuses = [500, 302]
    made = client.put(
        f"/v1/webhooks/{topic}", json={"topic": topic, "url": receiver.url, "from": "beginning"}
    )
    assert 201 == made.status_code, made.text
    client.post(f"/v1/topics/{topic}?key=k", json={"n": 1})
    client.post(f"/v1/topics/{topic}", json={"n": 2})

    got = receiver.wait(4)
    client.delete(f"/v1/webhooks/{topic}")

    ids = [headers["webhook-id"] for headers, _ in got]
    assert [f"{topic}-0-0"] * 3 + [f"{topic}-0-1"] == ids
    key = base64.b64decode(made.json()["secret"].removeprefix("whsec_"))
    for headers, body in got:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        assert f"v1,{digest}" == headers["webhook-signature"]
    assert b'"key":"k","value":{"n": 1}' in got[0][1].replace(b'{"n":1}', b'{"n": 1}')
    assert 404 == client.get(f"/v1/webhooks/{topic}").status_code


def test_what_is_never_taken_becomes_a_dead_letter(
    client: httpx.Client, http_cluster: HttpCluster, receiver: Receiver, topic: str
) -> None:
    receiver.default = 503
    client.post(f"/v1/topics/{topic}?key=k&header=h:x", json="bad")
    client.put(
        f"/v1/webhooks/{topic}",
        json={"topic": topic, "url": receiver.url, "from": "beginning", "attempts_max": 2, "format": "value"},
    )
    receiver.wait(2)
    deadline = time.monotonic() + 60
    while client.get(f"/v1/webhooks/{topic}").json()["dead_letters"] < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    client.delete(f"/v1/webhooks/{topic}")

    with Consumer(
        f"{topic}-webhook-dlq", bootstrap_servers=http_cluster.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        (letter,) = consumer.poll(30)
    headers = dict(letter.headers)
    assert (b"k", b'"bad"', b"x") == (letter.key, letter.value, headers["h"])
    assert b"the receiver answered 503" == headers["dlq.error.message"]
    assert (topic.encode(), b"0", b"0", b"1") == tuple(
        headers[f"dlq.{name}"] for name in ("topic", "partition", "offset", "retries")
    )


def test_a_receiver_inside_is_refused(http_cluster: HttpCluster, receiver: Receiver, topic: str) -> None:
    """The default allows public addresses only; the refusal is an attempt that failed, and reaches nobody."""
    with httpx.Client(base_url=http_cluster.url, timeout=60) as client:
        client.post(f"/v1/topics/{topic}", json=1)
        client.put(
            f"/v1/webhooks/{topic}-inside",
            json={"topic": topic, "url": receiver.url, "from": "beginning", "attempts_max": 1},
        )
        deadline = time.monotonic() + 60
        shown = client.get(f"/v1/webhooks/{topic}-inside").json()
        while not shown["last_error"] and time.monotonic() < deadline:
            time.sleep(0.1)
            shown = client.get(f"/v1/webhooks/{topic}-inside").json()
        client.delete(f"/v1/webhooks/{topic}-inside")

    assert "127.0.0.1, which is not public" in shown["last_error"]
    assert [] == receiver.got


def test_webhooks_go_on_where_they_were(
    client: httpx.Client, gateway: HttpProcess, receiver: Receiver, topic: str
) -> None:
    """Subscriptions and positions are in the cluster: a killed process finds them again."""
    client.put(f"/v1/webhooks/{topic}", json={"topic": topic, "url": receiver.url, "from": "beginning"})
    client.post(f"/v1/topics/{topic}", json=1)
    receiver.wait(1)
    gateway.kill()
    gateway.start()
    with httpx.Client(base_url=gateway.url, timeout=60) as again:
        again.post(f"/v1/topics/{topic}", json=2)
        bodies = [body for _, body in receiver.wait(2)]
        deadline = time.monotonic() + 90
        while not any(b'"value":2' in body for body in bodies) and time.monotonic() < deadline:
            time.sleep(0.1)
            bodies = [body for _, body in receiver.got]
        again.delete(f"/v1/webhooks/{topic}")

    assert any(b'"value":2' in body for body in bodies)
