"""The Helm chart, rendered by Helm's library and decoded strictly into Kubernetes' types; needs Go."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.apache_kafka import NotAvailableError
from kalda.testing import KaldaProcess
from tests.compat.go_toolchain import chart_program

CHART = Path(__file__).parents[2] / "contrib/helm/kalda"


@pytest.fixture(scope="module")
def program() -> Path:
    """The program of `tests/compat/chart`."""
    try:
        return chart_program()
    except NotAvailableError as error:
        pytest.skip(str(error))


def run(program: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, "render", CHART],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def render(program: Path, values: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the resources as ``Kind/name``, and the notes."""
    done = run(program, values)
    assert 0 == done.returncode, done.stderr
    *documents, notes = json.loads(done.stdout)
    found = {f"{each['kind']}/{each['metadata']['name']}": each for each in documents}
    assert len(documents) == len(found)
    return found, notes


def settings(resources: dict[str, dict[str, Any]]) -> dict[str, str]:
    text = resources["ConfigMap/flights"]["data"]["server.properties"]
    return dict(line.split("=", 1) for line in text.splitlines())


MINIMAL = {
    "replicas": 1,
    "coordination": {"external": "zk1:2181,zk2:2181/kafka"},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
}
TLS = {"tls": {"enabled": True, "secretName": "flights-tls", "clientAuth": "required"}}


def test_the_default_is_three_brokers_with_a_coordination_server(program: Path) -> None:
    resources, notes = render(program, {})

    assert [
        "ConfigMap/flights",
        "NetworkPolicy/flights",
        "NetworkPolicy/flights-coordination",
        "PodDisruptionBudget/flights",
        "Service/flights",
        "Service/flights-brokers",
        "Service/flights-coordination",
        "ServiceAccount/flights",
        "StatefulSet/flights",
        "StatefulSet/flights-coordination",
    ] == sorted(resources)
    assert 3 == resources["StatefulSet/flights"]["spec"]["replicas"]
    assert "3" == settings(resources)["default.replication.factor"]
    assert "2" == settings(resources)["min.insync.replicas"]
    assert "flights.streaming:9092 (PLAINTEXT)" in notes
    assert "coordination server is one pod" in notes


def test_minimal_values_leave_one_stateful_set(program: Path) -> None:
    resources, notes = render(program, MINIMAL)

    assert [
        "ConfigMap/flights",
        "Service/flights",
        "Service/flights-brokers",
        "ServiceAccount/flights",
        "StatefulSet/flights",
    ] == sorted(resources)
    (container,) = resources["StatefulSet/flights"]["spec"]["template"]["spec"]["containers"]
    assert "--zookeeper=zk1:2181,zk2:2181/kafka" in container["args"]
    assert "1" == settings(resources)["min.insync.replicas"]
    assert "one pod" not in notes


def test_tls_reads_key_and_authority_from_the_secret(program: Path) -> None:
    resources, notes = render(program, TLS)

    pod = resources["StatefulSet/flights"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--set=listeners=SSL://0.0.0.0:9092" in container["args"]
    assert [{"secretName": "flights-tls", "defaultMode": 0o440}] == [
        each["secret"] for each in pod["volumes"] if "secret" in each
    ]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "tls")
    found = settings(resources)
    assert f"{mount['mountPath']}/tls-combined.pem" == found["ssl.keystore.location"]
    assert f"{mount['mountPath']}/ca.crt" == found["ssl.truststore.location"]
    assert ("SSL", "required") == (found["security.inter.broker.protocol"], found["ssl.client.auth"])
    assert "not encrypted" not in notes


@pytest.mark.parametrize("values", [{}, MINIMAL, TLS], ids=["default", "minimal", "tls"])
def test_no_container_can_become_root_or_write_to_its_image(program: Path, values: dict[str, Any]) -> None:
    resources, _ = render(program, values)

    for name, resource in resources.items():
        if not name.startswith("StatefulSet/"):
            continue
        pod = resource["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            assert {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            } == container["securityContext"]
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
            assert {"requests", "limits"} == container["resources"].keys()


def test_network_policies_admit_the_named_clients_and_always_the_brokers(program: Path) -> None:
    clients = [{"namespaceSelector": {"matchLabels": {"team": "flights"}}}]

    resources, _ = render(program, {"networkPolicy": {"clients": clients}})

    kafka, _ = resources["NetworkPolicy/flights"]["spec"]["ingress"]
    selector = resources["StatefulSet/flights"]["spec"]["selector"]
    assert [{"podSelector": selector}, *clients] == kafka["from"]
    (coordination,) = resources["NetworkPolicy/flights-coordination"]["spec"]["ingress"]
    assert [{"podSelector": selector}] == coordination["from"]


def test_the_service_monitor_selects_the_service_that_names_each_broker(program: Path) -> None:
    resources, _ = render(program, {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}})

    monitor = resources["ServiceMonitor/flights"]
    labels = resources["Service/flights-brokers"]["metadata"]["labels"]
    assert "prometheus" == monitor["metadata"]["labels"]["release"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert "kalda" == labels[monitor["spec"]["jobLabel"]]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {
        each["name"] for each in resources["Service/flights-brokers"]["spec"]["ports"]
    }


def test_settings_win_over_the_charts_and_large_numbers_stay_whole(program: Path) -> None:
    """A number in YAML reaches a template as a float, which Go prints as 1.073741824e+09."""
    resources, _ = render(program, {"config": {"min.insync.replicas": 1, "log.segment.bytes": 1073741824}})

    found = settings(resources)
    assert ("1", "1073741824") == (found["min.insync.replicas"], found["log.segment.bytes"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"tls": {"enabled": True}}, "secretName"),
        ({"config": {"broker.id": 7}}, "broker.id"),
        ({"coordination": {"external": "zk1"}}, "external"),
        ({"persistence": {"size": "much"}}, "size"),
    ],
)
def test_wrong_values_are_refused_by_name(program: Path, values: dict[str, Any], message: str) -> None:
    done = run(program, values)

    assert 1 == done.returncode
    assert "values don't meet the specifications of the schema" in done.stderr
    assert message in done.stderr


def test_a_broker_starts_with_the_rendered_settings(program: Path, tmp_path: Path) -> None:
    resources, _ = render(program, {"config": {"log.retention.hours": 24}})
    file = tmp_path / "server.properties"
    file.write_text(resources["ConfigMap/flights"]["data"]["server.properties"])

    options = ("--config", str(file), "--set", "metrics.port=0")
    with KaldaProcess(tmp_path / "broker", options=options) as broker:
        log = broker.log_file.read_text()

    assert "unknown" not in log
    assert "min.insync.replicas=2" in log
    assert "log.retention.hours=24" in log
