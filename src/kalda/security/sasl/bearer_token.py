"""Defines the tokens of OAUTHBEARER, and reads and makes those without a signature.

A broker that accepts unsecured tokens believes every client what it says of itself: they are for development.
"""

import base64
import binascii
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kalda.common.received_json import loads_received

TOKEN_BYTES_MAX: Final = 100_000
"""Far above any real token; a larger one is not decoded."""

_SECONDS_MAX: Final = (1 << 63) // 1000
"""Times in milliseconds have 64 bits in the protocol."""


class InvalidTokenError(Exception):
    """A token is refused; the message shows nothing of it that is secret."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token and what its claims say."""

    value: str
    principal_name: str
    expires_at_ms: int
    issued_at_ms: int | None
    scope: frozenset[str]

    def __repr__(self) -> str:
        return f"BearerToken({self.principal_name!r}, expires_at_ms={self.expires_at_ms})"


VerifyToken = Callable[[str], BearerToken]
"""Checks a token. Raises `InvalidTokenError`."""


def token_of_claims(
    value: str, claims: Mapping[str, Any], *, sub_claim: str = "sub", scope_claim: str = "scope"
) -> BearerToken:
    """Read the claims of a token that Kafka needs.

    Raises:
        InvalidTokenError: the subject or the end of the token is missing or malformed.
    """
    subject = claims.get(sub_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidTokenError(f"its claim {sub_claim} is no name")
    expires_at_ms = _milliseconds(claims, "exp")
    if expires_at_ms is None:
        raise InvalidTokenError("its claim exp is missing")
    return BearerToken(
        value, subject.strip(), expires_at_ms, _milliseconds(claims, "iat"), _scope(claims.get(scope_claim))
    )


def unverified_claims(value: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the header and the claims of a token; nothing about them is checked.

    Raises:
        InvalidTokenError: it is not a signed or unsecured JWT.
    """
    if len(value) > TOKEN_BYTES_MAX:
        raise InvalidTokenError(f"it has {len(value)} characters, more than {TOKEN_BYTES_MAX}")
    parts = value.split(".")
    if len(parts) != 3:
        raise InvalidTokenError(f"a JWT has three parts, this has {len(parts)}")
    return _json_object(parts[0], "header"), _json_object(parts[1], "claims")


class UnsecuredVerifier:
    """Kafka's ``OAuthBearerUnsecuredValidatorCallbackHandler``: checks times and claims, and no signature."""

    def __init__(self, options: Mapping[str, str], time_ms: Callable[[], int]) -> None:
        """`options` are those of the login module.

        Raises:
            ValueError: the clock skew is not a number of milliseconds.
        """
        self._time_ms: Final = time_ms
        self._sub_claim: Final = options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub"
        self._scope_claim: Final = options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope"
        self._required: Final = frozenset(options.get("unsecuredValidatorRequiredScope", "").split())
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
        if not skew.isascii() or not skew.isdigit():
            raise ValueError(f"unsecuredValidatorAllowableClockSkewMs={skew} is not a number of milliseconds")
        self._skew_ms: Final = int(skew)

    def __call__(self, value: str) -> BearerToken:
        """Check a token.

        Raises:
            InvalidTokenError: it is malformed, signed, not yet or no longer valid, or lacks a scope.
        """
        header, claims = unverified_claims(value)
        if header.get("alg") != "none" or not value.endswith("."):
            raise InvalidTokenError("this listener takes unsecured tokens, and it has a signature")
        token = token_of_claims(value, claims, sub_claim=self._sub_claim, scope_claim=self._scope_claim)
        now = self._time_ms()
        if token.issued_at_ms is not None and token.issued_at_ms - self._skew_ms > now:
            raise InvalidTokenError("it was issued in the future")
        if token.expires_at_ms + self._skew_ms <= now:
            raise InvalidTokenError("it has expired")
        if token.issued_at_ms is not None and token.expires_at_ms <= token.issued_at_ms:
            raise InvalidTokenError("it ends before it was issued")
        require_scope(token, self._required)
        return token


def require_scope(token: BearerToken, required: Collection[str]) -> None:
    """Check that a token has all required scopes.

    Raises:
        InvalidTokenError: one is missing.
    """
    missing = sorted(frozenset(required) - token.scope)
    if missing:
        raise InvalidTokenError(f"it lacks the scope {' '.join(missing)}")


def unsecured_token(options: Mapping[str, str], now_ms: int) -> BearerToken:
    """Make a token without a signature from a login module's options, as Kafka's clients do.

    ``unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="60"``

    Raises:
        ValueError: an option is malformed, or no name is given.
    """
    prefix = "unsecuredLogin"
    lifetime = options.get(f"{prefix}LifetimeSeconds", "3600")
    if not lifetime.isascii() or not lifetime.isdigit():
        raise ValueError(f"{prefix}LifetimeSeconds={lifetime} is not a number of seconds")
    claims: dict[str, Any] = {}
    for option, text in options.items():
        kind, _, name = option.removeprefix(prefix).partition("_")
        if not option.startswith(prefix) or not name:
            continue
        if name in ("iat", "exp") and kind.endswith("Claim"):
            raise ValueError(f"{option}: this claim is computed")
        if kind == "StringClaim":
            claims[name] = text
        elif kind == "NumberClaim":
            claims[name] = float(text)
        elif kind == "ListClaim":
            claims[name] = text[1:].split(text[0]) if len(text) > 1 else []
    claims["iat"] = now_ms / 1000
    claims["exp"] = now_ms / 1000 + int(lifetime)
    value = ".".join((_encoded({"alg": "none"}), _encoded(claims), ""))
    try:
        return token_of_claims(
            value,
            claims,
            sub_claim=options.get(f"{prefix}PrincipalClaimName", "").strip() or "sub",
            scope_claim=options.get(f"{prefix}ScopeClaimName", "").strip() or "scope",
        )
    except InvalidTokenError as error:
        raise ValueError(f"the options make no token: {error}") from None


def _milliseconds(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    # Also false for NaN and infinity, which Python reads in JSON.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _SECONDS_MAX:
        raise InvalidTokenError(f"its claim {name} is no time")
    return int(value * 1000)


def _scope(value: object) -> frozenset[str]:
    """Return the scopes of a claim, which is a text with blanks or a list of texts."""
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    return frozenset()


def _json_object(part: str, what: str) -> Mapping[str, Any]:
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        found = loads_received(data)
    except (binascii.Error, ValueError):
        found = None
    if not isinstance(found, dict):
        raise InvalidTokenError(f"its {what} is no JSON object in base64url")
    return found


def _encoded(claims: Mapping[str, Any]) -> str:
    data = json.dumps(claims, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
