"""Checks signed tokens of OAUTHBEARER against the public keys of an identity provider (RFC 7515, 7517, 7519).

The algorithm is chosen by the key and a fixed list, never by the token alone. ``none`` is not on the list,
nor is an algorithm with a shared secret, because anyone can use a public key as such a secret.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import jwt

from kalda.security.sasl.bearer_token import (
    BearerToken,
    InvalidTokenError,
    token_of_claims,
    unverified_claims,
)

_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By the key's type."""

_REFUSALS: Final = (jwt.exceptions.PyJWTError, TypeError, ValueError, OverflowError)
"""What PyJWT raises for keys and tokens that are malformed: releases before 2.15 let Python's own errors
through, such as for a number that is infinite."""

_KEYS_MAX: Final = 1000
_KEY_ID_CHARACTERS_MAX: Final = 1000
"""Kafka asks a provider for no key with a longer name."""


class UnknownKeyError(InvalidTokenError):
    """A token names a key that the provider has not published, as far as is known."""

    def __init__(self, key_id: str | None) -> None:
        super().__init__("no key of the identity provider fits its key id")
        self.key_id: Final = key_id


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an identity provider that can check signatures, by id; the id may be empty."""

    keys: Mapping[str, tuple[jwt.PyJWK, tuple[str, ...]]]
    """Each with the algorithms that it may be used for."""

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Read a JSON Web Key Set; keys of other uses and types are left out.

        Raises:
            ValueError: it is not a key set, or has no key that can check signatures.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("it is not JSON") from None
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list) or len(entries) > _KEYS_MAX:
            raise ValueError(f"it has no list `keys` of at most {_KEYS_MAX} keys")
        keys: dict[str, tuple[jwt.PyJWK, tuple[str, ...]]] = {}
        for entry in entries:
            if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
                continue
            algorithms = _ALGORITHMS.get(str(entry.get("kty")), ())
            if "alg" in entry:
                algorithms = tuple(each for each in algorithms if each == entry["alg"])
            if not algorithms:
                continue
            try:
                key = jwt.PyJWK(entry, entry.get("alg", _default_algorithm(entry, algorithms)))
            except _REFUSALS:
                continue
            keys[str(entry.get("kid", ""))] = key, algorithms
        if not keys:
            raise ValueError("it has no key for signatures of the types RSA, EC and OKP")
        return cls(keys)

    def find(self, key_id: str | None) -> tuple[jwt.PyJWK, tuple[str, ...]]:
        """Return the key of a token; a token that names none has to be signed by the only key.

        Raises:
            UnknownKeyError: there is no such key.
        """
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        found = self.keys.get(key_id or "")
        if found is None:
            raise UnknownKeyError(key_id)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The rules for valid tokens; the settings ``sasl.oauthbearer.…``."""

    audiences: Collection[str] = ()
    """Any of these; empty does not check."""
    issuer: str | None = None
    clock_skew_seconds: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


class SignedVerifier:
    """Checks the signatures and claims of tokens."""

    def __init__(self, keys: Callable[[], KeySet | None], rules: TokenRules) -> None:
        """`keys` returns the provider's current keys; None while they are not known."""
        self._keys: Final = keys
        self._rules: Final = rules

    def __call__(self, value: str) -> BearerToken:
        """Check a token.

        Raises:
            UnknownKeyError: its key is not known; the provider may have a new one.
            InvalidTokenError: it is refused.
        """
        header, _ = unverified_claims(value)
        keys = self._keys()
        if keys is None:
            raise InvalidTokenError("the keys of the identity provider could not be read yet")
        key_id = header.get("kid")
        if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _KEY_ID_CHARACTERS_MAX):
            raise InvalidTokenError("its key id is malformed")
        key, algorithms = keys.find(key_id)
        if header.get("alg") not in algorithms:
            raise InvalidTokenError(
                f"its algorithm is not among {', '.join(algorithms)}, which its key allows"
            )
        rules = self._rules
        try:
            claims: dict[str, Any] = jwt.decode(
                value,
                key.key,
                algorithms=[str(header["alg"])],
                audience=list(rules.audiences) or None,
                issuer=rules.issuer,
                leeway=rules.clock_skew_seconds,
                options={
                    "require": ["exp", "iat"],
                    "verify_aud": bool(rules.audiences),
                    # A subject in another claim is checked below.
                    "verify_sub": False,
                },
            )
        except _REFUSALS as error:
            raise InvalidTokenError(str(error)) from None
        return token_of_claims(value, claims, sub_claim=rules.sub_claim, scope_claim=rules.scope_claim)


def _default_algorithm(entry: Mapping[str, Any], algorithms: tuple[str, ...]) -> str:
    curves = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
    return curves.get(str(entry.get("crv")), algorithms[0])
