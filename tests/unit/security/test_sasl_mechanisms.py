"""SASL mechanisms of both sides against each other, against the vectors of the RFCs, and against liars."""

import base64
import hashlib
import hmac
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.net.client.new_login import new_login
from kalda.security.principal import KafkaPrincipal
from kalda.security.sasl.client_login import LoginConfigError
from kalda.security.sasl.jaas import JaasConfig, JaasError
from kalda.security.sasl.mechanism import SaslClient, SaslError, SaslServer
from kalda.security.sasl.plain import PlainClient, PlainServer
from kalda.security.sasl.scram import (
    HASHES,
    ScramClient,
    ScramCredential,
    ScramServer,
    TokenCredential,
    decode_name,
    encode_name,
)

ALICE = KafkaPrincipal("User", "alice")
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


def credential(mechanism: str, password: str = "secret", iterations: int = 4096) -> ScramCredential:
    return ScramCredential.of_password(mechanism, password.encode(), b"0123456789abcdef", iterations)


def scram_server(mechanism: str, users: dict[str, ScramCredential]) -> ScramServer:
    return ScramServer(mechanism, users.get, "server-nonce")


def log_in(client: SaslClient, server: SaslServer) -> None:
    challenge = b""
    while True:
        message = client.respond(challenge)
        if client.is_complete and not message:
            return
        challenge = server.respond(message)
        if client.is_complete and not challenge:
            return


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "CN=älice"])
def test_scram_logs_in_by_the_right_password_only(mechanism: str, name: str) -> None:
    users = {name: credential(mechanism)}
    server = scram_server(mechanism, users)
    log_in(ScramClient(mechanism, name, "secret", "client-nonce"), server)
    assert KafkaPrincipal("User", name) == server.principal
    for user, password in ((name, "Secret"), ("bob", "secret")):
        server = scram_server(mechanism, users)
        with pytest.raises(SaslError, match="invalid credentials with SASL mechanism") as caught:
            log_in(ScramClient(mechanism, user, password, "client-nonce"), server)
        assert server.principal is None
        assert password not in str(caught.value)


def test_the_exchange_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    user = ScramCredential.of_password("SCRAM-SHA-256", b"pencil", salt, 4096)
    server = ScramServer("SCRAM-SHA-256", {"user": user}.get, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    first = client.respond(b"")
    assert b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO" == first
    answer = server.respond(first)
    expected = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert expected == answer
    final = client.respond(answer)
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = server.respond(final)
    assert b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" == signature
    assert b"" == client.respond(signature)
    assert client.is_complete


def test_a_delegation_token_logs_in_as_its_owner() -> None:
    token = TokenCredential(credential("SCRAM-SHA-256", "hmac"), ALICE, 1_000)
    server = ScramServer("SCRAM-SHA-256", lambda _: None, "nonce", {"id": token}.get)
    log_in(ScramClient("SCRAM-SHA-256", "id", "hmac", "n", is_token=True), server)
    assert (ALICE, 1_000) == (server.principal, server.expires_at_ms)
    without = ScramServer("SCRAM-SHA-256", {"id": credential("SCRAM-SHA-256", "hmac")}.get, "nonce")
    with pytest.raises(SaslError):
        log_in(ScramClient("SCRAM-SHA-256", "id", "hmac", "n", is_token=True), without)


def test_an_unknown_user_gets_the_answers_of_a_wrong_password() -> None:
    """Else anyone could find out which users exist; Kafka refuses the first message of an unknown one."""
    users = {"alice": credential("SCRAM-SHA-256")}

    def exchange(name: str, key: bytes = b"key") -> tuple[str, int, str]:
        server = ScramServer("SCRAM-SHA-256", users.get, "server", decoy_key=key)
        client = ScramClient("SCRAM-SHA-256", name, "wrong", "client")
        answer = server.respond(client.respond(b""))
        nonce, salt, iterations = (part[2:] for part in answer.decode().split(","))
        assert "clientserver" == nonce
        with pytest.raises(SaslError) as caught:
            server.respond(client.respond(answer))
        assert server.principal is None
        return salt, len(base64.b64decode(salt)), f"{iterations} {caught.value} {caught.value.detail}"

    known, unknown = exchange("alice"), exchange("bob")
    assert known[1:] == unknown[1:]
    assert unknown == exchange("bob"), "another salt each time would show that there is no such user"
    assert 4 == len({exchange(name, key)[0] for name in ("bob", "carol") for key in (b"key", b"other")})


def test_a_huge_name_takes_memory_in_proportion() -> None:
    """Before the login a message may have 512 KB; a name of that size took 96 MB."""
    size = 500_000
    for name in ("n" * size, "=2C" * (size // 3)):
        server = scram_server("SCRAM-SHA-256", {})
        message = f"n,a={name},n={name},r=nonce".encode()
        tracemalloc.start()
        try:
            server.respond(message)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 20 * len(message)


def changed(text: bytes, old: bytes, new: bytes) -> bytes:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: changed(text, b"c=biws", b"c=eSws"),
        lambda text: changed(text, b"server-nonce", b"server-other"),
        lambda text: text[:-5] + b"AAAA=",
        lambda text: text + b",p=AAAA",
        lambda text: text.replace(b"p=", b"q="),
        lambda text: b"",
        lambda text: b"\xff\xfe",
    ],
)
def test_an_altered_final_message_is_refused(change: Callable[[bytes], bytes]) -> None:
    server = scram_server("SCRAM-SHA-256", {"alice": credential("SCRAM-SHA-256")})
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client-nonce")
    final = client.respond(server.respond(client.respond(b"")))
    with pytest.raises(SaslError):
        server.respond(change(final))
    assert server.principal is None


def test_a_replayed_exchange_is_refused() -> None:
    users = {"alice": credential("SCRAM-SHA-256")}
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client-nonce")
    server = scram_server("SCRAM-SHA-256", users)
    first = client.respond(b"")
    final = client.respond(server.respond(first))
    again = ScramServer("SCRAM-SHA-256", users.get, "another-nonce")
    again.respond(first)
    with pytest.raises(SaslError):
        again.respond(final)
    server.respond(final)
    with pytest.raises(SaslError):
        server.respond(final)


def test_the_nonce_of_old_librdkafka_is_accepted() -> None:
    """Up to 2.6.0 it puts its own nonce in front of the broker's once more; Kafka 3.9 lets it in, too."""
    user = credential("SCRAM-SHA-256")
    server = scram_server("SCRAM-SHA-256", {"alice": user})
    first = server.respond(b"n,,n=alice,r=client-nonce").decode()
    unproved = "c=biws,r=client-nonceclient-nonceserver-nonce"
    message = f"n=alice,r=client-nonce,{first},{unproved}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", user.salt, user.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(user.stored_key, message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = server.respond(f"{unproved},p={base64.b64encode(proof).decode()}".encode())
    assert answer.startswith(b"v=")
    assert ALICE == server.principal


def test_the_final_message_needs_a_first_one() -> None:
    server = scram_server("SCRAM-SHA-256", {"alice": credential("SCRAM-SHA-256")})
    with pytest.raises(SaslError):
        server.respond(b"c=biws,r=client-nonceserver-nonce,p=AAAA")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"r=other,s=AAAA,i=4096", "malformed"),
        (b"r=client-nonce1,s=AAAA,i=1", "asks for 1 iterations"),
        (b"r=client-nonce1,s=AAAA,i=999999999", "asks for 999999999 iterations"),
        (b"e=other-error", "malformed"),
    ],
)
def test_a_client_refuses_a_broker_that_breaks_the_protocol(answer: bytes, reason: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client-nonce")
    client.respond(b"")
    with pytest.raises(SaslError, match=reason):
        client.respond(answer)


def test_a_client_refuses_a_broker_that_does_not_know_the_password() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client-nonce")
    server = scram_server("SCRAM-SHA-256", {"alice": credential("SCRAM-SHA-256")})
    client.respond(server.respond(client.respond(b"")))
    with pytest.raises(SaslError, match="does not know the password"):
        client.respond(b"v=" + base64.b64encode(bytes(32)))


@given(st.binary(max_size=120))
def test_junk_is_refused_with_the_error_that_is_documented(junk: bytes) -> None:
    for server in (
        scram_server("SCRAM-SHA-512", {"alice": credential("SCRAM-SHA-512")}),
        PlainServer(lambda name, password: False),
    ):
        with pytest.raises(SaslError):
            server.respond(junk)


@given(texts)
def test_names_survive_their_encoding(name: str) -> None:
    encoded = encode_name(name)
    assert "," not in encoded
    assert name == decode_name(encoded)


def test_credentials_are_written_as_kafka_writes_them() -> None:
    text = credential("SCRAM-SHA-256").to_text()
    assert text.startswith("salt=MDEyMzQ1Njc4OWFiY2RlZg==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert credential("SCRAM-SHA-256") == ScramCredential.from_text(text)
    for malformed in ("", "salt=x", text.replace("stored_key", "key"), text.replace("4096", "many")):
        with pytest.raises(ValueError, match="SCRAM credential"):
            ScramCredential.from_text(malformed)


def test_plain_checks_name_password_and_authorization() -> None:
    def verify(name: str, password: str) -> bool:
        return (name, password) == ("alice", "secret")

    server = PlainServer(verify)
    log_in(PlainClient("alice", "secret"), server)
    assert ALICE == server.principal
    for token, reason in (
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"bob\0alice\0secret", "authorization id"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"alice\0secret", "2 parts"),
        (b"\xff\0a\0b", "UTF-8"),
    ):
        with pytest.raises(SaslError, match=reason):
            PlainServer(verify).respond(token)


JAAS = 'org.example.PlainLoginModule required\n  username="al\\"ice" password=secret  user_bob=\'b c\' ;\n'


def test_a_login_module_is_read() -> None:
    config = JaasConfig.parse(JAAS)
    assert "PlainLoginModule" == config.module_name
    assert {"username": 'al"ice', "password": "secret", "user_bob": "b c"} == config.options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Module",
        "Module required",
        "Module maybe a=b;",
        'Module required a="b"',
        "Module required a;",
        "Module required a=;x",
        "Module required a=b; Other required c=d;",
        'Module required a="hunter2',
    ],
)
def test_a_malformed_login_module_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(JaasError) as caught:
        JaasConfig.parse(text)
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=60))
def test_junk_is_no_login_module(junk: str) -> None:
    try:
        JaasConfig.parse(junk)
    except JaasError as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("mechanism", "jaas", "reason"),
    [
        ("DIGEST-MD5", None, "`sasl.mechanism`=DIGEST-MD5 is not supported; it takes PLAIN"),
        ("GSSAPI", None, "needs a Krb5LoginModule"),
        ("PLAIN", None, "needs `sasl.jaas.config` with a PlainLoginModule"),
        ("PLAIN", "ScramLoginModule required username=a password=b;", "names ScramLoginModule"),
        ("SCRAM-SHA-256", "ScramLoginModule required username=a;", "lacks password"),
    ],
)
def test_a_login_that_cannot_be_made_is_named(mechanism: str, jaas: str | None, reason: str) -> None:
    with pytest.raises(LoginConfigError, match=reason):
        new_login(mechanism, None if jaas is None else JaasConfig.parse(jaas), lambda name: None)
