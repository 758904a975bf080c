"""Throughput and latency over TLS: librdkafka against a listener with a certificate on the curve P-256.

The same authority and certificate serve Kalda and Apache Kafka; OpenSSL and the JVM choose the cipher with
the client.
"""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import end_to_end
from benchmarks.apache_kafka import ApacheKafka
from benchmarks.end_to_end import Figure, Workload
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing import KaldaProcess


def run() -> list[Figure]:
    """Measure Kalda."""
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        settings, workload = _secured(Path(directory))
        settings["listeners"] = "SSL://127.0.0.1:0"
        settings["security.inter.broker.protocol"] = "SSL"
        with KaldaProcess(Path(directory) / "data", settings=settings) as kalda:
            return end_to_end.run(kalda.bootstrap, workload)


def run_apache_kafka() -> list[Figure]:
    """Measure Apache Kafka."""
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        settings, workload = _secured(Path(directory))
        with ApacheKafka(settings=settings, protocol="SSL") as kafka:
            return end_to_end.run(kafka.bootstrap, workload)


def _secured(directory: Path) -> tuple[dict[str, str], Workload]:
    """Write certificates; return a broker's settings and what clients do."""
    now, valid = datetime.now(UTC), timedelta(days=1)
    authority = CertificateAuthority.make("benchmark", now, valid)
    trusted, own = directory / "ca.pem", directory / "broker.pem"
    trusted.write_bytes(authority.own.certificate)
    own.write_bytes(authority.issue("broker", now, valid, ["127.0.0.1", "localhost"]).key_store)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
    }
    client = {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}
    return settings, Workload(label="TLS", client=client)
