"""Passwords among dynamic settings: Kafka's form, every algorithm, damage and wrong secrets."""

import random

import pytest

from kalda.security.password_encoder import (
    KEY_BITS,
    KEY_FACTORIES,
    Encoding,
    PasswordEncoder,
    PasswordEncoderError,
)

SECRET = "encoder-secret"
PASSWORDS = ["", "x", "sixteen bytes it", "schön 𝄞", "-----BEGIN PRIVATE KEY-----\nabc\n", "p" * 5000]


def encoder(secret: str = SECRET, **encoding: object) -> PasswordEncoder:
    return PasswordEncoder(secret, Encoding(**{"iterations": 1024, **encoding}))  # type: ignore[arg-type]


@pytest.mark.parametrize("cipher", KEY_BITS)
@pytest.mark.parametrize("password", PASSWORDS)
def test_what_is_encoded_is_decoded_whatever_the_decoder_encodes(cipher: str, password: str) -> None:
    """After a change of the algorithm the passwords that are stored already stay readable."""
    for key_length in KEY_BITS[cipher]:
        text = encoder(cipher=cipher, key_length=key_length).encode(password)
        assert password == encoder().decode(text)
        assert len(password) < 5 or password not in text


@pytest.mark.parametrize("key_factory", KEY_FACTORIES)
def test_every_key_factory_is_named_in_the_text(key_factory: str) -> None:
    text = encoder(key_factory=key_factory).encode("secret")
    assert f"keyFactoryAlgorithm:{key_factory}" in text.split(",")
    assert "secret" == encoder().decode(text)


def test_the_fields_are_kafkas() -> None:
    fields = dict(each.rsplit(":", 1) for each in encoder(iterations=4096).encode("𝄞a").split(","))
    expected = {
        "keyFactoryAlgorithm": "PBKDF2WithHmacSHA512",
        "cipherAlgorithm": "AES/CBC/PKCS5Padding",
        "keyLength": "128",
        "iterations": "4096",
        "passwordLength": "3",
    }
    assert expected == {name: fields[name] for name in expected}
    assert {*expected, "salt", "initializationVector", "encryptedPassword"} == set(fields)


def test_two_encodings_of_a_password_differ() -> None:
    assert encoder().encode("x") != encoder().encode("x")


@pytest.mark.parametrize("cipher", KEY_BITS)
def test_another_secret_does_not_decode(cipher: str) -> None:
    text = encoder(cipher=cipher, key_length=KEY_BITS[cipher][0]).encode("a password that is long enough")
    for number in range(20):
        with pytest.raises(PasswordEncoderError, match="encrypted with another secret"):
            encoder(f"wrong-{number}").decode(text)


@pytest.mark.parametrize(
    "encoding",
    [
        {"cipher": "AES/ECB/PKCS5Padding"},
        {"key_factory": "PBKDF2WithHmacMD5"},
        {"key_length": 120},
        {"cipher": "DES/CBC/PKCS5Padding"},
        {"iterations": 10_000_001},
    ],
)
def test_what_cannot_be_used_is_named(encoding: dict[str, object]) -> None:
    with pytest.raises(PasswordEncoderError, match=r"is not known; it is one of|takes keys of|at most"):
        Encoding(**encoding)  # type: ignore[arg-type]


def test_junk_is_refused_with_our_error() -> None:
    """ZooKeeper may hold anything; CBC does not show a changed bit of its vector, so that text may decode."""
    text = encoder().encode("secret")
    chance = random.Random(20)
    junk = [text[:end] for end in range(0, len(text), 7)]
    junk += ["", ":", ",", "secret", "a:b,c", text.replace("iterations:1024", "iterations:99999999999")]
    for _ in range(300):
        place = chance.randrange(len(text))
        junk.append(text[:place] + chance.choice("aA0:,=/+é") + text[place + 1 :])
    refused = 0
    for each in junk:
        try:
            assert 6 == len(encoder().decode(each))
        except PasswordEncoderError:
            refused += 1
    assert refused > 200
