"""Makes a certificate authority and the certificates that it signs, for clusters without a PKI of their own.

Keys are on the curve P-256, whose signatures cost a fifth of those of RSA. The caller keeps what is made.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates are valid from this long before they are made, for peers whose clocks are behind."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A private key without a password and its certificate, in PEM."""

    private_key: bytes
    certificate: bytes

    @property
    def key_store(self) -> bytes:
        """Both in one file, as ``ssl.keystore.location`` of type PEM takes them."""
        return self.private_key + self.certificate


class CertificateAuthority:
    """An authority that signs certificates of servers and clients."""

    def __init__(self, own: Certificate) -> None:
        """`own` is what `make` returned, or was read back."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        self.own: Final = own
        self._certificate: Final = x509.load_pem_x509_certificate(own.certificate)
        key = load_pem_private_key(own.private_key, None)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ValueError(f"the authority's key is a {type(key).__name__}, not one on an elliptic curve")
        self._key: Final = key

    @classmethod
    def make(cls, common_name: str, now: datetime, valid: timedelta) -> Self:
        """Make an authority with a new key."""
        from cryptography import x509

        key = _new_key()
        name = _name([("CN", common_name)])
        builder = (
            _builder(name, name, key, now, valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        return cls(_signed(builder, key, key))

    def issue(
        self,
        subject: str | Sequence[tuple[str, str]],
        now: datetime,
        valid: timedelta,
        names: Iterable[str] = (),
    ) -> Certificate:
        """Make a key and its certificate for servers and clients.

        Args:
            subject: The common name, or all attributes, the most general one first: ``[("O", "Acme"), …]``.
            now: The time; the certificate is valid from an hour before.
            valid: For how long it is valid from now on.
            names: Host names and addresses at which a server is reached.
        """
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = _new_key()
        attributes = [("CN", subject)] if isinstance(subject, str) else list(subject)
        builder = (
            _builder(_name(attributes), self._certificate.subject, key, now, valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        alternatives = [_general_name(name) for name in dict.fromkeys(names)]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return _signed(builder, key, self._key)


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(attributes: Sequence[tuple[str, str]]) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    known = {
        "C": NameOID.COUNTRY_NAME,
        "CN": NameOID.COMMON_NAME,
        "L": NameOID.LOCALITY_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
        "ST": NameOID.STATE_OR_PROVINCE_NAME,
    }
    return x509.Name([x509.NameAttribute(known[keyword], value) for keyword, value in attributes])


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "EllipticCurvePrivateKey",
    now: datetime,
    valid: timedelta,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _signed(
    builder: "x509.CertificateBuilder", key: "EllipticCurvePrivateKey", signer: "EllipticCurvePrivateKey"
) -> Certificate:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Certificate(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM),
    )
