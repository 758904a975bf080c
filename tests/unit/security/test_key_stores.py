"""Key and trust stores; those of JKS and PKCS12 were made by Java's keytool (password storepass)."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.security.tls.authority import Certificate, CertificateAuthority
from kalda.security.tls.certificate_identity import identity_of
from kalda.security.tls.der import DerError, elements
from kalda.security.tls.distinguished_name import subject_name
from kalda.security.tls.jks import JksError, parse_jks, unprotect
from kalda.security.tls.stores import StoreError, parse_key_store, parse_pem_key, parse_trust_store
from tests.unit.security.authorities import NOW, VALID, authority

STORES = Path(__file__).parent / "stores"


def store(name: str) -> bytes:
    return (STORES / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "key_password", "certificate"),
    [("key.jks", "keypass1", "cert.JKS.pem"), ("key.pkcs12", None, "cert.PKCS12.pem")],
)
@pytest.mark.parametrize("store_type", ["JKS", "PKCS12"])
def test_key_stores_of_java_are_read_whatever_their_type_says(
    name: str, key_password: str | None, certificate: str, store_type: str
) -> None:
    found = parse_key_store(store_type, store(name), "storepass", key_password)
    der = ssl.PEM_cert_to_DER_cert(store(certificate).decode())
    assert ssl.DER_cert_to_PEM_cert(der).encode() == found.certificates
    assert found.private_key.startswith(b"-----BEGIN PRIVATE KEY-----")
    identity = identity_of(found.certificates)
    assert "CN=broker,OU=Ops,O=Acme,C=DE" == identity.subject
    assert {"DNS:localhost", "IP:127.0.0.1"} == identity.alternative_names


@pytest.mark.parametrize("name", ["trust.jks", "trust.pkcs12"])
def test_trust_stores_of_java_are_read(name: str) -> None:
    certificates = parse_trust_store("JKS", store(name), "storepass").certificates
    assert "CN=broker,OU=Ops,O=Acme,C=DE" == subject_name(ssl.PEM_cert_to_DER_cert(certificates.decode()))


@pytest.mark.parametrize("name", ["key.jks", "key.pkcs12"])
def test_a_wrong_password_is_named(name: str) -> None:
    with pytest.raises(StoreError, match="password"):
        parse_key_store("JKS", store(name), "wrong", "keypass1")


def test_a_wrong_password_of_the_key_alone_is_named() -> None:
    with pytest.raises(StoreError, match="password of the key is wrong"):
        parse_key_store("JKS", store("key.jks"), "storepass", "wrong")


def test_a_trust_store_without_a_password_is_not_checked_as_in_java() -> None:
    assert parse_jks(store("trust.jks"), None).certificates


@pytest.mark.parametrize("store_type", ["JKS", "PKCS12"])
def test_pem_under_another_type_is_named(store_type: str) -> None:
    with pytest.raises(StoreError, match=f"it is in PEM, not of type {store_type}"):
        parse_trust_store(store_type, store("cert.JKS.pem"), "storepass")


def test_every_truncation_and_change_of_a_jks_store_is_refused() -> None:
    whole = store("key.jks")
    for size in range(len(whole)):
        with pytest.raises(JksError):
            parse_jks(whole[:size], "storepass")
        changed = bytearray(whole)
        changed[size] ^= 1
        with pytest.raises(JksError):
            parse_jks(bytes(changed), "storepass")


@given(st.binary(max_size=200), st.booleans())
def test_junk_raises_only_the_errors_that_are_documented(junk: bytes, begins_well: bool) -> None:
    data = store("trust.jks")[:12] + junk if begins_well else junk
    for call, error in (
        (lambda: parse_jks(data, None), JksError),
        (lambda: unprotect(junk, "x"), JksError),
        (lambda: list(elements(junk)), DerError),
        (lambda: subject_name(junk), DerError),
        (lambda: parse_trust_store("PEM", junk, None), StoreError),
        (lambda: parse_trust_store("PKCS12", junk, "x"), StoreError),
        (lambda: parse_pem_key(junk, junk, None), StoreError),
    ):
        try:
            call()
        except error:
            continue


def encrypted(certificate: Certificate, password: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(certificate.private_key, None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))


def test_an_encrypted_key_in_pem_needs_its_password() -> None:
    issued = authority().issue("broker", NOW, VALID)
    data = encrypted(issued, "secret") + issued.certificate
    assert issued.private_key == parse_key_store("PEM", data, None, "secret").private_key
    with pytest.raises(StoreError, match=r"ssl\.key\.password"):
        parse_key_store("PEM", data, None, None)
    with pytest.raises(StoreError, match="cannot be read"):
        parse_key_store("PEM", data, None, "wrong")


def test_names_are_written_as_java_writes_them() -> None:
    """RFC 2253: the most specific first, special characters escaped."""
    attributes = [("C", "DE"), ("O", 'Acme, "Inc"'), ("OU", "#1 + 2"), ("CN", " a=b; ")]
    certificate = authority().issue(attributes, NOW, VALID).certificate
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    assert 'CN=\\ a=b\\;\\ ,OU=\\#1 \\+ 2,O=Acme\\, \\"Inc\\",C=DE' == subject_name(der)


def test_an_authority_can_be_kept_and_read_back() -> None:
    again = CertificateAuthority(authority().own)
    issued = again.issue("x", NOW, VALID, ["localhost", "::1", "localhost"])
    assert {"DNS:localhost", "IP:::1"} == identity_of(issued.certificate).alternative_names
