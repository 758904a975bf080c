"""The gateway's rules, CORS and description, the rights of callers, and peers that mean no good."""

import json
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kalda import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    Admin,
    NewTopic,
    PatternType,
    PermissionType,
    Producer,
    ResourcePattern,
    ResourceType,
)
from kalda.http.connection import HEAD_BYTES_MAX
from tests.http_server import HttpCluster, HttpProcess, http_process

RULES = """
rules:
  - name: errors
    match: {api: produce, topic: "broken-*"}
    faults: "produce:NOT_LEADER*1; produce:error-after=NOT_LEADER*1; produce:drop*1; produce:delay=1ms"
  - name: canary
    match: {topic: "routed-*"}
    route: {topic: routed-canary}
  - name: limited
    match: {topic: "limited-*"}
    rate_limit: {requests: 0.001, burst: 2}
  - name: sockets
    match: {kind: stream, topic: "socket-*"}
    faults: "fetch:NOT_LEADER*1; fetch:drop*1"
  - name: polls
    match: {kind: consumer, topic: "polled-*"}
    faults: "fetch:lose*1"
"""


@pytest.fixture(scope="module")
def ruled(http_cluster: HttpCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    directory = Path(tmp_path_factory.mktemp("ruled"))
    (directory / "rules.yml").write_text(RULES)
    settings = {
        "http.gateway.rules": str(directory / "rules.yml"),
        "http.cors.origins": "https://app.example.com",
        "http.stream.stall.ms": "1000",
    }
    with http_process(http_cluster.cluster, directory, settings) as process:
        yield process


@pytest.fixture
def ruled_client(ruled: HttpProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=ruled.url, timeout=60) as made:
        yield made


def create(http: HttpCluster, *names: str) -> None:
    with Admin(bootstrap_servers=http.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1, replication_factor=1) for name in names])


def test_faults_apply_to_requests(http_cluster: HttpCluster, ruled_client: httpx.Client) -> None:
    topic = f"broken-{uuid4().hex[:8]}"
    create(http_cluster, topic)

    first = ruled_client.post(f"/v1/topics/{topic}", json=1)
    second = ruled_client.post(f"/v1/topics/{topic}", json=2)
    with pytest.raises(httpx.TransportError):
        ruled_client.post(f"/v1/topics/{topic}", json=3)
    last = ruled_client.post(f"/v1/topics/{topic}", json=4).json()

    assert [503, 503] == [first.status_code, second.status_code]
    assert 1 == last["records"][0]["offset"], "of the others only the second was written"
    assert 'rule="errors",status="503"' in ruled_client.get("/metrics").text


def test_a_route_leads_to_another_topic(http_cluster: HttpCluster, ruled_client: httpx.Client) -> None:
    create(http_cluster, "routed-canary", topic := f"routed-{uuid4().hex[:8]}")

    written = ruled_client.post(f"/v1/topics/{topic}", json="x").json()["records"][0]
    with ruled_client.stream("GET", "/v1/topics/routed-canary/stream?from=beginning") as response:
        line = next(each for each in response.iter_lines() if each.startswith("data:"))

    assert (0, "x") == (written["offset"], json.loads(line.removeprefix("data:"))["value"])


def test_a_caller_above_its_rate_waits(http_cluster: HttpCluster, ruled_client: httpx.Client) -> None:
    create(http_cluster, topic := f"limited-{uuid4().hex[:8]}")

    responses = [ruled_client.post(f"/v1/topics/{topic}", json=1) for _ in range(3)]

    assert [200, 200, 429] == [each.status_code for each in responses]
    assert int(responses[2].headers["retry-after"]) > 0


def test_rules_apply_to_websockets(http_cluster: HttpCluster, ruled: HttpProcess) -> None:
    create(http_cluster, topic := f"socket-{uuid4().hex[:8]}")
    url = f"ws://{ruled.address}/v1/topics/{topic}/stream"

    statuses = []
    for _ in range(2):
        with pytest.raises(InvalidStatus) as raised, connect(url):
            pass
        statuses.append(raised.value.response.status_code)
    with connect(url) as opened:
        first = json.loads(opened.recv(timeout=60))

    assert [503, 503] == statuses
    assert ["id"] == list(first[0])


def test_a_rule_can_lose_what_a_consumer_polled(
    http_cluster: HttpCluster, ruled_client: httpx.Client
) -> None:
    """The records were handed out and nobody has them: the group's next consumer gets them again."""
    create(http_cluster, topic := f"polled-{uuid4().hex[:8]}")
    ruled_client.post(f"/v1/topics/{topic}", json="x")

    def consumer() -> str:
        made = ruled_client.post(f"/v1/groups/{topic}/consumers", json={"topics": [topic]})
        return f"/v1/groups/{topic}/consumers/{made.json()['id']}"

    first = consumer()
    with pytest.raises(httpx.TransportError):
        ruled_client.get(f"{first}/records?timeout_ms=30000")
    assert 204 == ruled_client.delete(first).status_code
    records = ruled_client.get(f"{consumer()}/records?timeout_ms=30000").json()["records"]

    assert ["x"] == [each["value"] for each in records]
    assert 'rule="polls"' in ruled_client.get("/metrics").text


def test_pages_of_other_origins_are_let_in_by_setting(
    client: httpx.Client, ruled_client: httpx.Client
) -> None:
    allowed = {"Origin": "https://app.example.com"}
    asked = {
        **allowed,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "idempotency-key",
    }

    preflight = ruled_client.options("/v1/topics/x", headers=asked)
    failed = ruled_client.post("/v1/topics/no-such-topic", json=1, headers=allowed)
    other = ruled_client.get("/v1/openapi.json", headers={"Origin": "https://evil.example.com"})
    without = client.get("/v1/openapi.json", headers=allowed)

    assert 200 == preflight.status_code
    assert "https://app.example.com" == preflight.headers["access-control-allow-origin"]
    assert (404, "https://app.example.com") == (
        failed.status_code,
        failed.headers["access-control-allow-origin"],
    )
    assert "access-control-allow-origin" not in other.headers
    assert "access-control-allow-origin" not in without.headers


def test_the_description_names_every_route(client: httpx.Client) -> None:
    described = client.get("/v1/openapi.json").json()
    page = client.get("/v1/")

    assert "3.1.0" == described["openapi"]
    assert {"/topics/{topic}", "/topics/{topic}/stream", "/webhooks/{webhook}"} <= described["paths"].keys()
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path in described["paths"]:
        assert path in page.text


def grant(http: HttpCluster, topic: str, *operations: AclOperation) -> None:
    with Admin.from_config(http.cluster.client_config("admin")) as admin:
        admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
        pattern = ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL)
        admin.create_acls(
            [
                AclBinding(pattern, AccessControlEntry("User:alice", "*", each, PermissionType.ALLOW))
                for each in operations
            ]
        )


def test_callers_have_their_own_rights(
    secured_http_cluster: HttpCluster, secured_client: httpx.Client
) -> None:
    """Alice may write and not read; bob may do nothing; nobody without credentials gets anywhere."""
    topic = f"secret-{uuid4().hex[:8]}"
    grant(secured_http_cluster, topic, AclOperation.WRITE, AclOperation.DESCRIBE)
    alice, bob = secured_http_cluster.auth("alice"), secured_http_cluster.auth("bob")
    key = {"Idempotency-Key": "1"}

    def statuses(auth: tuple[str, str] | httpx.Auth) -> list[int]:
        return [
            secured_client.post(f"/v1/topics/{topic}", json=1, auth=auth).status_code,
            secured_client.post(f"/v1/topics/{topic}", json=1, auth=auth, headers=key).status_code,
            secured_client.get(f"/v1/topics/{topic}/stream", auth=auth).status_code,
            secured_client.post("/v1/groups/g/consumers", json={"topics": [topic]}, auth=auth).status_code,
            secured_client.put(
                "/v1/webhooks/w", json={"topic": topic, "url": "https://example.com/"}, auth=auth
            ).status_code,
        ]

    assert [200, 200, 403, 403, 403] == statuses(alice)
    assert all(status in (403, 404) for status in statuses(bob))
    assert [401] * 5 == statuses(httpx.Auth())
    assert [401] * 5 == statuses(("alice", "wrong"))


def test_dead_letters_go_only_where_the_caller_may_write(
    secured_http_cluster: HttpCluster, secured_client: httpx.Client
) -> None:
    """The server writes them, as a super user here; a topic that is not there is made by the caller."""
    unique = uuid4().hex[:8]
    topic, readable, writable = f"orders-{unique}", f"theirs-{unique}", f"mine-{unique}"
    grant(secured_http_cluster, topic, AclOperation.READ, AclOperation.DESCRIBE)
    grant(secured_http_cluster, readable, AclOperation.READ, AclOperation.DESCRIBE)
    grant(secured_http_cluster, writable, AclOperation.WRITE, AclOperation.DESCRIBE)

    def status(dead_letter_topic: str) -> int:
        body = {"topic": topic, "url": "https://example.com/", "dead_letter_topic": dead_letter_topic}
        auth = secured_http_cluster.auth("alice")
        answer = secured_client.put(f"/v1/webhooks/{topic}", json=body, auth=auth)
        secured_client.delete(f"/v1/webhooks/{topic}", auth=auth)
        return answer.status_code

    assert [403, 403, 400, 201, 201] == [
        status(each) for each in (readable, f"new-{unique}", "_schemas", writable, f"{topic}-webhook-dlq")
    ]


def test_a_right_to_read_is_the_callers_own(
    secured_http_cluster: HttpCluster, secured_client: httpx.Client
) -> None:
    """A feed that another principal has opened is not joined by one without the right."""
    topic = f"shared-{uuid4().hex[:8]}"
    grant(secured_http_cluster, topic, AclOperation.READ, AclOperation.DESCRIBE)
    alice, bob = secured_http_cluster.auth("alice"), secured_http_cluster.auth("bob")
    with secured_client.stream("GET", f"/v1/topics/{topic}/stream", auth=alice) as response:
        assert 200 == response.status_code
        assert next(response.iter_lines()).startswith("retry:")
        refused = secured_client.get(f"/v1/topics/{topic}/stream", auth=bob)

    assert refused.status_code in (403, 404)


@pytest.fixture
def peer(http_cluster: HttpCluster) -> Iterator[socket.socket]:
    host, _, port = http_cluster.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as made:
        yield made


def answer(peer: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    received = b""
    try:
        while chunk := peer.recv(65536):
            received += chunk
    except ConnectionError:
        pass
    return received


def test_a_head_without_end_is_cut_off(peer: socket.socket) -> None:
    try:
        peer.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * (HEAD_BYTES_MAX // 4))
    except ConnectionError:
        return

    assert answer(peer)[:13] in (b"HTTP/1.1 431 ", b"")


def test_a_head_that_never_ends_is_closed_in_time(peer: socket.socket) -> None:
    """A slow sender keeps its connection for `HEAD_SECONDS_MAX` at most."""
    peer.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nslow: ")

    assert b"" == answer(peer)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/topics/\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /v1/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST /v1/topics/t HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n",
        b"\x00" * 100,
    ],
)
def test_what_is_no_request_gets_400_or_nothing(
    client: httpx.Client, peer: socket.socket, request_bytes: bytes
) -> None:
    peer.sendall(request_bytes)
    peer.shutdown(socket.SHUT_WR)
    first = answer(peer)[:13]

    assert first in (b"HTTP/1.1 400 ", b"HTTP/1.1 404 ", b"")
    assert 200 == client.get("/healthz").status_code


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    assert 413 == client.post("/v1/topics/t", content=b"x" * (9 * 1024 * 1024)).status_code


def test_a_frame_that_is_too_large_closes_the_websocket(
    client: httpx.Client, http_cluster: HttpCluster
) -> None:
    create(http_cluster, topic := f"frames-{uuid4().hex[:8]}")
    with connect(f"ws://{http_cluster.address}/v1/topics/{topic}/stream", max_size=None) as opened:
        opened.recv(timeout=60)
        with pytest.raises(ConnectionClosed) as raised:
            _send_and_read(opened, "x" * (9 * 1024 * 1024))

    assert raised.value.rcvd is None or 1009 == raised.value.rcvd.code
    assert 200 == client.get("/healthz").status_code


def _send_and_read(opened: ClientConnection, text: str) -> None:
    opened.send(text)
    while True:
        opened.recv(timeout=60)


def slow_stream(address: str, topic: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    made = socket.socket()
    made.settimeout(60)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((host, int(port)))
    made.sendall(f"GET /v1/topics/{topic}/stream?from=beginning HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    assert b"200 OK" in made.recv(100)
    return made


def fill(http: HttpCluster, topic: str, records: int) -> None:
    with Producer(bootstrap_servers=http.bootstrap) as producer:
        for number in range(records):
            producer.send(topic, b"%d %s" % (number, b"x" * 10_000))


def test_a_reader_that_takes_nothing_is_cut_off(
    http_cluster: HttpCluster, ruled: HttpProcess, ruled_client: httpx.Client
) -> None:
    """The connection is closed though the kernel's buffers are full and nobody reads them."""
    create(http_cluster, topic := f"stalled-{uuid4().hex[:8]}")
    with slow_stream(ruled.address, topic):
        fill(http_cluster, topic, 1_500)
        deadline = time.monotonic() + 60
        while (text := ruled_client.get("/metrics").text) and time.monotonic() < deadline:
            if "kalda_http_streams 0" in text:
                break
            time.sleep(0.1)

    assert "kalda_http_streams 0" in text


def test_a_slow_reader_gets_everything_at_its_own_pace(
    http_cluster: HttpCluster, client: httpx.Client
) -> None:
    """It falls out of the shared feed again and again, and misses nothing."""
    create(http_cluster, topic := f"slow-{uuid4().hex[:8]}")
    received = b""
    with slow_stream(http_cluster.address, topic) as reader:
        fill(http_cluster, topic, 400)
        while b'"offset":399,' not in received:
            received += reader.recv(20_000)
            time.sleep(0.002)

    offsets = [int(each) for each in re.findall(rb'"offset":(\d+),', received)]
    assert list(range(400)) == offsets


def test_half_open_readers_do_not_stay(client: httpx.Client, http_cluster: HttpCluster) -> None:
    """A reader that resets its connection is gone at once, with its place in the feed."""
    create(http_cluster, topic := f"gone-{uuid4().hex[:8]}")
    host, _, port = http_cluster.address.rpartition(":")
    for _ in range(20):
        made = socket.create_connection((host, int(port)), timeout=60)
        made.sendall(f"GET /v1/topics/{topic}/stream HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        made.recv(1000)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        made.close()
    for _ in range(600):
        text = client.get("/metrics").text
        if "kalda_http_streams 0" in text:
            break

    assert "kalda_http_streams 0" in text
