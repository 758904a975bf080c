"""What every part of the server has: health, metrics, errors, limits, and who is asking."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import httpx
import pytest
from starlette.requests import HTTPConnection

from kalda.http.callers import Caller
from kalda.http.credentials import credentials_of
from kalda.http.errors import HttpError
from tests import forked_commands
from tests.http_server import HttpCluster, InProcessHttp, served

T = TypeVar("T")


def on_server(http: InProcessHttp, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, http.loop).result(60)


def caller(http: InProcessHttp, **headers: str) -> Caller:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def made() -> Caller:
        return http.services.callers.of(HTTPConnection({"type": "http", "headers": pairs}))

    return on_server(http, made())


@pytest.fixture
def secured(secured_http_cluster: HttpCluster) -> Iterator[InProcessHttp]:
    """A server in this process, whose connections end with the test."""
    with served(secured_http_cluster.cluster) as http:
        yield http


def basic(user: str, password: str) -> str:
    return httpx.BasicAuth(user, password)._auth_header


def test_health_and_metrics_are_served(client: httpx.Client) -> None:
    assert "ok\n" == client.get("/healthz").text
    assert (
        'kalda_http_requests_total{method="GET",part="registry",status="200"}' in client.get("/metrics").text
    )


def test_responses_have_the_headers_that_stop_sniffing_and_framing(client: httpx.Client) -> None:
    headers = client.get("/healthz").headers

    assert "nosniff" == headers["x-content-type-options"]
    assert "DENY" == headers["x-frame-options"]
    assert "server" not in headers


def test_an_unknown_path_is_an_error_in_json(client: httpx.Client) -> None:
    response = client.get("/no/such/path")

    assert 404 == response.status_code
    assert 404 == response.json()["error_code"]


def test_a_body_that_is_too_large_is_refused(http_cluster: HttpCluster) -> None:
    with (
        served(http_cluster.cluster, {"http.request.bytes.max": "2000"}) as small,
        httpx.Client(base_url=small.url) as client,
    ):
        by_length = client.post("/subjects/s/versions", content=b"x" * 2001)

        assert 413 == by_length.status_code
        assert "`http.request.bytes.max` is 2000" in by_length.json()["message"]


def test_on_an_open_cluster_every_caller_is_anonymous(http_cluster: HttpCluster) -> None:
    """Credentials would not be checked by anything, so they mean nothing."""
    with served(http_cluster.cluster) as http:
        found = caller(http, authorization=basic("alice", "secret"))

    assert found.is_anonymous
    assert not found.is_read_only
    assert "User:ANONYMOUS" == found.principal


def test_a_caller_acts_with_its_own_login(secured: InProcessHttp) -> None:
    found = caller(secured, authorization=basic(*secured.auth("stranger")))

    async def list_topics() -> object:
        return await (await found.admin()).list_topics()

    assert "User:stranger" == found.principal
    assert not found.is_anonymous
    # This user may describe nothing, and so sees nothing.
    assert not on_server(secured, list_topics())


def test_a_wrong_password_is_refused(secured: InProcessHttp) -> None:
    found = caller(secured, authorization=basic("alice", "wrong"))

    for _ in range(2):
        with pytest.raises(HttpError) as error:
            on_server(secured, found.authenticate())
        assert 401 == error.value.status


@pytest.mark.parametrize(
    "header", ["Basic !", "Basic YWxpY2U=", "Digest a", "Bearer a b", "Basic " + "A" * 20_000]
)
def test_malformed_credentials_are_refused(secured: InProcessHttp, header: str) -> None:
    with pytest.raises(HttpError) as error:
        caller(secured, authorization=header)
    assert 401 == error.value.status


def test_credentials_are_required_where_the_cluster_has_logins(secured: InProcessHttp) -> None:
    with pytest.raises(HttpError) as error:
        caller(secured)
    assert 401 == error.value.status


def test_no_secret_is_in_a_repr() -> None:
    assert "secret-word" not in repr(credentials_of(basic("alice", "secret-word")))


def test_the_command_serves_until_sigterm(http_cluster: HttpCluster) -> None:
    command = [sys.executable, "-m", "kalda", "http", "--port", "0"]
    with forked_commands.Popen(
        [*command, "--bootstrap-server", http_cluster.bootstrap], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("kalda ready http=127.0.0.1:")
        address = ready.strip().rpartition("=")[2]
        assert 200 == httpx.get(f"http://{address}/healthz").status_code

        process.send_signal(signal.SIGTERM)

        assert "" == process.stdout.read()
        assert 0 == process.wait()


def test_an_address_in_use_is_one_line(http_cluster: HttpCluster) -> None:
    port = http_cluster.address.rpartition(":")[2]
    done = forked_commands.run(
        [sys.executable, "-m", "kalda", "http", "--port", port, "--bootstrap-server", http_cluster.bootstrap],
        capture_output=True,
        text=True,
    )

    assert 1 == done.returncode
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_setting_is_one_line() -> None:
    done = forked_commands.run(
        [sys.executable, "-m", "kalda", "http", "--set", "kafkastore.topics=x"],
        capture_output=True,
        text=True,
    )

    assert 2 == done.returncode
    assert "Traceback" not in done.stderr
