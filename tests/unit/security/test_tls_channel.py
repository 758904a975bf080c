"""Two TLS channels back to back, without sockets."""

import ssl
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.security.tls.channel import TlsChannel, TlsChannelError
from kalda.security.tls.contexts import client_context, server_context
from kalda.security.tls.settings import TlsSettings
from tests.unit.security.authorities import NOW, VALID, authority


def contexts(**server: object) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server for localhost and of a client named alice that trusts it."""
    ca = authority().own.certificate.decode()

    def made(name: str, more: dict[str, object]) -> TlsSettings:
        issued = authority().issue(name, NOW, VALID, ["localhost"])
        values: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": issued.private_key.decode(),
            "ssl.keystore.certificate.chain": issued.certificate.decode(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": ca,
            "ssl.endpoint.identification.algorithm": "https",
            **more,
        }
        return TlsSettings.read(values.get)

    named = {f"ssl.{name.replace('_', '.')}": value for name, value in server.items()}
    return server_context(made("broker", named)), client_context(made("alice", {}))


class Pair:
    def __init__(self, host: str = "localhost", **server: object) -> None:
        server_side, client_side = contexts(**server)
        self.server = TlsChannel(server_side, is_server=True)
        self.client = TlsChannel(client_side, server_hostname=host, is_server=False)

    def move(self) -> None:
        self.server.receive(self.client.take_output())
        self.client.receive(self.server.take_output())

    def connect(self) -> None:
        while not (self.client.handshake() & self.server.handshake()):
            self.move()
        self.move()


def read(channel: TlsChannel, size: int = 100_000) -> bytes:
    buffer = memoryview(bytearray(size))
    return bytes(buffer[: channel.read_into(buffer)])


def test_both_sides_read_what_the_other_wrote_and_know_its_certificate() -> None:
    pair = Pair(client_auth="required")
    pair.connect()
    pair.client.write(b"question")
    pair.server.write(b"answer" * 10_000)
    assert pair.server.has_output
    pair.move()
    assert pair.server.has_input
    assert b"question" == read(pair.server)
    assert b"answer" * 10_000 == read(pair.client)
    assert b"" == read(pair.client)
    assert not pair.client.has_input
    assert pair.server.peer_certificate is not None
    assert ("TLSv1.3", True) == (pair.server.version, pair.server.is_established)


def test_a_client_without_need_shows_no_certificate() -> None:
    pair = Pair()
    pair.connect()
    assert pair.server.peer_certificate is None


def test_the_end_of_a_stream_is_told_apart_from_silence() -> None:
    pair = Pair()
    pair.connect()
    pair.client.write(b"last")
    pair.client.close()
    pair.move()
    assert b"last" == read(pair.server)
    with pytest.raises(EOFError):
        read(pair.server)


def test_another_name_is_refused() -> None:
    pair = Pair("example.org")
    with pytest.raises(TlsChannelError, match="Hostname mismatch"):
        pair.connect()


def test_an_authority_that_is_not_trusted_is_refused() -> None:
    pair = Pair()
    other = authority("others").own.certificate.decode()
    values = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": other}
    pair.client = TlsChannel(
        client_context(TlsSettings.read(values.get)), server_hostname="localhost", is_server=False
    )
    with pytest.raises(TlsChannelError, match="unable to get local issuer certificate"):
        pair.connect()


def test_revoked_certificates_are_refused() -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

    ca = authority()
    issuer = x509.load_pem_x509_certificate(ca.own.certificate)

    def revocations(*serials: int) -> str:
        builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
        builder = builder.last_update(NOW - VALID).next_update(NOW + VALID)
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - VALID)
            builder = builder.add_revoked_certificate(revoked.build())
        key = load_pem_private_key(ca.own.private_key, None)
        signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]  # it is a key on a curve
        return ca.own.certificate.decode() + signed.public_bytes(Encoding.PEM).decode()

    for is_revoked in (False, True):
        pair = Pair(client_auth="required", truststore_certificates=revocations())
        mine = ca.issue("mallory", NOW, VALID)
        serial = x509.load_pem_x509_certificate(mine.certificate).serial_number
        server, _ = contexts(
            client_auth="required", truststore_certificates=revocations(*([serial] if is_revoked else []))
        )
        values = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": mine.private_key.decode(),
            "ssl.keystore.certificate.chain": mine.certificate.decode(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": ca.own.certificate.decode(),
        }
        pair.server = TlsChannel(server, is_server=True)
        pair.client = TlsChannel(
            client_context(TlsSettings.read(values.get)), server_hostname="localhost", is_server=False
        )
        if is_revoked:
            with pytest.raises(TlsChannelError, match="certificate revoked"):
                pair.connect()
        else:
            pair.connect()


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=1, max_size=300))
def test_junk_in_place_of_a_client_hello_ends_the_handshake(junk: bytes) -> None:
    server, _ = contexts()
    channel = TlsChannel(server, is_server=True)
    channel.receive(junk)
    with suppress(TlsChannelError):
        assert not channel.handshake()


def test_every_truncation_and_change_of_a_client_hello_is_survived() -> None:
    server, client = contexts()
    hello = TlsChannel(client, server_hostname="localhost", is_server=False)
    hello.handshake()
    whole = hello.take_output()
    for position in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[position] ^= 0x55
        for data in (whole[:position], bytes(changed)):
            channel = TlsChannel(server, is_server=True)
            channel.receive(data)
            try:
                channel.handshake()
            except TlsChannelError:
                continue


def test_changed_records_are_refused() -> None:
    pair = Pair()
    pair.connect()
    pair.client.write(b"x" * 100)
    changed = bytearray(pair.client.take_output())
    changed[50] ^= 1
    pair.server.receive(bytes(changed))
    with pytest.raises(TlsChannelError, match="bad record mac"):
        read(pair.server)
