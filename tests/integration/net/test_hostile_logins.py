"""Logins that must fail, over sockets: each is refused as in Kafka, noted once, and disturbs nobody."""

import base64
import json
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kalda import Admin
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from kalda.common.log_limiter import LIMIT_BURST
from kalda.security.sasl.mechanism import SaslError
from kalda.security.sasl.scram import ScramClient
from kalda.testing import KaldaProcess
from tests.raw_client import (
    METADATA,
    SASL_AUTHENTICATE,
    SASL_AUTHENTICATION_FAILED,
    RawClient,
    audit_lines,
    base64_json,
    bearer,
    text,
)

PREFIX = "listener.name.sasl_plaintext."
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
SCRAM = "SCRAM-SHA-256"
KEY = rsa.generate_private_key(65537, 2048)
WRONG_KEY = rsa.generate_private_key(65537, 2048)
PUBLIC_PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
ALICE = b"\0alice\0alice-secret"


def properties(bootstrap: str, user: str = "alice") -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="{user}" password="{user}-secret";',
    }


def settings(directory: Path) -> dict[str, str]:
    keys = directory / "keys.json"
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    keys.write_text(json.dumps({"keys": [{**public, "kid": "k", "use": "sig"}]}))
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM},OAUTHBEARER",
        f"{PREFIX}plain.sasl.jaas.config": (
            f'{PLAIN} required username="admin" password="admin-secret" '
            'user_admin="admin-secret" user_alice="alice-secret";'
        ),
        f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://idp",
        "connection.failed.authentication.delay.ms": "10",
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    directory = tmp_path_factory.mktemp("hostile")
    with KaldaProcess(directory / "data", settings=settings(directory)) as process:
        with Admin.from_config(properties(process.bootstrap, "admin")) as admin:
            admin.alter_user_scram_credentials(
                [ScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, "alice-secret")]
            )
        yield process


def failures(broker: KaldaProcess) -> list[str]:
    return [str(each.get("reason", "")) for each in audit_lines(broker.log()) if each["outcome"] == "failure"]


def assert_served(broker: KaldaProcess) -> None:
    with RawClient(broker.bootstrap) as client:
        assert 0 == client.log_in("PLAIN", ALICE)
        client.send(METADATA, 0, struct.pack(">i", 0))
        assert client.receive() is not None


def token(key: Any = KEY, algorithm: str | None = "RS256", **changed: object) -> str:
    now = int(time.time())
    claims = {"sub": "alice", "iat": now - 60, "exp": now + 600, "aud": "kafka", "iss": "https://idp"}
    made = {name: value for name, value in {**claims, **changed}.items() if value is not None}
    return jwt.encode(made, key, algorithm, headers={"kid": str(changed.get("kid", "k"))})


def by_hand(header: dict[str, object], signature: str = "") -> str:
    """Return a token that no library would make."""
    _, claims, _ = token().split(".")
    return f"{base64_json(header)}.{claims}.{signature}"


def hmac_with_public_key() -> str:
    """Return a token that is signed with the provider's public key as a shared secret."""
    unsigned = by_hand({"alg": "HS256", "kid": "k"}).rstrip(".")
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = jwt.utils.base64url_encode(algorithm.sign(unsigned.encode(), PUBLIC_PEM))
    return f"{unsigned}.{signature.decode()}"


TOKENS: dict[str, Callable[[], str]] = {
    "alg none": lambda: by_hand({"alg": "none", "kid": "k"}),
    "alg None": lambda: by_hand({"alg": "None", "kid": "k"}),
    "alg none and a signature": lambda: by_hand({"alg": "none", "kid": "k"}, token().split(".")[2]),
    "no alg": lambda: by_hand({"kid": "k"}, token().split(".")[2]),
    "HMAC with the public key": hmac_with_public_key,
    "wrong key": lambda: token(WRONG_KEY),
    "key in the token": lambda: by_hand(
        {"alg": "RS256", "jwk": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(WRONG_KEY.public_key()))},
        token(WRONG_KEY).split(".")[2],
    ),
    "address of keys in the token": lambda: by_hand(
        {"alg": "RS256", "kid": "k", "jku": "http://127.0.0.1:1/"}, token(WRONG_KEY).split(".")[2]
    ),
    "unknown critical header": lambda: by_hand(
        {"alg": "RS256", "kid": "k", "crit": ["x"], "x": 1}, token().split(".")[2]
    ),
    "other claims": lambda: ".".join((*token(sub="admin").split(".")[:2], token().split(".")[2])),
    "expired": lambda: token(exp=int(time.time()) - 60),
    "not yet valid": lambda: token(nbf=int(time.time()) + 600),
    "issued in the future": lambda: token(iat=int(time.time()) + 600),
    "no end": lambda: token(exp=None),
    "infinite end": lambda: token(exp=float("inf")),
    "other audience": lambda: token(aud="other"),
    "no audience": lambda: token(aud=None),
    "other issuer": lambda: token(iss="https://other"),
    "no subject": lambda: token(sub=None),
    "deep header": lambda: by_hand({"alg": "RS256", "kid": "k"}).replace(".", "." + "W1tb" * 20_000, 1),
}


def test_the_token_that_the_others_are_made_of_is_right(broker: KaldaProcess) -> None:
    with RawClient(broker.bootstrap) as client:
        assert 0 == client.log_in("OAUTHBEARER", bearer(token()))


@pytest.mark.parametrize("made", TOKENS.values(), ids=TOKENS)
def test_tokens_that_are_not_right_are_refused_after_the_acknowledgement(
    broker: KaldaProcess, made: Callable[[], str]
) -> None:
    """RFC 7628: the broker sends a JSON error, the client ^A, and then the login has failed."""
    with RawClient(broker.bootstrap) as client:
        assert 0 == client.handshake("OAUTHBEARER")
        assert (0, b'{"status":"invalid_token"}') == client.authenticate(bearer(made()))
        assert (SASL_AUTHENTICATION_FAILED, b"") == client.authenticate(b"\x01")
        assert client.receive() is None
    assert_served(broker)


def with_a_bit_flipped(final: bytes) -> bytes:
    """Return the message with a bit of its proof flipped (a base64 digit may hold bits of no byte)."""
    message, proof = final.split(b",p=")
    decoded = base64.b64decode(proof)
    return message + b",p=" + base64.b64encode(decoded[:-1] + bytes([decoded[-1] ^ 1]))


SCRAM_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "one bit of the proof": with_a_bit_flipped,
    "no proof": lambda final: final[: final.index(b",p=")],
    "empty proof": lambda final: final[: final.index(b"p=") + 2],
    "short proof": lambda final: final[: final.index(b"p=") + 2] + b"AAAA",
    "proof of zeros": lambda final: final[: final.index(b"p=") + 2] + b"A" * 43 + b"=",
    "other nonce": lambda final: final.replace(b"r=client", b"r=cliens"),
    "channel binding": lambda final: final.replace(b"c=biws", b"c=cD10bHMtdW5pcXVlLCw="),
    "extension": lambda final: final.replace(b",p=", b",x=y,p="),
    "bytes behind": lambda final: final + b",x=y",
    "first message again": lambda _: b"n,,n=alice,r=client",
    "nothing": lambda _: b"",
}


@pytest.mark.parametrize("change", SCRAM_CHANGES.values(), ids=SCRAM_CHANGES)
def test_altered_proofs_are_refused(broker: KaldaProcess, change: Callable[[bytes], bytes]) -> None:
    scram = ScramClient(SCRAM, "alice", "alice-secret", "client")
    with RawClient(broker.bootstrap) as client:
        assert 0 == client.handshake(SCRAM)
        code, challenge = client.authenticate(scram.respond(b""))
        assert 0 == code
        final = scram.respond(challenge)
        assert change(final) != final
        assert (SASL_AUTHENTICATION_FAILED, b"") == client.authenticate(change(final))
        assert client.receive() is None
    assert_served(broker)


def test_a_recorded_login_cannot_be_replayed(broker: KaldaProcess) -> None:
    scram = ScramClient(SCRAM, "alice", "alice-secret", "client")
    with RawClient(broker.bootstrap) as client:
        client.handshake(SCRAM)
        first = scram.respond(b"")
        _, challenge = client.authenticate(first)
        final = scram.respond(challenge)
        assert 0 == client.authenticate(final)[0]
    with RawClient(broker.bootstrap) as client:
        assert SASL_AUTHENTICATION_FAILED == client.log_in(SCRAM, first, final)


def test_users_that_do_not_exist_cannot_be_found_out(broker: KaldaProcess) -> None:
    answers = set()
    salts = set()
    for user in ("alice", "nobody", "nobody"):
        scram = ScramClient(SCRAM, user, "wrong", "client")
        with RawClient(broker.bootstrap) as client:
            client.handshake(SCRAM)
            code, challenge = client.authenticate(scram.respond(b""))
            assert 0 == code
            salts.add(challenge.split(b",s=")[1])
            final = scram.respond(challenge)
            answers.add(client.ask(SASL_AUTHENTICATE, 0, struct.pack(">i", len(final)) + final))
    assert 1 == len(answers)
    assert 2 == len(salts), "an unknown user has always the same salt"


def test_a_broker_that_knows_no_password_is_found_out(broker: KaldaProcess) -> None:
    """The client checks the broker's signature: whoever replays the broker's messages is refused."""
    recorded = []
    scram = ScramClient(SCRAM, "alice", "alice-secret", "client")
    with RawClient(broker.bootstrap) as client:
        client.handshake(SCRAM)
        message = scram.respond(b"")
        while message:
            _, answer = client.authenticate(message)
            recorded.append(answer)
            message = scram.respond(answer)
    victim = ScramClient(SCRAM, "alice", "alice-secret", "another")
    victim.respond(b"")
    with pytest.raises(SaslError):
        victim.respond(recorded[0])


def test_names_of_mechanisms_and_users_write_no_lines_of_their_own(broker: KaldaProcess) -> None:
    forged = '\n2030-01-01 INFO {"event":"login","outcome":"success"} (kalda.security.audit)\n'
    with RawClient(broker.bootstrap) as client:
        assert 33 == client.handshake("X" * 20_000 + forged)
    with RawClient(broker.bootstrap) as client:
        assert 33 == client.handshake(forged)
    with RawClient(broker.bootstrap) as client:
        assert SASL_AUTHENTICATION_FAILED == client.log_in("PLAIN", f"\0{forged}\0x".encode())
    log = broker.log()
    assert not [line for line in log.splitlines() if line.startswith("2030")]
    assert max(map(len, log.splitlines())) < 5_000


def test_each_failure_is_noted_once_up_to_a_limit(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data", settings=settings(tmp_path)) as process:
        attempts: list[Callable[[RawClient], object]] = [
            lambda client: client.log_in("PLAIN", b"\0alice\0wrong"),
            lambda client: client.log_in(SCRAM, b"n,,n=x,r=y", b"junk"),
            lambda client: client.log_in("OAUTHBEARER", bearer(by_hand({"alg": "none"})), b"\x01"),
            lambda client: client.handshake("DIGEST-MD5"),
            lambda client: client.ask(METADATA, 0, struct.pack(">i", 0)),
            lambda client: client.ask(-1, -1, b""),
            lambda client: client.ask(17, 1, text("PLAIN")[:-1]),
        ]
        for number, attempt in enumerate(attempts):
            with RawClient(process.bootstrap) as client:
                attempt(client)
            assert number + 1 == len(failures(process)), failures(process)
        for _ in range(LIMIT_BURST):
            with RawClient(process.bootstrap) as client:
                attempts[0](client)
        assert LIMIT_BURST == len(failures(process))


def test_failed_logins_of_many_connections_disturb_nobody(broker: KaldaProcess) -> None:
    """As many as fit into a test; `tests.chaos.hostile_logins` makes ten thousand of each kind."""

    def fail(number: int) -> int | None:
        with RawClient(broker.bootstrap) as client:
            if number % 3 == 0:
                return client.log_in("PLAIN", b"\0alice\0wrong")
            if number % 3 == 1:
                scram = ScramClient(SCRAM, f"user{number}", "wrong", "client")
                client.handshake(SCRAM)
                _, challenge = client.authenticate(scram.respond(b""))
                return client.authenticate(scram.respond(challenge))[0]
            return client.log_in("OAUTHBEARER", bearer(by_hand({"alg": "none"})), b"\x01")

    before = len(failures(broker))
    began = time.monotonic()
    with ThreadPoolExecutor(20) as pool, Admin.from_config(properties(broker.bootstrap)) as admin:
        codes = pool.map(fail, range(900))
        admin.list_topics()
        assert {SASL_AUTHENTICATION_FAILED} == set(codes)
    periods = 2 + (time.monotonic() - began) // 10
    assert len(failures(broker)) - before <= periods * (LIMIT_BURST + 1)
    assert_served(broker)
