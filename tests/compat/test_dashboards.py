"""How many queries of public dashboards find data: a real Prometheus scrapes three brokers under load.

Needs `prometheus` on PATH (Debian's package will do) or ``KALDA_PROMETHEUS``, and for the dashboards of
others a directory with their JSON files, ``KALDA_DASHBOARDS``: they are not ours to keep. From Strimzi's
repository (``packaging/examples/metrics/grafana-dashboards``): ``strimzi-kafka.json``,
``strimzi-kafka-exporter.json``; from Kafka Exporter's: ``kafka_exporter_overview.json``. Run with ``-s`` to
see which queries find nothing.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kalda.testing.ports import free_ports_in_a_row
from tests.dashboards import Query, dashboard_queries, rule_queries, substitute
from tests.observed_clients import GROUP
from tests.observed_cluster import ObservedCluster, observed_cluster

GRAFANA = Path(__file__).parents[2] / "contrib" / "grafana"
CLUSTER = "flights"
SHARE_MIN = 0.8
SCRAPES = 8
DEADLINE_SECONDS = 60

CONFIGURATION = """
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [RULES]
scrape_configs:
  - job_name: kalda
    static_configs:
"""
TARGET = """
      - targets: ["127.0.0.1:PORT"]
        labels:
          namespace: kalda
          env: kalda
          strimzi_io_cluster: CLUSTER
          strimzi_io_name: CLUSTER-kafka
          kubernetes_pod_name: CLUSTER-kafka-NUMBER
          container: kafka
"""


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its HTTP API."""
        address = f"{self._address}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def query(self, expression: str) -> list[Any]:
        """Evaluate an expression now."""
        found = self.ask("/api/v1/query", query=expression)["result"]
        assert isinstance(found, list)
        return found

    def wait(self, expression: str) -> None:
        """Return when an expression finds something."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                if self.query(expression):
                    return
            time.sleep(0.2)
        raise AssertionError(f"{expression} found nothing within {DEADLINE_SECONDS} s")


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedCluster]:
    with observed_cluster(tmp_path_factory.mktemp("observed") / "data") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def prometheus(observed: ObservedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = os.environ.get("KALDA_PROMETHEUS") or shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on PATH and no KALDA_PROMETHEUS (apt-get install prometheus)")
    directory = tmp_path_factory.mktemp("prometheus")
    targets = [
        TARGET.replace("PORT", str(port)).replace("NUMBER", str(number)).replace("CLUSTER", CLUSTER)
        for number, port in enumerate(observed.metrics_ports)
    ]
    configuration = directory / "prometheus.yml"
    rules = json.dumps(str(GRAFANA / "kalda-alerts.yml"))
    configuration.write_text(CONFIGURATION.replace("RULES", rules) + "".join(targets), encoding="utf-8")
    port = free_ports_in_a_row(1)
    arguments = [
        f"--config.file={configuration}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen([program, *arguments], stderr=log) as process,
    ):
        try:
            server = Prometheus(port)
            for number in range(SCRAPES):
                observed.work()
                server.wait(f"min(count_over_time(kafka_brokers[5m])) > {number}")
            yield server
        finally:
            process.terminate()


def variables(server: Prometheus) -> dict[str, str]:
    """Return what a user would have chosen in the dashboards' menus."""
    (coordinator, *_) = server.query(f'kafka_consumergroup_lag{{consumergroup="{GROUP}"}}')
    return {
        "kubernetes_namespace": "kalda",
        "strimzi_cluster_name": CLUSTER,
        "kafka_broker": ".*",
        "kafka_topic": ".+",
        "kafka_partition": ".*",
        "consumergroup": GROUP,
        "topic": ".*",
        "job": "kalda",
        "instance": coordinator["metric"]["instance"],
        "env": "kalda",
        "percentile": ".*",
        "__rate_interval": "1m",
        "__interval": "1m",
    }


def found_share(server: Prometheus, name: str, queries: list[Query]) -> float:
    """Return which share of the queries finds data; print those that find none."""
    chosen = variables(server)
    counted = [query for query in queries if "jvm_" not in query.expression]
    empty = [query for query in counted if not server.query(substitute(query.expression, chosen))]
    print(f"\n{name}: {len(counted) - len(empty)} of {len(counted)} queries find data")
    for query in empty:
        print(f"  nothing: {query.title}: {query.expression}")
    return 1 - len(empty) / len(counted)


@pytest.mark.parametrize(
    "name", ["strimzi-kafka.json", "strimzi-kafka-exporter.json", "kafka_exporter_overview.json"]
)
def test_public_dashboards_find_data(prometheus: Prometheus, name: str) -> None:
    directory = os.environ.get("KALDA_DASHBOARDS")
    if directory is None:
        pytest.skip("KALDA_DASHBOARDS names no directory with the dashboards of Strimzi and Kafka Exporter")
    path = Path(directory) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    assert found_share(prometheus, name, dashboard_queries(path)) >= SHARE_MIN


def test_our_own_dashboard_finds_data_in_every_query(prometheus: Prometheus) -> None:
    queries = dashboard_queries(GRAFANA / "kalda-dashboard.json")
    assert 1.0 == found_share(prometheus, "kalda-dashboard.json", queries)


def test_alert_rules_are_healthy_and_quiet(prometheus: Prometheus) -> None:
    (group,) = prometheus.ask("/api/v1/rules")["groups"]
    rules = {rule["name"]: (rule["health"], rule["state"]) for rule in group["rules"]}
    expected = [query.title for query in rule_queries(GRAFANA / "kalda-alerts.yml")]
    assert dict.fromkeys(expected, ("ok", "inactive")) == rules
