"""One function for each parser that a peer reaches before it has logged in: it takes any bytes.

A function raises if the parser fails in another way than it documents: for the property tests and for a
fuzzer. `SEEDS` has inputs for each that the parser takes, from which others are made.
"""

import asyncio
import base64
import contextlib
import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from kalda.broker.security.sasl_authenticator import SaslAuthenticator
from kalda.common.metrics import Metrics
from kalda.net.connection import Connection
from kalda.net.metrics_http import MetricsServer, _Scrape
from kalda.protocol import framing
from kalda.security.principal import ANONYMOUS, USER, KafkaPrincipal
from kalda.security.sasl.bearer_token import BearerToken, InvalidTokenError, UnsecuredVerifier
from kalda.security.sasl.mechanism import PLAIN, SaslError, SaslServer
from kalda.security.sasl.oauthbearer import OAuthBearerServer
from kalda.security.sasl.plain import PlainServer
from kalda.security.sasl.scram import ScramClient, ScramCredential, ScramServer
from kalda.security.sasl.signed_token import KeySet, SignedVerifier, TokenRules
from kalda.security.tls.authority import CertificateAuthority
from kalda.security.tls.der import DerError
from kalda.security.tls.distinguished_name import subject_name
from kalda.security.tls.principal_mapping import NoMatchingRuleError, PrincipalMapping
from kalda.security.zookeeper.digest_md5 import DigestMd5Client, DigestMd5Error, DigestMd5Server
from kalda.zookeeper.protocol.framing import FrameError, FrameReader
from kalda.zookeeper.protocol.jute import JuteError
from kalda.zookeeper.protocol.requests import ConnectRequest, read_connect_request
from kalda.zookeeper.server.four_letter_words import is_four_letter_word
from tests.unit.net.fakes import Harness
from tests.zookeeper_requests import write_connect_request

INT64_MAX = (1 << 63) - 1
NOW_MS = 1_700_000_000_000
SECRET_SALT = b"salt"
CREDENTIAL = ScramCredential.of_password("SCRAM-SHA-256", b"secret", SECRET_SALT, 4096)
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


class LoginRules:
    """What `SaslAuthenticator` asks of its broker."""

    failure_delay_ms = 100
    frame_bytes_max = 1 << 20
    login_bytes_max = 10_000

    def __init__(self, *, max_reauth_ms: int = 0, servers: dict[str, Callable[[], SaslServer]]) -> None:
        self.servers = servers
        self.reauth_ms = max_reauth_ms
        self.logins: list[str | None] = []
        """Why each login failed; None for one that did not."""
        self.served: list[bytes] = []

    def max_reauth_ms(self, listener: str, mechanism: str) -> int:
        return self.reauth_ms

    def mechanisms(self, listener: str) -> list[str]:
        return list(self.servers)

    def new_server(self, listener: str, mechanism: str) -> SaslServer:
        return self.servers[mechanism]()

    def frame_handler(self) -> Callable[[Connection, memoryview], None]:
        return lambda _, frame: self.served.append(bytes(frame))

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def time_ms(self) -> int:
        return NOW_MS

    def succeeded(self, connection: Connection, mechanism: str) -> None:
        self.logins.append(None)

    def failed(self, connection: Connection, mechanism: str | None, reason: str) -> None:
        self.logins.append(reason)


def plain_server() -> PlainServer:
    return PlainServer(lambda name, password: name in ("alice", "bob") and password == "secret")


def scram_server(nonce: str = "server") -> ScramServer:
    return ScramServer("SCRAM-SHA-256", {"alice": CREDENTIAL}.get, nonce)


def _verified(check: Callable[[str], BearerToken], token: str) -> None:
    with contextlib.suppress(InvalidTokenError):
        found = check(token)
        assert found.principal_name
        assert 0 <= found.expires_at_ms <= INT64_MAX, found
        assert found.issued_at_ms is None or 0 <= found.issued_at_ms <= INT64_MAX, found


def _jwk(key: Any, kid: str) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid}


KEYS = json.dumps({"keys": [_jwk(RSA_KEY, "r"), _jwk(EC_KEY, "e")]})
KEY_SET = KeySet.parse(KEYS)
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": 1_000, "exp": 32_503_680_000, "scope": "a b"}
_unsecured = UnsecuredVerifier({}, lambda: NOW_MS)
_signed = SignedVerifier(lambda: KEY_SET, TokenRules())
_mapping = PrincipalMapping.parse("RULE:^CN=(.*?),OU=Ops.*$/$1/L,RULE:^CN=(.*?)$/$1/,DEFAULT")
_metrics_server = MetricsServer(Metrics())


# The parsers.


def requests(data: bytes) -> None:
    """Frames of a connection whose client has to log in by PLAIN or SCRAM."""
    rules = LoginRules(
        max_reauth_ms=len(data) % 2, servers={PLAIN: plain_server, "SCRAM-SHA-256": scram_server}
    )
    harness = Harness(SaslAuthenticator(rules).on_frame, frame_bytes_max=rules.login_bytes_max)

    async def receive() -> None:
        # In a loop, because a refusal is answered by a timer of it.
        harness.receive(data)

    asyncio.run(receive())
    assert "internal error" not in harness.owner.closed
    logged_in = None in rules.logins
    assert logged_in == (harness.connection.principal != ANONYMOUS)
    for frame in () if logged_in else rules.served:
        assert b"\0\x12" == frame[:2], "only ApiVersions is served before the login"


def plain(data: bytes) -> None:
    """The message of PLAIN."""
    server = plain_server()
    with contextlib.suppress(SaslError):
        server.respond(data)
        assert server.principal in (KafkaPrincipal(USER, "alice"), KafkaPrincipal(USER, "bob"))


def scram_first(data: bytes) -> None:
    """The client's first message of SCRAM."""
    server = scram_server()
    with contextlib.suppress(SaslError):
        server.respond(data)
    assert server.principal is None


def _final(data: bytes) -> ScramServer:
    server = scram_server()
    server.respond(_FIRST)
    with contextlib.suppress(SaslError):
        server.respond(data)
    return server


def scram_final(data: bytes) -> None:
    """The client's final message of SCRAM."""
    assert data == _FINAL or _final(data).principal is None


def oauthbearer(data: bytes) -> None:
    """The client's first message of OAUTHBEARER."""
    server = OAuthBearerServer(_unsecured)
    with contextlib.suppress(SaslError):
        server.respond(data)
        if server.principal is None:
            server.respond(b"\x01")


def unsecured_token(data: bytes) -> None:
    """A token where no signature is needed; `data` is its claims."""
    claims = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    _verified(_unsecured, f"{_NONE}.{claims}.")
    _verified(_unsecured, data.decode("latin-1"))


def signed_claims(data: bytes) -> None:
    """The claims of a token that the provider has signed."""
    head = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"e"}').rstrip(b"=")
    message = head + b"." + base64.urlsafe_b64encode(data).rstrip(b"=")
    algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
    signature = base64.urlsafe_b64encode(algorithm.sign(message, EC_KEY)).rstrip(b"=")
    _verified(_signed, (message + b"." + signature).decode())


def signed_token(data: bytes) -> None:
    """A token that has to be signed; `data` is all of it, or its header."""
    for token in (data.decode("latin-1"), f"{base64.urlsafe_b64encode(data).decode()}.{_CLAIMS_PART}.AAAA"):
        with contextlib.suppress(InvalidTokenError):
            assert "alice" == _signed(token).principal_name


def key_set(data: bytes) -> None:
    """The document with an identity provider's keys."""
    with contextlib.suppress(ValueError):
        assert KeySet.parse(data).keys


def certificate(data: bytes) -> None:
    """A client's certificate, whose subject becomes a name."""
    with contextlib.suppress(DerError, NoMatchingRuleError):
        _mapping.name_of(subject_name(data))


def distinguished_name(data: bytes) -> None:
    """A name in a certificate, under the rules that map it."""
    with contextlib.suppress(NoMatchingRuleError):
        _mapping.name_of(data.decode("latin-1"))


def zookeeper_connect(data: bytes) -> None:
    """The first bytes of a connection to the ZooKeeper server."""
    reader = FrameReader(1 << 20)
    reader.feed(data)
    with contextlib.suppress(FrameError, JuteError):
        if not is_four_letter_word(data[:4]):
            frame = reader.next_frame()
            if frame is not None:
                read_connect_request(frame)


def digest_md5(data: bytes) -> None:
    """The response of SASL DIGEST-MD5."""
    server = DigestMd5Server({"bob": "secret"}.get, "nonce")
    server.evaluate(b"")
    with contextlib.suppress(DigestMd5Error):
        server.evaluate(data)
        assert "bob" == server.user


def metrics_request(data: bytes) -> None:
    """The head of a request to the metrics endpoint."""

    answer = _metrics_server._answer(data)
    parts = answer.run(lambda: 0.0) if isinstance(answer, _Scrape) else answer
    assert parts is not None, "nothing is registered"
    assert bytes(parts[0]).startswith(b"HTTP/1.1 ")
    assert b" 500 " not in bytes(parts[0])[:13]


# Inputs that they take.


def _request(key: int, version: int, body: bytes) -> bytes:
    return framing.frame([struct.pack(">hhih", key, version, 7, 1), b"c", body])


def _exchange() -> tuple[bytes, bytes]:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client")
    first = client.respond(b"")
    return first, client.respond(scram_server().respond(first))


def _digest_response() -> bytes:
    server = DigestMd5Server({"bob": "secret"}.get, "nonce")
    response = DigestMd5Client("bob", "secret", "cnonce").evaluate(server.evaluate(b""))
    assert response is not None
    return response


def _certificate() -> bytes:
    now = datetime.now(UTC)
    authority = CertificateAuthority.make("tests", now, timedelta(days=1))
    issued = authority.issue(
        [("O", "Acme"), ("OU", "Ops"), ("CN", "Alice")], now, timedelta(days=1), ["localhost"]
    )
    return x509.load_pem_x509_certificate(issued.certificate).public_bytes(Encoding.DER)


def _part(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


_FIRST, _FINAL = _exchange()
_NONE = _part({"alg": "none"})
_CLAIMS_PART = _part(CLAIMS)
_HANDSHAKE = _request(17, 1, b"\0\x05PLAIN")
_VERSIONS = _request(18, 3, b"\0\x05name\x041.0\0")
_LOGIN = _request(36, 0, struct.pack(">i", 13) + b"\0alice\0secret")

SEEDS: dict[Callable[[bytes], None], list[bytes]] = {
    requests: [
        _VERSIONS + _HANDSHAKE + _LOGIN + _request(3, 0, b"\0\0\0\0"),
        _request(17, 0, b"\0\x05PLAIN") + framing.frame([b"\0alice\0secret"]),
        _request(17, 1, b"\0\x0dSCRAM-SHA-256") + _request(36, 1, struct.pack(">i", len(_FIRST)) + _FIRST),
        _HANDSHAKE + _LOGIN + _HANDSHAKE + _LOGIN + _HANDSHAKE,
    ],
    plain: [b"\0alice\0secret", b"alice\0alice\0secret"],
    scram_first: [_FIRST, b"n,a=alice,n=alice,r=abc,tokenauth=true", b"n,,n=a=2Cb=3D,r=x"],
    scram_final: [_FINAL],
    oauthbearer: [
        f"n,a=alice,\x01auth=Bearer {_NONE}.{_CLAIMS_PART}.\x01traceId=1\x01\x01".encode(),
        b"n,,\x01auth=Bearer x\x01\x01",
    ],
    unsecured_token: [json.dumps(CLAIMS).encode(), f"{_NONE}.{_CLAIMS_PART}.".encode()],
    signed_claims: [json.dumps({**CLAIMS, "aud": ["kafka"], "nbf": 1, "jti": "x", "iss": "i"}).encode()],
    signed_token: [
        b'{"alg":"ES256","kid":"e"}',
        b'{"alg":"RS256","kid":"r","crit":["b64"],"b64":false}',
        jwt.encode(CLAIMS, EC_KEY, "ES256", {"kid": "e"}).encode(),
        jwt.encode(CLAIMS, RSA_KEY, "PS256", {"kid": "r"}).encode(),
    ],
    key_set: [
        KEYS.encode(),
        json.dumps({"keys": [{**_jwk(EC_KEY, "e"), "use": "sig", "alg": "ES256"}]}).encode(),
    ],
    certificate: [_certificate()],
    distinguished_name: [b"CN=alice,OU=Ops,O=Acme", b"CN=a\\,b\\ ,2.5.4.5=#130161"],
    zookeeper_connect: [
        framing.frame([write_connect_request(ConnectRequest(0, 0, 4000, 0, bytes(16), False))]),
        b"ruok",
    ],
    digest_md5: [_digest_response()],
    metrics_request: [
        b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5\r\n\r\n",
        b"GET /healthz?x=1 HTTP/1.1\r\nAccept-Encoding: gzip;q=0.5, deflate\r\n\r\n",
        b"HEAD /readyz HTTP/1.0\r\n\r\n",
    ],
}
