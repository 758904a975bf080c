"""Requests that confluent-kafka's client and serializers sent, and the answers to them."""

import json
from uuid import uuid4

import httpx

from tests.http_server import HttpCluster, served
from tests.integration.http.registry_requests import FILE, TYPE, answer_of


def test_recorded_requests_get_the_recorded_answers(http_cluster: HttpCluster) -> None:
    """The registry is new, as it was when they were recorded, so that ids and versions are the same."""
    name = f"recorded-{uuid4().hex[:8]}"
    settings = {"kafkastore.topic": name, "schema.registry.group.id": name}
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    differences = []
    with (
        served(http_cluster.cluster, settings) as http,
        httpx.Client(base_url=http.url, timeout=60, headers={"accept": TYPE}) as client,
    ):
        for number, line in enumerate(lines, 1):
            response = client.request(
                line["method"],
                line["path"],
                content=json.dumps(line["body"]) if "body" in line else None,
                headers={"content-type": TYPE},
            )
            found = response.status_code, answer_of(response)
            if (line["status"], line["answer"]) != found:
                differences.append((number, line, found))

    assert len(lines) >= 300
    assert [] == differences[:3]
