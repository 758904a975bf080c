"""Tokens of OAUTHBEARER: what is accepted, and what hostile clients may try."""

import base64
import contextlib
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from kalda.security.sasl.bearer_token import (
    BearerToken,
    InvalidTokenError,
    UnsecuredVerifier,
    unsecured_token,
    unverified_claims,
)
from kalda.security.sasl.mechanism import SaslError
from kalda.security.sasl.oauthbearer import (
    OAuthBearerClient,
    OAuthBearerServer,
    check_extension,
    parse_initial_response,
)
from kalda.security.sasl.signed_token import KeySet, SignedVerifier, TokenRules, UnknownKeyError
from kalda.security.sasl.token_refresh import TokenRefresh

RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
FAR = 32_503_680_000  # the year 3000


def jwk(key: Any, kid: str, **more: str) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, **more}


KEYS = KeySet.parse(json.dumps({"keys": [jwk(RSA_KEY, "r"), jwk(EC_KEY, "e", use="sig")]}))


def claims(**changed: object) -> dict[str, Any]:
    made = {"sub": "alice", "iat": 1_000, "exp": FAR, "aud": "kafka", "iss": "https://idp", "scope": "a b"}
    return {name: value for name, value in {**made, **changed}.items() if value is not None}


def signed(key: Any = RSA_KEY, kid: str | None = "r", algorithm: str = "RS256", **changed: object) -> str:
    return jwt.encode(claims(**changed), key, algorithm, headers={} if kid is None else {"kid": kid})


def verifier(**rules: Any) -> SignedVerifier:
    return SignedVerifier(lambda: KEYS, TokenRules(**rules))


def part(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def test_a_signed_token_gives_its_subject_scope_and_end() -> None:
    found = verifier(audiences=("other", "kafka"), issuer="https://idp")(signed())

    assert ("alice", FAR * 1000, frozenset({"a", "b"})) == (
        found.principal_name,
        found.expires_at_ms,
        found.scope,
    )
    assert "bob" == verifier(sub_claim="name")(signed(EC_KEY, "e", "ES256", name="bob")).principal_name


def confused() -> str:
    """A token whose signature is made with the public key as the secret of HS256."""
    import hashlib
    import hmac

    head = part({"alg": "HS256", "kid": "r"}) + "." + part(claims())
    secret = json.dumps(jwk(RSA_KEY, "r")).encode()
    mac = hmac.digest(secret, head.encode(), hashlib.sha256)
    return head + "." + base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (part({"alg": "none", "kid": "r"}) + "." + part(claims()) + ".", "algorithm"),
        (part({"alg": "None", "kid": "r"}) + "." + part(claims()) + ".", "algorithm"),
        (confused(), "algorithm"),
        (signed(OTHER_KEY), "Signature verification failed"),
        (signed(EC_KEY, "r", "ES256"), "algorithm"),
        (signed(exp=1_001), "expired"),
        (signed(exp=None), "exp"),
        (signed(iat=None), "iat"),
        (signed(iat=FAR - 1), "not yet valid"),
        (signed(nbf=FAR - 1), "not yet valid"),
        (signed(aud="web"), "[Aa]udience"),
        (signed(aud=None), "aud"),
        (signed(iss="https://evil"), "[Ii]ssuer"),
        (signed(iss=None), "iss"),
        (signed(sub=None), "claim sub is no name"),
        (signed(sub=" "), "claim sub is no name"),
        (signed()[:-1], "Signature|padding|base64"),
        (signed().rpartition(".")[0] + ".", "Signature"),
        ("a.b", "three parts"),
        ("a.b.c", "header"),
        ("A" * 200_000, "more than"),
    ],
)
def test_a_token_that_is_not_right_is_refused(token: str, reason: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        verifier(audiences=("kafka",), issuer="https://idp")(token)


def test_an_unknown_key_is_named_so_that_the_keys_are_read_again() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        verifier()(signed(OTHER_KEY, "new"))
    assert "new" == caught.value.key_id
    with pytest.raises(UnknownKeyError):
        verifier()(signed(kid=None))
    single = KeySet.parse(json.dumps({"keys": [jwk(RSA_KEY, "r")]}))
    assert "alice" == SignedVerifier(lambda: single, TokenRules())(signed(kid=None)).principal_name
    with pytest.raises(InvalidTokenError, match="could not be read yet"):
        SignedVerifier(lambda: None, TokenRules())(signed())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": {}}',
        '{"keys": [1, {"kty": "oct", "k": "c2VjcmV0"}]}',
        json.dumps({"keys": [jwk(RSA_KEY, "r", use="enc")]}),
        json.dumps({"keys": [jwk(RSA_KEY, "r", alg="HS256")]}),
        '{"keys": [{"kty": "RSA", "n": "x"}]}',
        "[" * 100_000,
    ],
)
def test_a_document_without_a_usable_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it"):
        KeySet.parse(text)


@pytest.mark.parametrize(
    "broken", [{"n": 1}, {"n": ""}, {"e": "AA"}, {"n": "\ud800"}, {"d": 1}, {"kty": "EC", "crv": "secp256k1"}]
)
def test_a_broken_key_leaves_the_others_of_its_document(broken: dict[str, object]) -> None:
    """A provider that publishes one must not lock everybody out."""
    document = {"keys": [{**jwk(RSA_KEY, "broken"), **broken}, jwk(EC_KEY, "e")]}
    assert {"e"} == KeySet.parse(json.dumps(document)).keys.keys()


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize("time", [float("inf"), pytest.param(10**400, id="huge"), 1e308, [], {}], ids=str)
def test_times_that_are_none_are_refused(name: str, time: object) -> None:
    """1e308 seconds are finite, and infinite in milliseconds."""
    changed: dict[str, Any] = {name: time}
    unsecured = f"{part({'alg': 'none'})}.{part(claims(**changed))}."
    for token, verify in (
        (signed(**changed), verifier()),
        (unsecured, UnsecuredVerifier({}, lambda: 2_000_000)),
    ):
        if name != "nbf" or isinstance(verify, SignedVerifier):
            with pytest.raises(InvalidTokenError):
                verify(token)


def test_unsecured_tokens_are_made_and_checked_as_kafka_does() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    token = unsecured_token(options, now_ms=1_000_000)
    assert (1_000_000, 1_060_000) == (token.issued_at_ms, token.expires_at_ms)

    def check(now_ms: int, **more: str) -> str:
        return UnsecuredVerifier(more, lambda: now_ms)(token.value).principal_name

    assert "alice" == check(1_000_000, unsecuredValidatorRequiredScope="read write")
    assert "alice" == check(1_060_500, unsecuredValidatorAllowableClockSkewMs="1000")
    for now_ms, more, reason in (
        (1_060_000, {}, "expired"),
        (999_999, {}, "future"),
        (1_000_000, {"unsecuredValidatorRequiredScope": "admin"}, "lacks the scope admin"),
        (1_000_000, {"unsecuredValidatorPrincipalClaimName": "name"}, "claim name"),
    ):
        with pytest.raises(InvalidTokenError, match=reason):
            check(now_ms, **more)
    with pytest.raises(InvalidTokenError, match="has a signature"):
        UnsecuredVerifier({}, lambda: 1_000_000)(signed())
    for bad in ({}, {"unsecuredLoginStringClaim_exp": "1"}, {"unsecuredLoginLifetimeSeconds": "-1"}):
        with pytest.raises(ValueError, match=r"unsecuredLogin|no token"):
            unsecured_token(bad, 0)


def test_the_messages_of_a_login() -> None:
    token = unsecured_token({"unsecuredLoginStringClaim_sub": "alice"}, 1_000_000)
    client = OAuthBearerClient(lambda: token, {"traceId": "1 2"})
    server = OAuthBearerServer(UnsecuredVerifier({}, lambda: 1_000_000))

    first = client.respond(b"")
    assert f"n,,\x01auth=Bearer {token.value}\x01traceId=1 2\x01\x01".encode() == first
    assert b"" == server.respond(first)
    assert b"" == client.respond(b"")
    assert client.is_complete
    assert server.principal is not None
    assert ("alice", 4_600_000) == (server.principal.name, server.expires_at_ms)


def test_a_refused_token_ends_the_login_after_the_client_has_read_why() -> None:
    token = BearerToken("a.b.c", "alice", 0, None, frozenset())
    client = OAuthBearerClient(lambda: token, {})
    server = OAuthBearerServer(UnsecuredVerifier({}, lambda: 0))

    error = server.respond(client.respond(b""))
    assert b'{"status":"invalid_token"}' == error
    acknowledgement = client.respond(error)
    assert (b"\x01", False) == (acknowledgement, client.is_complete)
    with pytest.raises(SaslError) as caught:
        server.respond(acknowledgement)
    assert '{"status":"invalid_token"}' == str(caught.value)
    assert "header" in caught.value.detail
    assert server.principal is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,a=,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a\nb\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError, match="malformed"):
        parse_initial_response(message)


def test_an_authorization_id_has_to_be_the_tokens_principal() -> None:
    value = unsecured_token({"unsecuredLoginStringClaim_sub": "alice"}, 1_000_000).value
    message = f"n,a=root,\x01auth=Bearer {value}\x01\x01".encode()

    with pytest.raises(SaslError, match="different"):
        OAuthBearerServer(UnsecuredVerifier({}, lambda: 1_000_000)).respond(message)


@given(
    st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda t: f"n,,\x01auth={t}\x01\x01".encode()))
)
def test_junk_is_refused_with_the_error_that_is_documented(junk: bytes) -> None:
    server = OAuthBearerServer(UnsecuredVerifier({}, lambda: 0))
    with contextlib.suppress(SaslError):
        server.respond(junk)
    assert server.principal is None


@given(st.lists(st.one_of(st.text(max_size=30), st.dictionaries(st.text(max_size=5), st.floats()).map(part))))
def test_junk_is_no_token(parts: list[str]) -> None:
    for check in (unverified_claims, verifier(), UnsecuredVerifier({}, lambda: 0)):
        with contextlib.suppress(InvalidTokenError):
            check(".".join(parts))


def test_extensions_have_names_of_letters() -> None:
    check_extension("traceId", "1")
    for name, value in (("auth", "x"), ("a1", "x"), ("a", ""), ("a", "é")):
        with pytest.raises(ValueError, match="extension"):
            check_extension(name, value)


@pytest.mark.parametrize(
    ("life_seconds", "chance", "refreshed_after_seconds"),
    [(3600, 0.0, 2880), (3600, 1.0, 3060), (1000, 0.0, 700), (360, 0.0, 60), (300, 0.0, 240)],
)
def test_tokens_are_renewed_before_their_end(
    life_seconds: int, chance: float, refreshed_after_seconds: int
) -> None:
    """Within the buffer and the least period, unless the life is too short for both."""
    found = TokenRefresh().refresh_at_ms(5_000, 5_000 + life_seconds * 1000, chance)
    assert 5_000 + refreshed_after_seconds * 1000 == found
