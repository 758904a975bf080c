"""SASL DIGEST-MD5 without sockets: both sides, and peers that cheat."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.security.zookeeper.digest_md5 import (
    CHALLENGE_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    DigestMd5Client,
    DigestMd5Error,
    DigestMd5Server,
)

USERS = {"bob": 'se"cr\\et', "ümit": "şifre", "eve": ""}

JAVA_RESPONSE = (
    b'charset=utf-8,username="bob",realm="zk-sasl-md5",nonce="N",nc=00000001,cnonce="C",'
    b'digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response=%s,qop=auth,authzid="bob"'
)
"""The form of the JVM's client, which claims an identity of its own besides."""


def server(nonce: str = "N") -> DigestMd5Server:
    return DigestMd5Server(USERS.get, nonce)


def response_of(user: str, password: str, nonce: str = "N") -> bytes:
    token = DigestMd5Client(user, password, "C").evaluate(server(nonce).evaluate(b""))
    assert token is not None
    return token


@pytest.mark.parametrize("user", USERS)
def test_both_sides_prove_the_password(user: str) -> None:
    client, other = DigestMd5Client(user, USERS[user], "C"), server()
    response = client.evaluate(other.evaluate(b""))
    assert response is not None
    proof = other.evaluate(response)
    assert user == other.user
    assert client.evaluate(proof) is None
    assert client.is_complete


def test_an_authorization_identity_is_part_of_the_response_and_claims_nothing() -> None:
    """Java's client names one; ZooKeeper authorizes the name of the login whatever it is."""
    other = server()
    other.evaluate(b"")
    secret = hashlib.md5(b'bob:zk-sasl-md5:se"cr\\et').digest()
    first = hashlib.md5(secret + b":N:C:bob").hexdigest()
    second = hashlib.md5(b"AUTHENTICATE:zookeeper/zk-sasl-md5").hexdigest()
    response = hashlib.md5(f"{first}:N:00000001:C:auth:{second}".encode()).hexdigest()
    proof = other.evaluate(JAVA_RESPONSE % response.encode())
    assert proof.startswith(b"rspauth=")
    assert "bob" == other.user


@pytest.mark.parametrize(
    ("user", "password"), [("bob", "secret"), ("alice", ""), ("alice", "x"), ("bob", ""), ("eve", "x")]
)
def test_wrong_password_and_unknown_user_get_the_same_error(user: str, password: str) -> None:
    other = server()
    other.evaluate(b"")
    with pytest.raises(DigestMd5Error, match="is wrong, or there is no such user"):
        other.evaluate(response_of(user, password))
    assert other.user is None


def test_response_cannot_be_replayed() -> None:
    recorded = response_of("bob", USERS["bob"])
    other = server("another nonce")
    other.evaluate(b"")
    with pytest.raises(DigestMd5Error, match="nonce of another login"):
        other.evaluate(recorded)


def test_login_ends_with_its_first_response() -> None:
    """Else one nonce would serve any number of guesses."""
    other = server()
    other.evaluate(b"")
    with pytest.raises(DigestMd5Error):
        other.evaluate(response_of("bob", "wrong"))
    with pytest.raises(DigestMd5Error, match="over"):
        other.evaluate(response_of("bob", USERS["bob"]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"nc=00000001", b"nc=00000002"),
        (b"qop=auth", b"qop=auth-conf"),
        (b"zookeeper/zk-sasl-md5", b"kafka/zk-sasl-md5"),
        (b'realm="zk-sasl-md5"', b'realm="other"'),
        (b'username="bob"', b'username="eve"'),
        (b'username="bob",', b""),
        (b'cnonce="C"', b'cnonce="D"'),
        (b"qop=auth", b'qop=auth,username="bob"'),
        (b"charset=utf-8", b"charset=utf-8,x"),
        (b'username="bob"', b'username="\xff"'),
    ],
)
def test_altered_response_is_refused(before: bytes, after: bytes) -> None:
    response = response_of("bob", USERS["bob"])
    assert before in response
    other = server()
    other.evaluate(b"")
    with pytest.raises(DigestMd5Error):
        other.evaluate(response.replace(before, after))
    assert other.user is None


def test_client_trusts_no_server_that_cannot_prove_the_password() -> None:
    client = DigestMd5Client("bob", USERS["bob"], "C")
    client.evaluate(server().evaluate(b""))
    with pytest.raises(DigestMd5Error, match="not proved"):
        client.evaluate(b"rspauth=" + b"0" * 32)
    assert not client.is_complete


@pytest.mark.parametrize(
    "challenge",
    [b"", b'realm="r"', b'nonce="n",algorithm=md5', b'nonce="n",algorithm=md5-sess,qop="auth-conf"', b"=,"],
)
def test_client_refuses_other_challenges(challenge: bytes) -> None:
    with pytest.raises(DigestMd5Error):
        DigestMd5Client("bob", "x", "C").evaluate(challenge)


def test_tokens_are_bounded() -> None:
    other = server()
    other.evaluate(b"")
    with pytest.raises(DigestMd5Error, match="limit of 4096"):
        other.evaluate(b"," * (RESPONSE_BYTES_MAX + 1))
    with pytest.raises(DigestMd5Error, match="limit of 2048"):
        DigestMd5Client("bob", "x", "C").evaluate(b"," * (CHALLENGE_BYTES_MAX + 1))
    with pytest.raises(DigestMd5Error, match="first token"):
        server().evaluate(b"x")


_PIECES = st.sampled_from(
    [b"nonce", b"=", b'"', b"\\", b",", b" ", b"N", b"username", b"bob", b"response", b"\xff", b"qop=auth"]
)


@given(st.one_of(st.binary(max_size=200), st.lists(_PIECES, max_size=40).map(b"".join)))
def test_junk_logs_nobody_in(junk: bytes) -> None:
    other = server()
    other.evaluate(b"")
    with pytest.raises(DigestMd5Error):
        other.evaluate(junk)
    with pytest.raises(DigestMd5Error):
        DigestMd5Client("bob", "x", "C").evaluate(junk)


@given(st.data())
def test_truncated_and_changed_responses_log_nobody_in(data: st.DataObject) -> None:
    response = bytearray(response_of("bob", USERS["bob"]))
    position = data.draw(st.integers(0, len(response) - 1))
    if data.draw(st.booleans()):
        del response[position:]
    else:
        response[position] ^= data.draw(st.integers(1, 255))
    other = server()
    other.evaluate(b"")
    try:
        other.evaluate(bytes(response))
    except DigestMd5Error:
        assert other.user is None
    else:
        # What has no meaning may change: the letters' case of names, the charset of ASCII, the end.
        assert "bob" == other.user
