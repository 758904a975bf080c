"""Looks at the certificates that brokers show in TLS handshakes; sends nothing else and verifies nothing."""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final

from kalda.inspection.doctor.security_checks import listeners_of
from kalda.inspection.doctor.snapshot import CertificateFacts, ClusterSnapshot
from kalda.settings.listeners import ListenerConfig
from kalda.tools.doctor.questions import Questions

_HANDSHAKE_SECONDS: Final = 3.0
_AT_ONCE_MAX: Final = 32


async def read_certificates(cluster: ClusterSnapshot, questions: Questions) -> Sequence[CertificateFacts]:
    """Return the certificates of all listeners with TLS that brokers describe and that can be reached."""
    limit = asyncio.Semaphore(_AT_ONCE_MAX)

    async def look(host: str, port: int, place: str) -> CertificateFacts | None:
        async with limit:
            try:
                return await certificate_of(host, port, place)
            except (OSError, ValueError) as error:  # a time-out and an error of TLS are an OSError
                questions.note(f"certificate of {place}: {str(error) or 'no answer in time'}")
                return None

    found = await asyncio.gather(*(look(*each) for each in _places(cluster)))
    return [each for each in found if each is not None]


async def certificate_of(host: str, port: int, place: str) -> CertificateFacts:
    """Return the certificate that a listener shows.

    Raises:
        OSError: it cannot be reached in time, or the handshake fails.
        ValueError: it showed no certificate, or one that cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with asyncio.timeout(_HANDSHAKE_SECONDS):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        channel = writer.get_extra_info("ssl_object")
        der = channel.getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    if not der:
        raise ValueError("the listener showed no certificate")
    return certificate_facts(der, place)


def certificate_facts(der: bytes, place: str) -> CertificateFacts:
    """Return what is looked at of a certificate.

    Raises:
        ValueError: it cannot be read.
    """
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(der)
    except x509.InvalidVersion as error:
        raise ValueError(str(error)) from None
    return CertificateFacts(
        place=place,
        subject=certificate.subject.rfc4514_string(),
        not_after_s=certificate.not_valid_after_utc.timestamp(),
    )


def _places(cluster: ClusterSnapshot) -> list[tuple[str, int, str]]:
    """Return host, port and description of each listener with TLS."""
    hosts = {each.id: each.host for each in cluster.brokers}
    found = []
    for broker_id in sorted(cluster.broker_settings):
        for each in listeners_of(cluster, broker_id):
            if each.uses_tls and each.port:
                host = _host(each, hosts.get(broker_id))
                found.append((host, each.port, f"{each.name}://{host}:{each.port} of broker {broker_id}"))
    return found


def _host(listener: ListenerConfig, advertised: str | None) -> str:
    """Return where a listener can be reached: its own address, or the broker's for one of all interfaces."""
    return advertised or "127.0.0.1" if listener.host in ("", "0.0.0.0", "::") else listener.host
