"""Cookies: what is sealed opens with the same key, purpose and time only."""

import os

import pytest

from kalda.http.console.sealing import Seal

KEY = b"0123456789abcdef"


@pytest.fixture
def seal() -> Seal:
    return Seal(KEY, os.urandom)


def test_a_document_is_read_back_until_its_end(seal: Seal) -> None:
    sealed = seal.seal("login", {"user": "alice", "password": "s3cret"}, 100.0)

    assert {"user": "alice", "password": "s3cret"} == seal.open("login", sealed, 99.9)
    assert seal.open("login", sealed, 100.0) is None
    assert "alice" not in sealed


def test_another_purpose_or_key_opens_nothing(seal: Seal) -> None:
    """A notice must not be taken for a login."""
    sealed = seal.seal("notice", {"user": "admin", "password": "x"}, 100.0)

    assert seal.open("login", sealed, 0.0) is None
    assert Seal(b"another key of 24 bytes.", os.urandom).open("notice", sealed, 0.0) is None


def test_every_changed_character_is_found(seal: Seal) -> None:
    sealed = seal.seal("login", {"user": "alice"}, 100.0)

    for position in range(len(sealed)):
        other = "A" if sealed[position] != "A" else "B"
        changed = sealed[:position] + other + sealed[position + 1 :]
        assert seal.open("login", changed, 0.0) is None
    for end in range(len(sealed) - 1):
        assert seal.open("login", sealed[:end], 0.0) is None


@pytest.mark.parametrize("text", ["", "x", "....", "é", "A" * 10_000, "%00"])
def test_junk_opens_nothing(seal: Seal, text: str) -> None:
    assert seal.open("login", text, 0.0) is None


def test_a_form_token_belongs_to_one_visitor(seal: Seal) -> None:
    token = seal.form_token("visitor-1")

    assert seal.is_form_token("visitor-1", token)
    assert not seal.is_form_token("visitor-2", token)
    assert not seal.is_form_token("visitor-1", "")
    assert not seal.is_form_token("visitor-1", f"{token[:-1]}é")
    assert not Seal(b"another key of 24 bytes.", os.urandom).is_form_token("visitor-1", token)


def test_a_text_is_used_once(seal: Seal) -> None:
    first, second = (seal.seal("approval", {}, 2_000.0) for _ in range(2))

    assert [True, True, False] == [seal.is_first_use(each, 1_000.0) for each in (first, second, first)]


@pytest.mark.parametrize("foreign", ["!!!!{}", "....{}", "{}=", "{}\n", " {}"])
def test_a_text_has_one_form(seal: Seal, foreign: str) -> None:
    """An approval in another form would count as another one."""
    sealed = seal.seal("approval", {}, 2_000.0)

    assert {} == seal.open("approval", sealed, 1_000.0)
    assert seal.open("approval", foreign.format(sealed), 1_000.0) is None


def test_plus_and_minus_are_not_the_same_character() -> None:
    seal = Seal(KEY, lambda count: b"\xfb" * count)
    sealed = seal.seal("approval", {}, 2_000.0)

    assert sealed.startswith("-")
    assert seal.open("approval", sealed.replace("-", "+"), 1_000.0) is None


def test_few_used_texts_are_kept(seal: Seal) -> None:
    for number in range(20_000):
        assert seal.is_first_use(f"{number:016}", 1_000.0)
    assert len(seal._used) <= 10_000
    seal.is_first_use("another text of 16", 1_000.0 + 1_000)
    assert 1 == len(seal._used)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="has 3 bytes; it takes at least 16"):
        Seal(b"abc", os.urandom)


def test_what_is_too_long_for_a_cookie_is_refused(seal: Seal) -> None:
    with pytest.raises(ValueError, match="too many for a cookie"):
        seal.seal("login", {"password": "x" * 5_000}, 100.0)
