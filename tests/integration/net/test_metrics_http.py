"""The metrics endpoint on loopback: what a scraper gets, and what others get."""

import asyncio
import contextlib
import gzip
import select
import socket
from collections.abc import AsyncIterator

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kalda.common.metrics import Column, Metrics, RequestMetrics
from kalda.net import metrics_http
from kalda.net.metrics_http import MetricsServer
from kalda.net.server import Server, ServerConfig


@contextlib.asynccontextmanager
async def serving(metrics: Metrics, login: str | None = None) -> AsyncIterator[int]:
    server = MetricsServer(metrics, login=login)
    port = await server.listen("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.close()


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_scrape_gives_every_metric_in_prometheus_format() -> None:
    metrics = Metrics()
    requests = RequestMetrics(metrics, "Produce")
    for latency_ms in (0.05, 3, 3, 20_000):
        requests.at_once_ms.observe(latency_ms)
    requests.count_error(6)
    Server(ServerConfig(), lambda connection, frame: None).register_metrics(metrics)
    sizes = {"a": 10, "b": 20}
    metrics.table(
        lambda: [((("topic", name),), (size, None)) for name, size in sizes.items()],
        Column("kafka_log_log_size", "gauge", "Bytes."),
        Column("kalda_unknown", "gauge", "Has no value."),
    )
    sizes["c"] = 30
    metrics.gauge("kalda_odd_labels", "Escaped.", lambda: 1.5, topic='a"b\\c\nd')
    async with serving(metrics) as port:
        answer = await exchange(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    total_time = "kafka_network_requestmetrics_totaltimems"
    produce = ("request", "Produce")
    assert 4 == samples[f"{total_time}_count", produce]
    assert pytest.approx(20_006.05) == samples[f"{total_time}_sum", produce]
    assert 1 == samples[f"{total_time}_bucket", ("le", "0.1"), produce]
    assert 3 == samples[f"{total_time}_bucket", ("le", "5.0"), produce]
    assert 4 == samples[f"{total_time}_bucket", ("le", "+Inf"), produce]
    errors = "kafka_network_requestmetrics_errors_total"
    assert 1 == samples[errors, ("error", "NOT_LEADER_OR_FOLLOWER"), produce]
    assert 0 == samples[("kafka_server_socket_server_metrics_connection_creation_total",)]
    assert {topic: samples["kafka_log_log_size", ("topic", topic)] for topic in sizes} == sizes
    assert 1.5 == samples["kalda_odd_labels", ("topic", 'a"b\\c\nd')]
    assert b"kalda_unknown" not in body


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"GET /metrics?name=x HTTP/1.0\r\n\r\n", b"200"),
        (b"\x00\x01\x02\xff \xfe\r\n\r\n", b"400"),
    ],
)
async def test_other_requests_get_their_status(request_head: bytes, status: bytes) -> None:
    async with serving(Metrics()) as port:
        answer = await exchange(port, request_head)
    assert status == answer.split(b" ")[1]


async def test_scrape_is_compressed_and_openmetrics_where_that_is_asked_for() -> None:
    metrics = Metrics()
    metrics.counter("kalda_sent", "Sent.").value += 3
    request = (
        b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n"
        b"accept-encoding: gzip\r\n\r\n"
    )
    async with serving(metrics) as port:
        head, _, body = (await exchange(port, request)).partition(b"\r\n\r\n")
    assert b"\r\nContent-Encoding: gzip\r\n" in head
    assert b"\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n" in head
    expected = b"# HELP kalda_sent Sent.\n# TYPE kalda_sent counter\nkalda_sent_total 3\n# EOF\n"
    assert expected == gzip.decompress(body)


async def test_health_says_why_the_broker_is_not_ready() -> None:
    reasons: list[str | None] = ["starting: nothing is known yet", None]
    server = MetricsServer(Metrics(), lambda: reasons[0])
    port = await server.listen("127.0.0.1", 0)
    try:
        lives = await exchange(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        early = await exchange(port, b"GET /readyz HTTP/1.1\r\n\r\n")
        reasons.pop(0)
        late = await exchange(port, b"GET /readyz HTTP/1.1\r\n\r\n")
    finally:
        await server.close()
    assert (b"200", b"ok\n") == (lives.split(b" ")[1], lives.split(b"\r\n\r\n")[1])
    assert (b"503", b"starting: nothing is known yet\n") == (
        early.split(b" ")[1],
        early.split(b"\r\n\r\n")[1],
    )
    assert b"200" == late.split(b" ")[1]


async def test_head_gets_the_length_and_no_body() -> None:
    async with serving(Metrics()) as port:
        answer = await exchange(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")


async def test_endless_head_is_cut_off() -> None:
    async with serving(Metrics()) as port:
        answer = await exchange(port, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
        assert (await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_silent_peers_keep_no_health_check_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold a bounded number of places, and a liveness probe that fails would restart the broker."""
    monkeypatch.setattr(metrics_http, "REQUEST_SECONDS_MAX", 60)
    monkeypatch.setattr(metrics_http, "CONNECTIONS_MAX", 2)
    async with serving(Metrics()) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert (await exchange(port, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert b"" == await asyncio.wait_for(silent[0][0].read(), 60)
        silent[1][1].write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await asyncio.wait_for(silent[1][0].read(), 60)).startswith(b"HTTP/1.1 200")
        for _, writer in silent:
            writer.close()


async def test_a_silent_peer_is_let_go_and_its_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_http, "REQUEST_SECONDS_MAX", 0.05)
    monkeypatch.setattr(metrics_http, "CONNECTIONS_MAX", 1)
    async with serving(Metrics()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert b"" == await asyncio.wait_for(reader.read(), 60)
        writer.close()
        monkeypatch.setattr(metrics_http, "REQUEST_SECONDS_MAX", 60)
        assert (await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_failing_gauge_is_an_error_of_the_scrape_only(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    metrics.gauge("kalda_broken", "Raises.", lambda: 1 / 0)
    async with serving(metrics) as port:
        assert (await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500")
    assert 1 == len(caplog.records)


@pytest.mark.parametrize(
    "sent", ["", "Basic", "Basic %%%", "Bearer cHJvbTpzZWNyZXQ=", "Basic cHJvbTp3cm9uZw=="]
)
async def test_metrics_with_a_login_are_for_its_owner(sent: str) -> None:
    """Probes need no login: they say nothing but whether the broker serves."""
    async with serving(Metrics(), login="prom:secret") as port:
        refused = await exchange(port, f"GET /metrics HTTP/1.1\r\nAuthorization: {sent}\r\n\r\n".encode())
        assert refused.startswith(b"HTTP/1.1 401 ")
        assert b'WWW-Authenticate: Basic realm="metrics"\r\n' in refused
        given = b"GET /metrics HTTP/1.1\r\nAuthorization: basic cHJvbTpzZWNyZXQ=\r\n\r\n"
        assert (await exchange(port, given)).startswith(b"HTTP/1.1 200 ")
        assert (await exchange(port, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("request_head", [b"GET /metrics HTTP/1.1\r\n\r\n", b"GET " + b"x" * 10_000])
async def test_scraper_that_never_reads_keeps_no_descriptor(
    request_head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a connection flushes it first, which a peer that never reads puts off for ever."""
    monkeypatch.setattr(metrics_http, "REQUEST_SECONDS_MAX", 0.05)
    metrics = Metrics()
    name = "a topic with a name that takes some room " * 5
    rows = [((("topic", f"{name}{number}"),), (1,)) for number in range(20_000)]
    metrics.table(lambda: rows, Column("kafka_log_log_size", "gauge", "Bytes."))
    loop = asyncio.get_running_loop()
    async with serving(metrics) as port:
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            peer.setblocking(False)
            await loop.sock_connect(peer, ("127.0.0.1", port))
            await loop.sock_sendall(peer, request_head)
            # Refused or cut off. What ends the connection may wait behind what the peer never reads.
            is_accepted = False
            async with asyncio.timeout(60):
                while (is_held := holds_descriptor(peer)) or not is_accepted:
                    is_accepted = is_accepted or is_held or has_ended(peer)
                    await asyncio.sleep(0.01)


def holds_descriptor(peer: socket.socket) -> bool:
    """Return whether this process has the other end of a connection open."""
    found = psutil.Process().net_connections("tcp4")
    return any(tuple(each.raddr) == peer.getsockname() for each in found)


def has_ended(peer: socket.socket) -> bool:
    """Return whether the other end of a connection is gone."""
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    return bool(poll.poll(0))
