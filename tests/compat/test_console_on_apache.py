"""The console beside Apache Kafka: every page shows, and the usual changes are made."""

import html
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from benchmarks.apache_kafka import ApacheKafka, NotAvailableError
from kalda import Admin, Consumer, NewTopic, Producer
from kalda.testing.security import ClientConfigs
from tests.http_server import http_process

RELEASES = ("3.9.1", "4.1.0")
PAGES = (
    "/",
    "/topics?internal=1",
    "/topics/orders",
    "/topics/orders/records",
    "/topics/orders/records?key=k-7",
    "/topics/orders/records/0/0",
    "/topics/orders/settings",
    "/topics/orders/groups",
    "/topics/orders/live",
    "/groups",
    "/groups/readers",
    "/pipelines",
    "/brokers",
    "/brokers/1?all=1",
    "/transactions?all=1",
    "/reassignments",
    "/acls",
    "/users",
    "/quotas",
    "/clients",
)


class Apache(ClientConfigs):
    """An open cluster at an address."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap


@pytest.fixture(params=RELEASES)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[httpx.Client, str]]:
    """A client of a console that may change things, and the address of the brokers."""
    with ExitStack() as stack:
        try:
            kafka = stack.enter_context(ApacheKafka(version=request.param, heap="512m"))
        except NotAvailableError as error:
            pytest.skip(str(error))
        settings = {"http.console.writable": "true"}
        http = stack.enter_context(http_process(Apache(kafka.bootstrap), tmp_path, settings))
        yield stack.enter_context(httpx.Client(base_url=http.url, timeout=60)), kafka.bootstrap


def confirmed(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """Send a form and confirm what its question shows."""
    page = client.get("/console/topics/create").text
    token = re.search(r'name="token" value="(\w+)"', page)
    assert token is not None
    question = client.post(f"/console{path}", data={"token": token[1], **fields})
    assert 200 == question.status_code, question.text
    form = question.text[question.text.index("<form", question.text.index("<main")) :]
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    again = {**{name: html.unescape(value) for name, value in hidden.items()}, **fields}
    return client.post(f"/console{path}", data=again)


@pytest.mark.timeout(300)
def test_pages_and_changes_work(client: tuple[httpx.Client, str]) -> None:
    http, bootstrap = client
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("orders", partitions=2, replication_factor=1)])
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(20):
            producer.send(
                "orders", json.dumps({"n": number}).encode(), key=b"k-%d" % number, partition=number % 2
            )
    with Consumer(
        "orders", bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        read = 0
        while read < 20:
            read += len(consumer.poll(1.0))
        consumer.commit()
    failed = {
        path: answer.text for path in PAGES if (answer := http.get(f"/console{path}")).status_code != 200
    }
    assert {} == failed
    assert 303 == confirmed(http, "/topics/create", name="made", partitions="2").status_code
    assert (
        303 == confirmed(http, "/topics/made/settings/change", name="retention.ms", value="1000").status_code
    )
    assert 303 == confirmed(http, "/topics/made/partitions", total="3").status_code
    assert 303 == confirmed(http, "/topics/orders/produce", value="by hand", value_is="text").status_code
    assert "by hand" in http.get("/console/topics/orders/records").text
    assert 303 == confirmed(http, "/groups/readers/reset", to="shift", value="-2").status_code
    assert 303 == confirmed(http, "/topics/orders/purge", before="3", word="orders").status_code
    assert (
        303
        == confirmed(http, "/quotas/set", client_id="c", quota="producer_byte_rate", value="1000").status_code
    )
    assert 303 == confirmed(http, "/groups/readers/delete", word="readers").status_code
    assert 303 == confirmed(http, "/topics/made/delete", word="made").status_code
