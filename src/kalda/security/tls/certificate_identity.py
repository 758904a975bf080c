"""The names and the expiry of the first certificate of a PEM text, such as a broker's own key store.

They are compared when a key store changes. The name of a client that is connected: `distinguished_name`.
"""

from dataclasses import dataclass
from ssl import PEM_cert_to_DER_cert
from typing import Final

from kalda.security.tls.distinguished_name import subject_name

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """The names that a certificate has, and until when it is valid."""

    subject: str
    """The distinguished name in the form of RFC 2253."""
    alternative_names: frozenset[str]
    """As ``DNS:name``, ``IP:address`` and so on."""
    expires: str
    """The end of its validity, in ISO 8601 and UTC."""

    def __str__(self) -> str:
        return f"{self.subject}, valid until {self.expires}"


def identity_of(certificates: bytes) -> CertificateIdentity:
    """Return the identity of the first of some certificates in PEM, before which a key may stand.

    Raises:
        DerError: it is not a certificate.
        ValueError: an extension is malformed.
    """
    from cryptography import x509

    text = certificates.decode("ascii")
    first = text[text.find(_BEGIN) :].partition(_END)[0].strip() + "\n" + _END
    certificate = x509.load_pem_x509_certificate(first.encode())
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = frozenset(_text(name) for name in extension.value)
    except x509.ExtensionNotFound:
        names = frozenset()
    return CertificateIdentity(
        subject_name(PEM_cert_to_DER_cert(first)), names, certificate.not_valid_after_utc.isoformat()
    )


def _text(name: object) -> str:
    kind = type(name).__name__.removesuffix("Name").removesuffix("Address")
    return f"{kind}:{getattr(name, 'value', name)}"
