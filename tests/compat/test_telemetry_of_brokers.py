"""Java's clients push metrics to Kalda's broker, and Kafka's tool manages the subscriptions (KIP-714)."""

import time
import urllib.request
from pathlib import Path

from kalda import Admin
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports
from tests.compat.conftest import JavaTool

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"


def test_a_java_producer_pushes_what_kafkas_tool_subscribed_to(java_tool: JavaTool, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with KaldaProcess(tmp_path / "data", settings={"metrics.port": str(port)}) as broker:
        server = ("--bootstrap-server", broker.bootstrap)
        altered = java_tool(
            *(TOOL, *server, "--alter", "--name", "java", "--interval", "200"),
            *("--metrics", "*", "--match", "client_software_name=apache-kafka-java,client_id=perf-.*"),
        )
        assert "Altered client metrics config for java." == altered.strip()
        assert "java" == java_tool(TOOL, *server, "--list").strip()
        described = java_tool(TOOL, *server, "--describe", "--name", "java")
        assert "interval.ms=200" in described
        java_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "t", "--num-records", "3000", "--record-size", "10", "--throughput", "1000"),
            *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "client.id=perf-1"),
        )
        lines = _lines(port)
        # The last push is at the close, so that the differences add up to everything.
        (sent,) = [each for each in lines if each.startswith("kafka_client_producer_record_send_total{")]
        assert 3000.0 == float(sent.rpartition(" ")[2])
        assert 'client_id="perf-1"' in sent
        assert 'client_software_name="apache-kafka-java"' in sent
        java_tool(TOOL, *server, "--delete", "--name", "java")
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert [] == admin.list_client_metrics_resources()


def _lines(port: int) -> list[str]:
    deadline = time.monotonic() + 20
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            lines: list[str] = response.read().decode().splitlines()
        if any(each.startswith("kafka_client_") for each in lines) or time.monotonic() > deadline:
            return lines
        time.sleep(0.1)
