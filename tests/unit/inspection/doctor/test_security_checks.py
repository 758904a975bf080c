"""What `kalda doctor` finds wrong with listeners, logins and certificates."""

import pytest

from kalda.inspection.doctor.findings import Severity
from kalda.inspection.doctor.security_checks import is_loopback
from kalda.inspection.doctor.snapshot import CertificateFacts
from tests.unit.inspection.doctor.snapshots import cluster, found

AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
DAY = 86_400.0


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("", False), ("0.0.0.0", False), ("h", False)],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert expected == is_loopback(host)


def test_a_listener_that_everybody_reaches_without_a_login_is_critical() -> None:
    findings = found(cluster(brokers=(0,), settings={"listeners": "PLAINTEXT://:9092"}))

    assert ["security.open-listener"] == list(findings)
    assert Severity.CRITICAL is findings["security.open-listener"].severity
    assert "PLAINTEXT://:9092 of broker 0; no authorizer.class.name, no login" == (
        findings["security.open-listener"].evidence
    )
    assert {} == found(cluster(settings={"listeners": "PLAINTEXT://127.0.0.1:9092"}))
    assert {} == found(cluster(settings={"listeners": "PLAINTEXT://:9092", **AUTHORIZER}))


@pytest.mark.parametrize(
    "settings",
    [
        {"listeners": "SASL_SSL://:9093", "sasl.enabled.mechanisms": "PLAIN"},
        {
            "listeners": "CLIENTS://:9093",
            "listener.security.protocol.map": "CLIENTS:SSL",
            "listener.name.clients.ssl.client.auth": "required",
        },
    ],
)
def test_a_login_without_an_authorizer_is_a_warning(settings: dict[str, str | None]) -> None:
    findings = found(cluster(settings=settings))

    assert ["security.no-authorizer"] == list(findings)
    assert Severity.WARNING is findings["security.no-authorizer"].severity


def test_passwords_without_tls_are_critical() -> None:
    plain = {
        "listeners": "SASL_PLAINTEXT://:9093",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        **AUTHORIZER,
    }
    scram = {**plain, "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    only_scram_there = {**plain, "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256"}

    assert ["security.plain-without-tls"] == list(found(cluster(settings={**plain})))
    assert {} == found(cluster(settings={**scram}))
    assert {} == found(cluster(settings={**only_scram_there}))


def test_an_authorizer_that_allows_what_has_no_acl_is_named() -> None:
    name = "allow.everyone.if.no.acl.found"

    assert ["security.allow-everyone"] == list(found(cluster(settings={name: "true", **AUTHORIZER})))
    assert {} == found(cluster(settings={name: "true"}))


def test_brokers_that_do_not_compare_names_are_named() -> None:
    name = "ssl.endpoint.identification.algorithm"
    settings = {"listeners": "SSL://:9093", "ssl.client.auth": "required", **AUTHORIZER}

    assert ["security.no-name-check"] == list(found(cluster(settings={**settings, name: ""})))
    assert {} == found(cluster(settings={**settings, name: "https"}))


def test_certificates_are_judged_by_the_days_that_are_left() -> None:
    certificates = [
        CertificateFacts(place=f"SSL://h{days}:9093", subject="CN=h", not_after_s=1000 * DAY + days * DAY)
        for days in (-2, 5, 300)
    ]
    findings = found(cluster(certificates=certificates, now_s=1000 * DAY))

    assert ["security.certificate-ended", "security.certificate-ends-soon"] == list(findings)
    assert "SSL://h-2:9093 (CN=h, ended 2 days ago)" == findings["security.certificate-ended"].evidence
    assert "SSL://h5:9093 (CN=h, ends in 5 days)" == findings["security.certificate-ends-soon"].evidence


def test_open_znodes_are_named() -> None:
    findings = found(cluster(open_znodes=["/brokers", "/config"]))

    assert "/brokers, /config" == findings["security.open-znodes"].evidence


def test_passwords_of_nats_clients_without_tls_are_critical() -> None:
    clear = {"listeners": "PLAINTEXT://127.0.0.1:9092,SASL_NATS://:4222", **AUTHORIZER}
    sealed = {**clear, "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_NATS_SSL://:4222"}

    findings = found(cluster(settings=clear))

    assert Severity.CRITICAL is findings["security.plain-without-tls"].severity
    assert "SASL_NATS://:4222" in findings["security.plain-without-tls"].evidence
    assert "security.plain-without-tls" not in found(cluster(settings=sealed))
