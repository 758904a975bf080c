"""Certificates that `kalda doctor` cannot read are reported as such."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kalda.tools.doctor.read_certificates import certificate_facts

VERSION_3 = bytes((0xA0, 3, 2, 1, 2))


@pytest.fixture(scope="module")
def der() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(1))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_a_certificate_has_a_subject_and_an_end(der: bytes) -> None:
    facts = certificate_facts(der, "here")
    assert ("here", "CN=broker", 1767312000) == (facts.place, facts.subject, facts.not_after_s)


def test_what_is_no_certificate_is_an_error_of_values(der: bytes) -> None:
    assert 1 == der.count(VERSION_3)
    for junk in (b"", b"\0", der[:-1], der.replace(VERSION_3, VERSION_3[:-1] + b"\x07")):
        with pytest.raises(ValueError, match=r".+"):
            certificate_facts(junk, "here")
