"""Reads key and trust stores of the types PEM, PKCS12 and JKS into PEM.

A store of type JKS or PKCS12 is recognised by its content, as in Java, where either type reads both formats.
"""

import re
from dataclasses import dataclass
from ssl import DER_cert_to_PEM_cert
from typing import TYPE_CHECKING, Final

from kalda.security.tls.jks import JksError, is_jks, parse_jks, unprotect

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_CRL: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_PRIVATE_KEY: Final = re.compile(
    rb"-----BEGIN (?P<kind>[A-Z ]*)PRIVATE KEY-----.+?-----END (?P=kind)PRIVATE KEY-----", re.DOTALL
)


class StoreError(ValueError):
    """A store cannot be read; the message says why, without secrets and without the store's name."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key without a password and its certificates, that of the key first, in PEM."""

    private_key: bytes
    certificates: bytes


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Trusted certificates and the revocation lists that came with them, in PEM."""

    certificates: bytes
    revocations: bytes = b""


def parse_key_store(store_type: str, data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    """Read a key store; `key_password` is that of the store if it is None.

    Raises:
        StoreError: the store is damaged, a password is wrong, or it has no private key.
    """
    if store_type == "PEM":
        return parse_pem_key(data, data, key_password)
    _check_binary(store_type, data)
    if is_jks(data):
        return _jks_key_store(data, password, key_password)
    return _pkcs12_key_store(data, password)


def parse_pem_key(key: bytes, certificates: bytes, key_password: str | None) -> KeyStore:
    """Read a private key and its certificates from PEM.

    Raises:
        StoreError: one of them is not there, or the key's password is wrong.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = _PRIVATE_KEY.search(key)
    if found is None:
        raise StoreError("it has no private key in PEM")
    secret = key_password.encode() if key_password else None
    text = found[0] + b"\n"
    try:
        private_key = load_pem_private_key(text, None if b"ENCRYPTED" not in text else secret)
    except (TypeError, ValueError) as error:
        reason = "it needs a password (ssl.key.password)" if secret is None else str(error)
        raise StoreError(f"its private key cannot be read: {reason}") from None
    return KeyStore(_key_pem(private_key), _certificates(certificates))


def parse_trust_store(store_type: str, data: bytes, password: str | None) -> TrustStore:
    """Read a trust store. PEM may hold revocation lists beside the certificates.

    Raises:
        StoreError: the store is damaged, its password is wrong, or it has no certificate.
    """
    if store_type == "PEM":
        revocations = b"\n".join(_CRL.findall(data))
        return TrustStore(_certificates(data), revocations + b"\n" if revocations else b"")
    _check_binary(store_type, data)
    if is_jks(data):
        try:
            store = parse_jks(data, password)
        except JksError as error:
            raise StoreError(str(error)) from None
        # Java trusts the first certificate of a key's chain as well.
        found = [*store.certificates, *(key.chain[0] for key in store.keys if key.chain)]
        certificates = b"".join(_certificate_pem(each) for each in found)
    else:
        certificates = _pkcs12_certificates(data, password)
    if not certificates:
        raise StoreError("it has no certificate")
    return TrustStore(certificates)


def _check_binary(store_type: str, data: bytes) -> None:
    if store_type not in STORE_TYPES:
        raise StoreError(f"its type {store_type} is not one of {', '.join(STORE_TYPES)}")
    if data.lstrip()[:10] == b"-----BEGIN":
        raise StoreError(f"it is in PEM, not of type {store_type}")


def _jks_key_store(data: bytes, password: str | None, key_password: str | None) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        store = parse_jks(data, password)
        if not store.keys:
            raise StoreError("it has no private key")
        entry = store.keys[0]
        key = unprotect(entry.protected_key, key_password or password or "")
        private_key = load_der_private_key(key, None)
    except JksError as error:
        raise StoreError(str(error)) from None
    except ValueError as error:
        raise StoreError(f"its private key cannot be read: {error}") from None
    return KeyStore(_key_pem(private_key), b"".join(map(_certificate_pem, entry.chain)))


def _pkcs12_key_store(data: bytes, password: str | None) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _pkcs12(data, password)
    if store.key is None or store.cert is None:
        raise StoreError("it has no private key with a certificate")
    chain = [store.cert, *store.additional_certs]
    return KeyStore(
        _key_pem(store.key), b"".join(each.certificate.public_bytes(Encoding.PEM) for each in chain)
    )


def _pkcs12_certificates(data: bytes, password: str | None) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _pkcs12(data, password)
    found = [*store.additional_certs] if store.cert is None else [store.cert, *store.additional_certs]
    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in found)


def _pkcs12(data: bytes, password: str | None) -> "PKCS12KeyAndCertificates":
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise StoreError(str(error)) from None


def _certificates(data: bytes) -> bytes:
    found = _CERTIFICATE.findall(data)
    if not found:
        raise StoreError("it has no certificate in PEM")
    return b"\n".join(found) + b"\n"


def _certificate_pem(der: bytes) -> bytes:
    return DER_cert_to_PEM_cert(der).encode()


def _key_pem(key: "PrivateKeyTypes") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
